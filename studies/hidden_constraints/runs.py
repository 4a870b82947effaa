"""What the hidden-constraint experiment runs: its settings, and the runs that these ask for."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from studies.command import FirstSeed, check_names, names_option
from studies.hidden_constraints.corpus.tasks import Benchmark, BenchmarkSettings, PlanningTask
from studies.tfidf import TfidfIndex
from suffice._version import VERSION
from suffice.contracts import ChatModel, ContradictionDetector, Encoder, Judge, Retriever
from suffice.errors import SufficeWarning, UsageError
from suffice.evaluation.settings import Resamples
from suffice.loops.connecting import reranker_name
from suffice.loops.planning.agent import (
    AGENTS,
    GATED,
    AgentControl,
    PlanJob,
    PlanningAgent,
    PlanningSettings,
    agent_control,
)
from suffice.options import Option
from suffice.policies.gate.gate_settings import (
    DEFAULT_COSTS,
    MARKERS,
    GateCosts,
    GateSettings,
    RiskModel,
)
from suffice.results.as_json import fields_as_json
from suffice.retrieval.ranking import check_k, corpus_fingerprint
from suffice.retrieval.retrievers import IndexMaker, Retrieval, pooled_retriever
from suffice.trace.rounds.records import Passage

RECALL_AT = (1, 5, 10)
EXPERIMENTS = ("main", "ablations", "sweep")
REGIMES: Mapping[str, int] = {"tfidf": 6, "dense": 6, "dense-30": 30, "hybrid": 6, "oracle": 6}
"""How many documents agents ask a retriever for, by its name in ``--retrievers``.

A gate's most documents grow to it; ``dense-30`` is the paper's "improved" dense one.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenConstraintsSettings:
    """What is run: ``vanilla`` once a task and seed, every other agent with every retriever.

    ``gates`` are gates besides the published one, by the name of their agent.
    """

    benchmark: BenchmarkSettings = field(default_factory=BenchmarkSettings)
    subset: Annotated[
        Literal["hard", "hard-small"], Option(help="which tasks (default: hard, all of them)")
    ] = "hard"
    limit: Annotated[
        int | None,
        Option(metavar="N", at_least=1, help="only the first N tasks of the subset (default: all)"),
    ] = None
    agents: Annotated[tuple[str, ...], names_option(AGENTS)] = tuple(AGENTS)
    retrievers: Annotated[
        tuple[str, ...], names_option(REGIMES, "; dense-30 gives 30 documents, the others 6")
    ] = ("tfidf", "dense", "hybrid", "oracle")
    seeds: Annotated[int, Option(metavar="N", at_least=1, help="how often all is drawn")] = 3
    seed: FirstSeed = 42
    experiments: Annotated[
        tuple[str, ...],
        names_option(
            EXPERIMENTS,
            "; ablations and sweep run the published gate with the first retriever in the first seed "
            "(default: all)",
        ),
    ] = EXPERIMENTS
    gates: Mapping[str, GateSettings] = field(default_factory=dict)
    encoder: Annotated[
        str, Option(metavar="E", help="of the dense and hybrid retrievers, as in 'suffice record'")
    ] = "minilm"
    detector: Annotated[
        str,
        Option(
            metavar="NAME_OR_PATH",
            help="what finds contradictions: markers (the published words), learned (a small head on "
            "MiniLM), a head's .npz file, or an entailment cross-encoder by folder or name",
        ),
    ] = MARKERS
    planning: PlanningSettings = field(default_factory=PlanningSettings)
    # c_r and L_f of Eq. 5; the paper states neither
    retrieval_cost: Annotated[
        float, Option(metavar="C", help="of a retrieval, in the trajectory cost J")
    ] = DEFAULT_COSTS.retrieval
    failure_loss: Annotated[
        float, Option(metavar="L", help="of a plan that fails its constraint, in J")
    ] = DEFAULT_COSTS.failure
    resamples: Resamples = 1000
    as_published: Annotated[
        bool,
        Option(
            help="the paper's arrangement: hard-small; tfidf, dense, dense-30 and oracle; all agents and "
            "experiments; three seeds from 42; K 2 at 0.6, 6 steps; the markers. An option that says "
            "otherwise is refused, --limit is not. Prints what the paper states and where it is silent"
        ),
    ] = False
    folder: Path | None = field(default=None, metadata={"json": None})

    def __post_init__(self) -> None:
        check_names("--agents", self.agents, tuple(AGENTS))
        check_names("--retrievers", self.retrievers, tuple(REGIMES))
        check_names("--experiments", self.experiments, EXPERIMENTS)
        if "main" not in self.experiments:
            raise UsageError(
                "--experiments must hold main: ablations and sweep are compared with its gate"
            )
        if self.experiments != ("main",) and GATED not in self.agents:
            raise UsageError(
                f"ablations and sweep are compared with {GATED}; add it to --agents, or type "
                "--experiments main"
            )
        GateCosts(retrieval=self.retrieval_cost, failure=self.failure_loss)  # refuses 0 and less
        for name, gate in self.gates.items():
            if gate.detector != self.detector:
                raise UsageError(
                    f"the gate {name} goes by the detector {gate.detector!r}, and the experiment by "
                    f"{self.detector!r}; type --detector {gate.detector}"
                )

    @property
    def all_seeds(self) -> range:
        return range(self.seed, self.seed + self.seeds)

    def to_json(self) -> dict[str, Any]:
        """What a figure needs to say of it."""
        return fields_as_json(self) | {"gates": sorted(self.gates)}


