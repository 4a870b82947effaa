"""What AB-RAG gives on several records, side by side, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from studies.ab_rag.answers import LongAnswers, LoopExample
from studies.ab_rag.record_results import ABRagStudy
from suffice.costs.prices import Prices
from suffice.numbers.intervals.bootstrap import Interval
from suffice.replay.run.results import PolicyResult
from suffice.results.as_json import as_json
from suffice.results.formats import amount
from suffice.results.table import Cell, Column, Table, Value, notes_table
from suffice.results.tabular import Tabular

METHOD = "ab-rag"
_RECORD = Column(name="record", once=True)
_POLICY = Column(name="policy")
_SPENT = ("llm_calls", "prompt_tokens", "completion_tokens", "seconds", "usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStudy:
    """AB-RAG on one record beside static retrieval, a fixed number of rounds charged as it is run.

    ``em`` has the exact match of ``static`` and ``ab-rag`` with resampled intervals, ``gain`` their
    paired difference, ``swept_em`` that of every threshold.
    """

    name: str
    model: str
    study: ABRagStudy
    static: str
    em: dict[str, Interval]
    gain: Interval | None
    swept_em: tuple[Interval, ...]
    long_answers: tuple[LongAnswers, ...]
    loops: tuple[LoopExample, ...]
    prices: Prices | None

    @property
    def policies(self) -> tuple[PolicyResult, PolicyResult]:
        """Static retrieval and AB-RAG."""
        by_name = {policy.name: policy for policy in self.study.comparison.result.policies}
        return by_name[self.static], by_name[METHOD]

    @property
    def questions(self) -> int:
        """How many are scored."""
        return self.study.comparison.result.questions

    def to_json(self) -> dict[str, Any]:
        """Strict JSON: what ``suffice bench ab-rag`` gives of the record, and what is beside it."""
        return {
            "record": self.name,
            "model": self.model or None,
            **self.study.to_json(),
            "static": self.static,
            "exact_match": as_json(self.em),
            "exact_match_gain": as_json(self.gain),
            "exact_match_swept": as_json(self.swept_em),
            "long_answers": as_json(self.long_answers),
            "loops": as_json(self.loops),
            "prices": as_json(self.prices),
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ABRagRecords(Tabular):
    """Every record's study, with the price list that was asked for."""

    records: tuple[RecordStudy, ...]
    priced_by: str | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know, the record before each note."""
        return tuple(
            f"{record.name}: {note}" for record in self.records for note in record.study.notes
        )

    def tables(self) -> Sequence[Table]:
        """The paper's tables in their order, then notes."""
        tables = (
            costs_table(self),
            static_table(self),
            groups_table(self),
            thresholds_table(self),
            signals_table(self),
            long_answers_table(self),
            long_examples_table(self),
            loops_table(self),
        )
        return (
            *(table for table in tables if table.rows),
            *notes_table(f"{note}" for note in self.notes),
        )

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, null where undefined."""
        return {"records": as_json(self.records), "priced_by": self.priced_by}


def _rows(study: ABRagRecords) -> Iterator[tuple[RecordStudy, PolicyResult]]:
    for record in study.records:
        for policy in record.policies:
            yield record, policy


def costs_table(study: ABRagRecords) -> Table:
    """The paper's Table IV."""
    unknown = sorted(
        {record.name for record, policy in _rows(study) if policy.costs.get("usd") is None}
    )
    notes = []
    if study.priced_by is None:
        notes = ["No prices were given: --prices input=1,output=5, or a file with rates a model."]
    elif unknown:
        notes = [
            f"Dollars are unknown of {', '.join(unknown)}: the record holds no tokens, or the price list "
            "does not name its model."
        ]
    return Table(
        name="costs",
        title="Table IV: costs, means per question, as the policy would be run"
        + ("." if study.priced_by is None else f"; prices: {study.priced_by}."),
        columns=[
            _RECORD,
            Column(name="model", once=True),
            _POLICY,
            Column(name="questions", kind="count"),
            Column(name="calls", kind="number", digits=2),
            Column(name="prompt_tokens", head="prompt\ntokens", kind="count"),
            Column(name="completion_tokens", head="compl.\ntokens", kind="number", digits=1),
            Column(name="seconds", kind="number", digits=2),
            Column(name="usd", head="USD", kind="number", digits=6),
            Column(name="usd_in_all", head="USD\nin all", kind="number", digits=4),
        ],
        rows=[
            (
                *(record.name, record.model, policy.name, record.questions),
                *(policy.costs.get(name) for name in _SPENT),
                None if (usd := policy.costs.get("usd")) is None else usd * record.questions,
            )
            for record, policy in _rows(study)
        ],
        notes=notes,
        names=3,
    )


def static_table(study: ABRagRecords) -> Table:
    """The paper's Table VI."""
    return Table(
        name="static and adaptive",
        title="Table VI: static retrieval against AB-RAG. EM and F1 in percent; gain: EM over static, paired "
        "by question; 0 [0, 0]: no question's score differs here. Beyond: questions whose record ends "
        "before the round it wanted.",
        columns=[
            _RECORD,
            _POLICY,
            Column(name="em", head="EM [95%]", kind="percent", interval=True),
            Column(name="f1", head="F1", kind="percent"),
            Column(name="rounds", kind="number", digits=2),
            Column(name="auroc", head="AUROC", kind="number", digits=3),
            Column(name="gain", head="gain [95%]", kind="points", interval=True),
            Column(name="beyond"),
        ],
        rows=[
            (
                *(record.name, policy.name, record.em[policy.name], policy.f1, policy.mean_rounds),
                policy.auroc,
                record.gain if policy.name == METHOD else None,
                beyond(policy),
            )
            for record, policy in _rows(study)
        ],
        names=2,
    )


