"""What AB-RAG gives on one record or several, side by side, as data and as the paper's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from suffice.costs.prices import Prices
from suffice.numbers.intervals.bootstrap import Interval
from suffice.numbers.intervals.estimate import Estimate
from suffice.replay.diagnose.reliability import wilson
from suffice.replay.run.compare import Comparison
from suffice.replay.run.results import PolicyResult
from suffice.results.as_json import as_json, fields_as_json
from suffice.results.formats import amount
from suffice.results.table import Column, Table, Value, notes_table
from suffice.results.tabular import Tabular

METHOD = "ab-rag"
_SPENT = ("llm_calls", "prompt_tokens", "completion_tokens", "seconds", "usd")


@dataclass(frozen=True, slots=True)
class SignalForm:
    """A form of S1, S2 or S3: a signal, counted upwards or (``sign`` -1) as a penalty."""

    part: str
    name: str = field(metadata={"json": "form"})
    signal: str
    sign: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalWorth:
    """AUROC of a form in round 1 against exact match there, over the questions where it is defined."""

    form: SignalForm
    defined: int
    auroc: Estimate

    def to_json(self) -> dict[str, Any]:
        worth = {"defined": self.defined, "auroc": as_json(self.auroc)}
        return {**fields_as_json(self.form), **worth}


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptTau:
    """The published confidence stopped at another threshold, with the interval of its exact match."""

    tau: float
    result: PolicyResult
    em: Interval

    def to_json(self) -> dict[str, Any]:
        return {"tau": self.tau, **self.result.to_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LongAnswer:
    """An answer that is no exact match and holds a gold answer word for word."""

    question_id: str
    question: str
    gold: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LongAnswers:
    """Those of one policy: how many, of how many that are no exact match, and the first of them."""

    policy: str
    labelled: int
    wrong: int
    holding: int
    examples: tuple[LongAnswer, ...]

    @property
    def share(self) -> Interval | None:
        """The share of the wrong answers that hold gold, with its Wilson interval."""
        if not self.wrong:
            return None
        low, high = wilson(self.holding, self.wrong)
        return Interval(estimate=self.holding / self.wrong, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopExample:
    """A question through the loop: answer and confidence of every round up to the stop."""

    question_id: str
    question: str
    gold: str
    answers: tuple[str, ...]
    confidence: tuple[float | None, ...] = ()
    first_em: float = 0.0
    last_em: float = 0.0

    @property
    def outcome(self) -> str:
        rounds = len(self.answers)
        did = "stops at once" if rounds == 1 else f"goes on to round {rounds}"
        changes = {
            (0.0, 1.0): "wrong, then right",
            (1.0, 0.0): "right, then wrong",
            (1.0, 1.0): "right",
        }
        return f"{did}: {changes.get((self.first_em, self.last_em), 'wrong')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStudy:
    """AB-RAG on one record beside static retrieval, a fixed number of rounds charged as it is run.

    ``em`` has the exact match of ``static`` and ``ab-rag`` with resampled intervals, ``gain`` their paired
    difference; ``not_in_record`` names the signals that the record cannot give.
    """

    name: str
    model: str
    comparison: Comparison
    selective: tuple[dict[str, Any], ...]
    swept: tuple[SweptTau, ...]
    signals: tuple[SignalWorth, ...]
    not_in_record: tuple[str, ...]
    static: str
    em: dict[str, Interval]
    gain: Interval
    long_answers: tuple[LongAnswers, ...]
    loops: tuple[LoopExample, ...]
    prices: Prices | None

    @property
    def policies(self) -> tuple[PolicyResult, PolicyResult]:
        """Static retrieval and AB-RAG."""
        by_name = {policy.name: policy for policy in self.comparison.result.policies}
        return by_name[self.static], by_name[METHOD]

    @property
    def questions(self) -> int:
        return self.comparison.result.questions

    def to_json(self) -> dict[str, Any]:
        return {
            "record": self.name,
            "model": self.model or None,
            **self.comparison.result.to_json(),
            "selective": as_json(self.selective),
            "tau_sweep": as_json(self.swept),
            "signals": as_json(self.signals),
            "not_in_record": list(self.not_in_record),
            "static": self.static,
            "exact_match": as_json(self.em),
            "exact_match_gain": as_json(self.gain),
            "exact_match_swept": [as_json(swept.em) for swept in self.swept],
            "long_answers": as_json(self.long_answers),
            "loops": as_json(self.loops),
            "prices": as_json(self.prices),
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ABRagStudy(Tabular):
    """Every record's study, with the price list that was asked for."""

    records: tuple[RecordStudy, ...]
    priced_by: str | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"{record.name}: {note}"
            for record in self.records
            for note in record.comparison.result.notes
        )

    def tables(self) -> Sequence[Table]:
        """Of one record the whole comparison; the paper's tables in their order; notes."""
        alone = self.records[0].comparison.tables() if len(self.records) == 1 else ()
        paper = (
            costs_table(self),
            static_table(self),
            groups_table(self),
            thresholds_table(self),
            signals_table(self),
            *long_answers_tables(self),
            loops_table(self),
        )
        return (*alone, *(table for table in paper if table.rows), *notes_table(self.notes))

    def to_json(self) -> dict[str, Any]:
        """Of one record its own document."""
        if len(self.records) == 1:
            return self.records[0].to_json()
        return {"records": as_json(self.records), "priced_by": self.priced_by}