_STATED: Mapping[str, Any] = {
    "subset": "hard-small",
    "agents": tuple(AGENTS),
    "retrievers": ("tfidf", "dense", "dense-30", "oracle"),
    "seeds": 3,
    "seed": 42,
    "experiments": EXPERIMENTS,
    "detector": MARKERS,
}


def as_published(asked: HiddenConstraintsSettings) -> HiddenConstraintsSettings:
    """The settings with all that the paper states; what says otherwise is refused, but for a limit."""
    usual = HiddenConstraintsSettings()
    drawn = {name: getattr(usual.planning, name) for name in ("candidates", "temperature")}
    for name, stated in {**drawn, **_STATED}.items():
        place, default = (asked.planning, usual.planning) if name in drawn else (asked, usual)
        found = getattr(place, name)
        if found not in (stated, getattr(default, name)):
            raise UsageError(
                f"--as-published sets --{name} {said(stated)}, found --{name} {said(found)}; leave out "
                "one of the two"
            )
    return replace(asked, **_STATED)


def said(value: object, between: str = ",") -> str:
    """A setting as it is typed, or listed."""
    return between.join(map(str, value)) if isinstance(value, tuple | range) else str(value)


VANILLA = "vanilla"
ORACLE = "oracle"
TAUS = ((0.1, 0.3), (0.2, 0.4), (0.3, 0.5), (0.4, 0.6), (0.5, 0.7), (0.7, 0.9))
"""(tau_low, tau_high) of the paper's Table 7."""
_WEIGHTLESS = {
    "no SC (w1 = 0)": RiskModel(disagreement=0.0),
    "no CD (w2 = 0)": RiskModel(contradiction=0.0),
    "no DR (w3 = 0)": RiskModel(remaining=0.0),
}


class OracleRetriever:
    """Gives a task's documents whatever is asked, with scores 1, 1/2, 1/3 (paper 4, section 7.4)."""

    def __init__(self, documents: Iterable[Passage]) -> None:
        self._documents = tuple(
            replace(document, score=1 / rank) for rank, document in enumerate(documents, start=1)
        )

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:  # noqa: ARG002 - asked in vain
        """The first ``k`` of the task's documents."""
        check_k(k)
        return self._documents[:k]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experimenters:
    """The models an experiment needs; without a detector the published markers find contradictions."""

    model: ChatModel
    judge: Judge
    judge_name: str
    encoder: Encoder | None = None
    detector: ContradictionDetector | None = None


class Variant(NamedTuple):
    """A published gate with other numbers; ``agent`` is what its runs are recorded as."""

    experiment: str
    name: str
    gate: GateSettings
    taus: tuple[float, float] | None = None

    @property
    def agent(self) -> str:
        return f"{GATED}: {self.name}"


Retrievers = Mapping[str, Retriever | None]
"""By the name of ``--retrievers``; the oracle's is ``None``, since every task has its own."""


def built_retrievers(
    names: Sequence[str], benchmark: Benchmark, encoder: Encoder | None, folder: Path
) -> Retrievers:
    """Retrievers over the corpus."""
    retrievers: dict[str, Retriever | None] = {}
    make, documents = IndexMaker(encoder=encoder), benchmark.documents
    for name in names:
        if name == ORACLE:
            retrievers[name] = None
        elif name == "tfidf":
            retrievers[name] = TfidfIndex(documents)
        else:
            kind = name.removesuffix("-30")
            retrieval = Retrieval(name=kind, encoder=encoder, candidates=max(20, REGIMES[name]))
            place = folder / f"index-{corpus_fingerprint(documents)[:12]}"
            retrievers[name] = pooled_retriever(documents, retrieval, place, make)
    return retrievers


