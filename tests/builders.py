"""Traces that several test files build."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from suffice.live.watch import Watch
from suffice.policies.policy_file import save_policy
from suffice.policies.rules.policy import Rule
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.recording import RecordWriter
from suffice.trace.rounds.records import Gold, Question, QuestionRecord, Round, StoppedBy
from suffice.trace.rounds.trace_set import TraceSet
from suffice.trace.rounds.writer import write_traces


def of_rounds(*rounds: Round) -> TraceSet:
    """One question without gold answers, with these rounds."""
    question = Question(id="q", text="Where?", type="", split="")
    return to_trace_set([QuestionRecord(question=question, gold=Gold(), rounds=rounds)])


def with_rounds(record: QuestionRecord, **changes: Any) -> QuestionRecord:
    """The record with these fields of every round; a function makes its value from the round."""
    rounds = (
        replace(
            each,
            **{name: value(each) if callable(value) else value for name, value in changes.items()},
        )
        for each in record.rounds
    )
    return replace(record, rounds=tuple(rounds))


def eval_and_tune(number: int) -> str:
    """The splits by turns."""
    return "tune" if number % 2 else "eval"


def drawn_records(
    count: int,
    answers: Sequence[str],
    *,
    seed: int,
    rounds: int = 3,
    widest: float | None = 1.0,
    split: Callable[[int], str | None] = eval_and_tune,
) -> list[QuestionRecord]:
    """Answers drawn at random, the first of them right; margins in [0, ``widest``) tell nothing.

    ``widest=None``: without margins.
    """
    generator = np.random.default_rng(seed)
    return [
        make_record(
            f"q{number:03d}",
            generator.choice(answers, rounds).tolist(),
            gold=[answers[0]],
            margins=None if widest is None else (generator.random(rounds) * widest).tolist(),
            split=split(number),
        )
        for number in range(count)
    ]


def written_traces(folder: Path, records: Iterable[QuestionRecord]) -> Path:
    """The file in the folder that these questions were written to."""
    path = folder / "traces.parquet"
    write_traces(records, path)
    return path


def logged(
    name: str,
    scores: Sequence[int],
    stop: int | None = None,
    *,
    end: StoppedBy | None = None,
    propensity: float | None = 0.25,
    told: bool = True,
) -> QuestionRecord:
    """A question of a live loop, right where ``scores`` has 1; its policy first stops in round ``stop``."""
    record = make_record(
        name,
        ["Ada" if score else "Bo" for score in scores],
        gold=["Ada"],
        signals=[
            {"policy_stop": float(stop is not None and number >= stop)} if told else {}
            for number in range(1, len(scores) + 1)
        ],
    )
    return replace(record, stopped_by=end, propensity=propensity)


SIX_LOGGED = (
    logged("a", [0, 1], 2, end="policy"),  # cut, stood for
    logged("b", [0], 1, end="policy"),  # cut, stood for
    logged("c", [0, 0, 1, 1], 2),  # explored: counts 4 past round 2
    logged("d", [0, 0, 0, 1]),  # its policy never said stop
    logged("e", [0, 1], 2, end="gold", propensity=None),  # nothing known past round 2
    logged("f", [1, 0], end="end"),  # the loop ended by itself: round 2 stands
)


def keep(writer: RecordWriter[Any], records: Iterable[Any]) -> None:
    """Make these records durable."""
    writer.add([writer.stored(record) for record in records])


def alarming_record(folder: Path, policy: Rule) -> Path:
    """A record in which every question that ran on past round 2 became right; the file of its policy."""
    with Watch(policy, record=folder, mode="live", explore=0.7, max_rounds=3) as watch:
        for number in range(24):
            with watch.question(f"What is {number}?", question_id=f"q{number}") as loop:
                while not loop.done:
                    loop.observe(Round(answer=f"{number}" if len(loop.rounds) == 2 else "no idea"))
            watch.label(f"q{number}", gold_answers=[str(number)])
    return save_policy(policy, folder.with_name("p.json"), max_rounds=3)
