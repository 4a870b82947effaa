"""Recording of a data set by a model: concurrent, resumable, without loss."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from suffice._version import VERSION
from suffice.concurrency import width_of
from suffice.contracts import ChatModel, Encoder, PassageFilter, Retriever
from suffice.datasets.files import Example
from suffice.errors import DataError, UsageError
from suffice.llm.connect import CachedModel, KeptReplies
from suffice.loops import make_pipeline
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.record.session import (
    Progress,
    Recorder,
    RecordSummary,
    SessionSettings,
    record_all,
)
from suffice.loops.steps import LoopSettings, SteppedLoop
from suffice.retrieval.ranking import corpus_fingerprint
from suffice.retrieval.retrievers import (
    IndexMaker,
    OwnParagraphs,
    Retrieval,
    pooled_passages,
    pooled_retriever,
)
from suffice.signals.asking.meaning_clusters import clustering_stated
from suffice.trace.durable import Shard, in_turn
from suffice.trace.rounds.derive import assign_splits
from suffice.trace.rounds.records import Gold, Passage, Question, QuestionRecord, Round
from suffice.trace.rounds.trace_set import keys_of
from suffice.trace.rounds.writer import check_settings, question_writer

CorpusKind = Literal["own", "pooled", "files", "retriever"]
# a recording begun before these existed goes on as one without them
_STATED_WHEN_ON = ("closed_book", "judge", "cluster_cosine", "looks", "look_samples", "budget_note")
# said of a run, and no part of what was recorded
_MAY_DIFFER = frozenset({"version", "sample"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    dataset: str
    columns: Mapping[str, str] | None = None
    settings: LoopSettings = field(default_factory=CumulativeSettings)
    retrieval: Retrieval = field(default_factory=Retrieval)
    encoder: Encoder | None = None
    passage_filter: PassageFilter | None = None
    filter_document: Mapping[str, Any] | None = None
    corpus: CorpusKind = "own"
    pool: Sequence[Example] | None = None
    files: tuple[Passage, ...] | None = None
    sample: Mapping[str, int] | None = None
    source: str | None = None
    splits: Mapping[str, float] = field(default_factory=lambda: {"tune": 0.4, "eval": 0.6})
    skip_invalid: bool = False
    shard: Shard | None = None
    on_encoded: Callable[[int, int], None] | None = None
    on_start: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        given = {"files": self.files is not None, "retriever": self.retrieval.source is not None}
        for kind, there in given.items():
            if there != (self.corpus == kind):
                raise UsageError(
                    f"corpus is {self.corpus!r} and there are {'' if there else 'no '}passages of {kind}; "
                    "corpus='files' goes with files=, corpus='retriever' with Retrieval(source=)"
                )


def record_examples(
    examples: Sequence[Example],
    model: ChatModel,
    out: Path,
    recording: Recording,
    on_progress: Callable[[Progress], None],
) -> RecordSummary:
    """Record every example that ``out`` does not hold yet."""
    if recording.shard is not None:
        recording.shard.check_place(out)
    if isinstance(model, CachedModel):
        return _recorded(examples, model, out, recording, on_progress)
    summary: RecordSummary | None = None
    kept = KeptReplies(model, out, recording.shard)
    with kept.until(lambda: summary is not None and summary.whole):
        summary = _recorded(examples, kept, out, recording, on_progress)
    return summary


def _recorded(
    examples: Sequence[Example],
    model: ChatModel,
    out: Path,
    recording: Recording,
    on_progress: Callable[[Progress], None],
) -> RecordSummary:
    usable = _usable(examples, recording)
    units = keys_of([example.question for example in usable])
    labels = assign_splits(units, recording.splits, seed=recording.settings.seed)
    shown = recording.settings.shown(recording.settings.rounds)
    recording = replace(recording, retrieval=recording.retrieval.reaching(shown))
    pipeline = make_pipeline(model, recording.settings, recording.encoder, recording.passage_filter)
    passages = _searched(usable, recording)
    run = _run_document(model, recording, pipeline, passages)
    if passages is not None:  # before they are indexed
        check_settings(out, run=run, may_differ=_MAY_DIFFER)
    # of several shards one makes the indexes, which the others read
    with in_turn(out, "index") if recording.shard else nullcontext():
        shared = _shared(passages, recording, out)
    tasks = [
        Task(
            question=replace(example.question, split=label),
            gold=example.gold,
            retriever=shared or OwnParagraphs(example.passages, recording.retrieval),
        )
        for example, label in zip(usable, labels, strict=True)
    ]
    if recording.files is not None:  # gold passages count where the user's files have all of them
        known = {passage.id for passage in recording.files}
        tasks = [
            task
            if known.issuperset(task.gold.passage_ids)
            else replace(task, gold=replace(task.gold, passage_ids=()))
            for task in tasks
        ]
    return record(
        tasks,
        pipeline,
        out,
        RecorderSettings(
            run=run,
            may_differ=_MAY_DIFFER,
            rounds=recording.settings.rounds,
            concurrency=width_of(model),
            kept=model if isinstance(model, KeptReplies) else None,
            on_start=recording.on_start,
            on_progress=on_progress,
            closed_book=pipeline.closed_book if recording.settings.closed_book else None,
            shard=recording.shard,
        ),
    )


def _usable(examples: Sequence[Example], recording: Recording) -> list[Example]:
    empty = [row for row, example in enumerate(examples) if not example.passages]
    if not empty or recording.corpus != "own":
        usable = list(examples)
    elif recording.skip_invalid:
        usable = [example for example in examples if example.passages]
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


def _searched(usable: Sequence[Example], recording: Recording) -> tuple[Passage, ...] | None:
    """Return the passages that all questions share; ``None``: own passages, or those of a search service."""
    if recording.corpus == "files":
        return recording.files
    if recording.corpus != "pooled":
        return None
    pool = usable if recording.pool is None else recording.pool
    return pooled_passages(example.passages for example in pool)


def _shared(
    passages: tuple[Passage, ...] | None, recording: Recording, out: Path
) -> Retriever | None:
    """Return the retriever that all questions share; ``None``: each has its own."""
    if passages is None:
        return None if recording.retrieval.source is None else recording.retrieval.over(())
    make = IndexMaker(encoder=recording.retrieval.encoder)
    if recording.on_encoded is not None:
        make = replace(make, on_progress=recording.on_encoded)
    folder = out.with_name(f"{out.name}.index") if out.suffix == ".parquet" else out / "index"
    return pooled_retriever(passages, recording.retrieval, folder, make)


def _run_document(
    model: ChatModel,
    recording: Recording,
    pipeline: SteppedLoop,
    passages: tuple[Passage, ...] | None,
) -> dict[str, Any]:
    retrieval = recording.retrieval
    encoder = recording.encoder or retrieval.encoder
    stated: dict[str, Any] = {} if recording.sample is None else {"sample": dict(recording.sample)}
    if recording.columns is not None:
        stated["columns"] = dict(recording.columns)
    # a recording must not go on over another corpus without anybody noticing
    if passages is not None:
        stated["corpus_fingerprint"] = corpus_fingerprint(passages)
    if encoder is not None:
        stated["encoder"] = encoder.name
        stated["evidence_consistency"] = recording.encoder is not None
    cosine = pipeline.settings.cluster_cosine
    if recording.encoder is not None and cosine is not None:
        stated["sample_clusters"] = clustering_stated(recording.encoder, cosine)
    if recording.filter_document is not None:
        stated["passage_filter"] = dict(recording.filter_document)
    settings = asdict(pipeline.settings)
    for name in _STATED_WHEN_ON:
        if not settings.get(name):
            settings.pop(name, None)
    if (final := settings.pop("final_answer", "short")) != "short":
        settings["prompt"] = f"{final}+{settings['prompt']}"
    return {
        "dataset": recording.dataset,
        "model": model.name,
        "api": model.api,
        "pipeline": pipeline.settings.pipeline,
        **retrieval.stated,
        "corpus": recording.corpus,
        **stated,
        "splits": dict(recording.splits),
        **settings,
        "version": VERSION,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One question to record. The gold record passes to the writer unread."""

    question: Question
    gold: Gold
    retriever: Retriever


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderSettings(SessionSettings):
    concurrency: int = 8
    closed_book: Callable[[Question], Round] | None = None
    may_differ: frozenset[str] = frozenset({"version"})
    rounds: int | None = None
    shard: Shard | None = None


