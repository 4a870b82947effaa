"""Probe a record: ask a model for the answers that its loop was not asked for."""

from __future__ import annotations

import hashlib
import threading
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice._version import VERSION
from suffice.errors import DataError, SufficeWarning, UsageError
from suffice.options import Option, settings_of
from suffice.pipelines.answers.calls import AnswerSettings
from suffice.pipelines.answers.drafts import AnswerProbe, answer_probe
from suffice.pipelines.record.session import (
    Progress,
    RecordSummary,
    SessionSettings,
    record_all,
)
from suffice.protocols import ChatModel
from suffice.retrieval.corpus import read_corpus
from suffice.retrieval.ranking import corpus_fingerprint
from suffice.scoring import answer_form
from suffice.trace.rounds.reader import TraceInspection, inspect_traces, read_traces
from suffice.trace.rounds.records import LoopView, Passage, Round, sampled_ids, with_draft
from suffice.trace.rounds.schema import (
    QUESTIONS,
    SCHEMA,
    USAGE_COLUMNS,
    round_cells,
    round_from_row,
)
from suffice.trace.rounds.table import TraceSet, with_column
from suffice.trace.rounds.writer import QUESTION_ROWS, question_writer
from suffice.trace.schema import Cell, Column
from suffice.trace.writer import RowSet

