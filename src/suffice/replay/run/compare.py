"""From names to a comparison: build the candidates, choose the questions, replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from suffice.errors import UsageError
from suffice.measures.measures import Measures
from suffice.policies.defaults import EVAL_SPLIT, FIT_SPLIT
from suffice.policies.file import policy_hash
from suffice.policies.method import FitRun
from suffice.protocols import CalibratedPolicy, ValuePolicy
from suffice.replay.run.engine import ReplaySettings, replay
from suffice.replay.run.named_policies import NamedPolicy, named_policies
from suffice.replay.run.results import ReplayResult
from suffice.replay.settings import ComparisonSettings
from suffice.results.table import Table
from suffice.results.tabular import Tabular
from suffice.scoring import F1Kind
from suffice.signals.recorded import Q_CONT, Q_STOP
from suffice.signals.store import with_values
from suffice.trace.rounds.reader import blank_answers
from suffice.trace.rounds.table import TraceSet


def transfer_notes(
    candidates: Sequence[NamedPolicy], fit_on: TraceSet, replayed: TraceSet
) -> list[str]:
    """Which candidates were fitted on split tune of ``fit_on``, and where that does not reach.

    Says which questions, if any, are in both, and from which round on a per-round calibration was
    never fitted.
    """
    source = fit_on.origin.source
    fitted = [candidate for candidate in candidates if _fitted_there(candidate, source)]
    if not fitted:
        return [f"nothing was fitted on {source}: no policy named needs fitting"]
    tune = fit_on.only_split(FIT_SPLIT)
    names = ", ".join(candidate.name for candidate in fitted)
    notes = [
        f"fitted on split {FIT_SPLIT} of {source} ({tune.n_questions} questions), as asked by fit-on: "
        f"{names}"
    ]
    shared = _keys(tune) & _keys(replayed)
    if shared:
        notes.append(
            f"{len(shared)} of the {replayed.n_questions} questions replayed are among those fitted on: "
            f"the figures of {names} are in-sample to that extent"
        )
    return notes + _rounds_notes(fitted, replayed.n_rounds)


def _fitted_there(candidate: NamedPolicy, source: str) -> bool:
    fitted_on = _fitting(candidate)
    return fitted_on.get("source") == source and fitted_on.get("split") == FIT_SPLIT


def _fitting(candidate: NamedPolicy) -> Mapping[str, Any]:
    """What its policy says it was fitted on; empty: nothing."""
    return {} if candidate.policy is None else candidate.policy.facts.fitted_on


def _keys(traces: TraceSet) -> set[tuple[str, str]]:
    """Id and text: other data sets may count their questions alike."""
    return {(question.id, question.text) for question in traces.questions}


def _rounds_notes(fitted: Sequence[NamedPolicy], n_rounds: int) -> list[str]:
    notes = []
    for candidate in fitted:
        if not isinstance(candidate.policy, CalibratedPolicy):
            continue
        for signal, calibrator in candidate.policy.calibrators.items():
            last = len(calibrator.maps)
            if calibrator.beyond is None and last < n_rounds:
                absent = "undefined" if calibrator.absent is None else f"{calibrator.absent:g}"
                notes.append(
                    f"{candidate.name}: calibrated({signal}) was fitted to round {last} and is {absent} in "
                    f"rounds {last + 1} to {n_rounds}"
                )
    return notes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(Tabular):
    """The replay with the questions it was made on, measured."""

    measures: Measures
    result: ReplayResult

    @property
    def traces(self) -> TraceSet:
        """Those questions."""
        return self.measures.traces

    def tables(self) -> tuple[Table, ...]:
        """Those of the replay."""
        return self.result.tables()

    def to_json(self) -> dict[str, Any]:
        """That of the replay."""
        return self.result.to_json()


def compare(
    traces: TraceSet | Measures, settings: ComparisonSettings, *, run: FitRun | None = None
) -> Comparison:
    """Replay what the settings name, in the order given, then the baseline if it is not among them.

    ``run`` watches trainings.
    """
    measures = Measures.of(traces)
    chosen, split, notes = _choose_split(measures, settings.split)
    notes = [*blank_answers(chosen.traces), *notes]
    baseline = settings.baseline or f"fixed-{min(3, chosen.traces.n_rounds)}"
    names = [*settings.policies]
    if not names and not settings.rules:
        raise UsageError("name at least one --policy or --stop-when")
    fit_on = None if settings.fit_on is None else Measures.of(settings.fit_on)
    built = list(
        named_policies(
            measures, names, settings.rules, fit_on=fit_on, f1_kind=settings.f1_kind, run=run
        )
    )
    baseline = _include(measures, baseline, built, fit_on, settings.f1_kind)
    source = measures.traces.origin.source
    if fit_on is None or fit_on.traces.origin.source != source:
        notes += _in_sample_notes(built, source, split)
    if fit_on is not None:
        notes += transfer_notes(built, fit_on.traces, chosen.traces)
    for candidate in built:
        said = () if candidate.policy is None else candidate.policy.facts.notes
        notes += [f"{candidate.name}: {note}" for note in said]
    result = replay(
        chosen,
        built,
        ReplaySettings(
            baseline=baseline,
            split=split,
            f1_kind=settings.f1_kind,
            resamples=settings.resamples,
            seed=settings.seed,
            notes=tuple(notes),
            cost=settings.cost,
            cost_model=settings.cost_model,
        ),
    )
    return Comparison(measures=chosen, result=result)


def _include(
    measures: Measures,
    baseline: str,
    built: list[NamedPolicy],
    fit_on: Measures | None,
    f1_kind: F1Kind,
) -> str:
    """The baseline's name among the candidates, where it is added unless one of them is the same."""
    if baseline in (candidate.name for candidate in built):
        return baseline
    wanted = named_policies(measures, [baseline], fit_on=fit_on, f1_kind=f1_kind)[0]
    alike = [
        candidate.name
        for candidate in built
        if wanted.policy is not None
        and candidate.policy is not None
        and candidate.name.partition("#")[0] == wanted.name
        and candidate.max_rounds == wanted.max_rounds
        and policy_hash(candidate.policy) == policy_hash(wanted.policy)
    ]
    if alike:
        return alike[0]
    count = 1 + sum(candidate.name.partition("#")[0] == wanted.name for candidate in built)
    name = wanted.name if count == 1 else f"{wanted.name}#{count}"
    built.append(replace(wanted, name=name))
    return name


