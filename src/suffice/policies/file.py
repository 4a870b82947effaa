"""Policy files: readable JSON with a version, no pickle."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from suffice.calibration.conformal import Threshold
from suffice.calibration.fields import number, number_or_none, numbers
from suffice.calibration.maps import calibrator_document, read_calibrator
from suffice.calibration.per_round import PerRoundCalibrator
from suffice.errors import DataError, UsageError
from suffice.policies.ab_rag import ABRagPolicy
from suffice.policies.fixed import FixedPolicy
from suffice.policies.micp import Clusters, Match, MiCPPolicy
from suffice.policies.relevance_filter import RelevanceFilter
from suffice.policies.rule import RulePolicy
from suffice.protocols import StopPolicy
from suffice.signals.abstained import abstained_signal
from suffice.signals.sample_clusters import CLUSTERINGS
from suffice.trace.atomic import replace_file

__all__ = [
    "POLICY_VERSION",
    "PolicyFile",
    "load_policy",
    "names_policy_file",
    "policy_hash",
    "save_policy",
]

POLICY_VERSION = 1
_MAX_BYTES = 50_000_000


def policy_document(policy: StopPolicy) -> dict[str, Any]:
    """A policy as the JSON document of its file."""
    for kind, body in _BODIES.items():
        if isinstance(policy, kind):
            return {"suffice_policy": POLICY_VERSION, "kind": policy.kind, **body(policy)}
    raise UsageError(f"a policy of kind {policy.kind!r} has no file format")


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


def policy_hash(policy: StopPolicy) -> str:
    """Twelve hexadecimal digits over everything that decides.

    Where it was fitted, what was promised of it and what is remarked do not count.
    """
    document = policy_document(policy)
    for part in _DECIDES_NOTHING:
        document.pop(part, None)
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def save_policy(policy: StopPolicy, path: str | Path, *, max_rounds: int | None = None) -> Path:
    """Write a policy file; a path not ending in ``.json`` is a folder that gets ``policy.json``.

    ``max_rounds`` is the budget a controller enforces by default.
    """
    target = Path(path)
    if target.suffix != ".json":
        target = target / "policy.json"
    document = policy_document(policy)
    if max_rounds is not None:
        document["max_rounds"] = max_rounds
    target.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    replace_file(target, text.encode())
    return target


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """A policy read from its file, with the budget it was written for (``None``: no budget)."""

    policy: StopPolicy
    max_rounds: int | None


def names_policy_file(name: str) -> bool:
    """Whether a policy is named by a path, rather than by a method's name or a rule's text."""
    try:
        return name.endswith(".json") or (name != "" and Path(name).exists())
    except OSError:
        return False  # no path can be that long: a rule's text


def load_policy(path: str | Path) -> PolicyFile:
    """Read a policy file, or the ``policy.json`` of a folder.

    Raises
    ------
    DataError
        Naming file and field: not JSON, a newer version, an unknown kind, a malformed part.
    """
    file = Path(path)
    if file.is_dir():
        file = file / "policy.json"
    document = _read_document(file)
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in _READERS:
        raise DataError(
            f"unknown policy kind {kind!r}; known: {', '.join(sorted(_READERS))}",
            file=str(file),
            column="kind",
        )
    max_rounds = document.get("max_rounds")
    if max_rounds is not None and (not _is_whole(max_rounds) or max_rounds < 1):
        raise DataError(
            f"must be a whole number from 1, found {max_rounds!r}",
            file=str(file),
            column="max_rounds",
        )
    try:
        policy = _READERS[kind](document)
    except DataError as error:
        raise DataError(error.message, file=str(file), column=error.column) from error
    except UsageError as error:
        raise DataError(str(error), file=str(file), column=_MAIN_FIELD[kind]) from error
    return PolicyFile(policy, max_rounds)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _read_document(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise DataError(f"larger than {_MAX_BYTES} bytes; not a policy file", file=str(file))
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            "no such policy file; write one with 'suffice fit'", file=str(file)
        ) from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", file=str(file)) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}", file=str(file)) from error
    if not isinstance(document, dict) or "suffice_policy" not in document:
        raise DataError(
            'not a policy file; it must be an object with "suffice_policy": 1', file=str(file)
        )
    version = document["suffice_policy"]
    if not _is_whole(version) or version < 1:
        raise DataError(
            f"must be a version number, found {version!r}", file=str(file), column="suffice_policy"
        )
    if version > POLICY_VERSION:
        raise DataError(
            f"policy version {version} is newer than {POLICY_VERSION}, the newest this version reads; "
            "upgrade with: pip install -U suffice",
            file=str(file),
            column="suffice_policy",
        )
    return document


def _field(document: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
    value = document.get(name, default)
    if value is None and default is None:
        return None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise DataError(f"must be a {kind.__name__}, found {value!r}", column=name)
    return value


def _strings(document: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    values = _field(document, name, list)
    if values is None:
        return None
    if not all(isinstance(value, str) for value in values):
        raise DataError("must be a list of strings", column=name)
    return tuple(values)


def _read_fixed(document: Mapping[str, Any]) -> StopPolicy:
    rounds = _field(document, "rounds", int)
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
    parts = _field(document, "calibrators", dict, {})
    return {name: read_calibrator(part, f"calibrators.{name}") for name, part in parts.items()}


def _read_abstention(document: Mapping[str, Any]) -> tuple[str, ...] | None:
    phrases = _strings(document, "abstention")
    try:
        abstained_signal(phrases or ())
    except UsageError as error:
        raise DataError(str(error), column="abstention") from error
    return phrases


def _finite(value: object, column: str) -> float:
    found = number(value, column)
    if not math.isfinite(found):
        raise DataError(f"must be finite, found {found!r}", column=column)
    return found


def _numbers(document: Mapping[str, Any], name: str) -> dict[str, float]:
    parts = _field(document, name, dict, {})
    return {key: _finite(value, f"{name}.{key}") for key, value in parts.items()}


def _read_ab_rag(document: Mapping[str, Any]) -> StopPolicy:
    for name in ("weights", "threshold", "link"):
        if name not in document:
            raise DataError("is missing", column=name)
    return ABRagPolicy(
        weights=_numbers(document, "weights"),
        threshold=_finite(document["threshold"], "threshold"),
        link=document["link"],
        intercept=_finite(document.get("intercept", 0.0), "intercept"),
        undefined=_numbers(document, "undefined"),
        reads_abstention=_field(document, "reads_abstention", bool, default=False),
        abstention=_read_abstention(document),
        preset=_field(document, "preset", str),
        levels=numbers(document.get("levels", []), "levels"),
        fitted_on=_field(document, "fitted_on", dict, {}),
        notes=_strings(document, "notes") or (),
    )


def _read_micp(document: Mapping[str, Any]) -> StopPolicy:
    for name in ("alpha", "rounds", "samples", "stops", "answer_set"):
        if document.get(name) is None:
            raise DataError("is missing", column=name)
    match = _field(document, "match", dict, {"score": "em"})
    chosen = _field(document, "filter", dict)
    budget = _field(document, "budget", dict, {})
    _finite(budget.get("weight", 1.0), "budget.weight")
    fitted_on = _field(document, "fitted_on", dict, {})
    _field(fitted_on, "loop", dict, {})
    return MiCPPolicy(
        alpha=_finite(document["alpha"], "alpha"),
        rounds=_field(document, "rounds", int),
        samples=_field(document, "samples", int),
        stops=_read_stops(_field(document, "stops", list)),
        final=_or_below_all(_field(document, "answer_set", dict), "confidence"),
        stop_on=document.get("stop_on", "entropy"),
        penalty=_finite(document.get("penalty", 0.0), "penalty"),
        clusters=_read_clusters(_field(document, "clusters", dict, {})),
        match=Match(
            f1=None if match.get("score") == "em" else number(match.get("at_least"), "match")
        ),
        filter=None if chosen is None else RelevanceFilter.from_json(chosen),
        filtered=_field(document, "filtered", bool, default=False),
        seed=_field(document, "seed", int, 42),
        preset=_field(document, "preset", str),
        budget=budget,
        fitted_on=fitted_on,
        notes=_strings(document, "notes") or (),
    )


def _read_clusters(given: Mapping[str, Any]) -> Clusters:
    by: Any = given.get("by", "string")
    if by not in CLUSTERINGS:
        raise DataError(
            f"must be one of {', '.join(CLUSTERINGS)}, found {by!r}", column="clusters.by"
        )
    cosine = number_or_none(given.get("cosine"), "clusters.cosine")
    return Clusters(by=by, cosine=cosine, encoder=_field(given, "encoder", str))


def _read_stops(given: list[Any]) -> tuple[Threshold, ...]:
    found = []
    for each in given:
        if not isinstance(each, dict) or "value" not in each:
            raise DataError(
                f'must hold objects with "value" and "tied_share", found {each!r}', column="stops"
            )
        share = _finite(each.get("tied_share", 0.0), "stops.tied_share")
        found.append(Threshold(_or_below_all(each, "value"), share))
    return tuple(found)


def _or_below_all(given: Mapping[str, Any], name: str) -> float:
    """A threshold; null lies below everything."""
    value = given.get(name)
    return -math.inf if value is None else _finite(value, name)


def _read_rule(document: Mapping[str, Any]) -> StopPolicy:
    rule = _field(document, "rule", str)
    if rule is None:
        raise DataError("is missing", column="rule")
    rates = [_probability(rate, "base_rates") for rate in _field(document, "base_rates", list, [])]
    return RulePolicy(
        rule=rule,
        calibrators=_read_calibrators(document),
        base_rates=tuple(math.nan if rate is None else rate for rate in rates),
        kind=document["kind"],
        preset=_field(document, "preset", str),
        own_signals=_strings(document, "own_signals") or (),
        abstention=_read_abstention(document),
        fitted_on=_field(document, "fitted_on", dict, {}),
        guarantee=_field(document, "guarantee", dict, {}),
    )


_DECIDES_NOTHING = ("budget", "fitted_on", "guarantee", "levels", "notes")
_BODIES: Mapping[type, Callable[[Any], dict[str, Any]]] = MappingProxyType(
    {
        FixedPolicy: lambda policy: {"rounds": policy.rounds},
        RulePolicy: _rule_body,
        ABRagPolicy: ABRagPolicy.to_json,
        MiCPPolicy: MiCPPolicy.to_json,
    }
)
_READERS: Mapping[str, Callable[[Mapping[str, Any]], StopPolicy]] = MappingProxyType(
    {
        "fixed": _read_fixed,
        "rule": _read_rule,
        "tasr": _read_rule,
        "certified": _read_rule,
        "ab-rag": _read_ab_rag,
        "micp": _read_micp,
    }
)
_MAIN_FIELD = MappingProxyType(
    {**dict.fromkeys(_READERS, "rule"), "fixed": "rounds", "ab-rag": "weights", "micp": "stops"}
)