PROBE_ANSWER = "probe_answer"
"""The column of what the model says where the loop has an answer of its own."""
_NO_TEXT = "have no text"
_TEXTLESS = "have passages without a text"
_ANSWERED = (
    "answer",
    "response",
    "tokens",
    "answer_starts",
    "samples",
    "sample_clusters",
    "verbalized_confidence",
    "parse_failure",
    "probed",
    *(column.name for column in USAGE_COLUMNS),
)
_SHOWN = ("query", "passages", "intermediate_answer", *_ANSWERED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings(AnswerSettings):
    """What is asked of a record, and how.

    Parameters
    ----------
    all_rounds
        Whether rounds with an answer are asked too. Theirs stay; what the model says goes into the column
        ``probe_answer``.
    limit, sample
        Only the first so many questions, by id, or so many drawn by ``seed``; ``None``: all. A larger
        number later adds to them.

    The others are those of :class:`suffice.pipelines.answers.calls.AnswerSettings`.
    """

    all_rounds: Annotated[
        bool,
        Option(
            name="all",
            help="also ask in rounds that have an answer: it stays, what the model says goes into the column "
            "probe_answer, and how often the two agree is said",
        ),
    ] = False
    limit: Annotated[
        int | None, Option(help="only the first N questions, by id", metavar="N", at_least=1)
    ] = None
    sample: Annotated[
        int | None,
        Option(
            help="only N questions, drawn by --seed; a larger N later adds to them",
            metavar="N",
            at_least=1,
        ),
    ] = None

    def __post_init__(self) -> None:
        AnswerSettings.__post_init__(self)  # super() does not reach over slots
        if self.limit is not None and self.sample is not None:
            raise UsageError(
                "limit and sample each say which questions are asked; name one of them"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """What a probe will ask.

    Parameters
    ----------
    questions, rounds
        How many there are still to write.
    asked
        How many of the rounds are asked.
    blind
        Those of them up to which nothing was found, which are asked from the question alone.
    calls
        To the model: answers and samples.
    left_out
        How many questions cannot be asked, by why.
    """

    questions: int
    rounds: int
    asked: int
    blind: int
    calls: int
    left_out: Mapping[str, int]


def probe_traces(
    source: str | Path,
    out: str | Path,
    model: ChatModel,
    settings: ProbeSettings | None = None,
    *,
    corpus: str | Path | None = None,
    skip_invalid: bool = False,
    on_plan: Callable[[ProbePlan], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> RecordSummary:
    """Write the record again with an answer in every round that has none, asked of the model now.

    Each is asked from the evidence as recorded, as :func:`suffice.answer_probe` does, and is marked
    ``probed``; its calls and tokens stand in the ``answer_`` columns and are added to the others where these
    are known. All other columns stay, signals that are stored too. The run document is the record's own,
    with what was asked under ``derived``. Resumable: see :func:`suffice.pipelines.record.recorder.record`.

    Parameters
    ----------
    source
        A Parquet file or a directory of them; left as it is.
    out
        Another directory or ``.parquet`` file; of a run that was cut, the same.
    model
        Answers; as many questions side by side as it says suit it.
    settings
        ``None``: for the answer first and then its rating, without samples, in all questions.
    corpus
        Files of passages that give the texts of recorded ids; see
        :func:`suffice.retrieval.corpus.read_corpus`.
    skip_invalid
        Leave out what is invalid, and questions that cannot be asked: without a text, or with passages
        whose texts are not known.
    on_plan
        Told what will be asked, before the first call.
    on_progress
        Told after every question.

    Raises
    ------
    DataError
        For an invalid record, or questions that cannot be asked.
    UsageError
        When nothing is to be asked, ``out`` is a part of ``source`` or was written with other settings,
        or the model cannot be used as asked.
    BackendError
        When the first questions all fail, with the reason, or the disk refuses.
    """
    wanted = settings_of(ProbeSettings, settings)
    _refuse_inside(Path(out), Path(source))
    inspection = inspect_traces(source, keep_unknown=True)
    for remark in inspection.remarks:
        warnings.warn(remark, SufficeWarning, stacklevel=2)
    traces = _chosen(inspection.valid(skip_invalid=skip_invalid), wanted)
    passages = () if corpus is None else read_corpus(corpus).passages
    tasks, left_out = _askable(_tasks(traces, wanted, passages), traces, skip=skip_invalid)
    if not any(task.asked.any() for task in tasks):
        raise UsageError(
            f"every round of {source} has an answer, so there is nothing to ask for; --all asks there too, "
            "and says how often the model agrees"
        )
    kind = _kind(traces.table, wanted)
    run = _run_document(inspection, model, wanted, passages)
    session = SessionSettings(run=run, concurrency=int(getattr(model, "concurrency", 1)))
    if on_progress is not None:
        session = replace(session, on_progress=on_progress)
    ask_beside = answer_probe(model, replace(wanted, samples=0))
    prober = _Prober(answer_probe(model, wanted), ask_beside, kind.schema.arrow)
    with question_writer(out, run=run, kind=kind) as writer:
        if on_plan is not None:
            left = [task for task in tasks if prober.key(task) not in writer.done]
            on_plan(_plan(left, wanted, left_out))
        return record_all(tasks, prober, writer, session)


def _refuse_inside(out: Path, source: Path) -> None:
    if source.resolve() in (out.resolve(), out.resolve().parent) and (
        source.is_dir() or out.resolve() == source.resolve()
    ):
        raise UsageError(f"{out} is, or would become, a part of {source}; choose another --out")


def _chosen(traces: TraceSet, settings: ProbeSettings) -> TraceSet:
    if settings.sample is not None:
        return traces.only_questions(
            sampled_ids(traces.question_ids, settings.sample, seed=settings.seed)
        )
    return traces.only_questions(traces.question_ids[: settings.limit])


@dataclass(frozen=True)
class _Task:
    """A question's rows as recorded, in order, and that of round 0 where there is one."""

    rows: pa.Table
    closed_book: pa.Table
    every: bool

    @property
    def id(self) -> str:
        return str(self.rows.column("question_id")[0].as_py())

    @property
    def question(self) -> str:
        return str(self.rows.column("question")[0].as_py())

    @cached_property
    def unanswered(self) -> NDArray[np.bool_]:
        """Rounds without an answer, (n_rounds,)."""
        return np.asarray(pc.is_null(self.rows.column("answer")))

    @cached_property
    def asked(self) -> NDArray[np.bool_]:
        """Rounds that are asked, (n_rounds,)."""
        return self.unanswered | self.every

    @cached_property
    def textless(self) -> int:
        """How many of its passages have no text."""
        if "passages" not in self.rows.column_names:
            return 0
        flat = pc.list_flatten(self.rows.column("passages"))
        return int(pc.sum(pc.is_null(pc.struct_field(flat, "text"))).as_py() or 0)

    @cached_property
    def blind(self) -> int:
        """Rounds that are asked and up to which nothing was found."""
        held = np.zeros(self.rows.num_rows, bool)
        for name in {"passages", "intermediate_answer"}.intersection(self.rows.column_names):
            cells = self.rows.column(name)
            size = pc.list_value_length(cells) if name == "passages" else pc.is_valid(cells)
            held |= np.asarray(pc.fill_null(pc.cast(size, pa.int64()), 0)) > 0
        return int((self.asked & ~np.logical_or.accumulate(held)).sum())

    @cached_property
    def rounds(self) -> tuple[Round, ...]:
        """What a model is shown of them."""
        shown = [name for name in _SHOWN if name in self.rows.column_names]
        return tuple(round_from_row(row) for row in self.rows.select(shown).to_pylist())


def _tasks(traces: TraceSet, settings: ProbeSettings, corpus: Sequence[Passage]) -> Iterator[_Task]:
    """Every question, with the texts that the corpus gives."""
    table = _with_texts(traces.table, corpus).combine_chunks()
    closed_book = traces.closed_book
    zeros = closed_book.column("question_id").to_pylist()
    start = 0
    for name, rounds in zip(traces.question_ids, traces.last_rounds.tolist(), strict=True):
        zero = bisect_left(zeros, name)
        yield _Task(
            rows=table.slice(start, rounds),
            closed_book=closed_book.slice(zero, int(zeros[zero : zero + 1] == [name])),
            every=settings.all_rounds,
        )
        start += rounds


def _with_texts(table: pa.Table, corpus: Sequence[Passage]) -> pa.Table:
    """Passages without a text with that of the corpus' passage of the same id, if it has one."""
    if not corpus or "passages" not in table.column_names:
        return table
    known = {passage.id: passage for passage in corpus}
    cells = table.column("passages").to_pylist()
    for cell in cells:
        for passage in cell or ():
            if passage["text"] is None and (found := known.get(passage["id"])) is not None:
                passage |= {"text": found.text, "title": passage["title"] or found.title}
    return with_column(table, "passages", cells)


def _askable(
    tasks: Iterable[_Task], traces: TraceSet, *, skip: bool
) -> tuple[list[_Task], Mapping[str, int]]:
    """The questions that can be asked, and how many cannot be, by why; refused unless these are skipped."""
    kept: list[_Task] = []
    left_out: dict[str, list[_Task]] = {_NO_TEXT: [], _TEXTLESS: []}
    for task in tasks:
        if task.asked.any() and not task.question.strip():
            left_out[_NO_TEXT].append(task)
        elif task.asked.any() and task.textless:
            left_out[_TEXTLESS].append(task)
        else:
            kept.append(task)
    for why, refused in left_out.items():
        if refused and not (skip and kept):
            way_out = (
                "; give their texts by id with --corpus FILE.jsonl" if why == _TEXTLESS else ""
            )
            raise DataError(
                f"{len(refused):,} questions {why}, so a model cannot be asked what the loop could have "
                f"answered; the first: {refused[0].id!r}{way_out}, or leave such questions out with "
                "--skip-invalid",
                file=traces.origin.source,
                column="question" if why == _NO_TEXT else "passages",
            )
    return kept, {why: len(refused) for why, refused in left_out.items() if refused}


def _plan(
    tasks: Sequence[_Task], settings: ProbeSettings, left_out: Mapping[str, int]
) -> ProbePlan:
    asked = sum(int(task.asked.sum()) for task in tasks)
    return ProbePlan(
        questions=len(tasks),
        rounds=sum(task.rows.num_rows for task in tasks),
        asked=asked,
        blind=sum(task.blind for task in tasks),
        calls=asked + settings.samples * sum(int(task.unanswered.sum()) for task in tasks),
        left_out=left_out,
    )


# --- asking ---------------------------------------------------------------------------------------
class _Prober:
    """Fulfils :class:`suffice.pipelines.record.session.Recorder`; records are tables of ``schema``."""

    noun = "questions"

    def __init__(self, ask: AnswerProbe, ask_beside: AnswerProbe, schema: pa.Schema) -> None:
        self._ask = ask
        self._ask_beside = ask_beside
        self._schema = schema

    def key(self, task: _Task) -> tuple[str]:
        return (task.id,)

    def record(self, task: _Task, stop: threading.Event) -> pa.Table | None:
        cells = {name: self._recorded(task.rows, name) for name in (*_ANSWERED, PROBE_ANSWER)}
        for place in np.flatnonzero(task.asked).tolist():
            if stop.is_set():
                return None
            view = LoopView(task.question, task.rounds[: place + 1])
            if task.unanswered[place]:
                written = round_cells(with_draft(view.current, self._ask(view), probed=True))
                for name in _ANSWERED:
                    cells[name][place] = written[name]
            else:
                cells[PROBE_ANSWER][place] = self._ask_beside(view).answer
        made = [
            pa.array(cells[name], field.type)
            if (name := field.name) in cells
            else self._column(task.rows, field)
            for field in self._schema
        ]
        rows = pa.Table.from_arrays(made, schema=self._schema)
        zero = task.closed_book
        first = [self._column(zero, field) for field in self._schema] if zero.num_rows else []
        before = [pa.Table.from_arrays(first, schema=self._schema)] if first else []
        return pa.concat_tables([*before, rows])

    @staticmethod
    def _recorded(rows: pa.Table, name: str) -> list[Any]:
        there = name in rows.column_names
        return rows.column(name).to_pylist() if there else [None] * rows.num_rows

    @staticmethod
    def _column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
        if field.name in rows.column_names:
            return rows.column(field.name)
        return pa.chunked_array([pa.nulls(rows.num_rows, field.type)])


class _Tables(RowSet[pa.Table]):
    """Records that are tables of the schema already."""

    def table(self, records: Iterable[pa.Table], run: Mapping[str, Any]) -> pa.Table:
        return pa.concat_tables(records).replace_schema_metadata(self.stamped(run).metadata)


def _kind(table: pa.Table, settings: ProbeSettings) -> _Tables:
    """How the questions of this record are kept: with the columns that the schema does not know."""
    types = {field.name: field.type for field in table.schema if field.name not in SCHEMA.names}
    if settings.all_rounds:
        types[PROBE_ANSWER] = pa.string()
    own = [Column(Round, name, Cell(type_), "the user's own") for name, type_ in types.items()]
    return _Tables(
        schema=replace(QUESTIONS, columns=(*QUESTIONS.columns, *own)),
        rows=pa.Table.to_pylist,
        key=QUESTION_ROWS.key,
        key_of=lambda rows: (rows.column("question_id")[0].as_py(),),
        place=QUESTION_ROWS.place,
        noun=QUESTION_ROWS.noun,
    )


def _run_document(
    inspection: TraceInspection,
    model: ChatModel,
    settings: ProbeSettings,
    corpus: Sequence[Passage],
) -> dict[str, Any]:
    """The record's own, with what is asked of it as one more step."""
    runs = [dict(part.run) for part in inspection.parts]
    run = dict(inspection.traces.origin.run)
    digest = hashlib.sha256()
    for part in inspection.parts:
        with part.file.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    step: dict[str, Any] = {
        "by": "probe",
        "from": Path(inspection.traces.origin.source).resolve().name,
        "sha256": digest.hexdigest(),
        "model": model.name,
        "api": model.api,
        **{setting.name: getattr(settings, setting.name) for setting in fields(AnswerSettings)},
    }
    if settings.all_rounds:
        step["all_rounds"] = True
    if corpus:
        step["corpus_fingerprint"] = corpus_fingerprint(corpus)
    done = run.get("derived")
    run |= {"derived": [*(done if isinstance(done, list) else []), step], "version": VERSION}
    return run if runs.count(runs[0]) == len(runs) else {**run, "runs": runs}


def probe_agreement(path: str | Path) -> tuple[int, int]:
    """In how many rounds the model that was asked gives the loop's own answer, and of how many.

    Answers are compared normalised, as they are scored.
    """
    rows = read_traces(path, columns=(), keep_unknown=True).table
    pairs = [
        (own, asked)
        for own, asked in zip(
            *(rows.column(n).to_pylist() for n in ("answer", PROBE_ANSWER)), strict=True
        )
        if asked is not None and own is not None
    ]
    return sum(answer_form(own) == answer_form(asked) for own, asked in pairs), len(pairs)