def _choose_split(measures: Measures, wanted: str | None) -> tuple[Measures, str | None, list[str]]:
    if wanted is not None:
        return measures.only_split(wanted), wanted, []
    if EVAL_SPLIT in measures.traces.splits:
        chosen = measures.only_split(EVAL_SPLIT)
        return chosen, EVAL_SPLIT, ["replayed on split eval, the default"]
    return measures, None, ["no split is named eval: all questions are replayed"]


def _in_sample_notes(built: Sequence[NamedPolicy], source: str, split: str | None) -> list[str]:
    return [
        f"{candidate.name} was fitted on questions it is scored on: its figures are in-sample"
        for candidate in built
        if _fitted_on(candidate, source, split)
    ]


def _fitted_on(candidate: NamedPolicy, source: str, split: str | None) -> bool:
    """Whether the policy says it was fitted on questions of this source and split (``None``: all)."""
    fitted_on = _fitting(candidate)
    splits = fitted_on.get("splits", [fitted_on.get("split")])
    return fitted_on.get("source") == source and split in (None, *splits)


def with_q_values(traces: TraceSet | Measures, comparison: Comparison) -> TraceSet:
    """All the traces, with the signals ``q_stop`` and ``q_cont`` of the one stop-rag policy compared.

    Raises
    ------
    UsageError
        When no policy of that kind was compared, or several were.
    """
    measures = Measures.of(traces)
    results = comparison.result.policies
    learned = {
        policy_result.name: policy_result.policy
        for policy_result in results
        if isinstance(policy_result.policy, ValuePolicy)
    }
    if len(learned) != 1:
        there = ", ".join(learned) or "none"
        raise UsageError(
            f"the values of exactly one stop-rag policy can be stored, found {there}; name one with --policy"
        )
    (policy,) = learned.values()
    stop, cont = policy.values(measures.signals(policy.specs))
    return with_values(measures.traces, {Q_STOP.name: stop, Q_CONT.name: cont})
