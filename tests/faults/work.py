"""Every command that writes, small: what it is given, what it is asked, and what it leaves."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from studies.tests.ab_rag import study_traces
from tests.builders import drawn_records, written_traces
from tests.commands import run
from tests.stop_rag_traces import stop_rag_records

from suffice.live.watch import Watch
from suffice.testing.traces import make_record, sampled_records
from suffice.trace.recording import recorded_rows
from suffice.trace.rounds.records import Passage, Question, QuestionRecord, Round
from suffice.trace.rounds.writer import write_traces
from suffice.trace.store import exported

QUESTIONS = 8

Tried = Callable[..., None]
"""``tried(fault, times=1)``: what was done to a command, and how often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A command that writes.

    Parameters
    ----------
    name
        Of the case.
    words
        Of the command; ``GIVEN`` stands for the folder of inputs, ``OUT`` for the one that it writes.
    resumes
        Whether it goes on with what an ended run left.
    replaces
        The file that it writes over, in OUT; empty: it takes only a free place.
    kills
        How often it is killed.
    seconds
        That it may take to end after a signal: what is under way comes to its end.
    """

    name: str
    words: str
    resumes: bool = False
    replaces: str = ""
    kills: int = 4
    seconds: float = 20.0

    def line(self, given: Path, out: Path) -> list[str]:
        """The words of the command."""
        places = {"GIVEN": str(given), "OUT": str(out)}
        return [
            re.sub("GIVEN|OUT", lambda hit: places[hit[0]], word).replace("~", " ")
            for word in self.words.split()
        ]


_RECORD = f"record --dataset generated --limit {QUESTIONS} --llm scripted --samples 2"
_FIT = "fit {} GIVEN/{}.parquet --out OUT/policy.json"
_QUICK = "--features signals --min-steps 10 --epochs 0.1"
WORKS = (
    Work(name="record", words=f"{_RECORD} --out OUT/traces", resumes=True, kills=20),
    Work(name="record-file", words=f"{_RECORD} --out OUT/traces.parquet", resumes=True, kills=10),
    Work(
        name="record-cached",
        words=f"{_RECORD} --out OUT/traces --cache OUT/replies.sqlite",
        resumes=True,
        kills=20,
    ),
    Work(
        name="record-shard", words=f"{_RECORD} --out OUT/traces --shard 1/2", resumes=True, kills=6
    ),
    Work(
        name="record-iterative",
        words="record --dataset generated --limit 4 --llm scripted --pipeline iterative "
        "--rounds 3 --llm-stop --out OUT/traces",
        resumes=True,
        kills=10,
    ),
    Work(
        name="probe",
        words="probe GIVEN/unasked.parquet --llm scripted --samples 1 --out OUT/probed",
        resumes=True,
        kills=16,
    ),
    Work(name="signals", words="signals GIVEN/recorded --out OUT/signals.parquet", kills=10),
    Work(
        name="signals-asked",
        words="signals GIVEN/recorded --only judge_support,overlap --llm scripted "
        "--cache OUT/replies.sqlite --out OUT/signals.parquet",
        kills=10,
    ),
    Work(
        name="split",
        words="traces split GIVEN/recorded --splits a=0.5,b=0.5 --replace --out OUT/split",
    ),
    Work(
        name="merge",
        words="traces merge GIVEN/drawn.parquet GIVEN/sampled.parquet --out OUT/merged",
    ),
    Work(name="redact", words="traces redact GIVEN/recorded --texts no-texts --out OUT/redacted"),
    Work(name="filter", words="traces filter GIVEN/recorded --sample 5 --out OUT/some.parquet"),
    Work(
        name="label",
        words="traces label GIVEN/drawn.parquet GIVEN/labels.jsonl --replace --out OUT/labelled",
    ),
    Work(
        name="export-jsonl",
        words="traces export GIVEN/recorded --format jsonl --out OUT/traces.jsonl",
    ),
    Work(name="export-csv", words="traces export GIVEN/recorded --format csv --out OUT/traces.csv"),
    Work(
        name="export-otlp", words="traces export GIVEN/recorded --format otlp --out OUT/traces-otlp"
    ),
    Work(
        name="import",
        words="traces import GIVEN/rows.jsonl --format columns --out OUT/imported.parquet",
    ),
    Work(
        name="import-folder",
        words="traces import GIVEN/rows.jsonl --format columns --out OUT/imported",
    ),
    Work(name="fit-tasr", words=_FIT.format("tasr", "drawn"), replaces="policy.json"),
    Work(
        name="fit-micp",
        words=_FIT.format("micp", "sampled") + " --alpha 0.3 --alpha-retrieval 0.3",
        replaces="policy.json",
    ),
    Work(
        name="fit-gate",
        words=_FIT.format("gate", "sampled"),
        replaces="policy.json",
    ),
    Work(
        name="fit-certified",
        words=_FIT.format("certified", "drawn")
        + " --signals answer_stable --max-loss 0.3 --confidence 0.8 --levels 3",
        replaces="policy.json",
    ),
    Work(
        name="fit-stop-rag",
        words=_FIT.format("stop-rag", "stoprag") + f" {_QUICK}",
        replaces="policy.json",
        resumes=True,
        kills=20,
    ),
    Work(
        name="replay-rule",
        words="replay GIVEN/drawn.parquet --stop-when answer_stable --out OUT/rule.json",
        replaces="rule.json",
    ),
    Work(
        name="search",
        words="search GIVEN/drawn.parquet --signals answer_stable,overlap --out OUT/rule.json",
        replaces="rule.json",
    ),
    Work(
        name="sweep",
        words="sweep GIVEN/drawn.parquet --rule answer_token_margin~>~? --out OUT/rule.json",
        replaces="rule.json",
    ),
    Work(
        name="report",
        words="report GIVEN/drawn.parquet --bootstrap 20 --out OUT/report.html",
        replaces="report.html",
    ),
    Work(
        name="choose",
        words="choose GIVEN/drawn.parquet --bootstrap 20 --signals answer_stable,overlap --workers 1 "
        "--out OUT/chosen",
        replaces="chosen/policy.json",
    ),
    Work(
        name="view-bundle",
        words="view GIVEN/drawn.parquet --bundle OUT/site",
    ),
    Work(
        name="monitor",
        words="monitor GIVEN/micp.json GIVEN/arrived.jsonl --state OUT/state.json",
        replaces="state.json",
    ),
    Work(
        name="ask-index",
        words="ask Who~founded~Ardel~Tower? --corpus GIVEN/notes --llm scripted --policy fixed-2 "
        "--index OUT/index --cache OUT/replies.sqlite",
        resumes=True,
        kills=14,
    ),
)

LONG = (
    Work(
        name="fit-stop-rag-text",
        words=_FIT.format("stop-rag", "stoprag") + " --features text --min-steps 8 --epochs 0.1",
        replaces="policy.json",
        resumes=True,
        kills=5,
        seconds=60.0,
    ),
    Work(
        name="demo", words="demo --questions 5 --out OUT/demo", resumes=True, kills=4, seconds=150.0
    ),
)
"""With networks of their own, MiniLM and Gemma: seconds each, so only killed and signalled."""

READS = (
    Work(name="policies", words="policies"),
    Work(name="serve-check", words="serve --check --llm scripted --corpus GIVEN/notes"),
    Work(name="signals-list", words="signals --list"),
    Work(name="info", words="traces info GIVEN/recorded"),
    Work(name="measure", words="measure GIVEN/drawn.parquet"),
    Work(name="prune", words="traces prune GIVEN/live.db --keep-days 10000 --json"),
    Work(name="validate", words="traces validate GIVEN/drawn.parquet --json"),
    Work(name="diagnose", words="diagnose GIVEN/drawn.parquet --json"),
    Work(name="replay", words="replay GIVEN/drawn.parquet --policy tasr --bootstrap 50"),
)
"""Commands that only print."""


def unasked(name: str) -> QuestionRecord:
    """A question whose loop gave no answer before its last round."""
    passage = (Passage(id="p", title="Ada", text="Ada wrote it."),)
    rounds = (Round(answer=None), Round(answer=None, passages=passage), Round(answer="Ada"))
    return QuestionRecord(question=Question(id=name, text="Who wrote it?"), rounds=rounds)


def make_given(folder: Path) -> Path:
    """The folder of inputs."""
    written_traces(folder, drawn_records(40, ["Oslo", "Rome", "unknown"], seed=1)).rename(
        folder / "drawn.parquet"
    )
    write_traces(sampled_records(120, splits=("tune", "eval")), folder / "sampled.parquet")
    learned = stop_rag_records("single", 20, rounds=3, split="tune", seed=1)
    learned += stop_rag_records("single", 10, rounds=3, split="eval", seed=2)
    write_traces(learned, folder / "stoprag.parquet")
    write_traces(study_traces().records(), folder / "study.parquet")
    foreign = [make_record("Å", ["Skien", "Ålesund"], gold=["Ålesund"])]
    write_traces(foreign, folder / "foreign.parquet")
    write_traces([unasked(f"u{number}") for number in range(6)], folder / "unasked.parquet")
    watch = Watch(record=folder / "live.db")
    for number in range(6):
        with watch.question("Where?", question_id=f"l{number}") as loop:
            loop.observe(answer="Oslo")
    notes = folder / "notes"
    notes.mkdir()
    for name in ("Ardel", "Borel", "Cadel", "Dorel"):
        text = f"# {name} Tower\n\n{name} Tower was founded by Mira {name}son.\n"
        (notes / f"{name}.md").write_text(text, encoding="utf-8")
    lines: dict[str, list[dict[str, Any]]] = {
        "labels": [
            {"question_id": f"q{number:03d}", "gold_answers": ["Rome"]} for number in range(40)
        ],
        "arrived": [{"covered": number % 10 > 0, "score": 0.5} for number in range(60)],
        "rows": [
            {"question_id": f"i{number}", "round": 1, "question": "Where?", "answer": "Oslo"}
            for number in range(6)
        ],
    }
    for name, documents in lines.items():
        text = "".join(json.dumps(document) + "\n" for document in documents)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    record = f"{_RECORD} --out {folder}/recorded"
    fit = f"fit micp {folder}/sampled.parquet --alpha 0.3 --out {folder}/micp.json"
    for command in (record, fit):
        done = run(*command.split())
        assert done.returncode == 0, done.stderr
    return folder


# --- what a command left ---------------------------------------------------------------------------
_TIMES = re.compile(
    r"latency|seconds|_s$|time|date|written|version|created|hash|energy|joules|folder|^loaded$"
)
# true of a run that goes on, and of no other
_GONE_ON = re.compile(
    r"nothing was run anew: all runs were recorded before|\d+ of \d+ trainings? found in "
)
_DRAWN = re.compile(r"data-[0-9a-f]{32}")
_ASIDE = re.compile(r"\.tmp(/|$)|checkpoint|\.assembling-")
_NO_RESULT = re.compile(r"\..*lock|.*-wal|.*-shm|files.*\.sha256|record(-\d+of\d+)?\.db|traces\.db")
_EXPORTED = re.compile(r"store-\w+-\d+(?=\.parquet)")


def result(out: Path, *, finished: bool = True) -> dict[str, Any]:
    """What stands in the folder, by name, without times.

    Where the work is not ``finished``, only what a reader would take: nothing written aside, no index
    without its header, and what recorders keep in databases.
    """
    files: dict[str, Any] = {}
    for file in sorted(out.rglob("*")):
        name = file.relative_to(out).as_posix()
        if not file.is_file() or _NO_RESULT.fullmatch(file.name):
            continue
        if finished or not (_ASIDE.search(name) or _DRAWN.search(name)):
            content = _content(file)
            name = _EXPORTED.sub("store", _DRAWN.sub("data", name))
            before = files.get(name, []) if name.endswith("store.parquet") else []
            content = _gist(content) if name.startswith("demo/") else content
            files[name] = sorted([*before, *content]) if before else content
    for file in [] if finished else sorted(out.rglob("*.db")):
        if not file.stat().st_size:
            continue  # killed before it was made
        single = file.name == "traces.db"
        after = exported([] if single else file.parent.glob("*.parquet"))
        rows = [row for held in recorded_rows(file, after) for row in held.table.to_pylist()]
        beside = file.with_name("traces.parquet" if single else "store.parquet")
        name = beside.relative_to(out).as_posix()
        before = [] if single else files.get(name, [])
        content = sorted([*before, *_texts(rows)])
        if rows or single:
            files[name] = _gist(content) if name.startswith("demo/") else content
    return files


def _texts(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(_untimed(row), sort_keys=True, default=str) for row in rows)


def _content(file: Path) -> Any:
    if ".tmp" in file.as_posix():  # half of something
        return file.read_bytes()
    if file.suffix == ".parquet":
        return _texts(pq.read_table(file).to_pylist())
    if file.suffix == ".json":
        return _untimed(json.loads(file.read_bytes()))
    if file.suffix == ".sqlite":
        with sqlite3.connect(file) as database:
            rows = []
            with suppress(sqlite3.OperationalError):  # killed before it had a table
                rows = database.execute("SELECT key, sample, completion FROM samples").fetchall()
        database.close()
        return sorted(rows)
    if file.suffix == ".html":
        return len(file.read_bytes()) > 1000
    return file.read_bytes()


def _gist(content: Any) -> Any:
    """Of the demo the questions and rounds: what is generated depends on what was evaluated before."""
    if not isinstance(content, list):
        return bool(content)
    rows = [json.loads(row) for row in content]
    return sorted(json.dumps([row["question_id"], row["round"]]) for row in rows)


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _untimed(held) for name, held in value.items() if not _TIMES.search(name)}
    if isinstance(value, list | tuple):
        return [
            _untimed(held) for held in value if not (isinstance(held, str) and _GONE_ON.match(held))
        ]
    return value
