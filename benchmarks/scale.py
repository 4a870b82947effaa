"""Whole commands on large records, over a process that only reads the columns they need.

python -m benchmarks.scale [--questions 20000] [--folder DIR] [--before WORKTREE] [--part commands ...]

CPU time is user and system time of the process and its children; peak memory is the greatest of any of them.
The reading process is ``python -c`` with ``pyarrow.parquet.read_table``; the least one reads row groups and
only those fields of passages and tokens that a signal reads.
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.import_cost import starting
from benchmarks.scale_records import Record, written
from suffice.policies.rules.policy import RulePolicy
from suffice.trace.rounds.schema import USAGE_COLUMNS

ROOT = Path(__file__).parents[1]
RULES = (
    "answer_stable",
    "overlap > 0.3",
    "self_consistency > 0.6",
    "answer_stable and answer_token_margin > 2",
)
SEARCHED = (
    "answer_stable",
    "answer_token_margin",
    "overlap",
    "self_consistency",
    "verbalized_confidence",
    "answer_in_evidence",
)
COMMON = ("question_id", "round", "question", "split", "gold_answers", "answer")

READ = """
import sys
import pyarrow.parquet as pq
for file in sys.argv[1].split(","):
    pq.read_table(file, columns=sys.argv[2].split(","))
"""
READ_LEAST = """
import sys
import pyarrow.parquet as pq
for file in sys.argv[1].split(","):
    with pq.ParquetFile(file) as parquet:
        for group in range(parquet.num_row_groups):
            parquet.read_row_group(group, columns=sys.argv[2].split(","))
"""
LAUNCH = """
import os, sys, time
begun = time.perf_counter()
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(child, 0)
figures = usage.ru_utime + usage.ru_stime, time.perf_counter() - begun, usage.ru_maxrss / 1024
open(sys.argv[1], "w").write(" ".join(map(str, figures)))
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""A process starts with the peak memory of its parent, which therefore is this small one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a process took: CPU and wall seconds, peak resident MB of the largest process."""

    cpu: float
    wall: float
    peak: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A command of ours over a record, and the signals whose columns it needs."""

    name: str
    command: tuple[str, ...]
    signals: str
    target: int
    split: bool = False

    def on(self, record: Path, *options: str) -> tuple[str, ...]:
        """Its arguments for this record."""
        return (*self.command, str(record), *options)


def replay(rule: str) -> Work:
    """Replay of one rule over every question of a record without splits."""
    command = ("replay", "--stop-when", rule)
    return Work(name=f"replay {rule!r}", command=command, signals=rule, target=3)


def works(folder: Path) -> tuple[Work, ...]:
    """The commands of the table, those that write below ``folder``."""
    margin, several = "answer_stable and answer_token_margin > 2", ",".join(SEARCHED)
    every = " or ".join(
        name if name.startswith("answer_") and "margin" not in name else f"{name} > 0"
        for name in SEARCHED
    )
    return (
        *map(replay, RULES),
        Work(
            name="fit tasr",
            command=("fit", "tasr", "--out", str(folder / "policy.json")),
            signals=margin,
            target=4,
            split=True,
        ),
        Work(
            name="search, six signals, 876 rules",
            command=("search", "--signals", several, "--form", "dnf"),
            signals=every,
            target=4,
            split=True,
        ),
    )


def ours(*arguments: str) -> tuple[str, ...]:
    """The command as a user's shell starts it."""
    return (sys.executable, "-m", "suffice", *arguments)


@functools.cache
def compiled(source: Path) -> None:
    """Compile a working tree once, as an installation does."""
    folders = [str(source / name) for name in ("src", "benchmarks")]
    subprocess.run([sys.executable, "-m", "compileall", "-q", *folders], check=True)


