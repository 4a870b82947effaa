"""What certified policies promise, as their files say it: read, never trusted to be complete."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from suffice.costs.usage import COSTS
from suffice.protocols import Facts
from suffice.replay.run.results import ReplayResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """A policy's promise; ``None`` where its file does not say, or says what makes no sense.

    The names are those of the policy file, see :func:`~suffice.replay.choose.learn_then_test.describe`;
    costs are means per question of the cost named ``cost``, in words ``cost_label``. ``learn`` and
    ``test`` are the sizes of the two halves, ``source`` and ``split`` where they were drawn.
    ``elsewhere``: on traces other than those replayed. ``more`` are terms that this version does not
    know.
    """

    policy: str
    rule: str
    fell_back: bool | None
    reason: str | None
    loss: str | None
    metric: str | None
    max_loss: float | None
    confidence: float | None
    family: str | None
    members: float | None
    duplicates: float | None
    tested: float | None
    certified: float | None
    correction: str | None
    p_value: float | None
    loss_on_learning_half: float | None
    loss_on_testing_half: float | None
    learn: float | None
    test: float | None
    questions_needed: float | None
    cost: str | None
    mean_cost: float | None
    full_budget_cost: float | None
    source: str | None
    split: str | None
    cost_label: str | None
    elsewhere: bool
    more: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        document = {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}
        return {**document, "more": dict(self.more)}


_TEXTS = ("reason", "loss", "metric", "family", "correction", "cost")
_NUMBERS = (
    *("max_loss", "confidence", "members", "duplicates", "tested", "certified", "p_value"),
    *("loss_on_learning_half", "loss_on_testing_half", "questions_needed"),
    *("mean_cost", "full_budget_cost"),
)
_KNOWN = frozenset({*_TEXTS, *_NUMBERS, "fell_back", "questions", "seed", "bounded"})


def guarantees(result: ReplayResult) -> tuple[Guarantee, ...]:
    """The promise of every replayed policy that carries one, in the replay's order."""
    return tuple(
        _guarantee(one.name, one.policy.facts, result.source)
        for one in result.policies
        if one.policy is not None and one.policy.facts.guarantee
    )


def _guarantee(name: str, facts: Facts, replayed: str) -> Guarantee:
    terms = facts.guarantee
    halves = terms.get("questions")
    sizes = halves if isinstance(halves, Mapping) else {}
    fell_back = terms.get("fell_back")
    source = _text(facts.fitted_on.get("source"))
    texts = {key: _text(terms.get(key)) for key in _TEXTS}
    numbers = {key: _number(terms.get(key)) for key in _NUMBERS}
    known: dict[str, Any] = {**texts, **numbers}
    cost = COSTS.get(texts["cost"] or "")
    return Guarantee(
        policy=name,
        rule=facts.summary,
        fell_back=fell_back if isinstance(fell_back, bool) else None,
        learn=_number(sizes.get("learn")),
        test=_number(sizes.get("test")),
        source=source,
        split=_text(facts.fitted_on.get("split")),
        cost_label=texts["cost"] if cost is None else cost.label,
        elsewhere=source is not None and source != replayed,
        more={str(key): str(value) for key, value in terms.items() if key not in _KNOWN},
        **known,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if math.isfinite(value) else None
