"""From a record to one policy: proven along paths on all labeled questions, or learned from a part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from suffice.errors import UsageError
from suffice.evaluation.choose.bounds import Bound, Promise, mean_of
from suffice.evaluation.choose.candidates import (
    LATEST,
    MAJORITY,
    PROVE,
    RANK,
    Candidate,
    Candidates,
    Kept,
    candidates_of,
    digest_of,
    in_parts,
    labelled_only,
    refuse_one_round,
    refuse_several_loops,
    refuse_wrong_exploration,
    without_gaps,
)
from suffice.evaluation.choose.choice import Choice, Ranked
from suffice.evaluation.choose.proof import (
    LIKELY,
    Learned,
    OwnPath,
    PathTests,
    Promised,
    paths_of,
    prove,
)
from suffice.evaluation.replay.answers import answer_rounds
from suffice.evaluation.replay.compare import Comparison
from suffice.evaluation.replay.results import ReplayResult
from suffice.evaluation.replay.runner import replay
from suffice.evaluation.settings import USUAL_LOSS, ChoiceSettings, ComparisonSettings
from suffice.measures.costs import CostAxis
from suffice.measures.measures import Measures, Traces
from suffice.measures.seen import record_banners
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.rules.policy import Rule
from suffice.policies.unfitted import FixedPolicy
from suffice.scoring import AnswerChoice
from suffice.stats.fields import known
from suffice.stats.intervals import Interval, mean_interval, resampled_means
from suffice.stats.units import equally_many, per_unit
from suffice.trace.rounds.trace_set import loops_of, unit_keys

_SAMPLE = 32
_MOST_SHOWN = 12  # rules and methods that are replayed beside the chosen one


def choose(traces: Traces, settings: ChoiceSettings) -> Choice:
    """Choose one policy for a record, with its proven promise.

    All labeled questions prove the policies of paths, which use no labels
    (:mod:`suffice.evaluation.choose.proof`). Split ``tune`` fits methods, rules and learned values, a third
    of the other questions orders them, and the rest proves them.
    """
    measures = Measures.of(traces).by(settings.metric)
    refuse_several_loops(measures)
    refuse_one_round(measures)
    promises = _promises(measures, settings)
    if promises:
        refuse_wrong_exploration(measures)
    complete, incomplete = without_gaps(measures, "choosing", settings.f1_kind)
    labelled, notes = labelled_only(complete, settings)
    if complete.seen is not None and labelled.seen is None:
        complete = labelled  # what the others would have cost was not seen
    axis = complete.costs(settings.cost_model).axis(settings.cost, {})
    settings = replace(settings, cost=axis.name)
    record, drawn = in_parts(labelled, settings)
    fit, rank, proving = (record.only_split(name) for name in (FIT_SPLIT, RANK, PROVE))
    kept = record.take(record.traces.in_split(RANK) | record.traces.in_split(PROVE))
    everyone = candidates_of(record, kept, settings)
    field, ranks = Kept.of(kept, everyone.members, settings), kept.traces.in_split(RANK)
    ranking, held_out = (field.half(np.flatnonzero(part)) for part in (ranks, ~ranks))
    learned = Learned(
        candidate=everyone.members.__getitem__, rank=ranking, prove=held_out, full=everyone.full
    )
    along = None
    if promises and settings.family != "thresholds":
        own = [] if settings.path is None else [OwnPath(settings.path, settings.levels or ())]
        paths = [*paths_of(labelled, axis.name, min_rounds=settings.min_rounds, own=own)]
        if settings.family == "fixed":
            paths = [paths[0], *paths[len(paths) - len(own) :]]
        along = PathTests(complete, labelled, settings, paths)
    usual = next((n for n, one in enumerate(promises) if one.max_loss == USUAL_LOSS), 0)
    bounds = promises[usual].bounds if promises else ()
    within = [mean_of(learned.rank, bound) <= bound.most for bound in bounds]
    keeps = np.all([np.ones(len(everyone.members), np.bool_), *within], axis=0)
    fitted = None if settings.anytime else learned
    promised = _promised(along, fitted, promises, usual) if promises else None
    tested = None if promised is None else promised.rows[promised.asked].learned
    p_values = None if tested is None else tested[0].tested_at.max(axis=0)
    losses = mean_of(learned.rank, Bound(of="signed", most=0.0))
    estimates = [
        Ranked(
            candidate=member,
            loss=float(losses[number]),
            cost=float(learned.rank.costs[number]),
            kept=bool(keeps[number]),
            p_value=None if p_values is None else known(p_values[number]),
        )
        for number, member in enumerate(everyone.members)
    ]
    proven = None if promised is None else promised.row.proven is not None
    ranked, why = in_order(
        estimates, estimates[everyone.full], settings, axis.per_question, proven=proven
    )
    full = everyone.members[everyone.full]
    chosen, title = ranked[0].candidate, ranked[0].candidate.title
    if promised is not None and (best := promised.row.proven) is not None:
        chosen, title = best.candidate, best.title
    elif chosen.policy.name == full.policy.name:
        title = "run all rounds"
    on_all = _on_all(everyone, chosen, promised)
    whole = _replayed(complete, on_all, full, settings)
    shown = {**on_all, **_shown(ranked, chosen, promised)}
    result = _replayed(proving, shown, full, settings, split=PROVE)
    measured = whole if chosen.of_no_label else result
    guarantee: dict[str, Any] = {}
    if promised is not None and promised.row.proven is not None:
        both = (measured.policy(name) for name in (chosen.policy.name, measured.baseline))
        paid = [one.costs[axis.name] for one in both]
        guarantee = _guarantee(promised, labelled, axis, paid, settings)
        with_it = _with_guarantee(chosen, guarantee)
        if with_it is chosen:
            notes.append("a live loop is not told the promise: this kind of policy cannot hold one")
        chosen = with_it
    if promises and (cut := _cut_terms(labelled).get("cut")):
        notes.append(f"{cut}. To prove more, record in shadow mode or explore more")
    sizes = {"all": labelled, FIT_SPLIT: fit, RANK: rank, PROVE: proving}
    made = {
        "questions": labelled.traces.n_questions,
        "sample": " ".join(f"{key:.0f}" for key in np.unique(unit_keys(labelled.traces))[:_SAMPLE]),
        "held_out": digest_of(proving.traces),
        **{name: getattr(settings, name) for name in ("tune_split", "split", "seed")},
        "loop": loops_of(measures.traces.origin.run),
    }
    return Choice(
        made=made,
        max_rounds=measures.traces.full_budget,
        chosen=chosen,
        title=title,
        why=why,
        promised=promised,
        guarantee=guarantee,
        whole=whole,
        comparison=Comparison(measures=proving, result=result),
        ranked=tuple(ranked),
        rules_looked_at=everyone.rules_looked_at,
        settings=settings,
        parts={name: part.traces.n_questions for name, part in sizes.items()},
        axis=axis,
        left_out=everyone.left_out,
        notes=(
            *record_banners(measures.traces, measures.metric),
            *measures.notes(settings.metric),
            *([] if incomplete is None else [incomplete]),
            *labelled.unit_notes,
            *notes,
            *drawn,
            *everyone.notes,
        ),
        warned=everyone.warned,
        incomplete=incomplete,
        by_majority=_by_majority(labelled, settings),
    )


def _by_majority(labelled: Measures, settings: ChoiceSettings) -> Interval | None:
    if settings.answer != LATEST or labelled.seen is not None or labelled.metric.agreement:
        return None
    if not labelled.traces.answered.any():
        return None
    scored = labelled.scores(settings.f1_kind)
    rows, last = np.arange(labelled.traces.n_questions), labelled.traces.last_rounds - 1
    chosen = answer_rounds(labelled, AnswerChoice.parse(MAJORITY), None).returned(scored)
    gains = chosen.compared[rows, last] - scored.compared[rows, last]
    units = labelled.units[scored.labelled]
    means = per_unit(gains[scored.labelled], units)[:, None]
    draws = resampled_means(means, resamples=settings.resamples, seed=settings.seed)
    return mean_interval(means[:, 0], draws[:, 0], -1.0, size=equally_many(units))


def _promises(measures: Measures, settings: ChoiceSettings) -> list[Promise]:
    metric = measures.metric
    wrong_stops = settings.max_wrong_stops is not None or settings.loss == "wrong-stop"
    if wrong_stops and not (metric.gold or metric.agreement):
        raise UsageError(
            f"wrong stops need answers, and {measures.traces.origin.source} is compared by "
            f"{metric.label}; leave out --max-wrong-stops and --loss wrong-stop, or compare by gold "
            "answers (--metric f1)"
        )
    return [
        Promise(
            max_loss=loss,
            confidence=settings.confidence,
            loss=settings.loss,
            correction=settings.correction,
            max_wrong_stops=settings.max_wrong_stops,
        )
        for loss in settings.promised_losses
    ]


def _promised(
    along: PathTests | None, learned: Learned | None, promises: Sequence[Promise], asked: int
) -> Promised:
    rows = prove(along, learned, promises)
    proven = [n for n in range(asked, len(rows)) if rows[n].proven is not None]
    guess = None
    if rows[asked].proven is None:
        level = max(1.0 - LIKELY, promises[asked].delta)
        guess = prove(along, learned, [promises[asked]], level=level)[0].proven
    return Promised(rows=rows, asked=asked, at=min(proven, default=asked), guess=guess)


def in_order(
    estimates: Sequence[Ranked],
    full: Ranked,
    settings: ChoiceSettings,
    unit: str,
    *,
    proven: bool | None,
) -> tuple[list[Ranked], str]:
    """Order the candidates, best first, and say why; ``proven``: whether a promise is (``None``: no aim)."""
    if (error := settings.cost_per_error) is not None:
        order = sorted(estimates, key=lambda one: (one.cost + error * one.loss, one.cost))
        return order, f"It has the least cost plus {error:g} an error on the ranking questions."
    if proven is None:
        most = math.inf if settings.max_cost is None else settings.max_cost
        order = sorted(estimates, key=lambda one: (one.cost > most, one.loss, one.cost))
        if order[0].cost > most:
            raise UsageError(
                f"no candidate costs at most {most:g} {unit}; the least is "
                f"{min(one.cost for one in estimates):.4g}; raise --max-cost"
            )
        return order, (
            f"It loses least of those that cost at most {most:g} {unit} on the ranking questions."
        )
    # those that kept what was asked first, the cheapest of them first
    order = sorted(
        estimates, key=lambda one: (not one.kept, 0.0 if one.kept else one.loss, one.cost)
    )
    if proven:
        return order, "It is the cheapest policy proven to keep the promise."
    rest = (one for one in order if one is not full)
    return [full, *rest], "No cheaper policy is proven to keep the promise."


def _on_all(
    everyone: Candidates, chosen: Candidate, promised: Promised | None
) -> dict[str, Candidate]:
    shown = [one for one in everyone.members if one.group == "fixed"]
    paths = [chosen, *([] if promised is None else promised.candidates)]
    shown += [one for one in paths if one.group == "path"]
    return {one.policy.name: one for one in shown}


def _shown(
    ranked: Sequence[Ranked], chosen: Candidate, promised: Promised | None
) -> dict[str, Candidate]:
    proven, guess = ((), None) if promised is None else (promised.proven, promised.guess)
    learned = [chosen, *proven]
    learned += [one.candidate for one in ranked if one.candidate.group != "fixed"]
    learned = learned[: _MOST_SHOWN + 1]
    learned += [] if guess is None else [guess.candidate]
    return {one.policy.name: one for one in learned}


def _replayed(
    measures: Measures,
    shown: Mapping[str, Candidate],
    full: Candidate,
    settings: ChoiceSettings,
    split: str | None = None,
) -> ReplayResult:
    return replay(
        measures,
        [candidate.policy for candidate in shown.values()],
        ComparisonSettings(
            **settings.scored, baseline=full.policy.name, split=split, answer=settings.answer
        ),
    )


def _guarantee(
    promised: Promised,
    record: Measures,
    axis: CostAxis,
    paid: Sequence[float | None],
    settings: ChoiceSettings,
) -> dict[str, Any]:
    row = promised.row
    changed = row.promise.loss == "wrong-stop"
    return {
        **row.document(),
        **({"min_rounds": settings.min_rounds} if settings.min_rounds > 1 else {}),
        **(
            {} if settings.path is None else {"own_path": [settings.path, *(settings.levels or ())]}
        ),
        **({"anytime": True} if settings.anytime else {}),
        "together_with": [one.promise.max_loss for one in promised.rows if one is not row],
        "not_proven": [one.promise.max_loss for one in promised.rows if one.proven is None],
        "correction": row.promise.correction,
        "metric": record.metric.key(
            "em" if changed and record.metric.agreement else record.metric.score
        ),
        **({} if settings.answer == LATEST else {"answer": settings.answer}),
        "cost": axis.name,
        "mean_cost": paid[0],
        "full_budget_cost": paid[1],
        "seed": settings.seed,
        **_cut_terms(record),
    }


def _cut_terms(questions: Measures) -> dict[str, Any]:
    """How a promise on a record with cut questions was proven, as its file says it."""
    if (seen := questions.seen) is None:
        return {}
    parts = []
    if seen.stood_for.any():
        parts.append(
            f"{int(seen.explored.sum())} explored questions (largest weight {seen.reach:.4g}) represent "
            f"{int(seen.stood_for.sum())} that were stopped early"
        )
    if seen.unseen.any():
        parts.append(
            f"the worst is assumed of {int(seen.unseen.sum())} others that were stopped early: right at "
            "the full budget, wrong at a later stop"
        )
    return {"cut": "; ".join(parts), "bounded": bool(seen.unseen.any())}


def _with_guarantee(chosen: Candidate, guarantee: Mapping[str, Any]) -> Candidate:
    """The chosen policy with its promise, where its file has room for one; a budget is a rule too."""
    policy = chosen.policy.policy
    if isinstance(policy, FixedPolicy):
        policy = Rule(rule=f"round >= {policy.rounds}", kind="certified")
    if not isinstance(policy, Rule):
        return chosen
    return replace(
        chosen, policy=replace(chosen.policy, policy=replace(policy, guarantee=guarantee))
    )