def record(
    tasks: Sequence[Task], pipeline: SteppedLoop, out: str | Path, settings: RecorderSettings
) -> RecordSummary:
    """Record every task that ``out`` does not hold yet; see :func:`suffice.loops.record.session.record_all`.

    A BackendError or DataError fails its question alone, such as a prompt that is too long. A UsageError,
    such as a wrong key or model name, would affect every question and ends the run at once.
    """
    seen: set[str] = set()
    for row, task in enumerate(tasks):
        name = task.question.id
        if not name or name in seen:
            what = f"question id {name!r} appears twice" if name else "a question without an id"
            raise DataError(f"{what}; every question needs its own", row=row, column="question_id")
        seen.add(name)
    shard = settings.shard
    if shard is not None:
        tasks = [task for task in tasks if shard.holds(task.question.id)]
    with question_writer(
        out, run=settings.run, may_differ=settings.may_differ, shard=shard
    ) as writer:
        recorder = Recorder(
            noun="questions",
            key=lambda task: (task.question.id,),
            record=partial(_record_of, pipeline, settings),
        )
        return record_all(tasks, recorder, writer, settings)


def _record_of(
    pipeline: SteppedLoop, settings: RecorderSettings, task: Task, stop: threading.Event
) -> QuestionRecord | None:
    closed_book = None if settings.closed_book is None else settings.closed_book(task.question)
    if closed_book is not None:
        closed_book = replace(closed_book, time=datetime.now(UTC))
    rounds: list[Round] = []
    for finished in pipeline.rounds(task.question, task.retriever):
        rounds.append(replace(finished, time=datetime.now(UTC)))
        if stop.is_set():
            return None
    if not rounds:
        raise DataError("the retriever returned no passage")
    return QuestionRecord(
        question=task.question,
        gold=task.gold,
        rounds=tuple(rounds),
        closed_book=closed_book,
        stopped_by="end" if len(rounds) < (settings.rounds or 0) else None,
    )