# --- tables ---------------------------------------------------------------------------------------
_POLICY = Column(name="policy")


def _table(
    study: ABRagStudy,
    name: str,
    title: str,
    columns: Sequence[Column],
    rows: Callable[[RecordStudy], Iterable[Sequence[Value]]],
    notes: Sequence[str] = (),
) -> Table:
    """A table with some rows a record, whose name stands first."""
    return Table(
        name=name,
        title=title,
        columns=[Column(name="record", once=True), *columns],
        rows=[(record.name, *row) for record in study.records for row in rows(record)],
        notes=notes,
        names=2,
    )


def costs_table(study: ABRagStudy) -> Table:
    """The paper's Table IV."""
    lacking = sorted(
        {one.name for one in study.records for p in one.policies if p.costs.get("usd") is None}
    )
    notes = []
    if study.priced_by is None:
        notes = ["No prices were given: --prices input=1,output=5, or a file with rates a model."]
    elif lacking:
        notes = [
            f"Dollars are unknown of {', '.join(lacking)}: the record holds no tokens, or the price list "
            "does not name its model."
        ]

    def rows(record: RecordStudy) -> Iterator[Sequence[Value]]:
        for policy in record.policies:
            usd = policy.costs.get("usd")
            in_all = None if usd is None else usd * record.questions
            spent = (policy.costs.get(name) for name in _SPENT)
            yield record.model, policy.name, record.questions, *spent, in_all

    by = "." if study.priced_by is None else f"; prices: {study.priced_by}."
    columns = [
        Column(name="model", once=True),
        _POLICY,
        Column(name="questions", kind="count"),
        Column(name="calls", kind="number", digits=2),
        Column(name="prompt_tokens", head="prompt\ntokens", kind="count"),
        Column(name="completion_tokens", head="compl.\ntokens", kind="number", digits=1),
        Column(name="seconds", kind="number", digits=2),
        Column(name="usd", head="USD", kind="number", digits=6),
        Column(name="usd_in_all", head="USD\nin all", kind="number", digits=4),
    ]
    title = f"Table IV: costs, means per question, as the policy would be run{by}"
    return _table(study, "costs", title, columns, rows, notes)


def static_table(study: ABRagStudy) -> Table:
    """The paper's Table VI."""

    def rows(record: RecordStudy) -> Iterator[Sequence[Value]]:
        for policy in record.policies:
            gain = record.gain if policy.name == METHOD else None
            figures = (policy.f1, policy.mean_rounds, policy.auroc, gain, beyond(policy))
            yield policy.name, record.em[policy.name], *figures

    columns = [
        _POLICY,
        Column(name="em", head="EM [95%]", kind="percent", interval=True),
        Column(name="f1", head="F1", kind="percent"),
        Column(name="rounds", kind="number", digits=2),
        Column(name="auroc", head="AUROC", kind="number", digits=3),
        Column(name="gain", head="gain [95%]", kind="points", interval=True),
        Column(name="beyond"),
    ]
    title = (
        "Table VI: static retrieval against AB-RAG. EM and F1 in percent; gain: EM over static, paired "
        "by question; 0 [0, 0]: no question's score differs here. Beyond: questions whose record ends "
        "before the round it wanted."
    )
    return _table(study, "static and adaptive", title, columns, rows)


def beyond(policy: PolicyResult) -> str:
    """How many questions end before the round wanted; empty: none."""
    return str(policy.beyond_record) if policy.beyond_record else ""


