"""Which agent decides when to retrieve: the five variants of paper 4 (section 6.2), as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, get_args

from suffice.errors import UsageError, unknown_name
from suffice.policies.gate.settings import GateSettings

Upfront = Literal["never", "first-step", "every-step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentControl:
    """When an agent retrieves."""

    name: str
    upfront: Upfront = "never"
    reviews: bool = False
    k: int = 6
    gate: GateSettings | None = None

    def __post_init__(self) -> None:
        if self.k < 1:
            raise UsageError(f"k must be at least 1, found {self.k}")
        if self.upfront not in get_args(Upfront):
            known = ", ".join(get_args(Upfront))
            raise UsageError(f"upfront must be one of {known}, found {self.upfront!r}")
        if self.gate is not None and (self.upfront != "never" or self.reviews):
            raise UsageError("a gate decides when to retrieve; leave upfront and reviews out")

    def retrieves_before(self, number: int) -> bool:
        """Whether it retrieves before step ``number`` is drawn."""
        return self.upfront == "every-step" or (self.upfront == "first-step" and number == 1)


GATED = "confidence-gated"
AGENTS: Mapping[str, AgentControl] = MappingProxyType(
    {
        control.name: control
        for control in (
            AgentControl(name="vanilla"),
            AgentControl(name="fixed-top-k", upfront="first-step"),
            AgentControl(name="always-retrieve", upfront="every-step"),
            AgentControl(name="self-rag", reviews=True),
            AgentControl(name=GATED),
        )
    }
)
"""By name; ``confidence-gated`` still wants its gate: :func:`agent_control`."""


def gated(gate: GateSettings, name: str = GATED) -> AgentControl:
    """The agent of a gate."""
    return AgentControl(name=name, gate=gate)


def agent_control(name: str, gate: GateSettings | None = None, *, k: int = 6) -> AgentControl:
    """A variant by name; ``gate`` for ``confidence-gated``, the published one where none is given."""
    if name not in AGENTS:
        raise UsageError(unknown_name("agent", name, AGENTS))
    if name == GATED:
        return gated(GateSettings.published() if gate is None else gate)
    return replace(AGENTS[name], k=k)
