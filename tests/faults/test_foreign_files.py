"""Files made to exhaust who reads them, and run documents of another shape: refused in a line, in time."""

from __future__ import annotations

import gzip
import hashlib
import json
import resource
import sqlite3
import subprocess
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import SUFFICE, refused, run

import suffice
from suffice.errors import UsageError

EXAMPLE = Path(__file__).parents[2] / "examples/traces/generated.parquet"
MOST_S, MOST_BYTES = 60.0, 2 << 30


def in_bounds(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, with little memory and time."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))

    return subprocess.run(
        [*SUFFICE, *map(str, words)],
        capture_output=True, text=True, check=False, timeout=MOST_S, preexec_fn=limited,
    )  # fmt: skip


# --- settings -----------------------------------------------------------------------------------------
DEEP: dict[str, str] = {
    "lists": f"x = {'[' * 100_000}{']' * 100_000}",
    "tables": f"x = {'{a=' * 100_000}1{'}' * 100_000}",
    "a key": f"{'.'.join('a' * 200_000)} = 1",
    "a quoted key": f"{'.'.join(['a', chr(34) + chr(0x2028) + chr(34)] * 100_000)} = 1",
    "a header": f"[{'.'.join('a' * 200_000)}]",
    "lists of tables": f"x = [{'{' + '.'.join('a' * 900) + ' = [' + chr(10)}" * 200,
    "many keys": "\n".join(f"a{at}.{'.'.join('b' * 190)} = 1" for at in range(330)),
    "a long number": f"max_loss = 0x{'f' * 100_000}",
    "a long text": f"x = '{'a' * 3_000_000}'",
    "no text": "x = '\ud800'",
}


@pytest.mark.parametrize("name", DEEP)
def test_a_deep_or_long_toml(name: str, tmp_path: Path) -> None:
    text = DEEP[name].encode("utf-8", "surrogatepass")
    (tmp_path / "serve.toml").write_bytes(text)
    stated = b"[[promise]]\nrecord = 'example'\npolicy = 'p.json'\n"
    (tmp_path / "suffice.toml").write_bytes(text if text[:1] == b"[" else stated + text)
    for words in (("check", "suffice.toml"), ("serve", "--check", "--config", "serve.toml")):
        refused(in_bounds(*words[:-1], tmp_path / words[-1]), words[-1])


# --- what is packed -----------------------------------------------------------------------------------
GIGABYTES = 4_500_000_000


def _zeros(
    write: Callable[[bytes], object], head: bytes, tail: bytes, size: int = GIGABYTES
) -> None:
    write(head)
    piece = b" " * (1 << 24)
    for _ in range(size // len(piece)):
        write(piece)
    write(tail)


@pytest.fixture(scope="module")
def spaces() -> bytes:
    """Raw DEFLATE of 16 MiB of blanks that ends on a byte, so that it can be repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(b" " * (1 << 24)) + packer.flush(zlib.Z_FULL_FLUSH)


def eval_log(file: Path, spaces: bytes, size: int, stated: int | None = None) -> None:
    """A log of one sample, in which blanks unpack to ``size`` bytes; its directory says ``stated``."""
    times = size // (1 << 24)
    head, tail = b'{"id": "q"', b"}"
    content = b"".join(
        part
        for part in (
            zlib.compressobj(9, zlib.DEFLATED, -15).compress(b""),
            _stored(head),
            spaces * times,
            _stored(tail, last=True),
        )
    )
    crc = zlib.crc32(head)
    for _ in range(times):
        crc = zlib.crc32(b" " * (1 << 24), crc)
    crc = zlib.crc32(tail, crc)
    with zipfile.ZipFile(file, "w") as archive:
        info = zipfile.ZipInfo("samples/1_epoch_1.json")
        archive.writestr(info, content)
        archive.writestr("header.json", "{}")
        held = archive.filelist[0]
        held.compress_type, held.CRC = zipfile.ZIP_DEFLATED, crc
        held.file_size = len(head) + len(tail) + times * (1 << 24) if stated is None else stated
    data = bytearray(file.read_bytes())
    data[8:10] = (8).to_bytes(2, "little")  # as the directory says it
    file.write_bytes(data)


def _stored(content: bytes, *, last: bool = False) -> bytes:
    size = len(content)
    return (
        bytes([last]) + size.to_bytes(2, "little") + (size ^ 0xFFFF).to_bytes(2, "little") + content
    )


def test_a_log_that_unpacks_to_gigabytes(spaces: bytes, tmp_path: Path) -> None:
    file = tmp_path / "log.eval"
    imported = ("traces", "import", file, "--format", "inspect", "--out", tmp_path / "new")
    for stated in (None, 30_000_000):  # the directory may lie
        eval_log(file, spaces, GIGABYTES if stated is None else 4_000_000_000, stated)
        assert file.stat().st_size < 6_000_000
        refused(in_bounds(*imported), "log.eval")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(3):  # none of them alone
            with archive.open(f"samples/{number}_epoch_1.json", "w") as stream:
                _zeros(stream.write, b'{"id": "q"', b"}", 60_000_000)
    refused(in_bounds(*imported), "log.eval", "bytes")


def test_rows_that_unpack_to_gigabytes(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl.gz"
    with gzip.open(file, "wb", 9) as stream:
        _zeros(stream.write, b"{}", b"\n", 400_000_000)
    for name in ("rows.jsonl.gz", "rows.json.gz", "rows.csv.gz"):
        named = file.rename(tmp_path / name)
        file = named
        done = in_bounds(
            "traces", "import", named, "--format", "columns", "--out", tmp_path / "new"
        )
        refused(done, name, "bytes")


def test_what_packs_well_is_read(tmp_path: Path) -> None:
    """A log in which most is said again, as logs do."""
    row = {
        "question": "Who?",
        "answer": "Ann",
        "passages": [{"text": "It was Ann. " * 200}],
        "round": 1,
    }
    rows = [json.dumps({**row, "question_id": f"q{at}"}) for at in range(2000)]
    file = tmp_path / "rows.jsonl.gz"
    file.write_bytes(gzip.compress("\n".join(rows).encode()))
    assert len("\n".join(rows)) > 60 * file.stat().st_size
    done = run("traces", "import", file, "--format", "columns", "--out", tmp_path / "new")
    assert done.returncode == 0, done.stderr


def test_a_store_whose_rows_unpack_to_gigabytes(tmp_path: Path) -> None:
    words = ["record", "--dataset", "generated", "--limit", "1", "--rounds", "1"]
    words += ["--llm", "scripted", "--out"]
    assert run(*words, tmp_path / "r.parquet").returncode == 0
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed:
        with closing(sqlite3.connect(tmp_path / "r.db")) as held:
            ((cell,),) = held.execute("SELECT rows FROM records").fetchall()
        plain = pa.CompressedInputStream(pa.BufferReader(cell), "zstd").read()
        packed.write(plain[:-8])
        _zeros(packed.write, b"", b"", 3_000_000_000)
    with closing(sqlite3.connect(tmp_path / "r.db")) as held, held:
        held.execute("UPDATE records SET rows = ?", (sink.getvalue().to_pybytes(),))
    (tmp_path / "r.parquet").unlink()
    refused(in_bounds("traces", "info", tmp_path / "r.db"), "r.db")


def test_an_index_that_unpacks_to_gigabytes(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Oslo is a city.", encoding="utf-8")
    words = ("ask", "Who?", "--corpus", tmp_path / "notes.txt", "--llm", "scripted", "--index")
    assert run(*words, tmp_path / "index").returncode == 0
    file = tmp_path / "index/index.npz"
    with np.load(file) as held:
        arrays = dict(held)
    np.savez_compressed(file, **arrays, more=np.zeros(1 << 25))
    refused(in_bounds(*words, tmp_path / "index"), "index.npz")


# --- run documents ------------------------------------------------------------------------------------
SHAPES: dict[str, bytes] = {
    **{
        text[:12]: text.encode()
        for text in ("", "[]", "3", '"x"', "null", "{}x", '{"a": 1, "a": 2}')
    },
    **{text[:12]: text.encode() for text in ("[" * 100_000, '{"a":' * 100_000, "9" * 5000)},
    "no text": b"\xff\xfe",
    "large": json.dumps({"x": "y" * 20_000_000}).encode(),
}
ODD: dict[tuple[str, ...], tuple[Any, ...]] = {
    ("pipeline", "certainty"): ([], {"a": 1}, 3),
    ("watch", "passage_filter"): (3, "x", []),
    ("derived", "runs"): (3, {}, "x", [3], [[]], [None]),
    ("abstention",): (3, "x", [[]], [{}]),
    ("runs",): ([{"pipeline": []}], [{"runs": [{"watch": 3}]}]),
}
NESTED = [{name: value} for names, values in ODD.items() for name in names for value in values]


def with_run(stated: bytes, file: Path) -> None:
    table = pq.read_table(EXAMPLE)
    metadata = {**(table.schema.metadata or {}), b"suffice.run": stated}
    pq.write_table(table.replace_schema_metadata(metadata), file)


COMMANDS = ("traces info", "replay", "diagnose", "traces export --format jsonl --out NEW")


@pytest.mark.parametrize(
    "stated", [*SHAPES.values(), *(json.dumps(one).encode() for one in NESTED)]
)
def test_a_run_document_of_another_shape(stated: bytes, tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    with_run(stated, file)
    for command in COMMANDS:
        more = ["--policy", "fixed-1", "--bootstrap", "10"] if command == "replay" else []
        words = command.replace("NEW", str(tmp_path / "new")).split()
        refused(run(*words, file, *more), "t.parquet", "suffice.run")


def test_what_a_run_document_tells_in_its_own_words_is_read(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    told: dict[str, Any] = {"samples": "5 at temperature 0.8", "rounds": ["a", "b"]}
    told |= {"model": {"name": "m", "bits": 4}, "dataset": ["a", "b"], "prompt": None, "step": []}
    with_run(json.dumps(told).encode(), file)
    for command in COMMANDS:
        more = ["--policy", "fixed-1", "--bootstrap", "10"] if command == "replay" else []
        words = command.replace("NEW", str(tmp_path / "new")).split()
        assert run(*words, file, *more).returncode == 0


@pytest.mark.parametrize(
    "stated", [*SHAPES.values(), *(json.dumps(one).encode() for one in NESTED)]
)
def test_a_store_with_a_run_document_of_another_shape(stated: bytes, tmp_path: Path) -> None:
    file = tmp_path / "live.db"
    with suffice.Watch(record=file) as watch, watch.question("Who?") as loop:
        loop.observe(answer="Ann")
    with closing(sqlite3.connect(file)) as held, held:
        held.execute("UPDATE runs SET document = ?", (stated.decode("utf-8", "replace"),))
    for words in (("traces", "info", file), ("monitor", file, "--policy", policy(tmp_path))):
        refused(run(*words), "live.db", "suffice.run")


def policy(folder: Path) -> Path:
    from suffice.policies.policy_file import save_policy
    from suffice.policies.rules.policy import Rule

    return save_policy(Rule(rule="round >= 2"), folder / "p.json", max_rounds=5)


# --- credentials in a run -----------------------------------------------------------------------------
# a URL's password is struck wherever it stands from then on, so that the others need their own word
WORD, URL_WORD = "walnutpie", "hunter22"
SECRET_NUMBER = 8675309
TOLD: dict[str, Any] = {
    "base_url": f"https://ann:{URL_WORD}@models.example/v1?api_key={WORD}#{WORD}",
    "headers": {"Authorization": f"Bearer {WORD}", "X-Api-Key": WORD, "Cookie": f"token={WORD}"},
    "pairs": [["Authorization", WORD], ["X", {"password": WORD}], ("api_key", [WORD, {"a": WORD}])],
    "deep": {"a": [{"b": [{"OPENAI_API_KEY": WORD, "PGPASSWORD": WORD, "apiKey": WORD}]}]},
    "auth": ["ann", WORD],
    "credentials": {"user": "ann", "more": [{"x": WORD}]},
    "dsn": f"host=db password={WORD} dbname=x",
    "line": f"tool --api-key {WORD} --token={WORD} --password '{WORD}'",
    "said": f"401: sent Authorization: Basic {WORD} to redis://:{URL_WORD}@cache/0",
    f"https://ann:{URL_WORD}@host.example": 1,
    "aws_secret_access_key": WORD,
    "client.secret": WORD,
    "password2": WORD,
    "argv": ["run", "--api-key", WORD, "--token", WORD, f"--password={WORD}", "--top-k", "5"],
    "list": ["api_key", WORD, "z"],
    "nested list": ["x", ("--db-pass", [WORD, {"a": WORD}], "z"), "Authorization:", WORD],
    "env": [{"name": "OPENAI_API_KEY", "value": WORD}, {"key": "HF_TOKEN", "value": [WORD]}],
    "parts": [{"Name": "Cookie", "Value": WORD}, {"name": "password", "value": SECRET_NUMBER}],
    "pass": WORD,
    "DB_PASS": WORD,
    "pw": WORD,
    "tokens": [WORD, {"a": WORD}],
    "api_tokens": WORD,
    "plural": {"api_keys": [WORD], "secrets": WORD},
    "web": {"Cookie": f"a={WORD}", "Set-Cookie": WORD, "cookies": {"a": WORD}, "JSESSIONID": WORD},
    "sessions": [{"session_id": WORD}, {"sessionid": WORD}, {"bearer": WORD}],
    "OPENAI_KEY_1": WORD,
    "azure": {"AccountKey": WORD, "SharedAccessKey": WORD, "subscriptionKey": WORD},
    "numbers": {
        "password": SECRET_NUMBER,
        "db_pw": [SECRET_NUMBER],
        "auth": {"pwd": SECRET_NUMBER},
    },
    "storage": f"AccountName=a;AccountKey={WORD};EndpointSuffix=b SharedAccessKey={WORD}",
    "quoted": f"password='my {WORD} pass' secret: \"it\\\"s {WORD}\" --token 'a {WORD}' pwd=''{WORD}",
    "json": json.dumps(json.dumps({"password": f"my {WORD} pass", "model": "m"})),
    "shell": f"export OPENAI_KEY={WORD} OPENAI_API_KEY_2={WORD} pass={WORD} api_key => {WORD}",
    "curl": f"curl -H 'Cookie: a=1; b={WORD}' x\nAuthorization: Digest user=a, response={WORD}",
    "pem": f"-----BEGIN RSA PRIVATE KEY-----\n{WORD}{WORD}\n-----END RSA PRIVATE KEY-----",
}
KEPT: dict[str, Any] = {
    "pipeline": "my-agent", "model": "Qwen/Qwen2.5-1.5B", "max_tokens": 48, "token": 7, "rate": 0.5,
    "prompt": "Answer in a word. Author: who wrote it?", "corpus": "/srv/notes/a.jsonl", "on": True,
    "nothing": None, "steps": ["search", "read"],
    "eos_token": "<eos>", "bos_token": "<bos>", "pad_token": "<pad>", "unk_token": "<unk>",
    "answer_token": "<answer>", "stop_tokens": ["<end>"], "prompt_tokens": 10, "tokens_used": 3,
    "usage": {"tokens": 12, "max_new_tokens": 9}, "primary_key": "id", "sort_key": "score",
    "passage_key": "pid", "score_key": "f1", "sortKey": "score", "keyword": "a", "tokenizer": "bpe",
    "prose": "the token: a unit of text", "first_pass": "read", "command": ["run", "--api-key"],
    "options": ["--sort-key", "score", "--eos-token", "<eos>", "--max-tokens", "64"],
    "option text": "run --sort-key score --eos-token=<eos> --max-tokens 64 eos_token=<eos>",
    "setting": {"name": "temperature", "value": "0.5"}, "author": "Ann",
}  # fmt: skip


@pytest.mark.parametrize("texts", ["all", "no-texts"])
@pytest.mark.parametrize("exported", [False, True])
def test_no_credential_of_a_watch_stands_in_its_record(
    texts: Any, exported: bool, tmp_path: Path
) -> None:
    watch = suffice.Watch(record=tmp_path / "live.db", texts=texts, run={**TOLD, **KEPT})
    with watch, watch.question("Who?") as loop:
        loop.observe(answer="Ann")
    if exported:
        out = tmp_path / "out"
        words = ("traces", "export", tmp_path / "live.db", "--format", "parquet", "--out", out)
        assert run(*words).returncode == 0
    for file in (one for one in tmp_path.rglob("*") if one.is_file()):
        content = file.read_bytes()
        for told in (WORD, URL_WORD, str(SECRET_NUMBER)):
            assert told.encode() not in content, file
    held = suffice.read(tmp_path / "live.db").origin.run
    kept = dict(KEPT)
    if (
        texts != "all"
    ):  # a path may name a user, and a prompt is a text; its digest tells loops apart
        kept |= {
            "corpus": "[struck]",
            "prompt": hashlib.sha256(KEPT["prompt"].encode()).hexdigest()[:12],
        }
    assert {name: held[name] for name in kept} == kept


def test_a_run_that_is_no_document(tmp_path: Path) -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    circle: dict[str, Any] = {}
    circle["a"] = circle
    for odd in (deep, circle, {"a": b"x"}, {"a": {1, 2}}, 3, {"a": "x" * 20_000_000}):
        with pytest.raises(UsageError, match="run"):
            suffice.Watch(record=tmp_path / "live.db", run=odd)  # type: ignore[arg-type]
