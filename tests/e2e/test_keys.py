"""No key stands in what any command prints or writes, whatever it was given and however it ends."""

from __future__ import annotations

import base64
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
from tests.commands import run
from tests.faulty_server import said, vectors
from tests.server import Answer, Body, Server

from suffice.cli.main import COMMANDS
from suffice.trace.recording import failures_of
from suffice.trace.store import Store

pytest.importorskip("openai")
pytest.importorskip("bm25s")

SHIPPED = Path(__file__).parents[2] / "examples" / "traces" / "generated.parquet"
KEY, PASSWORD, CODE = "canary-key-5f1c2a", "canary/pass-91d3", "canary-query-77aa"
USER = "canaryuser77"
BASIC = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
CANARIES = (
    KEY,
    PASSWORD,
    quote(PASSWORD, safe=""),
    CODE,
    USER,
    BASIC,
    base64.b64encode(KEY.encode()).decode(),
)
LLM = "--llm {url} --model only --timeout 5"
ENCODER = "--encoder {url} --encoder-model only"
RECORD = f"record --dataset generated --limit 2 --rounds 2 --samples 1 {LLM} {ENCODER}"
ASKING = (
    f"{RECORD} --retriever dense --cache replies.sqlite --out out",
    f"{RECORD} --corpus pooled --retriever hybrid --llm {{url}},{{other}} --out pooled",
    f"{RECORD} --retriever opensearch:{{place}}/notes --out own",
    "record --dataset generated --limit 2 --llm {other_scheme} --out none",
    f"ask 'Where is it?' --corpus notes --retriever dense {LLM} {ENCODER} --json",
    f"ask 'Where is it?' --corpus notes {LLM} --policy fixed-2 --cache replies.sqlite",
    f"serve --corpus notes {LLM} --policy fixed-2 --retriever dense {ENCODER} --check",
    f"probe drafts.parquet {LLM} --out probed.parquet",
    f"signals out --out judged.parquet {LLM} --only judge_support",
    f"signals own.parquet --out near.parquet {ENCODER} --cluster-cosine 0.8 --only sample_clusters",
)
READING = (
    "look own.parquet",
    "traces info out",
    "traces redact own.parquet --out redacted.parquet",
    "traces export own.parquet --format jsonl --out rounds.jsonl",
    "fit tasr own.parquet --out policy.json",
    "replay own.parquet --policy policy.json --bootstrap 20 --json",
    "report own.parquet --bootstrap 20 --out report.html",
)
"""What reads what the others wrote."""
OTHERS = (
    "demo --questions 5 --model {url}",
    "policies",
    "diagnose own.parquet --bootstrap 20",
    "search own.parquet --signals answer_stable,overlap --bootstrap 20",
    "view own.parquet --bundle bundle",
    "choose own.parquet --bootstrap 20 --family thresholds --out thresholds",
    "choose own.parquet --out chosen --max-signals 1 --bootstrap 20",
    "monitor own.parquet --policy policy.json",
    "init project",
    "check project/suffice.toml",
    "compare-loops own.parquet own.parquet --bootstrap 20",
)
"""What asks no server, and so should know nothing of a key."""


def echo(body: Body) -> Answer:
    del body
    sent = SERVERS[-1].seen[-1]
    words = f"refused: {sent} at {SERVERS[-1].asked[-1]}, for {USER}:{PASSWORD}@ with {KEY}"
    return STATUS[-1], {"x-echo": KEY}, {"error": {"message": words}}


SERVERS: list[Server] = []
STATUS = [401]


def reply(body: Body) -> Answer:
    return 200, {}, vectors(body) if "input" in body else said(body)


@pytest.fixture
def server() -> Iterator[Server]:
    SERVERS.append(Server(reply))
    yield SERVERS[-1]
    SERVERS.pop().close()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("own.parquet", "drafts.parquet"):
        shutil.copy(SHIPPED, name)
    Path("notes").mkdir()
    Path("notes/a.txt").write_text("It is in Bergen.\n\nThe harbour is old.", encoding="utf-8")


def told_and_written(lines: tuple[str, ...], url: str) -> dict[str, bytes]:
    """What each command printed and what lies in the folder after all of them."""
    place = url.replace("//", f"//{USER}:{quote(PASSWORD, safe='')}@")
    names = {
        "place": place,
        "url": f"{place}?code={CODE}",
        "other": f"{place.replace('127.0.0.1', 'localhost')}?code={CODE}",
        "other_scheme": f"ftp://{USER}:{quote(PASSWORD, safe='')}@host/v1",
    }
    everything = {}
    for line in lines:
        done = run(*shlex.split(line.format(**names)))
        everything[line] = f"{done.returncode} {done.stdout} {done.stderr}".encode()
    for path in sorted(Path().rglob("*")):
        if path.is_file():
            everything[str(path)] = str(path).encode() + path.read_bytes() + as_read(path)
    return everything


def as_read(path: Path) -> bytes:
    """What a compressed file, or a database of compressed rows, holds."""
    if path.suffix == ".db":
        rows = [run.rows.to_pylist() for run in Store(path).runs()]
        return f"{rows} {failures_of(path.parent)}".encode()
    if path.suffix != ".parquet":
        return b""
    table = pq.read_table(path)
    return f"{table.schema.metadata} {table.to_pylist()}".encode()


def clean(everything: dict[str, bytes]) -> None:
    found = {
        place: canary
        for place, content in everything.items()
        for canary in CANARIES
        if canary.encode() in content
    }
    assert found == {}


def test_every_command_is_tried() -> None:
    assert {line.split()[0] for line in (*ASKING, *READING, *OTHERS)} == set(COMMANDS)


def test_a_recording(server: Server) -> None:
    line = f"record --dataset generated --limit 1 --rounds 1 {LLM} --cache replies.sqlite --out out"
    everything = told_and_written((line,), server.url)
    assert everything[line].startswith(b"0 ")
    assert {headers["authorization"] for headers in server.seen} == {f"Basic {BASIC}"}
    STATUS[-1], server.answer = 413, echo
    everything |= told_and_written((f"{line} --seed 1 --out failed",), server.url)
    assert b"[struck]" in everything["failed/record.db"]
    clean(everything)


@pytest.mark.slow
@pytest.mark.parametrize("status", [200, 307, 401, 413])
def test_every_command_with_a_server_that_echoes(server: Server, status: int) -> None:
    if status != 200:
        STATUS[-1] = status
        server.answer = echo
    everything = told_and_written((*ASKING, *READING, *OTHERS), server.url)
    assert sum(content.startswith(b"0 ") for content in everything.values()) >= 5
    clean(everything)
