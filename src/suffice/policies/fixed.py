"""Always the same number of rounds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.numbers.fields import Fields
from suffice.policies.kind import PolicyKind
from suffice.protocols import Action, Decision, Facts, LoopNeeds, PolicyTable, PolicyView
from suffice.signals.spec import SignalSpec

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

    def decide(self, view: PolicyView) -> Decision:
        """Stop once the number of rounds is reached."""
        done = view.round >= self.rounds
        return Decision(
            action=Action.STOP if done else Action.CONTINUE,
            reason=f"always stops after round {self.rounds}; this is round {view.round}",
            values={"round": float(view.round)},
        )

    def stop_rounds(self, table: PolicyTable) -> NDArray[np.int16]:
        """``rounds`` for every question, also past the record, (n_questions,)."""
        return np.full(table.n_questions, self.rounds, np.int16)

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
