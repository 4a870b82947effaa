"""What certified policies promise, as their files say it: read, never trusted to be complete."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from suffice.costs.usage import COSTS
from suffice.protocols import Facts
from suffice.replay.run.results import ReplayResult


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTerms:
    """One of several bounds of a promise; ``None`` where its file does not say."""

    of: str
    at_most: float | None
    measured: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """A policy's promise; ``None`` where its file does not say, or says what makes no sense.

    The names are those of the policy file, see :meth:`suffice.replay.choose.proof.Row.document`; costs are
    means per question of the cost named ``cost``, in words ``cost_label``. ``learn`` and ``test`` are the
    sizes of the halves of a learned family, ``source`` and ``split`` where all questions were drawn.
    ``elsewhere``: on traces other than those replayed. ``more`` are terms that this version does not
    know.

    ``bounds`` are all that is promised together, empty where it is the loss alone; ``min_rounds`` is the
    first round at which it may stop. ``cost_counted_to`` is what a question counts at most in a
    bounded cost, which ``cost_above`` tested ones passed.
    """

    policy: str
    rule: str
    fell_back: bool | None
    path: str | None
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
    measured_loss: float | None
    units: float | None
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
    bounds: tuple[BoundTerms, ...] = ()
    min_rounds: float | None = None
    cost_counted_to: float | None = None
    cost_above: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Strict JSON; what only some promises have is left out of others."""
        document = {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}
        document["more"] = dict(self.more)
        document["bounds"] = [asdict(bound) for bound in self.bounds]
        absent = [name for name in ("bounds", *_SELDOM) if not document[name]]
        return {name: value for name, value in document.items() if name not in absent}


_TEXTS = ("path", "loss", "metric", "family", "correction", "cost")
_NUMBERS = (
    *("max_loss", "confidence", "members", "duplicates", "tested", "certified", "p_value"),
    *("measured_loss", "units", "questions_needed"),
    *("mean_cost", "full_budget_cost"),
)
_SELDOM = ("min_rounds", "cost_counted_to", "cost_above")
_KNOWN = frozenset(
    {*_TEXTS, *_NUMBERS, *_SELDOM, "bounds", "fell_back", "questions", "seed", "bounded", "saved"}
)


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
    numbers = {key: _number(terms.get(key)) for key in (*_NUMBERS, *_SELDOM)}
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
        bounds=_bounds(terms.get("bounds")),
        more={str(key): str(value) for key, value in terms.items() if key not in _KNOWN},
        **known,
    )


def _bounds(stated: object) -> tuple[BoundTerms, ...]:
    listed = stated if isinstance(stated, list) else []
    return tuple(
        BoundTerms(
            of=str(bound.get("of")),
            at_most=_number(bound.get("at_most")),
            measured=_number(bound.get("measured")),
        )
        for bound in listed
        if isinstance(bound, Mapping)
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if math.isfinite(value) else None
