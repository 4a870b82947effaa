"""Questions about an invented world, from a seed.

Nothing in it exists, so no model can know an answer; every answer stands in the question's passages.
Any number of questions: number ``i`` does not depend on how many are drawn. Passages with the same id
have the same text, so the passages of many questions can be pooled by id.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache

from suffice.datasets.example import Example
from suffice.datasets.generated.questions import QUESTION_TYPES, build_examples
from suffice.datasets.generated.world import build_region

__all__ = ["QUESTION_TYPES", "generate"]

_MIX = ("1hop",) * 8 + ("bridge",) * 6 + ("comparison",) * 2 + ("3hop",) * 3 + ("4hop",)
"""Types of the questions of one region, in an order that each region shuffles."""


@lru_cache(maxsize=4)
def _examples(seed: int, region: int) -> tuple[Example, ...]:
    kinds = list(_MIX)
    random.Random(f"mix {seed} {region}").shuffle(kinds)  # noqa: S311 - a data set, not a secret
    return build_examples(build_region(seed, region), kinds, first=region * len(_MIX), seed=seed)


def generate(limit: int, *, seed: int = 42, start: int = 0) -> Iterator[Example]:
    """Questions ``start`` to ``start + limit - 1`` of the world ``seed``, one at a time."""
    for number in range(start, start + limit):
        region, place = divmod(number, len(_MIX))
        yield _examples(seed, region)[place]
