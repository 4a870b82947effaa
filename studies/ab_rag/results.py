"""What AB-RAG gives on one record or several, side by side, as data and as the paper's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suffice.evaluation.replay.compare import Comparison
from suffice.evaluation.replay.results import PolicyResult
from suffice.results.table import Column, Table, Value
from suffice.stats.intervals import Interval
from suffice.stats.p_values import rate_interval

METHOD = "ab-rag"
_SPENT = ("llm_calls", "prompt_tokens", "completion_tokens", "seconds", "usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStudy:
    """AB-RAG on one record beside static retrieval, a fixed number of rounds charged as it is run.

    Its ``document`` holds the comparison's own, then among others ``selective``, answers above and below the
    threshold, ``signals``, the AUROC of every form of S1, S2 and S3 in round 1 against exact match there, and
    ``long_answers``, those that are no exact match and hold a gold answer.
    """

    name: str
    model: str
    comparison: Comparison
    swept: Mapping[float, PolicyResult]
    document: Mapping[str, Any]

    @property
    def policies(self) -> tuple[PolicyResult, PolicyResult]:
        """Static retrieval and AB-RAG."""
        by_name = {policy.name: policy for policy in self.comparison.result.policies}
        return by_name[self.document["static"]], by_name[METHOD]


def share_interval(some: float, of: int) -> Interval:
    """A share with its exact interval."""
    low, high = rate_interval(some, of)
    return Interval(estimate=some / of, low=low, high=high)


_POLICY = Column(name="policy")
_EM = Column(name="em", head="EM [95%]", kind="percent", interval=True)
_F1 = Column(name="f1", head="F1", kind="percent")
_ROUNDS = Column(name="rounds", kind="number", digits=2)


def paper_tables(records: Sequence[RecordStudy]) -> Iterator[Table]:
    """The paper's tables in their order."""
    for make in (_costs, _static, _groups, _thresholds, _signals, _held_gold):
        yield make(records)


def _table(
    records: Sequence[RecordStudy],
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
        rows=[(record.name, *row) for record in records for row in rows(record)],
        notes=notes,
        names=2,
    )


def _costs(records: Sequence[RecordStudy]) -> Table:
    unknown = sorted(
        {one.name for one in records for p in one.policies if p.costs.get("usd") is None}
    )
    notes = []
    if all(one.document["prices"] is None for one in records):
        notes = ["No prices were given: --prices input=1,output=5, or --price-model NAME."]
    elif unknown:
        notes = [f"Dollars are unknown of {', '.join(unknown)}: the record holds no tokens."]

    def rows(record: RecordStudy) -> Iterator[Sequence[Value]]:
        for policy in record.policies:
            usd = policy.costs.get("usd")
            asked = record.comparison.result.questions
            in_all = None if usd is None else usd * asked
            spent = (policy.costs.get(name) for name in _SPENT)
            yield record.model, policy.name, asked, *spent, in_all

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
    title = "Table IV: costs, means per question, as the policy would be run."
    return _table(records, "costs", title, columns, rows, notes)


def _static(records: Sequence[RecordStudy]) -> Table:
    def rows(record: RecordStudy) -> Iterator[Sequence[Value]]:
        for policy in record.policies:
            gain = record.document["exact_match_gain"] if policy.name == METHOD else None
            figures = (policy.f1, policy.mean_rounds, policy.auroc, gain, _beyond(policy))
            yield policy.name, record.document["exact_match"][policy.name], *figures

    columns = [
        *(_POLICY, _EM, _F1, _ROUNDS),
        Column(name="auroc", head="AUROC", kind="number", digits=3),
        Column(name="gain", head="gain [95%]", kind="points", interval=True),
        Column(name="beyond"),
    ]
    title = (
        "Table VI: static retrieval against AB-RAG. EM and F1 in percent; gain: EM over static, paired "
        "by question; 0 [0, 0]: no question's score differs here. Beyond: questions whose record ends "
        "before the round it wanted."
    )
    return _table(records, "static and adaptive", title, columns, rows)


def _beyond(policy: PolicyResult) -> str:
    """How many questions end before the round wanted; empty: none."""
    return str(policy.beyond_record) if policy.beyond_record else ""


def _groups(records: Sequence[RecordStudy]) -> Table:
    def rows(record: RecordStudy) -> Iterator[Sequence[Value]]:
        for group in record.document["selective"]:
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
    return _table(records, "high and low confidence", title, columns, rows)


def _thresholds(records: Sequence[RecordStudy]) -> Table:
    def rows(record: RecordStudy) -> Iterator[Sequence[Value]]:
        bands = record.document["exact_match_swept"]
        for (tau, result), em in zip(record.swept.items(), bands, strict=True):
            gain = result.frontier_gain
            yield f"{tau:g}", result.mean_rounds, em, result.f1, gain, _beyond(result)

    columns = [
        Column(name="threshold"),
        *(_ROUNDS, _EM, _F1),
        Column(name="gain", head="gain over fixed-k [95%]", kind="points", interval=True),
        Column(name="beyond"),
    ]
    title = (
        "Table VIII: rounds, EM and F1 in percent as the threshold is swept. Chosen here, a threshold is "
        "chosen on the questions it is scored on. Where a record ended at a lower threshold (beyond), its "
        "last round is taken."
    )
    return _table(records, "thresholds", title, columns, rows)


def _signals(records: Sequence[RecordStudy]) -> Table:
    def rows(record: RecordStudy) -> Iterator[Sequence[Value]]:
        for one in record.document["signals"]:
            named = f"{one['part']} {one['form']}"
            yield named, one["signal"], one["defined"], one["auroc"]

    columns = [
        Column(name="form"),
        Column(name="signal", in_text=False),
        Column(name="n", kind="count"),
        Column(name="auroc", head="AUROC [95%]", kind="number", digits=3, interval=True),
    ]
    title = "Tables IX and X: AUROC of single signals in round 1 against exact match there."
    notes = [
        f"{record.name} does not hold: {', '.join(lacking)}."
        for record in records
        if (lacking := record.document["not_in_record"])
    ]
    return _table(records, "signals", title, columns, rows, notes)


def _held_gold(records: Sequence[RecordStudy]) -> Table:
    def rows(record: RecordStudy) -> Iterator[Sequence[Value]]:
        for long in record.document["long_answers"]:
            holding, wrong = long["holding"], long["wrong"]
            share = share_interval(holding, wrong) if wrong else None
            yield long["policy"], long["labelled"], wrong, holding, share

    columns = [
        _POLICY,
        Column(name="labelled", kind="count"),
        Column(name="wrong", head="EM 0", kind="count"),
        Column(name="holding", head="of these\nwith gold", kind="count"),
        Column(name="share", head="share % [95%]", kind="percent", interval=True),
    ]
    title = (
        "Table XI, counted: answers that are no exact match and hold a gold answer word for word, and their "
        "share of all answers that are no exact match. Yes and no are not counted. A wrong answer may "
        "hold the gold one too: the count bounds from above how many are right in substance."
    )
    return _table(records, "answers that hold gold", title, columns, rows)
