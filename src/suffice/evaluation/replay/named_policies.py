"""Named policies of a replay: policies, methods, rules, oracles and the closed book."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from suffice._version import VERSION
from suffice.contracts import StopPolicy
from suffice.errors import UsageError, attempt, counted, did_you_mean
from suffice.evaluation.replay.results import ReplayResult
from suffice.measures.measures import Measures
from suffice.measures.scores import Outcomes
from suffice.policies.defaults import EVAL_SPLIT, FIT_SPLIT, USUAL_METHODS
from suffice.policies.fitting import fit_rule
from suffice.policies.method import FitRun, Method, Preset
from suffice.policies.policy_file import PolicyFile, load_policy, names_policy_file, policy_hash
from suffice.policies.registry import (
    fit_method,
    method_and_preset,
    nameable_methods,
    unfitted_policy,
)
from suffice.policies.rules.policy import check_rule, rounded
from suffice.results.markup import shorten
from suffice.scoring import METRICS, F1Kind, Metric
from suffice.signals.known_signals import is_usual
from suffice.signals.signal_table import refuse_lacking
from suffice.trace.rounds.trace_set import TraceSet

CLOSED_BOOK = "closed-book"


def closed_book_rounds(traces: TraceSet | Measures) -> Measures:
    """Return the answers without passages, measured as one round a question by the same gold."""
    measures = Measures.of(traces)
    asked, closed_book = measures.traces, measures.closed_book()
    missing = sorted({*asked.question_ids} - {*closed_book.traces.question_ids})
    if missing:
        raise UsageError(
            f"policy {CLOSED_BOOK!r} needs round 0, the answer without passages, which {len(missing)} of "
            f"{counted(asked.n_questions, 'question')} of {asked.origin.source} did not record (the first: "
            f"{missing[0]!r}); record them with: suffice record ... --closed-book --out OTHER_TRACES"
        )
    return closed_book


def of_rounds(result: ReplayResult) -> ReplayResult:
    """Return the replay without policies that answer before round 1."""
    kept = tuple(policy for policy in result.policies if policy.kind != CLOSED_BOOK)
    if result.baseline not in (policy.name for policy in kept):
        raise UsageError(f"the baseline {result.baseline!r} stops at none of the recorded rounds")
    return replace(result, policies=kept)


def replayed(traces: TraceSet | Measures, result: ReplayResult) -> Measures:
    """Return the measures of the replayed traces; refuse others."""
    measures = Measures.of(traces).by(result.metric.name)
    if measures.traces.question_ids != tuple(result.question_ids):
        raise UsageError(
            f"the replay has {counted(result.questions, 'question')} and this record "
            f"{measures.traces.n_questions} others; pass the record that was replayed"
        )
    return measures


def oracle_em(outcomes: Outcomes, last: NDArray[np.int16]) -> NDArray[np.int16]:
    """Return the earliest round with an exact match, else the last recorded one (paper 0, text)."""
    right = outcomes.em == 1.0
    return np.where(right.any(axis=1), right.argmax(axis=1) + 1, last).astype(np.int16)


def oracle_f1(outcomes: Outcomes, last: NDArray[np.int16]) -> NDArray[np.int16]:
    """Return the first round with the question's best F1, or score of its own (paper 0, tables)."""
    scored = np.where(np.isnan(outcomes.f1), -np.inf, outcomes.f1)
    return np.where(outcomes.labelled, scored.argmax(axis=1) + 1, last).astype(np.int16)


ORACLES: Mapping[str, Callable[[Outcomes, NDArray[np.int16]], NDArray[np.int16]]] = {
    "oracle-em": oracle_em,
    "oracle-f1": oracle_f1,
    "oracle-score": oracle_f1,  # which a record's own scores stand for
}


