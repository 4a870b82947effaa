"""From what a user names to policies that can be replayed on a trace set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from suffice.errors import UsageError
from suffice.measures.measures import Measures
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.file import load_policy, names_policy_file
from suffice.policies.fitting import fit_rule
from suffice.policies.method import FitRun, Method
from suffice.policies.registry import (
    fit_method,
    method_and_preset,
    method_names,
    unfitted_policy,
)
from suffice.protocols import StopPolicy
from suffice.replay.run.references import CLOSED_BOOK, ORACLES
from suffice.scoring import F1Kind
from suffice.trace.rounds.table import TraceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPolicy:
    """A policy under its name; ``policy`` is ``None`` for an oracle and for the closed book.

    ``max_rounds`` is the budget its file states: a controller stops there, and so does the replay.
    """

    name: str
    kind: str
    preset: str | None
    policy: StopPolicy | None
    max_rounds: int | None = None


def named_policies(
    traces: TraceSet | Measures,
    names: Sequence[str],
    rules: Sequence[str] = (),
    *,
    fit_on: TraceSet | Measures | None = None,
    f1_kind: F1Kind = "hotpotqa",
    run: FitRun | None = None,
) -> tuple[NamedPolicy, ...]:
    """Build every named policy, then every rule; what must be fitted is fitted on split ``tune``.

    Parameters
    ----------
    traces
        The whole trace set; where something must be fitted, that is done on its tune split.
    names
        ``fixed-K``, ``oracle-em``, ``oracle-f1``, ``closed-book``, a method's name or a policy file.
    rules
        Rule texts.
    fit_on
        Another trace set, on whose tune split to fit instead.
    f1_kind
        Which F1 a method chooses its number by, where it chooses one.
    run
        Who watches trainings.

    Raises
    ------
    UsageError
        For a name that is none of these, and for a policy that cannot be fitted here, with the line
        that fits it.
    """
    measures = Measures.of(traces)
    fitting = measures if fit_on is None else Measures.of(fit_on)
    built = [_named(measures, fitting, name, f1_kind, run) for name in names]
    built += [_rule(measures, rule, fitting) for rule in rules]
    return _numbered(built)


def _numbered(built: list[NamedPolicy]) -> tuple[NamedPolicy, ...]:
    seen: Counter[str] = Counter()
    numbered = []
    for candidate in built:
        seen[candidate.name] += 1
        count = seen[candidate.name]
        name = candidate.name if count == 1 else f"{candidate.name}#{count}"
        numbered.append(replace(candidate, name=name))
    return tuple(numbered)


def _named(
    measures: Measures, fitting: Measures, name: str, f1_kind: F1Kind, run: FitRun | None
) -> NamedPolicy:
    if name == CLOSED_BOOK:
        return NamedPolicy(name=name, kind=CLOSED_BOOK, preset=None, policy=None)
    if name in ORACLES:
        return NamedPolicy(name=name, kind="oracle", preset=None, policy=None)
    ready = unfitted_policy(name)
    if ready is not None:
        return NamedPolicy(name=name, kind=ready.kind, preset=None, policy=ready)
    fittable = method_and_preset(name)
    if fittable is not None:
        method, preset = fittable
        if preset in method.fitted:
            _require_splits(fitting.traces, f"policy {name!r}", method)
        else:
            fitting = measures
        takes = {field.name for field in fields(method.settings(preset))}
        chosen_by = f1_kind if "f1_kind" in takes else None
        fitted = fit_method(method.name, fitting, preset, FIT_SPLIT, run=run, f1_kind=chosen_by)
        return NamedPolicy(name=name, kind=fitted.kind, preset=preset, policy=fitted)
    if names_policy_file(name):
        file = load_policy(name)
        return NamedPolicy(
            name=file.policy.facts.name or file.policy.kind,
            kind=file.policy.kind,
            preset=file.policy.preset,
            policy=file.policy,
            max_rounds=file.max_rounds,
        )
    methods = ", ".join(f"{method}, {method}-corrected" for method in method_names())
    raise UsageError(
        f"unknown policy {name!r}; known: fixed-K, {', '.join((*ORACLES, CLOSED_BOOK))}, "
        f"{methods}, or a policy file (.json). "
        "A rule's text goes to --stop-when"
    )


def _require_splits(traces: TraceSet, what: str, method: Method) -> None:
    if not method.can_read(traces):
        splits = " or ".join(
            " and ".join(map(repr, sorted(splits_read))) for splits_read in method.reads
        )
        raise UsageError(
            f"{what} must be fitted, and {traces.origin.source} has no questions in split "
            f"{splits}; fit it on traces that have one with: --fit-on OTHER_TRACES, or "
            f"suffice fit {method.name} OTHER_TRACES --out policy.json, and pass --policy policy.json"
        )


def _rule(measures: Measures, rule: str, fitting: Measures) -> NamedPolicy:
    policy = fit_rule(rule, measures, fit_on=fitting)
    return NamedPolicy(name=rule, kind=policy.kind, preset=None, policy=policy)
