"""What a reranker is trained on: a data set's questions with their gold and other paragraphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from suffice.datasets.example import Example
from suffice.errors import DataError, UsageError
from suffice.trace.rounds.tokens import passage_text


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSplit:
    """Questions to train on and questions kept apart, each with gold and other paragraphs.

    ``unusable`` counts questions of the data set without a gold paragraph or with nothing else.
    """

    train: tuple[Example, ...]
    held_out: tuple[Example, ...]
    unusable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A question with some of its paragraphs; ``gold[i]`` says whether ``texts[i]`` supports it."""

    question: str
    texts: tuple[str, ...]
    gold: tuple[bool, ...]


def _usable(example: Example) -> bool:
    gold = set(example.gold.passage_ids)
    count = sum(passage.id in gold for passage in example.passages)
    return 0 < count < len(example.passages)


def split_questions(
    examples: Sequence[Example], *, holdout: float = 0.4, seed: int = 42
) -> QuestionSplit:
    """Keep a share of the questions apart, drawn by seed.

    Parameters
    ----------
    examples
        Any order; the draw depends on their order and number.
    holdout
        Share of the usable questions kept apart, in (0, 1); rounded, at least one on each side.
    seed
        Of the draw.

    Raises
    ------
    UsageError
        When ``holdout`` is outside (0, 1).
    DataError
        When fewer than two questions have both a gold and another paragraph.
    """
    if not 0 < holdout < 1:
        raise UsageError(f"the share held out must lie between 0 and 1, found {holdout!r}")
    usable = [example for example in examples if _usable(example)]
    if len(usable) < 2:
        raise DataError(
            f"{len(usable)} of {len(examples)} questions have both a gold paragraph and another one; "
            "training needs at least 2 such questions, so take a data set with supporting paragraphs"
        )
    order = np.random.default_rng(seed).permutation(len(usable))
    count = min(max(round(holdout * len(usable)), 1), len(usable) - 1)
    apart = set(order[:count].tolist())
    return QuestionSplit(
        train=tuple(example for i, example in enumerate(usable) if i not in apart),
        held_out=tuple(example for i, example in enumerate(usable) if i in apart),
        unusable=len(examples) - len(usable),
    )


def training_batches(
    examples: Sequence[Example],
    *,
    batch_size: int,
    most_passages: int,
    generator: np.random.Generator,
) -> Iterator[tuple[Group, ...]]:
    """Batches of ``batch_size`` questions without end, every question once before any comes again.

    A question comes with its gold paragraphs (at most ``most_passages - 1`` of them) and others drawn
    anew each time, ``most_passages`` in all where it has as many.
    """
    waiting: list[int] = []
    while True:
        batch = []
        for _ in range(batch_size):
            if not waiting:
                waiting = generator.permutation(len(examples)).tolist()
            batch.append(_group(examples[waiting.pop()], most_passages, generator))
        yield tuple(batch)


def _group(example: Example, most: int, generator: np.random.Generator) -> Group:
    wanted = set(example.gold.passage_ids)
    shuffled = [example.passages[i] for i in generator.permutation(len(example.passages))]
    gold = [passage for passage in shuffled if passage.id in wanted][: most - 1]
    others = [passage for passage in shuffled if passage.id not in wanted][: most - len(gold)]
    return Group(
        question=example.question.text,
        texts=tuple(passage_text(passage) for passage in (*gold, *others)),
        gold=(True,) * len(gold) + (False,) * len(others),
    )
