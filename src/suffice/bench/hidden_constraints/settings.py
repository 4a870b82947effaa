"""What the hidden-constraint experiment runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from suffice.bench.hidden_constraints.corpus.tasks import BenchmarkSettings
from suffice.errors import UsageError
from suffice.pipelines.planning.agent import PlanningSettings
from suffice.pipelines.planning.controls import AGENTS, GATED
from suffice.policies.gate.settings import MARKERS, GateSettings

EXPERIMENTS = ("main", "ablations", "sweep")
Subset = Literal["hard", "hard-small"]
SUBSETS: tuple[Subset, ...] = get_args(Subset)


@dataclass(frozen=True, slots=True)
class Regime:
    """A retriever, and how many documents agents ask it for; a gate's most documents grow to it."""

    retriever: str
    k: int


REGIMES: Mapping[str, Regime] = {
    "tfidf": Regime("tfidf", 6),
    "dense": Regime("dense", 6),
    "dense-30": Regime("dense", 30),
    "hybrid": Regime("hybrid", 6),
    "oracle": Regime("oracle", 6),
}
"""By the name of ``--retrievers``; ``dense-30`` is the paper's "improved" one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenConstraintsSettings:
    """What is run.

    Parameters
    ----------
    benchmark
        How tasks and documents are generated.
    subset
        ``hard``: all tasks; ``hard-small``: the shorter ones.
    limit
        Only the first tasks of it; ``None``: all.
    agents, retrievers
        Of :data:`suffice.pipelines.planning.controls.AGENTS` and :data:`REGIMES`. ``vanilla`` runs once.
    seeds, seed
        How many times everything is drawn, and the first seed; each next one is 1 more.
    experiments
        Of :data:`EXPERIMENTS`. Ablations and sweep run the gate with the first retriever and seed.
    gates
        Gates besides the published one, by the name of their agent.
    encoder
        What the encoder of dense vectors is called.
    detector
        What the gates call who finds contradictions; ``markers`` is the published one.
    planning
        How plans are drafted.
    resamples
        Bootstrap draws over tasks.
    folder
        Keeps everything, so that the experiment can be gone on with.
    """

    benchmark: BenchmarkSettings = field(default_factory=BenchmarkSettings)
    subset: Subset = "hard"
    limit: int | None = None
    agents: tuple[str, ...] = tuple(AGENTS)
    retrievers: tuple[str, ...] = ("tfidf", "dense", "hybrid", "oracle")
    seeds: int = 3
    seed: int = 42
    experiments: tuple[str, ...] = EXPERIMENTS
    gates: Mapping[str, GateSettings] = field(default_factory=dict)
    encoder: str = "minilm"
    detector: str = MARKERS
    planning: PlanningSettings = field(default_factory=PlanningSettings)
    resamples: int = 1000
    folder: Path | None = None

    def __post_init__(self) -> None:
        for name, known in (
            ("agents", tuple(AGENTS)),
            ("retrievers", tuple(REGIMES)),
            ("experiments", EXPERIMENTS),
        ):
            given = getattr(self, name)
            unknown = [each for each in given if each not in known]
            if unknown or not given:
                found = f"found {unknown[0]!r}" if unknown else "found none"
                raise UsageError(f"--{name} must be of {', '.join(known)}; {found}")
            if len(set(given)) < len(given):
                raise UsageError(f"--{name} names one twice: {', '.join(given)}")
        if "main" not in self.experiments:
            raise UsageError(
                "--experiments must hold main: ablations and sweep are compared with its gate"
            )
        if self.experiments != ("main",) and GATED not in self.agents:
            raise UsageError(
                f"ablations and sweep are compared with {GATED}; add it to --agents, or type "
                "--experiments main"
            )
        if self.subset not in SUBSETS:
            raise UsageError(f"--subset must be one of {', '.join(SUBSETS)}, found {self.subset!r}")
        self._check_gates()
        for name in ("seeds", "resamples", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, found {value}")

    def _check_gates(self) -> None:
        for name, gate in self.gates.items():
            if gate.detector != self.detector:
                raise UsageError(
                    f"the gate {name} goes by the detector {gate.detector!r}, and the experiment by "
                    f"{self.detector!r}; type --detector {gate.detector}"
                )
            if name in AGENTS:
                raise UsageError(f"a gate may not be called {name!r}, as an agent is")

    def to_json(self) -> dict[str, Any]:
        """What a figure needs to say of it."""
        return {
            "benchmark": asdict(self.benchmark),
            "subset": self.subset,
            "limit": self.limit,
            "agents": list(self.agents),
            "retrievers": list(self.retrievers),
            "seeds": self.seeds,
            "seed": self.seed,
            "experiments": list(self.experiments),
            "encoder": self.encoder,
            "detector": self.detector,
            "gates": sorted(self.gates),
            "planning": asdict(self.planning),
            "resamples": self.resamples,
        }
