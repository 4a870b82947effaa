"""From names to a comparison: build the candidates, choose the questions, replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from suffice.contracts import ValuePolicy
from suffice.errors import UsageError, counted
from suffice.evaluation.replay.named_policies import (
    AskedPolicy,
    NamedPolicy,
    Wanted,
    asked_policies,
    numbered,
    runnable,
    usual_names,
)
from suffice.evaluation.replay.results import ReplayResult
from suffice.evaluation.replay.runner import replay
from suffice.evaluation.settings import ComparisonSettings
from suffice.measures.measures import Measures, Traces
from suffice.policies.defaults import EVAL_SPLIT, FIT_SPLIT
from suffice.policies.fitting import LABELS, fit_notes
from suffice.policies.method import FitRun
from suffice.results.table import Table
from suffice.results.tabular import Tabular
from suffice.scoring import metric_of_labels
from suffice.signals.known_signals import Q_CONT, Q_STOP
from suffice.signals.stored_signals import with_values
from suffice.trace.rounds.trace_set import TraceSet


def transfer_notes(
    candidates: Sequence[NamedPolicy], fit_on: TraceSet, replayed: TraceSet
) -> list[str]:
    """Note the candidates fitted on split tune of ``fit_on``, and questions in both records."""
    source = fit_on.origin.source
    fitted = [
        candidate
        for candidate in candidates
        if (on := _fitting(candidate)).get("source") == source and on.get("split") == FIT_SPLIT
    ]
    if not fitted:
        return [f"nothing was fitted on {source}: no policy needs fitting"]
    tune = fit_on.only_split(FIT_SPLIT)
    names = ", ".join(candidate.label for candidate in fitted)
    notes = [
        f"fitted on split {FIT_SPLIT} of {source} ({counted(tune.n_questions, 'question')}), the record of "
        f"--fit-on: {names}"
    ]
    # id and text: other data sets may count their questions alike
    keys = ({(one.id, one.text) for one in part.questions} for part in (tune, replayed))
    shared = next(keys) & next(keys)
    if shared:
        notes.append(
            f"also fitted on: {len(shared)} of {counted(replayed.n_questions, 'question')}, so figures of "
            f"{names} are partly in-sample"
        )
    return notes


def _fitting(candidate: NamedPolicy) -> Mapping[str, Any]:
    return {} if candidate.policy is None else candidate.policy.facts.fitted_on


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(Tabular):
    measures: Measures
    result: ReplayResult

    @property
    def traces(self) -> TraceSet:
        return self.measures.recorded

    def tables(self) -> tuple[Table, ...]:
        return self.result.tables()

    def to_json(self) -> dict[str, Any]:
        return self.result.to_json()


def compare(
    traces: Traces, settings: ComparisonSettings, *, run: FitRun | None = None
) -> Comparison:
    """Replay the policies of the settings in order, then the baseline.

    A policy that cannot be fitted or run on this record is left out, and the result says why.
    """
    measures = Measures.of(traces).by(settings.metric)
    chosen, split, notes = _choose_split(measures, settings.split)
    names = settings.policies
    if not names and not settings.rules:
        names = usual_names(chosen.traces.n_rounds, measures.metric)
    fit_on = None if settings.fit_on is None else Measures.of(settings.fit_on).by(settings.metric)

    ask = partial(asked_policies, measures, fit_on=fit_on, f1_kind=settings.f1_kind, run=run)
    able, left_out = runnable(ask(names, settings.rules), chosen, settings.f1_kind)
    source = measures.traces.origin.source
    if settings.split is None and (whole := proven_on_all(able, source)):
        chosen, split = measures, None
        notes = [f"replayed on all questions, which prove {whole}; for a part of them name --split"]
    if left_out and (settings.strict or not able):
        if len(left_out) == 1:
            ((name, reason),) = left_out.items()
            raise UsageError(f"policy {name!r} cannot run here: {reason}")
        told = " ".join(f"({n}) {name}: {why}" for n, (name, why) in enumerate(left_out.items(), 1))
        raise UsageError(f"{len(left_out)} policies cannot run on {source}: {told}")
    reasons: dict[str, list[str]] = {}
    for name, reason in left_out.items():
        reasons.setdefault(reason, []).append(name)
    notes += [f"left out {', '.join(named)}: {reason}" for reason, named in reasons.items()]
    wanted = settings.baseline or f"fixed-{chosen.traces.n_rounds}"
    built, baseline = _with_baseline(able, wanted, ask)
    if fit_on is None or fit_on.traces.origin.source != source:
        notes += [
            f"{candidate.label} was fitted on the questions that score it: its figures are in-sample"
            for candidate in built
            if (on := _fitting(candidate)).get("source") == source
            and split in (None, *on.get("splits", [on.get("split")]))
        ]
    if fit_on is not None:
        notes += transfer_notes(built, fit_on.traces, chosen.traces)
    notes += [candidate.note for candidate in built if candidate.note]
    usual = not settings.policies and not settings.rules
    if usual and not any(candidate.adaptive for candidate in built):
        notes.append(
            "none of these policies reads answers or evidence, so they cannot show whether stopping by "
            "signals beats a fixed number of rounds; add a rule: "
            "--stop-when 'answer_repeats and not abstained', in Python rules=[TEXT]"
        )
    for candidate in built:
        if candidate.policy is not None:
            facts = candidate.policy.facts
            said = (*facts.notes, *fit_notes(facts.fitted_on))
            notes += [f"{candidate.label}: {note}" for note in said]
    result = replay(
        chosen,
        built,
        replace(settings, split=split, baseline=baseline),
        [*chosen.notes(settings.metric), *notes, *_agreement_notes(built)],
    )
    return Comparison(measures=chosen, result=replace(result, left_out=left_out))


def _with_baseline(
    built: Sequence[NamedPolicy], named: str, ask: Callable[[Sequence[Wanted]], list[AskedPolicy]]
) -> tuple[tuple[NamedPolicy, ...], str]:
    """The policies numbered, the baseline last unless one of them is the same, and its name."""
    known = numbered(built)
    for candidate in known:
        if named == candidate.name:
            return known, named
    wanted = ask([named])[0].build()
    for candidate in known:
        alike = (candidate.hash, candidate.max_rounds) == (wanted.hash, wanted.max_rounds)
        if alike and candidate.name.partition("#")[0] == wanted.name:
            return known, candidate.name
    with_wanted = numbered([*built, wanted])
    return with_wanted, with_wanted[-1].name


def _choose_split(measures: Measures, wanted: str | None) -> tuple[Measures, str | None, list[str]]:
    if wanted == "all" and wanted not in measures.traces.splits:
        return measures, None, ["replayed on all questions, including those of the fits"]
    if wanted is not None:
        return measures.only_split(wanted), wanted, []
    if EVAL_SPLIT in measures.traces.splits:
        chosen = measures.only_split(EVAL_SPLIT)
        return chosen, EVAL_SPLIT, ["replayed on split eval (the default)"]
    return measures, None, ["no split is named eval, so all questions are replayed"]


def proven_on_all(candidates: Sequence[NamedPolicy], source: str) -> str:
    """Return the name of a policy whose proof used all questions, unless one was fitted on this record."""
    if any(_fitting(candidate).get("source") == source for candidate in candidates):
        return ""
    told = ((one, one.policy.facts.guarantee.get("path")) for one in candidates if one.policy)
    return next((one.label for one, path in told if path not in (None, "learned")), "")


def _agreement_notes(built: Sequence[NamedPolicy]) -> list[str]:
    names: dict[str, list[str]] = {}
    for candidate in built:
        if LABELS in (fitting := _fitting(candidate)):
            metric = metric_of_labels(fitting[LABELS])
            meant = "agreement, not of being right" if metric.agreement else "a full score of 1"
            said = (
                f"fitted on {metric.labels}, not on gold answers: {{}}. A calibrated value is the "
                "probability of "
            )
            names.setdefault(said + meant, []).append(candidate.label)
    return [said.format(", ".join(learnt)) for said, learnt in names.items()]


def with_q_values(traces: TraceSet | Measures, comparison: Comparison) -> TraceSet:
    """Return the traces with signals ``q_stop`` and ``q_cont`` of the one stop-rag policy compared."""
    measures = Measures.of(traces)
    results = comparison.result.policies
    learned = {
        policy_result.label: policy_result.policy
        for policy_result in results
        if isinstance(policy_result.policy, ValuePolicy)
    }
    if len(learned) != 1:
        there = ", ".join(learned) or "none"
        raise UsageError(
            f"only the values of one stop-rag policy can be stored, found {there}; name one policy"
        )
    (policy,) = learned.values()
    stop, cont = policy.values(measures.signals(policy.specs))
    return with_values(measures.traces, {Q_STOP.name: stop, Q_CONT.name: cont})