Wanted = str | Path | StopPolicy | PolicyFile
"""A request for a policy: its name, its file's path, or itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPolicy:
    """A policy and its name; ``policy`` is ``None`` for an oracle and for the closed book."""

    name: str
    kind: str
    preset: str | None
    policy: StopPolicy | None
    max_rounds: int | None = None
    file: str | None = None
    label: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", rounded(self.name))

    @classmethod
    def of(cls, policy: StopPolicy, name: str, max_rounds: int | None = None) -> NamedPolicy:
        return cls(
            name=name, kind=policy.kind, preset=policy.preset, policy=policy, max_rounds=max_rounds
        )

    @property
    def adaptive(self) -> bool:
        return self.policy is not None and bool(self.policy.specs)

    @property
    def hash(self) -> str:
        if self.policy is not None:
            return policy_hash(self.policy)
        return sha256(f"{self.kind}:{self.name}:{VERSION}".encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPolicy:
    name: str
    build: Callable[[], NamedPolicy]


def fixed_names(n_rounds: int, most: int = 20) -> tuple[str, ...]:
    """Return every fixed-K; of a long record some, at growing distances.

    >>> fixed_names(60, most=6)
    ('fixed-1', 'fixed-2', 'fixed-5', 'fixed-12', 'fixed-26', 'fixed-60')
    """
    shown = np.arange(1, n_rounds + 1)
    if n_rounds > most:
        shown = np.unique(np.geomspace(1, n_rounds, most).round().astype(int))
    return tuple(f"fixed-{k}" for k in shown.tolist())


def usual_names(n_rounds: int, metric: Metric) -> tuple[str, ...]:
    oracles = (name for name in ORACLES if metric.against == _KNOWN_TO[name])
    return (*fixed_names(n_rounds), *USUAL_METHODS, *oracles)


_KNOWN_TO = {"oracle-em": "gold", "oracle-f1": "gold", "oracle-score": "scores"}


def named_policies(
    traces: TraceSet | Measures,
    names: Sequence[Wanted],
    rules: Sequence[str] = (),
    *,
    fit_on: TraceSet | Measures | None = None,
) -> tuple[NamedPolicy, ...]:
    """Build every named policy, then every rule; split ``tune`` fits them."""
    asked = asked_policies(traces, names, rules, fit_on=fit_on)
    return numbered([policy.build() for policy in asked])


def asked_policies(
    traces: TraceSet | Measures,
    names: Sequence[Wanted],
    rules: Sequence[str] = (),
    *,
    fit_on: TraceSet | Measures | None = None,
    f1_kind: F1Kind = "hotpotqa",
    run: FitRun | None = None,
) -> list[AskedPolicy]:
    measures = Measures.of(traces)
    fit_measures = measures if fit_on is None else Measures.of(fit_on)
    fitted = partial(_fitted, measures, fit_measures, f1_kind, run)
    asked = [_asked(measures, name, fitted) for name in names]

    def of_rule(rule: str) -> NamedPolicy:
        return NamedPolicy.of(fit_rule(rule, measures, fit_on=fit_measures), rule)

    for rule in rules:
        check_rule(rule, measures.traces.signal_names)
        asked.append(AskedPolicy(name=rule, build=partial(of_rule, rule)))
    return asked


def runnable(
    asked: Sequence[AskedPolicy], measures: Measures, f1_kind: F1Kind
) -> tuple[list[NamedPolicy], dict[str, str]]:
    built, left_out = [], {}
    for policy in asked:
        candidate, reason = attempt(partial(_built, policy, measures))
        if candidate is None:
            left_out[policy.name] = str(reason)
        else:
            built.append((policy.name, candidate))
    measure_together(measures, [candidate for _, candidate in built], f1_kind)
    able = []
    for name, candidate in built:
        why = None
        if candidate.policy is not None:
            _, why = attempt(partial(measures.wanted_rounds, candidate.policy))
        if why is None:
            able.append(candidate)
        else:
            left_out[name] = why
    return able, left_out


def _built(asked: AskedPolicy, measures: Measures) -> NamedPolicy:
    candidate = asked.build()
    if candidate.policy is not None:
        refuse_lacking(candidate.policy.specs, measures.traces)
    if candidate.kind == CLOSED_BOOK:
        closed_book_rounds(measures)
    return candidate


def measure_together(
    measures: Measures, candidates: Sequence[NamedPolicy], f1_kind: F1Kind
) -> None:
    specs = [
        spec
        for candidate in candidates
        if candidate.policy is not None
        for spec in candidate.policy.specs
        if is_usual(spec)
    ]
    measures.measure(specs, f1_kind)


def numbered(built: Sequence[NamedPolicy]) -> tuple[NamedPolicy, ...]:
    paths: dict[str, set[str | None]] = {}
    for candidate in built:
        paths.setdefault(candidate.label, set()).add(candidate.file)
    names: Counter[str] = Counter()
    labels: Counter[str] = Counter()
    made = []
    for candidate in built:
        label = candidate.label
        if candidate.file is not None and len(paths[label]) > 1:
            label = candidate.file
        names[candidate.name] += 1
        labels[label] += 1
        made.append(
            replace(
                candidate,
                name=_numbered(candidate.name, names[candidate.name]),
                label=_numbered(label, labels[label]),
            )
        )
    return tuple(made)


def _numbered(name: str, count: int) -> str:
    return name if count == 1 else f"{name}#{count}"


def _asked(measures: Measures, name: Wanted, fitted: Callable[..., NamedPolicy]) -> AskedPolicy:
    if isinstance(name, Path):
        name = str(name)
    if not isinstance(name, str):
        given = _of_policy(name)
        return AskedPolicy(name=given.name, build=lambda: given)
    if name in ORACLES:
        return AskedPolicy(name=name, build=partial(_oracle, measures, name))
    ready = None if name == CLOSED_BOOK else unfitted_policy(name)
    if name == CLOSED_BOOK or ready is not None:
        kind = CLOSED_BOOK if ready is None else ready.kind
        of_name = NamedPolicy(name=name, kind=kind, preset=None, policy=ready)
        return AskedPolicy(name=name, build=lambda: of_name)
    fittable = method_and_preset(name)
    if fittable is not None:
        return AskedPolicy(name=name, build=partial(fitted, name, *fittable))
    if names_policy_file(name):
        read = replace(_of_policy(load_policy(name)), file=name, label=Path(name).name)
        return AskedPolicy(name=read.label, build=lambda: read)
    known = (*ORACLES, CLOSED_BOOK, *nameable_methods())
    near = did_you_mean(name, [*known, *(f"{method}-corrected" for method in known), "fixed-3"])
    raise UsageError(
        f"unknown policy {name!r}{near or ';'} known: fixed-K, {', '.join(known)} (a method also as "
        "NAME-corrected), or a policy file (.json). A rule's text goes to --stop-when, in Python to "
        "rules=[...]"
    )


def _oracle(measures: Measures, name: str) -> NamedPolicy:
    if (against := _KNOWN_TO[name]) != measures.metric.against:
        what = METRICS["f1" if against == "gold" else "score"].labels
        raise UsageError(
            f"policy {name!r} reads {what}, and the metric is {measures.metric.name}; leave it out"
        )
    if measures.seen is not None:
        raise UsageError(
            f"policy {name!r} needs every round, and some questions stopped early; leave it out"
        )
    return NamedPolicy(name=name, kind="oracle", preset=None, policy=None)


def _of_policy(given: StopPolicy | PolicyFile) -> NamedPolicy:
    policy = given.policy if isinstance(given, PolicyFile) else given
    if not callable(getattr(policy, "fires", None)):
        raise UsageError(
            "a policy is named by a text or given as itself, such as suffice.Rule('answer_repeats'); found "
            f"{type(policy).__name__}: {shorten(repr(policy), 60)}"
        )
    most = given.max_rounds if isinstance(given, PolicyFile) else None
    return NamedPolicy.of(policy, policy.facts.name or policy.kind, most)


def _fitted(
    measures: Measures,
    fit_on: Measures,
    f1_kind: F1Kind,
    run: FitRun | None,
    name: str,
    method: Method,
    preset: Preset,
) -> NamedPolicy:
    if preset in method.fitted:
        measures, traces = fit_on, fit_on.traces
        if not method.can_read(traces):
            splits = " or ".join(" and ".join(map(repr, sorted(read))) for read in method.reads)
            first = sorted(method.reads[0])
            shares = [*(f"{split}={0.4 / len(first):g}" for split in first), f"{EVAL_SPLIT}=0.6"]
            raise UsageError(
                f"it must be fitted, and {traces.origin.source} has no questions in split {splits}; "
                f"{traces.how_to_split(','.join(shares))}, fit it on another record with --fit-on "
                f"OTHER_TRACES (in Python fit_on=), or type suffice fit {method.name} OTHER_TRACES --out "
                "policy.json and pass --policy policy.json"
            )
    takes = {field.name for field in fields(method.settings(preset))}
    chosen_by = f1_kind if "f1_kind" in takes else None
    fitted = fit_method(method.name, measures, preset, FIT_SPLIT, run=run, f1_kind=chosen_by)
    note = ""
    if name == method.name and len(method.presets) > 1:
        others = " or ".join(f"{name}-{other}" for other in method.presets if other != preset)
        note = f"{name} is its {preset} preset; suffice fit {name} writes {others} by default"
    return NamedPolicy(name=name, kind=fitted.kind, preset=preset, policy=fitted, note=note)
