"""Questions about an invented world, made once from a seed and kept in this package.

Nothing in it exists, so no model can know an answer; every answer stands in the question's passages.
Passages with the same id have the same text, so the passages of many questions can be pooled by id.
"""

from __future__ import annotations

import json
import lzma
import random
from collections.abc import Iterable, Iterator
from importlib import resources
from itertools import islice

from suffice.datasets.example import Example
from suffice.errors import UsageError
from suffice.trace.rounds.records import Gold, Passage, Question

MOST = 2_000
_OWN_SEED = 42


def generate(limit: int, *, seed: int = _OWN_SEED, start: int = 0) -> Iterator[Example]:
    """Questions ``start`` to ``start + limit - 1``, one at a time; another seed has them in another order."""
    if start + limit > MOST:
        raise UsageError(
            f"the data set 'generated' holds {MOST:,} questions, found {start + limit:,}"
        )
    with (
        (resources.files("suffice.datasets") / "generated.jsonl.xz").open("rb") as packed,
        lzma.open(packed, "rt", encoding="utf-8") as lines,
    ):
        ordered: Iterable[str] = lines
        if seed != _OWN_SEED:
            ordered = list(lines)
            random.Random(f"generated {seed}").shuffle(ordered)  # noqa: S311 - a data set, not a secret
        for line in islice(ordered, start, start + limit):
            name, text, kind, answers, gold, passages = json.loads(line)
            yield Example(
                question=Question(id=name, text=text, type=kind),
                gold=Gold(answers=tuple(answers), passage_ids=tuple(gold)),
                passages=tuple(
                    Passage(id=own, title=title, text=said) for own, title, said in passages
                ),
            )
