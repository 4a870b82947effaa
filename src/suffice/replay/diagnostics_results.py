"""What the diagnostics found, ready for a table, JSON and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from suffice._version import VERSION
from suffice.replay.estimate import Estimate
from suffice.replay.signal_correlation import Correlations
from suffice.replay.signal_flags import Flag
from suffice.replay.signal_separation import Separation
from suffice.signals.base import Direction

__all__ = [
    "Concentration",
    "Diagnostics",
    "Part",
    "RoundSeparation",
    "SignalDiagnostics",
    "SignalPart",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Concentration:
    """How few values a signal takes: entropy in bits, its most common value and that value's share.

    A verbalized confidence that is 5 nearly always has an entropy near 0: it has collapsed.
    """

    entropy_bits: float
    mode: float
    mode_share: float

    def to_json(self) -> dict[str, float]:
        """Strict JSON."""
        return {
            "entropy_bits": self.entropy_bits,
            "mode": self.mode,
            "mode_share": self.mode_share,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSeparation:
    """One round's separation; ``defined`` is the share of its recorded rounds with a value."""

    round: int
    defined: float
    separation: Separation

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"round": self.round, "defined": self.defined, **self.separation.to_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalPart:
    """A signal on one part of the questions.

    ``defined`` is the share of recorded rounds with a value, ``distinct`` counts its values,
    ``concentration`` is given for at most 12 of them. ``pooled`` takes all rounds together, ``types``
    the same of one question type each.
    """

    defined: float
    distinct: int
    concentration: Concentration | None
    pooled: Separation
    rounds: tuple[RoundSeparation, ...]
    types: Mapping[str, Separation]

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "defined": self.defined,
            "distinct": self.distinct,
            "concentration": None if self.concentration is None else self.concentration.to_json(),
            **self.pooled.to_json(),
            "rounds": [each.to_json() for each in self.rounds],
            "types": {name: each.to_json() for name, each in self.types.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalDiagnostics:
    """A signal on every part, and how far it drifts from tune to eval (``None``: one part only).

    ``drift_d`` is of the signed d. ``recorded`` says that values come from the ``signals`` map.
    """

    name: str
    summary: str
    direction: Direction
    recorded: bool
    parts: Mapping[str, SignalPart]
    drift_d: Estimate | None
    drift_auroc: Estimate | None
    flags: tuple[Flag, ...]

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "name": self.name,
            "summary": self.summary,
            "direction": self.direction,
            "recorded": self.recorded,
            "parts": {name: each.to_json() for name, each in self.parts.items()},
            "drift_d": None if self.drift_d is None else self.drift_d.to_json(),
            "drift_auroc": None if self.drift_auroc is None else self.drift_auroc.to_json(),
            "flags": [each.to_json() for each in self.flags],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Questions looked at together: a split, or all."""

    name: str
    questions: int
    labelled: int
    rounds: int
    correlations: Correlations

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "questions": self.questions,
            "labelled": self.labelled,
            "rounds": self.rounds,
            "correlations": self.correlations.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """Signals of a trace set side by side on its parts: tune and eval, or all questions.

    ``skipped`` says why a signal is not among them.
    """

    source: str
    parts: tuple[Part, ...]
    signals: tuple[SignalDiagnostics, ...]
    skipped: Mapping[str, str]
    resamples: int
    seed: int
    notes: tuple[str, ...]

    @property
    def flags(self) -> dict[str, tuple[Flag, ...]]:
        """Flags by signal, as :func:`refuse_unusable` takes them."""
        return {each.name: each.flags for each in self.signals}

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, null where undefined."""
        return {
            "traces": self.source,
            "version": VERSION,
            "bootstrap": self.resamples,
            "seed": self.seed,
            "parts": {each.name: each.to_json() for each in self.parts},
            "signals": [each.to_json() for each in self.signals],
            "skipped": dict(self.skipped),
            "notes": list(self.notes),
        }
