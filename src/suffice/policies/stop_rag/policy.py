"""Stop-RAG as a policy: stop when stopping is worth more than going on (paper 1)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from suffice.contracts import Explanation, Facts, LoopNeeds, PolicyTable
from suffice.errors import DataError, UsageError, read_plain
from suffice.policies.method import FitRun, Method, Preset, loop_needs, read_told, weights_beside
from suffice.policies.stop_rag.network import TextModel
from suffice.policies.stop_rag.signal_network import SignalNetwork
from suffice.policies.stop_rag.stop_rag_settings import TARGETS, StopRAGSettings, Target
from suffice.signals.known_signals import SignalSpec
from suffice.stats.fields import Fields, known
from suffice.stats.units import Array, Mask

if TYPE_CHECKING:
    from suffice.measures.measures import Measures


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRAGPolicy:
    """Stops at the first round whose ``q_stop - q_cont`` exceeds ``threshold``, else at ``rounds``."""

    model: TextModel | SignalNetwork
    threshold: float
    rounds: int
    first: int = 1
    target: Target = "q-lambda"
    preset: Preset | None = None
    fitted_on: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    kind: ClassVar[str] = "stop-rag"

    def __post_init__(self) -> None:
        if not math.isfinite(self.threshold):
            raise UsageError(f"the threshold must be a finite number, found {self.threshold!r}")
        if self.rounds < 1:
            raise UsageError(f"rounds must be at least 1, found {self.rounds}")
        if not 1 <= self.first <= self.rounds:
            raise UsageError(f"first must be a round from 1 to {self.rounds}, found {self.first!r}")
        if self.target not in TARGETS:
            raise UsageError(f"target must be one of {', '.join(TARGETS)}, found {self.target!r}")

    def from_round(self, first: int) -> StopRAGPolicy:
        return replace(self, first=min(max(first, self.first), self.rounds))

    @property
    def specs(self) -> tuple[SignalSpec, ...]:
        """Definitions of its signals: the values of texts, or the signals of the training."""
        return self.model.specs

    @property
    def signals(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.model.specs)

    @property
    def needs(self) -> LoopNeeds:
        return loop_needs(self.specs)

    @property
    def facts(self) -> Facts:
        return Facts(
            summary=f"stop when q_stop - q_cont > {self.threshold:.6g}, learned towards {self.target} "
            f"by {self.model.summary}"
            + (f", from round {self.first} on" if self.first > 1 else ""),
            fitted_on=self.fitted_on,
            notes=self.notes,
            max_rounds=self.rounds,
            earliest=self.first,
        )

    def fires(self, table: PolicyTable) -> Mask:
        """Return where the difference of the values exceeds the threshold, and from ``rounds`` on."""
        stop, cont = self.values(table)
        fires = stop - cont > self.threshold
        fires[:, : self.first - 1] = False
        fires[:, self.rounds - 1 :] = True
        return fires

    def explain(self, table: PolicyTable, question: int, round_number: int) -> Explanation:
        """Compare the values of stopping and of going on, or say that it must not or must stop."""
        at = question, round_number - 1
        stop, cont = (float(value[at]) for value in self.values(table))
        difference = stop - cont
        if round_number >= self.rounds:
            reason = f"round {round_number} is the last of the {self.rounds} it was trained for"
        elif round_number < self.first:
            reason = f"round {round_number} is before round {self.first}, its first to stop at"
        elif math.isnan(difference):
            missing = "; ".join(
                f"{spec.name} is {table.undefined(spec, question, round_number)}"
                for spec in self.specs
                if math.isnan(table.signal(spec.name)[at])
            )
            reason = f"its values are undefined at round {round_number}: {missing}"
        else:
            above = "above" if difference > self.threshold else "not above"
            reason = (
                f"stopping is worth {stop:.3f} and going on {cont:.3f} at round {round_number}: the "
                f"difference {difference:+.3f} is {above} {self.threshold:+.3f}"
            )
        values = {
            "q_stop": known(stop),
            "q_cont": known(cont),
            "difference": known(difference),
            "threshold": self.threshold,
        }
        return Explanation(reason=reason, values=values)

    def values(self, table: PolicyTable) -> tuple[Array, Array]:
        """Return ``q_stop`` and ``q_cont`` of every recorded round, each (n_questions, n_rounds)."""
        return self.model.values({name: table.signal(name) for name in self.signals})

    def weights_file(self) -> bytes:
        return self.model.weights()

    def document(self) -> dict[str, Any]:
        """Return the contents of its file, which names the weights by their SHA-256."""
        body: dict[str, Any] = {
            "threshold": self.threshold,
            "rounds": self.rounds,
            "target": self.target,
            "network": self.model.to_json(),
            "first": self.first if self.first > 1 else None,
            "preset": self.preset,
            "fitted_on": dict(self.fitted_on) or None,
            "notes": list(self.notes) or None,
        }
        return {name: value for name, value in body.items() if value is not None}


# --- the method -----------------------------------------------------------------------------------
_MODELS: Mapping[str, Callable[[Fields, bytes], TextModel | SignalNetwork]] = MappingProxyType(
    {"text": TextModel.read, "signals": SignalNetwork.read}
)


class _StopRAG(Method):
    name = "stop-rag"
    summary = "stop when a network over question and documents values stopping above going on"
    source = "paper 1"
    about = (
        "learned on --split from sampled answers, or each round's own where none were sampled; checkpoint "
        "and threshold are chosen on the split validation where the traces have it, else on 20% of --split"
    )
    main_field = "network"
    options = StopRAGSettings
    quick = False
    variants: Mapping[str, Mapping[str, Any]] = MappingProxyType(
        {"signals": {"features": "signals"}}
    )

    def fit(
        self,
        measures: Measures,
        preset: Preset,
        settings: Any,
        split: str,
        run: FitRun | None = None,
    ) -> StopRAGPolicy:
        from suffice.policies.stop_rag.fit import fit_stop_rag

        return fit_stop_rag(measures, preset, split, settings, run)

    def read(self, document: Mapping[str, Any], file: Path) -> StopRAGPolicy:
        fields = Fields(document)
        fields.need("threshold", "rounds", "network")
        network = fields.part("network")
        features = network.one_of("features", _MODELS)
        data = _weights(weights_beside(file), network.document.get("weights_sha256"))
        return StopRAGPolicy(
            model=_MODELS[features](network, data),
            threshold=fields.number("threshold"),
            rounds=fields.of("rounds", int),
            first=fields.of("first", int, default=1),
            target=document.get("target", "q-lambda"),
            **read_told(fields),
        )


METHOD = _StopRAG()


def _weights(path: Path, expected: object) -> bytes:
    try:
        data = read_plain(path)
    except OSError as error:
        raise DataError(
            f"the network's weights cannot be read ({error.strerror or error}); they belong beside it in "
            f"{path.name}",
            column="network.weights_sha256",
        ) from error
    if hashlib.sha256(data).hexdigest() != expected:
        raise DataError(
            f"{path.name} holds other weights than this file was written with; copy both together, or fit "
            "again",
            column="network.weights_sha256",
        )
    return data
