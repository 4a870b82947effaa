"""What the evaluation of AB-RAG found, as data and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from suffice.numbers.intervals.estimate import Estimate
from suffice.replay.diagnose.selective import SelectiveResult
from suffice.replay.diagnose.tables import selective_tables
from suffice.replay.run.compare import Comparison
from suffice.replay.run.results import PolicyResult
from suffice.results.as_json import as_json, fields_as_json
from suffice.results.table import Column, Table
from suffice.results.tabular import Tabular


@dataclass(frozen=True, slots=True)
class SignalForm:
    """A form of S1, S2 or S3: a signal, counted upwards or (``sign`` -1) as a penalty."""

    part: str
    name: str = field(metadata={"json": "form"})
    signal: str
    sign: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalWorth:
    """AUROC of a form in round 1 against exact match in round 1, ties half.

    ``defined`` of the labelled questions have a value there; the others are left out.
    """

    form: SignalForm
    defined: int
    auroc: Estimate

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            **fields_as_json(self.form),
            "defined": self.defined,
            "auroc": as_json(self.auroc),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptTau:
    """The published confidence stopped at another threshold."""

    tau: float
    result: PolicyResult

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"tau": self.tau, **self.result.to_json()}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ABRagStudy(Tabular):
    """Static against adaptive, what the confidence is worth, other thresholds, single signals.

    ``not_in_record`` names the forms that the record cannot give.
    """

    comparison: Comparison
    selective: tuple[SelectiveResult, ...]
    swept: tuple[SweptTau, ...]
    signals: tuple[SignalWorth, ...]
    not_in_record: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the comparison must know."""
        return self.comparison.result.notes

    def tables(self) -> Sequence[Table]:
        """The comparison, what the confidence is worth, other thresholds, single signals."""
        swept = [_swept(self)] if self.swept else []
        return (
            *self.comparison.tables(),
            *selective_tables(self.selective),
            *swept,
            _signals(self),
        )

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, null where undefined."""
        return {
            **self.comparison.result.to_json(),
            "selective": as_json(self.selective),
            "tau_sweep": as_json(self.swept),
            "signals": as_json(self.signals),
            "not_in_record": list(self.not_in_record),
        }


# --- tables ---------------------------------------------------------------------------------------
def _swept(study: ABRagStudy) -> Table:
    cost = study.comparison.result.cost.name
    spent = [] if cost == "rounds" else [Column(name=cost, kind="number", digits=2)]
    rows = [
        (
            f"{swept.tau:g}",
            swept.result.em,
            swept.result.f1,
            swept.result.mean_rounds,
            *(swept.result.costs.get(column.name) for column in spent),
            swept.result.auroc,
            swept.result.frontier_gain,
            str(swept.result.beyond_record) if swept.result.beyond_record else "",
        )
        for swept in study.swept
    ]
    return Table(
        name="thresholds",
        title="The published confidence stopped at other thresholds; EM, F1 and gains in percent. Chosen "
        "here, a threshold is chosen on the questions it is scored on. Beyond: questions whose record "
        "ends before the round it wanted.",
        columns=[
            Column(name="tau"),
            Column(name="em", head="EM", kind="percent"),
            Column(name="f1", head="F1", kind="percent"),
            Column(name="rounds", kind="number", digits=2),
            *spent,
            Column(name="auroc", head="AUROC", kind="number", digits=3),
            Column(name="gain", head="gain over fixed-k [95%]", kind="points", interval=True),
            Column(name="beyond"),
        ],
        rows=rows,
    )


def _signals(study: ABRagStudy) -> Table:
    lacking = study.not_in_record
    return Table(
        name="signals",
        title="Single signals in round 1 against exact match in round 1; n: defined there.",
        columns=[
            Column(name="part", head=""),
            Column(name="form"),
            Column(name="signal"),
            Column(name="n", kind="count"),
            Column(name="auroc", head="AUROC [95%]", kind="number", digits=3, interval=True),
        ],
        rows=[
            (worth.form.part, worth.form.name, worth.form.signal, worth.defined, worth.auroc)
            for worth in study.signals
        ],
        names=3,
        notes=[f"Not in the record: {', '.join(lacking)}."] if lacking else [],
    )
