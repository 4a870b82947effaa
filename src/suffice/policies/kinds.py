"""The kinds of policy that a file can hold: how each is written and read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from suffice.errors import DataError, UsageError
from suffice.numbers.conformal.order_statistics import Threshold
from suffice.numbers.fields import (
    field_of,
    finite,
    finite_numbers,
    number,
    number_or_none,
    numbers,
    strings_of,
)
from suffice.numbers.maps.per_round import PerRoundCalibrator, calibrator_document, read_calibrator
from suffice.policies.ab_rag.policy import ABRagPolicy
from suffice.policies.fixed import FixedPolicy
from suffice.policies.gate.method import read_gate
from suffice.policies.gate.policy import GatePolicy
from suffice.policies.micp.policy import Clusters, MiCPPolicy
from suffice.policies.micp.relevance_filter import RelevanceFilter
from suffice.policies.rules.policy import RulePolicy
from suffice.policies.stop_rag.method import read_stop_rag
from suffice.policies.stop_rag.policy import StopRAGPolicy
from suffice.protocols import StopPolicy
from suffice.scoring import Match
from suffice.signals.abstained import abstained_signal
from suffice.signals.samples import CLUSTERINGS


def _rule_body(policy: RulePolicy) -> dict[str, Any]:
    body: dict[str, Any] = {"rule": policy.rule}
    if policy.preset is not None:
        body["preset"] = policy.preset
    if policy.calibrators:
        body["calibrators"] = {
            name: calibrator_document(calibrator) for name, calibrator in policy.calibrators.items()
        }
    if policy.base_rates:
        body["base_rates"] = [None if math.isnan(rate) else rate for rate in policy.base_rates]
    if policy.own_signals:
        body["own_signals"] = list(policy.own_signals)
    if policy.abstention is not None:
        body["abstention"] = list(policy.abstention)
    if policy.fitted_on:
        body["fitted_on"] = dict(policy.fitted_on)
    if policy.guarantee:
        body["guarantee"] = dict(policy.guarantee)
    return body


def _read_fixed(document: Mapping[str, Any]) -> StopPolicy:
    rounds = field_of(document, "rounds", int)
    if rounds is None:
        raise DataError("is missing", column="rounds")
    return FixedPolicy(rounds)


def _probability(value: object, column: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise DataError(f"must be null or a number in [0, 1], found {value!r}", column=column)
    return float(value)


def _read_calibrators(document: Mapping[str, Any]) -> dict[str, PerRoundCalibrator]:
    parts = field_of(document, "calibrators", dict, {})
    return {name: read_calibrator(part, f"calibrators.{name}") for name, part in parts.items()}


def _read_abstention(document: Mapping[str, Any]) -> tuple[str, ...] | None:
    phrases = strings_of(document, "abstention")
    try:
        abstained_signal(phrases or ())
    except UsageError as error:
        raise DataError(str(error), column="abstention") from error
    return phrases


def _read_ab_rag(document: Mapping[str, Any]) -> StopPolicy:
    for name in ("weights", "threshold", "link"):
        if name not in document:
            raise DataError("is missing", column=name)
    return ABRagPolicy(
        weights=finite_numbers(document, "weights"),
        threshold=finite(document["threshold"], "threshold"),
        link=document["link"],
        intercept=finite(document.get("intercept", 0.0), "intercept"),
        undefined=finite_numbers(document, "undefined"),
        reads_abstention=field_of(document, "reads_abstention", bool, default=False),
        abstention=_read_abstention(document),
        preset=field_of(document, "preset", str),
        levels=numbers(document.get("levels", []), "levels"),
        fitted_on=field_of(document, "fitted_on", dict, {}),
        notes=strings_of(document, "notes") or (),
    )


def _read_micp(document: Mapping[str, Any]) -> StopPolicy:
    for name in ("alpha", "rounds", "samples", "stops", "answer_set"):
        if document.get(name) is None:
            raise DataError("is missing", column=name)
    match = field_of(document, "match", dict, {"score": "em"})
    chosen = field_of(document, "filter", dict)
    budget = field_of(document, "budget", dict, {})
    finite(budget.get("weight", 1.0), "budget.weight")
    fitted_on = field_of(document, "fitted_on", dict, {})
    field_of(fitted_on, "loop", dict, {})
    return MiCPPolicy(
        alpha=finite(document["alpha"], "alpha"),
        rounds=field_of(document, "rounds", int),
        samples=field_of(document, "samples", int),
        stops=_read_stops(field_of(document, "stops", list)),
        final=_or_below_all(field_of(document, "answer_set", dict), "confidence"),
        stop_on=document.get("stop_on", "entropy"),
        penalty=finite(document.get("penalty", 0.0), "penalty"),
        clusters=_read_clusters(field_of(document, "clusters", dict, {})),
        match=Match(
            f1=None if match.get("score") == "em" else number(match.get("at_least"), "match")
        ),
        filter=None if chosen is None else RelevanceFilter.from_json(chosen),
        filtered=field_of(document, "filtered", bool, default=False),
        seed=field_of(document, "seed", int, 42),
        preset=field_of(document, "preset", str),
        budget=budget,
        fitted_on=fitted_on,
        notes=strings_of(document, "notes") or (),
    )


def _read_clusters(given: Mapping[str, Any]) -> Clusters:
    by: Any = given.get("by", "string")
    if by not in CLUSTERINGS:
        raise DataError(
            f"must be one of {', '.join(CLUSTERINGS)}, found {by!r}", column="clusters.by"
        )
    cosine = number_or_none(given.get("cosine"), "clusters.cosine")
    return Clusters(by=by, cosine=cosine, encoder=field_of(given, "encoder", str))


def _read_stops(given: list[Any]) -> tuple[Threshold, ...]:
    found = []
    for each in given:
        if not isinstance(each, dict) or "value" not in each:
            raise DataError(
                f'must hold objects with "value" and "tied_share", found {each!r}', column="stops"
            )
        share = finite(each.get("tied_share", 0.0), "stops.tied_share")
        found.append(Threshold(_or_below_all(each, "value"), share))
    return tuple(found)


def _or_below_all(given: Mapping[str, Any], name: str) -> float:
    """A threshold; null lies below everything."""
    value = given.get(name)
    return -math.inf if value is None else finite(value, name)


def _read_rule(document: Mapping[str, Any]) -> StopPolicy:
    rule = field_of(document, "rule", str)
    if rule is None:
        raise DataError("is missing", column="rule")
    rates = [
        _probability(rate, "base_rates") for rate in field_of(document, "base_rates", list, [])
    ]
    return RulePolicy(
        rule=rule,
        calibrators=_read_calibrators(document),
        base_rates=tuple(math.nan if rate is None else rate for rate in rates),
        kind=document["kind"],
        preset=field_of(document, "preset", str),
        own_signals=strings_of(document, "own_signals") or (),
        abstention=_read_abstention(document),
        fitted_on=field_of(document, "fitted_on", dict, {}),
        guarantee=field_of(document, "guarantee", dict, {}),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyKind:
    """A value of ``kind`` in a policy file.

    Parameters
    ----------
    read
        The policy of a document, given the file it stands in.
    main_field
        The field to name when the policy refuses what it is made of.
    """

    read: Callable[[Mapping[str, Any], Path], StopPolicy]
    main_field: str


def _alone(read: Callable[[Mapping[str, Any]], StopPolicy], main_field: str) -> PolicyKind:
    """A kind whose document says everything."""
    return PolicyKind(read=lambda document, _: read(document), main_field=main_field)


KINDS: Mapping[str, PolicyKind] = MappingProxyType(
    {
        "fixed": _alone(_read_fixed, "rounds"),
        "rule": _alone(_read_rule, "rule"),
        "tasr": _alone(_read_rule, "rule"),
        "certified": _alone(_read_rule, "rule"),
        "ab-rag": _alone(_read_ab_rag, "weights"),
        "micp": _alone(_read_micp, "stops"),
        "gate": _alone(read_gate, "settings"),
        "stop-rag": PolicyKind(read=read_stop_rag, main_field="network"),
    }
)
_BODIES: Mapping[type, Callable[[Any], dict[str, Any]]] = MappingProxyType(
    {
        FixedPolicy: lambda policy: {"rounds": policy.rounds},
        RulePolicy: _rule_body,
        ABRagPolicy: ABRagPolicy.to_json,
        MiCPPolicy: MiCPPolicy.to_json,
        GatePolicy: GatePolicy.to_json,
        StopRAGPolicy: StopRAGPolicy.to_json,
    }
)


def body_of(policy: StopPolicy) -> dict[str, Any]:
    """What a policy's file says of it beyond its kind.

    Raises
    ------
    UsageError
        When there is no file format for it.
    """
    for kind, body in _BODIES.items():
        if isinstance(policy, kind):
            return body(policy)
    raise UsageError(f"a policy of kind {policy.kind!r} has no file format")
