"""The arrangement of the paper, and what it leaves open (paper 4, sections 5 to 7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from studies.hidden_constraints.checker import CHECKER
from studies.hidden_constraints.judge import JudgeSettings
from studies.hidden_constraints.runs import (
    EXPERIMENTS,
    REGIMES,
    HiddenConstraintsSettings,
    published_gate,
)
from suffice.errors import UsageError
from suffice.loops.planning.controls import AGENTS
from suffice.policies.gate.settings import MARKERS
from suffice.results.table import Column, Table

_STATED: Mapping[str, Any] = {
    "subset": "hard-small",
    "agents": tuple(AGENTS),
    "retrievers": ("tfidf", "dense", "dense-30", "oracle"),
    "seeds": 3,
    "seed": 42,
    "experiments": EXPERIMENTS,
    "detector": MARKERS,
}
_OPEN = "open; ours"


def as_published(asked: HiddenConstraintsSettings) -> HiddenConstraintsSettings:
    """The settings with all that the paper states; what says otherwise is refused, but for a limit."""
    usual = HiddenConstraintsSettings()
    drawn = {name: getattr(usual.planning, name) for name in ("candidates", "temperature")}
    for name, stated in (drawn | _STATED).items():
        place, default = (asked.planning, usual.planning) if name in drawn else (asked, usual)
        found = getattr(place, name)
        if found not in (stated, getattr(default, name)):
            raise UsageError(
                f"--as-published sets --{name} {_said(stated)}, found --{name} {_said(found)}; leave out "
                "one of the two"
            )
    return replace(asked, **_STATED)


def arrangement(settings: HiddenConstraintsSettings, tasks: int, judge: str) -> Table:
    """What was run, setting by setting: where the paper states it, or that it is open."""
    columns = (Column(name="setting"), Column(name="value"), Column(name="paper"))
    return Table(
        name="As published",
        title="The paper's arrangement: what it states, by its section, and what it leaves open.",
        columns=columns,
        rows=[
            (name, _said(value, ", "), where)
            for name, value, where in _rows(settings, tasks, judge)
        ],
    )


def _rows(
    settings: HiddenConstraintsSettings, tasks: int, judge: str
) -> Iterator[tuple[str, object, str]]:
    made, drawn, gate = settings.benchmark, settings.planning, published_gate(settings)
    risk, asked = gate.risk, JudgeSettings()
    yield "tasks", tasks, "5.2: 20" if tasks == made.hard_small else "5.2: 20; cut by --limit"
    yield "documents", made.documents, "5.3"
    yield "agents", settings.agents, "6.2"
    yield "retrievers", settings.retrievers, "6.5, 7.3, 7.4"
    yield "seeds", range(settings.seed, settings.seed + settings.seeds), "6.7: three; only 42 named"
    yield "seed of ablations and sweep", settings.seed, "6.7"
    yield "retriever of both", settings.retrievers[0], "7.5"
    yield "candidates K", drawn.candidates, "6.3"
    yield "temperature", drawn.temperature, "6.3"
    yield "most steps", drawn.max_steps, "6.3"
    yield "w1, w2, w3", (risk.disagreement, risk.contradiction, risk.remaining), "6.4"
    yield "tau_low, tau_high", (gate.tau_low, gate.tau_high), "6.4"
    yield "order", gate.order, "Algorithm 1; Eq. 18 has the other"
    yield "documents of a gate's retrieval", f"1 to {gate.k_max}", "6.5; how it grows is open"
    yield "documents of fixed-top-k", REGIMES["tfidf"], "6.2"
    yield "documents of always-retrieve, self-rag", REGIMES["tfidf"], _OPEN
    yield "documents with dense-30", REGIMES["dense-30"], "7.3: k = 30; for which agents is open"
    yield "documents of the oracle", "all that carry the token, 1 to 3", "7.4: the document"
    yield "judge", judge, "A.1: the planner's endpoint"
    if judge != CHECKER:
        limits = asked.max_tokens, asked.retries, asked.backoff_s
        yield "judge's tokens, retries, seconds between", limits, "A.1"
    yield "budget B", gate.budget, _OPEN
    yield "cool-down", gate.cooldown, _OPEN
    yield "kappa", gate.kappa, _OPEN
    yield "encoder of dense", settings.encoder, "6.5: sentence-transformers; which is open"
    yield "contradiction", settings.detector, "3.1: negation and conflict words; the list is open"
    yield "c_r, L_f", (settings.retrieval_cost, settings.failure_loss), _OPEN
    lengths = drawn.max_candidate_tokens, drawn.max_plan_tokens
    yield "tokens of a step, of the plan", lengths, _OPEN
    yield "seed and gap of the tasks", (made.seed, made.gap), "not published; ours"
    yield "prompts of the planner", "docs/planning.md", "7.1 in words; not published"


def _said(value: object, between: str = ",") -> str:
    return between.join(map(str, value)) if isinstance(value, tuple | range) else str(value)
