"""Record a data set: from examples and a model to a trace set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from suffice._version import VERSION
from suffice.datasets.example import Example
from suffice.errors import DataError, UsageError
from suffice.pipelines.cumulative import CumulativePipeline, CumulativeSettings
from suffice.pipelines.recorder import Progress, RecorderSettings, RecordSummary, Task, record
from suffice.pipelines.sources import OwnParagraphs, pooled_index, pooled_passages
from suffice.pipelines.splits import assign_splits
from suffice.protocols import ChatModel
from suffice.retrieval.bm25 import BM25Index

__all__ = ["Recording", "record_examples"]

# a recording begun before these existed goes on as one without them
_STATED_WHEN_ON = ("closed_book", "judge")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What to record and how.

    ``corpus``: rank each question's own paragraphs, or those of all questions pooled.
    ``pool``: where the pooled paragraphs come from; ``None``: the examples recorded. It does not
    depend on how many questions are recorded, so that more can be added to a recording.
    ``source``: the file of the examples, named in errors.
    ``concurrency``: questions under way at once; ``None``: what the model says suits it.
    """

    dataset: str
    settings: CumulativeSettings = field(default_factory=CumulativeSettings)
    corpus: Literal["own", "pooled"] = "own"
    pool: Sequence[Example] | None = None
    source: str | None = None
    splits: Mapping[str, float] = field(default_factory=lambda: {"tune": 0.4, "eval": 0.6})
    concurrency: int | None = None
    skip_invalid: bool = False


def record_examples(
    examples: Sequence[Example],
    model: ChatModel,
    out: Path,
    recording: Recording,
    on_progress: Callable[[Progress], None],
) -> RecordSummary:
    """Record every example that ``out`` does not hold yet.

    Raises
    ------
    DataError
        For an example without passages, naming it, unless they are skipped; nothing is recorded then.
    """
    usable = _usable(examples, recording)
    labels = assign_splits(len(usable), recording.splits, seed=recording.settings.seed)
    pooled = None
    if recording.corpus == "pooled":
        pooled = _pooled(usable if recording.pool is None else recording.pool, out)
    tasks = [
        Task(
            question=replace(each.question, split=label),
            gold=each.gold,
            retriever=pooled or OwnParagraphs(each.passages),
        )
        for each, label in zip(usable, labels, strict=True)
    ]
    concurrency = recording.concurrency or int(getattr(model, "concurrency", 1))
    pipeline = CumulativePipeline(model, recording.settings)
    return record(
        tasks,
        pipeline,
        out,
        RecorderSettings(
            run=_run_document(model, recording, pooled),
            concurrency=concurrency,
            on_progress=on_progress,
            closed_book=pipeline.closed_book if recording.settings.closed_book else None,
        ),
    )


def _usable(examples: Sequence[Example], recording: Recording) -> list[Example]:
    empty = [row for row, each in enumerate(examples) if not each.passages]
    if not empty or recording.corpus == "pooled":
        usable = list(examples)
    elif recording.skip_invalid:
        usable = [each for each in examples if each.passages]
    else:
        row = empty[0]
        more = f" ({len(empty) - 1} more)" if len(empty) > 1 else ""
        raise DataError(
            f"question {examples[row].question.id!r} has no passages{more}, so nothing can be "
            "retrieved for it; mend the file, or pass --skip-invalid or --corpus pooled",
            file=recording.source or recording.dataset,
            row=row,
            column="passages",
        )
    if not usable:
        raise UsageError("no question to record")
    return usable


def _pooled(examples: Sequence[Example], out: Path) -> BM25Index:
    folder = out.with_name(f"{out.name}.index") if out.suffix == ".parquet" else out / "index"
    return pooled_index(pooled_passages(each.passages for each in examples), folder)


def _run_document(
    model: ChatModel, recording: Recording, pooled: BM25Index | None
) -> dict[str, Any]:
    # a recording must not go on over another corpus without anybody noticing
    corpus = {} if pooled is None else {"corpus_fingerprint": pooled.fingerprint}
    settings = asdict(recording.settings)
    for name in _STATED_WHEN_ON:
        if not settings[name]:
            del settings[name]
    return {
        "dataset": recording.dataset,
        "model": model.name,
        "api": model.api,
        "pipeline": "cumulative",
        "retriever": "bm25",
        "corpus": recording.corpus,
        **corpus,
        "splits": dict(recording.splits),
        **settings,
        "version": VERSION,
    }