def groups_table(study: ABRagStudy) -> Table:
    """The paper's Table VII."""

    def rows(record: RecordStudy) -> Iterator[Sequence[Value]]:
        for group in record.selective:
            sides = [group[side][of] for side in ("above", "below") for of in ("questions", "em")]
            yield group["policy"], group["threshold"], *sides

    columns = [
        _POLICY,
        Column(name="threshold", kind="number", digits=2),
        Column(name="above_n", head="n\nabove", kind="count"),
        Column(name="above", head="EM above [95%]", kind="percent", interval=True),
        Column(name="below_n", head="n\nbelow", kind="count"),
        Column(name="below", head="EM below [95%]", kind="percent", interval=True),
    ]
    title = "Table VII: EM of the answers at or above the threshold, and below it, in percent."
    return _table(study, "high and low confidence", title, columns, rows)


def thresholds_table(study: ABRagStudy) -> Table:
    """The paper's Table VIII."""

    def rows(record: RecordStudy) -> Iterator[Sequence[Value]]:
        for swept in record.swept:
            result = swept.result
            gain = result.frontier_gain
            yield f"{swept.tau:g}", result.mean_rounds, swept.em, result.f1, gain, beyond(result)

    columns = [
        Column(name="threshold"),
        Column(name="rounds", kind="number", digits=2),
        Column(name="em", head="EM [95%]", kind="percent", interval=True),
        Column(name="f1", head="F1", kind="percent"),
        Column(name="gain", head="gain over fixed-k [95%]", kind="points", interval=True),
        Column(name="beyond"),
    ]
    title = (
        "Table VIII: rounds, EM and F1 in percent as the threshold is swept. Chosen here, a threshold is "
        "chosen on the questions it is scored on. Where a record ended at a lower threshold (beyond), its "
        "last round is taken."
    )
    return _table(study, "thresholds", title, columns, rows)


def signals_table(study: ABRagStudy) -> Table:
    """The paper's Tables IX and X."""

    def rows(record: RecordStudy) -> Iterator[Sequence[Value]]:
        for worth in record.signals:
            form = worth.form
            yield f"{form.part} {form.name}", form.signal, worth.defined, worth.auroc

    columns = [
        Column(name="form"),
        Column(name="signal", in_text=False),
        Column(name="n", kind="count"),
        Column(name="auroc", head="AUROC [95%]", kind="number", digits=3, interval=True),
    ]
    title = "Tables IX and X: AUROC of single signals in round 1 against exact match there."
    notes = [
        f"{record.name} does not hold: {', '.join(record.not_in_record)}."
        for record in study.records
        if record.not_in_record
    ]
    return _table(study, "signals", title, columns, rows, notes)


def long_answers_tables(study: ABRagStudy) -> tuple[Table, Table]:
    """How often the paper's Table XI is met, and the first of AB-RAG's answers that meet it."""
    counts = _table(
        study,
        "answers that hold gold",
        "Table XI, counted: answers that are no exact match and hold a gold answer word for word, and their "
        "share of all answers that are no exact match. Yes and no are not counted.",
        [
            _POLICY,
            Column(name="labelled", kind="count"),
            Column(name="wrong", head="EM 0", kind="count"),
            Column(name="holding", head="of these\nwith gold", kind="count"),
            Column(name="share", head="share % [95%]", kind="percent", interval=True),
        ],
        lambda record: [
            (long.policy, long.labelled, long.wrong, long.holding, long.share)
            for long in record.long_answers
        ],
    )
    examples = _table(
        study,
        "examples of answers that hold gold",
        f"Table XI: the first of these answers of {METHOD}, in the record's order.",
        [
            Column(name="question_id", in_text=False),
            *(Column(name=name) for name in ("question", "gold", "answer")),
        ],
        lambda record: [
            (one.question_id, one.question, one.gold, one.answer)
            for long in record.long_answers
            if long.policy == METHOD
            for one in long.examples
        ],
        [
            'A wrong answer may hold the gold one too, as the sentence "A is older than B" does where B is '
            "right: the count bounds from above how many are right in substance."
        ],
    )
    return counts, examples


def loops_table(study: ABRagStudy) -> Table:
    """The paper's Table XII."""
    names = ("question", "gold", "answers", "confidence", "outcome")
    return _table(
        study,
        "loops",
        "Table XII: the loop on single questions, first those that it went on with and put right. "
        "Confidence by round, then what it did.",
        [Column(name="question_id", in_text=False), *(Column(name=name) for name in names)],
        lambda record: [
            (
                *(one.question_id, one.question, one.gold, " > ".join(one.answers)),
                *(" > ".join(map(amount, one.confidence)), one.outcome),
            )
            for one in record.loops
        ],
    )
