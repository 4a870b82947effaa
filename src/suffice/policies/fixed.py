"""Always the same number of rounds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import Explanation, Facts, LoopNeeds, PolicyTable
from suffice.errors import UsageError
from suffice.policies.method import PolicyKind
from suffice.signals.registry import SignalSpec
from suffice.stats.fields import Fields

_NAME = re.compile(r"fixed-(\d{1,6})")
_MOST_ROUNDS = int(np.iinfo(np.int16).max)


@dataclass(frozen=True, slots=True)
class FixedPolicy:
    """Stops after ``rounds`` rounds, whatever happened in them."""

    rounds: int

    kind: ClassVar[str] = "fixed"
    preset: ClassVar[None] = None
    signals: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= _MOST_ROUNDS:
            raise UsageError(f"fixed-K needs K from 1 to {_MOST_ROUNDS}, found {self.rounds}")

    @classmethod
    def named(cls, name: str) -> FixedPolicy | None:
        """The policy of a name such as ``fixed-3``; ``None`` for other names."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(int(match.group(1)))

    @property
    def needs(self) -> LoopNeeds:
        """Nothing."""
        return LoopNeeds()

    @property
    def specs(self) -> tuple[SignalSpec, ...]:
        """It reads none."""
        return ()

    @property
    def facts(self) -> Facts:
        """Its number of rounds."""
        summary = f"always {self.rounds} rounds"
        return Facts(summary=summary, max_rounds=self.rounds, earliest=self.rounds)

    def fires(self, table: PolicyTable) -> NDArray[np.bool_]:
        """From its number of rounds on."""
        held = np.arange(1, table.n_rounds + 1) >= self.rounds
        return np.broadcast_to(held, (table.n_questions, table.n_rounds))

    def explain(self, table: PolicyTable, question: int, round_number: int) -> Explanation:
        """Its number of rounds."""
        del table, question
        return Explanation(
            reason=f"always stops after round {self.rounds}; this is round {round_number}",
            values={"round": float(round_number)},
        )

    def document(self) -> dict[str, Any]:
        """What its file says."""
        return {"rounds": self.rounds}


class FixedKind(PolicyKind):
    """Fixed budgets, which nothing fits."""

    main_field = "rounds"

    def read(self, document: Mapping[str, Any], file: Path) -> FixedPolicy:
        """See :meth:`PolicyKind.read`."""
        del file
        fields = Fields(document)
        fields.need("rounds")
        return FixedPolicy(fields.of("rounds", int))


KIND = FixedKind()
