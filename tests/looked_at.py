"""Records that pages are drawn of, and one whose texts would run if they were not escaped."""

from __future__ import annotations

from dataclasses import replace

from suffice.testing.traces import make_record
from suffice.trace.rounds.records import Passage, QuestionRecord

HOSTILE = (
    "<script>window.hacked=1</script></script><!-- <img src=x onerror=window.hacked=1> \u202egpj"
)


def make_records(number: int) -> list[QuestionRecord]:
    answers = (
        ("Oslo", "Oslo", "Oslo"),
        ("Bergen", "Oslo", "Oslo"),
        ("Bergen", "Bergen", "Oslo"),
        ("Rome", "Rome", "Rome"),
        ("Oslo", "Rome", "Rome"),
    )
    return [
        make_record(
            f"q{n:03d}",
            answers[n % 5],
            gold=["Oslo"],
            margins=[0.5 + n % 4, 1.5 + n % 3, 2.5 + n % 7],
            split="tune" if n % 3 else "eval",
        )
        for n in range(number)
    ]


def make_hostile(record: QuestionRecord) -> QuestionRecord:
    passage = Passage(id="evil", title=HOSTILE, text=f"{HOSTILE} {'unbroken' * 60}")
    first = replace(record.rounds[0], answer=HOSTILE, passages=(passage,))
    return replace(
        record,
        question=replace(record.question, text=f"{HOSTILE} {'unbroken' * 30}?", type="strange"),
        rounds=(first, *record.rounds[1:]),
    )