def published_gate(settings: HiddenConstraintsSettings, **changes: Any) -> GateSettings:
    """The paper's gate with the study's detector; what it can never choose is said among the notes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SufficeWarning)
        return GateSettings.published(detector=settings.detector, **changes)


def variants(settings: HiddenConstraintsSettings) -> Iterator[Variant]:
    """The gates of ablations and sweep."""
    if "ablations" in settings.experiments:
        for name, risk in _WEIGHTLESS.items():
            yield Variant("ablations", name, published_gate(settings, risk=risk))
    if "sweep" in settings.experiments:
        for taus in TAUS:
            gate = published_gate(settings, tau_low=taus[0], tau_high=taus[1])
            yield Variant("sweep", f"tau {taus[0]:g}, {taus[1]:g}", gate, taus)


def jobs_of(
    settings: HiddenConstraintsSettings, made: Benchmark, who: Experimenters, retrievers: Retrievers
) -> list[PlanJob]:
    """Every run, in an order that finishes whole comparisons: seed by seed, task by task."""
    documents = {document.id: document for document in made.documents}

    def agent(task: PlanningTask, control: AgentControl, regime: str | None) -> PlanningAgent:
        retriever = None if regime is None else retrievers[regime]
        if regime == ORACLE:
            retriever = OracleRetriever([documents[name] for name in task.document_ids])
        return PlanningAgent(
            who.model, control, retriever, settings=settings.planning, detector=who.detector
        )

    return [
        PlanJob(
            task=task.visible,
            agent=agent(task, control, regime),
            retriever=regime,
            seed=seed,
            gold=task.gold,
        )
        for seed in settings.all_seeds
        for task in made.subset(settings.subset)[: settings.limit]
        for control, regime in _controls(settings, first_seed=seed == settings.seed)
    ]


def _controls(
    settings: HiddenConstraintsSettings, *, first_seed: bool
) -> Iterator[tuple[AgentControl, str | None]]:
    if VANILLA in settings.agents:
        yield agent_control(VANILLA), None
    published = published_gate(settings)
    for regime in settings.retrievers:
        for name in settings.agents:
            if name != VANILLA:
                yield _at_depth(agent_control(name, published), regime), regime
        for name, gate in settings.gates.items():
            yield _at_depth(AgentControl(name=name, gate=gate), regime), regime
    if first_seed:
        regime = settings.retrievers[0]
        for variant in variants(settings):
            yield _at_depth(AgentControl(name=variant.agent, gate=variant.gate), regime), regime


def _at_depth(control: AgentControl, regime: str) -> AgentControl:
    k = REGIMES[regime]
    if control.gate is None:
        return replace(control, k=k)
    if k <= control.gate.k_max:
        return control
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SufficeWarning)  # said of the gate as it came
        return replace(control, gate=replace(control.gate, k_max=k))


def run_document(
    settings: HiddenConstraintsSettings, benchmark: Benchmark, who: Experimenters
) -> dict[str, Any]:
    """What a recording states of itself; one that is gone on with must state the same."""
    tasks = [[task.id, task.goal, task.context, *task.outline] for task in benchmark.tasks]
    return {
        "experiment": "hidden-constraints",
        "benchmark": asdict(settings.benchmark),
        "corpus_fingerprint": corpus_fingerprint(benchmark.documents),
        "tasks_fingerprint": _hash(tasks),
        "model": who.model.name,
        "api": who.model.api,
        "judge": who.judge_name,
        # a file's content goes with its name, so that another one in its place is noticed
        "detector": settings.detector if who.detector is None else reranker_name(settings.detector),
        "encoder": settings.encoder,
        "planning": asdict(settings.planning),
        "version": VERSION,
    }


def gate_agent(name: str, gate: GateSettings) -> str:
    """What the agent of a gate is called: another gate of the same name is another agent."""
    return f"{name}@{_hash(gate.to_json())[:8]}"


def _hash(document: object) -> str:
    canonical = json.dumps(document, sort_keys=True).encode()
    return hashlib.sha256(canonical).hexdigest()[:16]