def beyond(policy: PolicyResult) -> str:
    """How many questions end before the round wanted; empty: none."""
    return str(policy.beyond_record) if policy.beyond_record else ""


def groups_table(study: ABRagRecords) -> Table:
    """The paper's Table VII."""
    return Table(
        name="high and low confidence",
        title="Table VII: EM of the answers at or above the threshold, and below it, in percent.",
        columns=[
            _RECORD,
            _POLICY,
            Column(name="threshold", kind="number", digits=2),
            Column(name="above_n", head="n\nabove", kind="count"),
            Column(name="above", head="EM above [95%]", kind="percent", interval=True),
            Column(name="below_n", head="n\nbelow", kind="count"),
            Column(name="below", head="EM below [95%]", kind="percent", interval=True),
        ],
        rows=[
            (
                *(record.name, group.policy, group.threshold),
                *(group.above.questions, group.above.em, group.below.questions, group.below.em),
            )
            for record in study.records
            for group in record.study.selective
        ],
        names=2,
    )


def thresholds_table(study: ABRagRecords) -> Table:
    """The paper's Table VIII."""
    return Table(
        name="thresholds",
        title="Table VIII: rounds and EM in percent as the threshold is swept. Where a record ended at a "
        "lower threshold (beyond), its last round is taken.",
        columns=[
            _RECORD,
            Column(name="threshold"),
            Column(name="rounds", kind="number", digits=2),
            Column(name="em", head="EM [95%]", kind="percent", interval=True),
            Column(name="beyond"),
        ],
        rows=[
            (record.name, f"{swept.tau:g}", swept.result.mean_rounds, em, beyond(swept.result))
            for record in study.records
            for swept, em in zip(record.study.swept, record.swept_em, strict=True)
        ],
        names=2,
    )


def signals_table(study: ABRagRecords) -> Table:
    """The paper's Tables IX and X."""
    return Table(
        name="signals",
        title="Tables IX and X: AUROC of single signals in round 1 against exact match there.",
        columns=[
            _RECORD,
            Column(name="form"),
            Column(name="signal", in_text=False),
            Column(name="n", kind="count"),
            Column(name="auroc", head="AUROC [95%]", kind="number", digits=3, interval=True),
        ],
        rows=[
            (
                *(record.name, f"{worth.form.part} {worth.form.name}", worth.form.signal),
                *(worth.defined, worth.auroc),
            )
            for record in study.records
            for worth in record.study.signals
        ],
        names=2,
        notes=[
            f"{record.name} does not hold: {', '.join(record.study.not_in_record)}."
            for record in study.records
            if record.study.not_in_record
        ],
    )


def long_answers_table(study: ABRagRecords) -> Table:
    """How often the paper's Table XI is met."""
    return Table(
        name="answers that hold gold",
        title="Table XI, counted: answers that are no exact match and hold a gold answer word for word, and "
        "their share of all answers that are no exact match. Yes and no are not counted.",
        columns=[
            _RECORD,
            _POLICY,
            Column(name="labelled", kind="count"),
            Column(name="wrong", head="EM 0", kind="count"),
            Column(name="holding", head="of these\nwith gold", kind="count"),
            Column(name="share", head="share % [95%]", kind="percent", interval=True),
        ],
        rows=[
            (record.name, long.policy, long.labelled, long.wrong, long.holding, long.share)
            for record in study.records
            for long in record.long_answers
        ],
        names=2,
    )


def long_examples_table(study: ABRagRecords) -> Table:
    """The paper's Table XI."""
    rows: list[list[Value]] = [
        [record.name, one.question_id, one.question, one.gold, one.answer]
        for record in study.records
        for long in record.long_answers
        if long.policy == METHOD
        for one in long.examples
    ]
    return Table(
        name="examples of answers that hold gold",
        title=f"Table XI: the first of these answers of {METHOD}, in the record's order.",
        columns=[
            _RECORD,
            Column(name="question_id", in_text=False),
            Column(name="question"),
            Column(name="gold"),
            Column(name="answer"),
        ],
        rows=rows,
        notes=[
            'A wrong answer may hold the gold one too, as the sentence "A is older than B" does where B is '
            "right: the count bounds from above how many are right in substance."
        ],
    )


def loops_table(study: ABRagRecords) -> Table:
    """The paper's Table XII."""
    return Table(
        name="loops",
        title="Table XII: the loop on single questions, first those that it went on with and put right. "
        "Confidence by round, then what it did.",
        columns=[
            _RECORD,
            Column(name="question_id", in_text=False),
            Column(name="question"),
            Column(name="gold"),
            Column(name="answers"),
            Column(name="confidence"),
            Column(name="outcome"),
        ],
        rows=[
            (
                *(record.name, one.question_id, one.question, one.gold, " > ".join(one.answers)),
                " > ".join(map(amount, one.confidence)),
                _outcome(one),
            )
            for record in study.records
            for one in record.loops
        ],
    )


def _outcome(one: LoopExample) -> Cell:
    rounds = len(one.answers)
    did = "stops at once" if rounds == 1 else f"goes on to round {rounds}"
    changes = {
        (0.0, 1.0): "wrong, then right",
        (1.0, 0.0): "right, then wrong",
        (1.0, 1.0): "right",
    }
    ended = changes.get((one.first_em, one.last_em), "wrong")
    return Cell(f"{did}: {ended}", f"{did}: {ended}")
