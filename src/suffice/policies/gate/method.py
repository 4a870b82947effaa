"""The gate's policy file: its settings, and the budget of the loop it stops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from suffice.errors import DataError, UsageError
from suffice.numbers.fields import field_of, finite, number_or_none
from suffice.policies.gate.policy import PUBLISHED_CANDIDATES, GatePolicy
from suffice.policies.gate.risk import RiskModel
from suffice.policies.gate.settings import BUDGET, MARKERS, ORDERS, GateCosts, GateSettings

_WEIGHTS = ("disagreement", "contradiction", "remaining")
_THRESHOLDS = ("tau_low", "tau_high", "kappa")


def read_gate(document: Mapping[str, Any]) -> GatePolicy:
    """The policy of a document.

    Raises
    ------
    DataError
        For a field that is missing or malformed, naming it.
    """
    settings = field_of(document, "settings", dict)
    if settings is None:
        raise DataError("is missing", column="settings")
    beside = {name: document.get(name) for name in ("preset", "costs", "fitted_on")}
    rounds, samples = field_of(document, "rounds", int), field_of(document, "samples", int)
    try:
        return GatePolicy(
            settings=read_settings({**settings, **beside}),
            rounds=rounds,
            samples=PUBLISHED_CANDIDATES if samples is None else samples,
        )
    except UsageError as error:
        raise DataError(str(error), column="settings") from error


def read_settings(document: Mapping[str, Any]) -> GateSettings:
    """The settings that :meth:`GateSettings.to_json` wrote.

    Raises
    ------
    DataError
        For a field that is missing or no number, naming it.
    UsageError
        For a number out of range.
    """
    for name in ("weights", *_THRESHOLDS):
        if document.get(name) is None:
            raise DataError("is missing", column=name)
    weights = field_of(document, "weights", dict)
    for name in _WEIGHTS:
        if name not in weights:
            raise DataError("is missing", column=f"weights.{name}")
    order: Any = document.get("order", ORDERS[0])
    if order not in ORDERS:
        raise DataError(f"must be one of {', '.join(ORDERS)}, found {order!r}", column="order")
    return GateSettings(
        risk=RiskModel(
            **{name: finite(weights[name], f"weights.{name}") for name in _WEIGHTS},
            intercept=finite(document.get("intercept", 0.0), "intercept"),
        ),
        **{name: finite(document[name], name) for name in _THRESHOLDS},
        tau_stop=number_or_none(document.get("tau_stop"), "tau_stop"),
        budget=field_of(document, "budget", int) if "budget" in document else BUDGET,
        cooldown=field_of(document, "cooldown", int, 1),
        k_max=field_of(document, "k_max", int, 6),
        order=order,
        revises=field_of(document, "revises", bool, default=False),
        detector=field_of(document, "detector", str, MARKERS),
        costs=_read_costs(document),
        preset=field_of(document, "preset", str),
        fitted_on=field_of(document, "fitted_on", dict) or {},
    )


def _read_costs(document: Mapping[str, Any]) -> GateCosts | None:
    given = field_of(document, "costs", dict)
    if given is None:
        return None
    for name in ("retrieval", "failure"):
        if name not in given:
            raise DataError("is missing", column=f"costs.{name}")
    return GateCosts(
        retrieval=finite(given["retrieval"], "costs.retrieval"),
        failure=finite(given["failure"], "costs.failure"),
        ask=number_or_none(given.get("ask"), "costs.ask"),
        stop=number_or_none(given.get("stop"), "costs.stop"),
    )
