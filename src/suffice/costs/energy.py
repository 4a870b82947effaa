"""Energy from stated constants: rough, but the same for every policy."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from suffice.costs.tariff import Tariff, parse_rates

_FIELDS = MappingProxyType(
    {
        "prompt": "joules_per_prompt_token",
        "cached": "joules_per_cached_token",
        "completion": "joules_per_completion_token",
        "retrieval": "joules_per_retrieval",
        "rerank": "joules_per_rerank_call",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyModel:
    """Joules for each unit of work, each at least 0.

    Notes
    -----
    The defaults stand for a model of 8 billion parameters in 16 bits on one data-centre GPU that draws
    700 W (the board limit of an H100 SXM, data sheet: 989 TFLOP/s dense in 16 bits, 3.35 TB/s).

    - Evaluating is bound by arithmetic: 2 x 8e9 FLOP a token at 40% of the peak is 40 microseconds,
      times 700 W is 0.028 J; rounded, 0.03 J.
    - Generating is bound by memory: all 16 GB of weights are read once for a batch, at 60% of the
      bandwidth in 8 ms; shared by 16 sequences that is 0.5 ms a token, times 700 W is 0.35 J.

    They are estimates, not measurements: batch size alone moves the second one from some 5 J (one
    sequence) to below 0.1 J, and attention over long prompts, idle time, host, cooling and networks are
    left out. Use them to compare policies on one trace, and set your own for anything else.
    """

    joules_per_prompt_token: float = 0.03
    joules_per_cached_token: float = 0.0
    joules_per_completion_token: float = 0.35
    joules_per_retrieval: float = 0.0
    joules_per_rerank_call: float = 0.0

    def __post_init__(self) -> None:
        _ = self.tariff  # refuses what cannot be charged

    @property
    def tariff(self) -> Tariff:
        """The charges, in joules."""
        return Tariff(**{name: getattr(self, field) for name, field in _FIELDS.items()})

    @property
    def summary(self) -> str:
        """The constants in words."""
        text = (
            f"{self.joules_per_prompt_token:g} J a prompt token, {self.joules_per_cached_token:g} J a "
            f"cached one, {self.joules_per_completion_token:g} J a completion token"
        )
        if self.joules_per_retrieval:
            text += f", {self.joules_per_retrieval:g} J a retrieval"
        if self.joules_per_rerank_call:
            text += f", {self.joules_per_rerank_call:g} J a reranker call"
        defaults = " (the defaults, rough)" if self == EnergyModel() else ""
        return f"{text}{defaults}"


def parse_energy(text: str) -> EnergyModel:
    """Constants by hand, in joules: ``prompt=0.03,completion=0.35``; those left out keep the defaults.

    Examples
    --------
    >>> parse_energy("prompt=0.1,retrieval=2").joules_per_retrieval
    2.0
    """
    rates = parse_rates(text, option="--energy", known=tuple(_FIELDS))
    return EnergyModel(**{_FIELDS[name]: value for name, value in rates.items()})
