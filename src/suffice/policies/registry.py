"""Methods and kinds of policy by name, imported on first use.

Another package brings a method by the entry point group ``suffice.methods``: the entry's name is the
method's, its value the ``module:object`` of a :class:`suffice.policies.method.Method`.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from suffice.contracts import StopPolicy
from suffice.errors import SufficeWarning, UsageError, first_line, unknown_name
from suffice.signals.plugins import answered_by, is_foreign

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from suffice.measures.measures import Traces
    from suffice.policies.method import FitRun, Method, PolicyKind, Preset

ENTRY_POINTS = "suffice.methods"
_CONTROLS: Mapping[str, str] = MappingProxyType(
    {
        "margin-alone": "suffice.policies.tasr:MARGIN_ALONE",
        "overlap-alone": "suffice.policies.tasr:OVERLAP_ALONE",
        "stable-base-rate": "suffice.policies.tasr:STABLE_BASE_RATE",
        "early-stop": "suffice.policies.tasr:EARLY_STOP",
    }
)
_METHODS: Mapping[str, str] = MappingProxyType(
    {
        "tasr": "suffice.policies.tasr:METHOD",
        "ab-rag": "suffice.policies.ab_rag.policy:METHOD",
        "micp": "suffice.policies.micp.policy:METHOD",
        "gate": "suffice.policies.gate.policy:METHOD",
        "stop-rag": "suffice.policies.stop_rag.policy:METHOD",
        "rule": "suffice.policies.rules.policy:METHOD",
        **_CONTROLS,
        "loopgain": "suffice.policies.unfitted:LOOPGAIN",
        "loopgain-bands": "suffice.policies.unfitted:LOOPGAIN_BANDS",
        "optillm-deep-research": "suffice.policies.unfitted:OPTILLM",
        "patience": "suffice.policies.unfitted:PATIENCE",
        "acs": "suffice.policies.unfitted:ACS",
        "calibrated-limit": "suffice.policies.fitted_peers:LIMIT",
        "early-eval": "suffice.policies.fitted_peers:EARLY_EVAL",
    }
)
_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "fixed": "suffice.policies.unfitted:KIND",
        **{name: home for name, home in _METHODS.items() if name not in _CONTROLS},
        **dict.fromkeys(("tasr", "certified"), "suffice.policies.rules.policy:METHOD"),
    }
)
"""Controls write rules of kind ``rule``; reading a rule imports no fitting code."""


# --- names ---------------------------------------------------------------------------------------
def method_names() -> tuple[str, ...]:
    """Return the names of all methods, those of other packages last; imports nothing."""
    return (*_METHODS, *_entries())


def nameable_methods() -> tuple[str, ...]:
    """Return the methods that need no option: their settings all have a default."""
    named = []
    for name in method_names():
        try:
            method = find_method(name)
        except UsageError as error:  # somebody else's that cannot be loaded
            warnings.warn(f"{error}; it is left out", SufficeWarning, stacklevel=1)
            continue
        if method is not None and not _needed(method.settings(method.presets[0])):
            named.append(name)
    return tuple(named)


def kind_names() -> tuple[str, ...]:
    return tuple(sorted((*_KINDS, *_entries())))


def find_method(name: str) -> Method | None:
    """Return the method of a name; ``None``: no such method."""
    method: Method | None = _found(name, _METHODS)
    return method


def find_kind(name: str) -> PolicyKind | None:
    """Return the reader of a kind of policy; ``None``: no such kind."""
    kind: PolicyKind | None = _found(name, _KINDS)
    return kind


def _found(name: str, homes: Mapping[str, str]) -> Any:
    if name in homes:
        return _load(homes[name])
    loaded = _load_entry(name) if name in _entries() else None
    if isinstance(loaded, UsageError):
        raise loaded
    return loaded


def method_and_preset(name: str) -> tuple[Method, Preset] | None:
    """Return the method and preset of ``NAME``, ``NAME-published`` or ``NAME-corrected``, or ``None``."""
    from suffice.policies.method import PRESETS

    for preset in PRESETS:
        base = name.removesuffix(f"-{preset}")  # a method's own name may hold a hyphen
        if base != name and (method := find_method(base)) is not None:
            return (method, preset) if preset in method.presets else None
    method = find_method(name)
    return None if method is None else (method, method.presets[0])


def unfitted_policy(name: str) -> StopPolicy | None:
    """Return the policy of a name such as ``fixed-3`` or ``patience-2``; ``None`` for other names."""
    from suffice.policies.unfitted import FixedPolicy, ready_rule

    fixed = FixedPolicy.named(name)
    return ready_rule(name) if fixed is None else fixed


# --- fitting -------------------------------------------------------------------------------------
def fit_method(
    name: str,
    traces: Traces,
    preset: Preset = "corrected",
    split: str | None = None,
    *,
    run: FitRun | None = None,
    **options: Any,
) -> StopPolicy:
    """Fit a method by its name; see :func:`suffice.fit`. An option that is ``None`` counts as not given."""
    from suffice.measures.measures import Measures
    from suffice.policies.defaults import FIT_SPLIT
    from suffice.signals.signal_table import lack

    method = find_method(name)
    if method is None:
        raise UsageError(unknown_name("method", name, sorted(method_names())))
    stated = {option: value for option, value in options.items() if value is not None}
    names = {
        version: [field.name for field in fields(method.settings(version))]
        for version in method.presets
    }
    refuse_options(name, preset, stated, names)
    kind = method.settings(preset)
    needed = [option for option in _needed(kind) if option not in stated]
    if needed:
        words = " ".join(name.upper() for name in needed)
        raise UsageError(
            f"{name} is fitted with its {' and '.join(needed)} only; type: suffice fit {name} {words} TRACES "
            "--out policy.json"
        )
    settings = kind(**stated)
    measures, watched = Measures.of(traces), {} if method.quick else {"run": run}
    with answered_by(method, f"the method {name!r}"):
        policy = method.fit(measures, preset, settings, split or FIT_SPLIT, **watched)
        if is_foreign(policy):
            for part in ("kind", "preset", "needs", "facts", "signals", "explain", "document"):
                getattr(policy, part)  # a missing one is told here, not where a loop asks for it
            if not any(lack(spec, measures.traces) for spec in policy.specs):
                measures.wanted_rounds(policy)
    return policy


def _needed(settings: type[Any]) -> list[str]:
    return [
        field.name
        for field in fields(settings)
        if field.default is MISSING and field.default_factory is MISSING
    ]


def refuse_options(
    name: str, preset: Preset, stated: Collection[str], takes: Mapping[Preset, Collection[str]]
) -> None:
    """Refuse an unknown preset of a method, and options that the preset does not take."""
    if preset not in takes:
        raise UsageError(f"{name} has no preset {preset!r}; known: {', '.join(takes)}")
    allowed = takes[preset]
    for option in stated:
        if option not in allowed:
            said = f"takes {', '.join(sorted(allowed))}" if allowed else "takes no options"
            raise UsageError(f"the {preset} preset of {name} {said}; leave {option} out")


# --- loading -------------------------------------------------------------------------------------
@cache
def _load(home: str) -> Any:
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(module), name)


@cache
def _entries() -> Mapping[str, EntryPoint]:
    from importlib.metadata import entry_points

    entries = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    return MappingProxyType({name: entries[name] for name in entries if name not in _METHODS})


@cache
def _load_entry(name: str) -> Method | UsageError:
    """Return another package's method, or why it is none: whatever its code raises ends no command."""
    from suffice.policies.method import Method

    entry = _entries()[name]
    package = "a package" if entry.dist is None else f"the package {entry.dist.name}"
    where = f"the method {name!r} that {package} brings as {entry.value!r}"
    try:
        method = entry.load()
        if not isinstance(method, Method):
            return UsageError(f"{where} is no suffice.policies.method.Method, found {method!r:.60}")
        if method.name != name:
            return UsageError(f"{where} calls itself {method.name!r}; the two names must be one")
        for preset in (method.presets[0], *method.presets):
            _needed(method.settings(preset))
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return UsageError(f"{where} cannot be loaded: {type(error).__name__}: {first_line(error)}")
    return method
