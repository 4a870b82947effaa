"""Every command that writes, small: what it is given, what it is asked, and what it leaves."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tests.builders import drawn_records, written_traces
from tests.commands import run
from tests.stop_rag_traces import stop_rag_records

from suffice.live.watch import Watch
from suffice.policies.policy_file import save_policy
from suffice.policies.rules.policy import Rule
from suffice.testing.traces import make_record, sampled_records
from suffice.trace.rounds.records import Passage, Question, QuestionRecord, Round
from suffice.trace.rounds.writer import write_traces

_RECORD = "record --dataset generated --limit 8 --llm scripted --samples 2"
_DRAWN = "GIVEN/drawn.parquet"
_TRAIN = "fit stop-rag GIVEN/stoprag.parquet --out OUT/policy.json --epochs 0.1"
_RULE = "--out OUT/rule.json"
_IMPORT = "traces import GIVEN/rows.jsonl --format columns --out"
_CACHED = "--cache OUT/replies.sqlite"
# the words of a command by the name of its case; ~ is a space within a word
WORKS: Mapping[str, str] = {
    "record": f"{_RECORD} --out OUT/traces",
    "record-file": f"{_RECORD} --out OUT/traces.parquet",
    "record-cached": f"{_RECORD} --out OUT/traces {_CACHED}",
    "record-shard": f"{_RECORD} --out OUT/traces --shard 1/2",
    "record-iterative": "record --dataset generated --limit 4 --llm scripted --pipeline iterative "
    "--rounds 3 --llm-stop --out OUT/traces",
    "probe": "probe GIVEN/unasked.parquet --llm scripted --samples 1 --out OUT/probed",
    "signals": "signals GIVEN/recorded --out OUT/signals.parquet",
    "signals-asked": "signals GIVEN/recorded --only judge_support,overlap --llm scripted "
    f"{_CACHED} --out OUT/signals.parquet",
    "split": "traces split GIVEN/recorded --splits a=0.5,b=0.5 --replace --out OUT/split",
    "merge": f"traces merge {_DRAWN} GIVEN/sampled.parquet --out OUT/merged",
    "redact": "traces redact GIVEN/recorded --texts no-texts --out OUT/redacted",
    "filter": "traces filter GIVEN/recorded --sample 5 --out OUT/some.parquet",
    "label": f"traces label {_DRAWN} GIVEN/labels.jsonl --replace --out OUT/labelled",
    "export-jsonl": "traces export GIVEN/recorded --format jsonl --out OUT/traces.jsonl",
    "import": f"{_IMPORT} OUT/imported.parquet",
    "import-folder": f"{_IMPORT} OUT/imported",
    "fit-tasr": f"fit tasr {_DRAWN} --out OUT/policy.json",
    "fit-micp": "fit micp GIVEN/sampled.parquet --alpha 0.3 --alpha-retrieval 0.3 "
    "--out OUT/policy.json",
    "fit-gate": "fit gate GIVEN/sampled.parquet --out OUT/policy.json",
    "fit-stop-rag": f"{_TRAIN} --features signals --min-steps 10",
    "replay-rule": f"replay {_DRAWN} --stop-when answer_stable {_RULE}",
    "search": f"search {_DRAWN} --signals answer_stable,overlap {_RULE}",
    "report": f"report {_DRAWN} --bootstrap 20 --out OUT/report.html",
    "choose": f"choose {_DRAWN} --bootstrap 20 --signals answer_stable,overlap --workers 1 "
    "--out OUT/chosen",
    "init": "init OUT",
    "view-bundle": f"view {_DRAWN} --bundle OUT/site",
    "ask-index": "ask Who~founded~Ardel~Tower? --corpus GIVEN/notes --llm scripted "
    f"--policy fixed-2 --index OUT/index {_CACHED}",
}
# with networks of their own, MiniLM and Gemma: only killed and signalled
LONG: Mapping[str, str] = {
    "fit-stop-rag-text": f"{_TRAIN} --features text --min-steps 8",
    "demo": "demo --questions 5 --out OUT/demo",
}
READS: Mapping[str, str] = {
    "policies": "policies",
    "serve-check": "serve --check --llm scripted --corpus GIVEN/notes",
    "signals-list": "signals --list",
    "look": f"look {_DRAWN} --json",
    "info": "traces info GIVEN/recorded",
    "monitor": "monitor GIVEN/sampled.parquet --policy GIVEN/micp.json",
    "prune": "traces prune GIVEN/live.db --keep-days 10000 --dry-run --json",
    "validate": f"traces validate {_DRAWN} --json",
    "diagnose": f"diagnose {_DRAWN} --json",
    "replay": f"replay {_DRAWN} --policy tasr --bootstrap 50",
    "check": "check GIVEN/suffice.toml",
    "compare-loops": f"compare-loops {_DRAWN} {_DRAWN} --bootstrap 50",
}
SHORT = {**WORKS, **READS}
ALL = {**SHORT, **LONG}

Clean = Callable[[str], tuple[dict[str, Any], float]]
"""What a command leaves where nothing is wrong, by its name, and the seconds it takes."""


def line(words: str, given: Path, out: Path) -> list[str]:
    places = {"GIVEN": str(given), "OUT": str(out)}
    return [
        re.sub("GIVEN|OUT", lambda hit: places[hit[0]], word).replace("~", " ")
        for word in words.split()
    ]


def make_given(folder: Path) -> Path:
    drawn = drawn_records(40, ["Oslo", "Rome", "unknown"], seed=1)
    written_traces(folder, drawn).rename(folder / "drawn.parquet")
    learned = stop_rag_records("single", 20, rounds=3, split="tune", seed=1)
    learned += stop_rag_records("single", 10, rounds=3, split="eval", seed=2)
    passage = (Passage(id="p", title="Ada", text="Ada wrote it."),)
    rounds = (Round(answer=None), Round(answer=None, passages=passage), Round(answer="Ada"))
    questions = [Question(id=f"u{number}", text="Who wrote it?") for number in range(6)]
    records = {
        "sampled": sampled_records(120, splits=("tune", "eval")),
        "stoprag": learned,
        "foreign": [make_record("Å", ["Skien", "Ålesund"], gold=["Ålesund"])],
        "unasked": [QuestionRecord(question=question, rounds=rounds) for question in questions],
    }
    for name, made in records.items():
        write_traces(made, folder / f"{name}.parquet")
    watch = Watch(record=folder / "live.db")
    for number in range(6):
        with watch.question("Where?", question_id=f"l{number}") as loop:
            loop.observe(answer="Oslo")
    (folder / "notes").mkdir()
    for name in ("Ardel", "Borel", "Cadel", "Dorel"):
        text = f"# {name} Tower\n\n{name} Tower was founded by Mira {name}son.\n"
        (folder / "notes" / f"{name}.md").write_text(text)
    row = {"round": 1, "question": "Where?", "answer": "Oslo"}
    lines: dict[str, list[dict[str, Any]]] = {
        "labels": [{"question_id": f"q{n:03d}", "gold_answers": ["Rome"]} for n in range(40)],
        "rows": [{"question_id": f"i{number}", **row} for number in range(6)],
    }
    for name, documents in lines.items():
        text = "".join(json.dumps(document) + "\n" for document in documents)
        (folder / f"{name}.jsonl").write_text(text)
    save_policy(Rule("round >= 9"), folder / "last.json")
    promise = '[[promise]]\nrecord = "drawn.parquet"\npolicy = "last.json"\nmax_loss = 0.4\n'
    (folder / "suffice.toml").write_text(promise)
    fit = f"fit micp {folder}/sampled.parquet --alpha 0.3 --out {folder}/micp.json"
    verdict = f"check {folder}/suffice.toml --update"
    for command in (f"{_RECORD} --out {folder}/recorded", fit, verdict):
        done = run(*command.split())
        assert done.returncode == 0, done.stderr
    return folder


_TIMES = re.compile(r"latency|seconds|_s$|time|date|written|version|created|hash|folder|^loaded$")
_NO_RESULT = re.compile(r"\..*lock|.*-wal|.*-shm|record(-\d+of\d+)?\.db|traces\.db")
_EXPORTED = re.compile(r"store-\w+-\d+(?=\.parquet)")


def result(out: Path) -> dict[str, Any]:
    """What stands in the folder, by name, without times and random names."""
    files: dict[str, Any] = {}
    for file in sorted(out.rglob("*")):
        if file.is_file() and not _NO_RESULT.fullmatch(file.name):
            name = _EXPORTED.sub("store", file.relative_to(out).as_posix())
            content = _content(file, gist=name.startswith("demo/"))
            several = name in files
            files[name] = sorted([*files[name], *content]) if several else content
    return files


def _content(file: Path, *, gist: bool) -> Any:
    """Of the demo the questions and rounds: its texts depend on what was evaluated before."""
    if ".tmp" in file.as_posix():  # half of something
        return file.read_bytes()
    if file.suffix == ".parquet":
        columns = ["question_id", "round"] if gist else None
        rows = pq.read_table(file, columns=columns).to_pylist()
        return sorted(json.dumps(_untimed(row), sort_keys=True, default=str) for row in rows)
    if gist or file.suffix == ".html":
        return file.stat().st_size > 100
    if file.suffix == ".json":
        return _untimed(json.loads(file.read_bytes()))
    if file.suffix == ".sqlite":
        with closing(sqlite3.connect(file)) as database:
            with suppress(sqlite3.OperationalError):  # killed before it had a table
                return sorted(database.execute("SELECT key, sample, completion FROM samples"))
            return []
    return file.read_bytes()


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _untimed(held) for name, held in value.items() if not _TIMES.search(name)}
    return [_untimed(held) for held in value] if isinstance(value, list | tuple) else value
