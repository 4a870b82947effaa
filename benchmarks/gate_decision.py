"""What a decision of the gate takes, beside a plain one that reads every pair afresh: microseconds."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial

import numpy as np

from benchmarks.timing import best_seconds
from suffice.errors import SufficeWarning
from suffice.policies.gate.gate import Gate, chosen_action
from suffice.policies.gate.risk import remaining_share
from suffice.policies.gate.settings import GateSettings, PlanAction
from suffice.signals.candidates import agreement, marker_conflict

PLAN_STEPS = 6
WORDS = 25
_SENTENCE = (
    "create the subnet and attach a firewall rule that lets port 443 in from trusted ranges only then "
    "rotate keys every ninety days tag storage buckets enable encryption at rest log access do not open "
    "plaintext http for any service verify health checks with alerts"
)
_VOCABULARY = _SENTENCE.split()


def texts(count: int, rng: np.random.Generator) -> list[str]:
    """Steps of 25 words."""
    return [" ".join(rng.choice(_VOCABULARY, WORDS).tolist()) for _ in range(count)]


def naive(settings: GateSettings, candidates: Sequence[str], plan: Sequence[str]) -> PlanAction:
    """The same action pair by pair: every text is read again for every pair it stands in."""
    contradiction = max(
        marker_conflict(step, candidate) for step in plan for candidate in candidates
    )
    risk = settings.risk.risk(
        agreement=agreement(candidates),
        contradiction=contradiction,
        remaining=remaining_share(len(plan), PLAN_STEPS + 1),
    )
    confidence = settings.risk.confidence(risk)
    return chosen_action(settings, confidence, contradiction, may_retrieve=True)


def main() -> dict[str, float]:
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SufficeWarning)
        settings = GateSettings.published(budget=None, cooldown=0)
    gate = Gate(settings)
    ours: list[float] = []
    plain: list[float] = []
    for step in range(1_000):
        candidates, plan = texts(2, rng), texts(PLAN_STEPS, rng)
        action = gate.act(candidates, plan, step, PLAN_STEPS + 1).action
        expected = naive(settings, candidates, plan)
        if action is not expected:
            raise RuntimeError(f"the gate chose {action}, pair by pair {expected}")
        case = (candidates, plan)
        ours.append(best_seconds(partial(gate.act, *case, step, PLAN_STEPS + 1), repeats=5))
        plain.append(best_seconds(partial(naive, settings, *case), repeats=5))
    named = "gate decision, 6 steps and 2 candidates of 25 words"
    return {
        f"{named}, median, microseconds (under 100)": float(np.median(ours) * 1e6),
        f"{named}, 99th percentile, microseconds": float(np.percentile(ours, 99) * 1e6),
        "the same pair by pair, over the gate's": float(np.median(plain) / np.median(ours)),
    }
