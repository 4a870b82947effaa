"""What the evaluation of AB-RAG found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from suffice.numbers.intervals.estimate import Estimate
from suffice.replay.diagnose.selective import SelectiveResult
from suffice.replay.run.compare import Comparison
from suffice.replay.run.results import PolicyResult
from suffice.results.as_json import as_json, fields_as_json
from suffice.results.table import Table
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
        from suffice.bench.ab_rag.show import tables_of

        return tables_of(self)

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, null where undefined."""
        return {
            **self.comparison.result.to_json(),
            "selective": as_json(self.selective),
            "tau_sweep": as_json(self.swept),
            "signals": as_json(self.signals),
            "not_in_record": list(self.not_in_record),
        }
