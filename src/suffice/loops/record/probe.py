"""Probe a record: ask a model for an answer in every round, by one prompt."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from suffice._version import VERSION
from suffice.concurrency import width_of
from suffice.contracts import ChatModel
from suffice.errors import DataError, SufficeWarning, UsageError, counted
from suffice.loops.calls import AnswerSettings, answer_probe, conversation_of
from suffice.loops.record.session import (
    Progress,
    Recorder,
    RecordSummary,
    SessionSettings,
    record_all,
)
from suffice.options import Option, settings_of
from suffice.retrieval.corpus import read_corpus
from suffice.retrieval.ranking import corpus_fingerprint
from suffice.scoring import answer_form
from suffice.signals.asking.looks import read_before
from suffice.stats.units import Mask
from suffice.trace.durable import Shard
from suffice.trace.rounds.reader import TraceInspection, inspect_traces, read_traces
from suffice.trace.rounds.records import (
    Draft,
    LoopView,
    Passage,
    Round,
    Usage,
    sampled_ids,
    with_draft,
    without_answer,
)
from suffice.trace.rounds.trace_set import refuse_veiled
from suffice.trace.rounds.writer import (
    OF_LOOP,
    QuestionRows,
    evidence_sha256,
    question_rows,
    question_writer,
    rows_of,
)

LOOP_ANSWER = f"{OF_LOOP}answer"
"""The column of what the loop answered itself, where the model's answer stands in its place."""
_NO_TEXT = "without text"
_TEXTLESS = "with passages without a text"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings(AnswerSettings):
    """Settings of a probe: those of an answer, and the rounds and questions to ask in.

    ``missing_only`` mixes answers by the loop's prompt and by this one, so that a comparison of rounds
    compares prompts too.
    """

    missing_only: Annotated[
        bool,
        Option(
            help="ask only in rounds without an answer; the record then mixes answers by two prompts"
        ),
    ] = False
    limit: Annotated[
        int | None, Option(help="first N questions only, by id", metavar="N", at_least=1)
    ] = None
    sample: Annotated[
        int | None,
        Option(
            help="N random questions, drawn by --seed; a larger N adds to them",
            metavar="N",
            at_least=1,
        ),
    ] = None

    def __post_init__(self) -> None:
        AnswerSettings.__post_init__(self)  # super() does not reach over slots
        if self.limit is not None and self.sample is not None:
            raise UsageError("limit and sample both select questions; give one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    questions: int
    rounds: int
    asked: int
    own: int
    blind: int
    calls: int
    left_out: Mapping[str, int]


def probe_traces(
    source: str | Path,
    out: str | Path,
    model: ChatModel | Callable[[], ChatModel],
    settings: ProbeSettings | None = None,
    *,
    corpus: str | Path | None = None,
    skip_invalid: bool = False,
    shard: Shard | None = None,
    on_plan: Callable[[ProbePlan], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> RecordSummary:
    """Write the record again with an answer in every round, asked of the model now by one prompt.

    Each is asked from the evidence as recorded, as :func:`suffice.answer_probe` does, and is marked
    ``probed``; its calls and tokens stand in the ``answer_`` columns and are added to the others where these
    are known. What the loop answered itself is kept in ``loop_answer``, ``loop_response`` and so on; where
    the record does not tell what that answer cost, the round's costs stay. All other columns stay, signals
    that are stored too. The run document is the record's own, with what was asked under ``derived``.
    Resumable, with the same ``out``: see :func:`suffice.loops.record.dataset_run.record`.

    ``model`` may be a function that connects to one, called once nothing speaks against asking. ``corpus``
    has the texts of recorded ids, see :func:`suffice.retrieval.corpus.read_corpus`. ``skip_invalid`` also
    leaves out questions without a text, or with passages whose texts are not known; else they are a
    DataError. ``shard``: its questions only, of those that the settings choose.
    """
    wanted = settings_of(ProbeSettings, settings)
    place, record = Path(out).resolve(), Path(source).resolve()
    if record == place or (record == place.parent and record.is_dir()):
        raise UsageError(f"{out} is, or would become, a part of {source}; choose another --out")
    inspection = inspect_traces(source, keep_unknown=True)
    for remark in inspection.remarks:
        warnings.warn(remark, SufficeWarning, stacklevel=2)
    traces = inspection.valid(skip_invalid=skip_invalid)
    refuse_veiled(traces)
    ids = traces.question_ids[: wanted.limit]
    if wanted.sample is not None:
        ids = sampled_ids(traces.question_ids, wanted.sample, seed=wanted.seed)
    traces = traces.only_questions(ids)
    passages = () if corpus is None else read_corpus(corpus).passages
    kind = rows_of(traces, beside=not wanted.missing_only)
    tasks, left_out = _askable(question_rows(traces, passages), wanted, source, skip=skip_invalid)
    if not any(_asked(task, wanted).any() for task in tasks):
        raise UsageError(
            f"every round of {source} has an answer, so nothing is missing; leave --missing-only out to "
            "ask again, by one prompt"
        )
    if shard is not None:
        tasks = [task for task in tasks if shard.holds(task.id)]
    connected: ChatModel = model() if callable(model) else model
    ask = answer_probe(connected, wanted)

    def probed(task: QuestionRows, stop: threading.Event) -> Any:
        answered: dict[int, Round] = {}
        for place in np.flatnonzero(_asked(task, wanted)).tolist():
            if stop.is_set():
                return None
            view = LoopView(task.question, task.rounds[: place + 1])
            if wanted.prompt == "in-loop":
                read_before(connected, conversation_of(view, connected.api))
            answered[place] = _redrafted(view.current, ask(view))
        return task.filled(answered, kind.schema.arrow)

    prober = Recorder(noun="questions", key=lambda task: (task.id,), record=probed)
    run = _run_document(inspection, connected, wanted, passages)
    session = SessionSettings(run=run, concurrency=width_of(connected))
    if on_progress is not None:
        session = replace(session, on_progress=on_progress)
    with question_writer(out, run=run, kind=kind, shard=shard) as writer:
        if on_plan is not None:
            left = [task for task in tasks if prober.key(task) not in writer.done]
            asked = sum(int(_asked(task, wanted).sum()) for task in left)
            plan = ProbePlan(
                questions=len(left),
                rounds=sum(task.rows.num_rows for task in left),
                asked=asked,
                own=sum(int(task.own.sum()) for task in left),
                blind=sum(int((_asked(task, wanted) & task.blind).sum()) for task in left),
                calls=asked * (1 + wanted.samples + (wanted.prompt == "in-loop")),
                left_out=left_out,
            )
            on_plan(plan)
        return record_all(tasks, prober, writer, session)


def _asked(task: QuestionRows, settings: ProbeSettings) -> Mask:
    return task.unanswered | (not settings.missing_only)


def _askable(
    tasks: Iterable[QuestionRows], settings: ProbeSettings, source: str | Path, *, skip: bool
) -> tuple[list[QuestionRows], Mapping[str, int]]:
    """Return the questions that can be asked, and counts of the others; refuse these unless ``skip``."""
    kept: list[QuestionRows] = []
    left_out: dict[str, list[QuestionRows]] = {_NO_TEXT: [], _TEXTLESS: []}
    for task in tasks:
        asked = bool(_asked(task, settings).any())
        if asked and not task.question.strip():
            left_out[_NO_TEXT].append(task)
        elif asked and task.textless:
            left_out[_TEXTLESS].append(task)
        else:
            kept.append(task)
    for why, refused in left_out.items():
        if refused and not (skip and kept):
            way_out = (
                "; give their texts by id with --corpus FILE.jsonl" if why == _TEXTLESS else ""
            )
            raise DataError(
                f"{counted(len(refused), 'question')} {why}, so a model cannot answer from their evidence; "
                f"the first: {refused[0].id!r}{way_out}, or leave such questions out with --skip-invalid",
                file=str(source),
                column="question" if why == _NO_TEXT else "passages",
            )
    return kept, {why: len(refused) for why, refused in left_out.items() if refused}


def _redrafted(asked: Round, draft: Draft) -> Round:
    """Replace the round's answer by the draft; an answer of unknown cost stays paid for."""
    if asked.answer is None or asked.usage.answer_calls is not None:
        bare = asked if asked.answer is None else without_answer(asked)
        return with_draft(bare, draft, probed=True)
    spent, usage = draft.usage, asked.usage
    if draft.samples is not None:
        names = (part.name for part in fields(Usage) if part.name.startswith("sample_"))
        drawn = {name: getattr(spent, name) for name in names}
        for whole, part in (("llm_calls", "sample_calls"), ("latency_s", "sample_latency_s")):
            if (own := getattr(usage, whole)) is not None:
                drawn[whole] = own + (drawn[part] or 0)
        usage = replace(usage, **drawn)
    return replace(with_draft(asked, draft, probed=True), usage=usage)


def _run_document(
    inspection: TraceInspection,
    model: ChatModel,
    settings: ProbeSettings,
    corpus: Sequence[Passage],
) -> dict[str, Any]:
    runs = [dict(part.run) for part in inspection.parts]
    run = dict(inspection.traces.origin.run)
    step: dict[str, Any] = {
        "by": "probe",
        "from": Path(inspection.traces.origin.source).resolve().name,
        "record_sha256": evidence_sha256(inspection.traces),
        "model": model.name,
        "api": model.api,
        **{setting.name: getattr(settings, setting.name) for setting in fields(AnswerSettings)},
    }
    step["missing_only"] = settings.missing_only
    if corpus:
        step["corpus_fingerprint"] = corpus_fingerprint(corpus)
    done = run.get("derived")
    run |= {"derived": [*(done if isinstance(done, list) else []), step], "version": VERSION}
    return run if runs.count(runs[0]) == len(runs) else {**run, "runs": runs}


def probe_agreement(path: str | Path) -> tuple[int, int]:
    """Return the number of rounds in which the model gives the loop's own answer, and the number compared."""
    rows = read_traces(path, keep_unknown=True).table
    pairs = [
        (own, asked)
        for own, asked in zip(
            *(rows.column(n).to_pylist() for n in (LOOP_ANSWER, "answer")), strict=True
        )
        if asked is not None and own is not None
    ]
    return sum(answer_form(own) == answer_form(asked) for own, asked in pairs), len(pairs)