def spent(command: Sequence[str], *, source: Path = ROOT, runs: int = 1) -> Spent:
    """What the least costly of several runs took, with a working tree's sources, compiled as if installed."""
    environment = {**os.environ, "PYTHONPATH": f"{source / 'src'}{os.pathsep}{source}"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    compiled(source)
    taken = []
    with tempfile.TemporaryDirectory() as aside:
        figures = Path(aside) / "figures"
        launched = (sys.executable, "-ISc", LAUNCH, str(figures), *command)
        for _ in range(runs):
            done = subprocess.run(
                launched, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
            cpu, wall, peak = map(float, figures.read_text().split())
            taken.append(Spent(cpu=cpu, wall=wall, peak=peak))
    return min(taken, key=lambda one: one.cpu)


def columns(record: Path, rule: str, *, leaves: bool = False) -> list[str]:
    """What a rule, the scores and the costs need of the record; ``leaves``: without what no signal reads."""
    optional = {name for spec in RulePolicy(rule=rule).specs for name in (*spec.needs, *spec.reads)}
    wanted = {*COMMON, *(column.name for column in USAGE_COLUMNS), *optional}
    schema = pq.read_schema(files_of(record)[0])
    held = [name for name in schema.names if name in wanted]
    if not leaves:
        return held
    narrower = {
        "passages": [f"passages.list.element.{name}" for name in ("id", "title", "text")],
        "tokens": [
            "tokens.list.element.token",
            "tokens.list.element.logprob",
            "tokens.list.element.top.list.element.logprob",
        ],
    }
    return [leaf for name in held for leaf in narrower.get(name, [name])]


def reading(record: Path, rule: str, *, least: bool = False) -> Spent:
    """What it takes to read the columns of a rule, the best of three."""
    code, wanted = READ_LEAST if least else READ, columns(record, rule, leaves=least)
    files = ",".join(map(str, files_of(record)))
    return spent((sys.executable, "-c", code, files, ",".join(wanted)), runs=3)


def files_of(record: Path) -> list[Path]:
    """The files of a record."""
    return sorted(record.glob("*.parquet")) if record.is_dir() else [record]


# --- parts ---------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to measure, and where records are kept."""

    folder: Path
    questions: int
    before: Path | None
    varied: bool

    def record(self, questions: int, *, split: bool = False) -> Path:
        """A record in one file."""
        return written(self.folder, Record(questions=questions, varied=self.varied, split=split))


Figures = dict[str, float]


def commands(asked: Asked) -> Figures:
    """CPU time of each command in one process over reading its columns, and its peak memory."""
    figures = {}
    for work in works(asked.folder):
        record = asked.record(asked.questions, split=work.split)
        run = spent(ours(*work.on(record, "--workers", "1")))
        read = reading(record, work.signals)
        least = reading(record, work.signals, least=True)
        figures[f"{work.name}: CPU over reading its columns (at most {work.target})"] = (
            run.cpu / read.cpu
        )
        figures[f"{work.name}: the same over the least reading"] = run.cpu / least.cpu
        figures[f"{work.name}: CPU seconds"] = run.cpu
        figures[f"{work.name}: CPU seconds of reading"] = read.cpu
        figures[f"{work.name}: peak MB"] = run.peak
        figures[f"{work.name}: peak MB of reading"] = read.peak
    return figures


def growth(asked: Asked) -> Figures:
    """CPU time a question and peak memory at ten times and a hundred times the questions."""
    figures = {}
    for rule in RULES[:2]:
        empty = spent(ours(*replay(rule).on(asked.record(40)))).cpu
        for questions in (asked.questions // 10, asked.questions, asked.questions * 10):
            run = spent(ours(*replay(rule).on(asked.record(questions), "--workers", "1")))
            a_question = (run.cpu - empty) / questions * 1e6
            figures[f"replay {rule!r}, {questions:,} questions: microseconds of CPU a question"] = (
                a_question
            )
            figures[f"replay {rule!r}, {questions:,} questions: peak MB"] = run.peak
    return figures


def workers(asked: Asked) -> Figures:
    """Wall time of one process over two; CPU time of two over one."""
    record = asked.record(asked.questions)
    figures = {}
    for rule in (RULES[1], RULES[3]):
        one, two = (
            spent(ours(*replay(rule).on(record, "--workers", number))) for number in ("1", "2")
        )
        figures[f"replay {rule!r}: wall time of one process over two (at least 1.8)"] = (
            one.wall / two.wall
        )
        figures[f"replay {rule!r}: CPU time of two processes over one"] = two.cpu / one.cpu
    return figures


def small(asked: Asked) -> Figures:
    """CPU time of commands on 300 questions over that of an older working tree, in turn."""
    if asked.before is None:
        return {"no older working tree (--before)": float("nan")}
    figures = {}
    for work in works(asked.folder):
        record = asked.record(300, split=work.split)
        command = ours(*work.on(record))
        pairs = [(spent(command), spent(command, source=asked.before)) for _ in range(3)]
        now, then = (min(spell.cpu for spell in spells) for spells in zip(*pairs, strict=True))
        figures[f"{work.name}, 300 questions: CPU over before (at most 1)"] = now / then
        figures[f"{work.name}, 300 questions: CPU seconds"] = now
    return figures


def beyond_memory(asked: Asked) -> Figures:
    """A padded record of ten times the questions: replayed, searched and certified under 2 GB."""
    questions = asked.questions * 10
    files = max(1, questions // 50_000)
    record = written(
        asked.folder, Record(questions=questions, files=files, padded=True, group=4_000)
    )
    stored = sum(file.stat().st_size for file in files_of(record))
    figures = {
        "rounds": 5.0 * questions,
        "GB on disk": stored / 1e9,
    }
    for work in (replay(RULES[1]), works(asked.folder)[-1]):
        run = spent(ours(*work.on(record)))
        figures[f"{work.name}: peak MB (under 2,000)"] = run.peak
        figures[f"{work.name}: CPU seconds"] = run.cpu
        figures[f"{work.name}: wall seconds"] = run.wall
    return figures


PARTS: dict[str, Callable[[Asked], Figures]] = {
    "commands": commands,
    "growth": growth,
    "workers": workers,
    "small": small,
    "start": lambda _: starting(),
    "beyond_memory": beyond_memory,
}
USUAL = ("commands", "workers", "start")


def main(arguments: Sequence[str] = ()) -> Figures:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="where records are kept (default: removed)")
    parser.add_argument("--before", type=Path, help="an older working tree to compare with")
    parser.add_argument("--varied", action="store_true", help="texts differ from copy to copy")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=USUAL)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as aside:
        folder = options.folder or Path(aside)
        folder.mkdir(parents=True, exist_ok=True)
        asked = Asked(
            folder=folder,
            questions=options.questions,
            before=options.before,
            varied=options.varied,
        )
        return {
            figure: value for part in options.part for figure, value in PARTS[part](asked).items()
        }


if __name__ == "__main__":
    for figure, value in main(sys.argv[1:]).items():
        print(f"  {value:12.4g}  {figure}")
