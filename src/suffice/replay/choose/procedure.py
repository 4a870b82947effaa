"""From a record to one policy: fitted on one part, ranked on a second, its promise proven on a third."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.measures.costs import CostAxis
from suffice.measures.measures import Measures, Traces
from suffice.measures.seen import record_banners
from suffice.options import settings_of
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.file import PolicyFile, policy_hash
from suffice.policies.fixed import FixedPolicy
from suffice.policies.rules.policy import RulePolicy
from suffice.replay.choose.attempts import Attempt, spend
from suffice.replay.choose.candidates import LATEST, Candidate, Candidates, Kept, candidates_of
from suffice.replay.choose.certified import cut_terms
from suffice.replay.choose.choice import Choice, Ranked, WronglyStopped
from suffice.replay.choose.learn_then_test import (
    Certification,
    CertifySettings,
    Half,
    certify,
    describe,
    refuse_caps,
)
from suffice.replay.choose.parts import (
    PROVE,
    RANK,
    in_parts,
    labelled_in,
    refuse_pointless,
    refuse_several_loops,
)
from suffice.replay.choose.ranking import Estimates, estimated, likely, pick
from suffice.replay.run.compare import Comparison
from suffice.replay.run.engine import ReplaySettings, replay
from suffice.replay.run.named_policies import Wanted
from suffice.replay.run.results import ReplayResult
from suffice.replay.settings import ChoiceSettings

_MOST_WRONG = 50
_MOST_SHOWN = 12
"""Rules and methods that are replayed beside the chosen one."""


def choose(
    traces: Traces,
    settings: ChoiceSettings | None = None,
    *,
    certificates: str | Path | None = None,
) -> Choice:
    """The one policy that a record speaks for, with what it promises.

    Every candidate is fitted on the split ``tune``. A third of the other questions ranks: what is tested,
    in which order, and what is best by an aim without a promise, depends on fits and these alone. The rest
    proves, by the tests of :mod:`suffice.replay.choose.learn_then_test` (Angelopoulos et al. 2021), and is
    what all figures of the result are of. What no label was fitted to is ranked by the questions of ``tune``
    too; which candidates are tested, and in which order, is not told by them.

    Parameters
    ----------
    traces
        The recorded questions.
    settings
        What to choose by, and among what.
    certificates
        The folder in which promises proven on this record are counted, see
        :mod:`suffice.replay.choose.attempts`; ``None``: this one is not counted.

    Raises
    ------
    UsageError
        For files of different loops, fewer than 4 labelled questions in a part, a record of one round,
        scores that never differ, an unknown cost, a cap that no candidate keeps, a record that has been
        used up.
    DataError
        For traces that cannot be read, and a split that is missing where another is there.
    """
    settings = settings_of(ChoiceSettings, settings)
    measures = Measures.of(traces).by(settings.metric)
    refuse_several_loops(measures)
    promise = _promise(measures, settings)
    record, drawn = in_parts(measures, settings)
    fit, rank, prove = (record.only_split(name) for name in (FIT_SPLIT, RANK, PROVE))
    kept = record.take(record.traces.in_split(RANK) | record.traces.in_split(PROVE))
    refuse_pointless(measures, kept, settings)
    everyone = candidates_of(record, kept, settings)
    field = Kept.of(kept, everyone.members, settings)
    ranks = kept.traces.in_split(RANK)
    random = np.random.default_rng(settings.seed)
    rows = [random.permutation(np.flatnonzero(part)) for part in (ranks, ~ranks)]
    capped = promise is not None and promise.max_cost is not None
    most = field.most_paid(rows[0]) if capped else None
    halves = [field.half(of_part, most) for of_part in rows]
    bounds = () if promise is None else promise.bounds
    estimates = estimated(halves[0], fit, everyone, field.axis, settings, bounds)
    outcome, attempt = None, None
    if promise is not None:
        refuse_caps(halves[0], promise, field.axis.label)
        attempt = _counted_attempt(certificates, measures, settings)
        outcome = _proven(halves, estimates.loss, everyone.full, promise, attempt)
    keeps = np.zeros(len(everyone.members), np.bool_)
    if outcome is not None and outcome.fell_back:
        keeps = likely(estimates, halves, outcome.settings, settings.seed)
    picked = pick(estimates, outcome, settings, keeps)
    ranked = _ranked(everyone.members, estimates, outcome)
    best_first = tuple(ranked[at] for at in picked.order.tolist())
    chosen = ranked[picked.number]
    comparison = _compared(prove, _shown(everyone, best_first), everyone, settings, field.axis)
    wrong = _wrong(prove, comparison.result, chosen, settings)
    notes = [*everyone.notes]
    if outcome is not None and not outcome.fell_back:
        promised = _with_guarantee(chosen, _guarantee(outcome, record, settings, field.axis))
        if promised is chosen:
            notes.append(
                "the promise stands in choice.json: this policy's file has no room for one"
            )
        chosen = promised
    if promise is not None and (cut := cut_terms(record, promise)):
        notes.append(f"{cut['cut']}; to prove more, record some in shadow or let more run on")
    return Choice(
        chosen=chosen,
        why=picked.why,
        comparison=comparison,
        ranked=best_first,
        rules_looked_at=everyone.rules_looked_at,
        outcome=outcome,
        settings=settings,
        parts={
            name: labelled_in(part)
            for name, part in ((FIT_SPLIT, fit), (RANK, rank), (PROVE, prove))
        },
        axis=field.axis,
        wrong=tuple(wrong[:_MOST_WRONG]),
        wrong_count=len(wrong),
        left_out={one.name: one.reason for one in everyone.left_out},
        notes=(
            *record_banners(measures.traces),
            *measures.notes(settings.metric),
            *drawn,
            *notes,
        ),
        warned=everyone.warned,
        guess=None if picked.guess is None else ranked[picked.guess],
        attempt=attempt,
    )


def _ranked(
    members: tuple[Candidate, ...], estimates: Estimates, outcome: Certification | None
) -> list[Ranked]:
    tested = np.full(len(members), np.nan) if outcome is None else outcome.p_values
    return [
        Ranked(
            candidate=member,
            loss=float(estimates.loss[number]),
            cost=float(estimates.cost[number]),
            p_value=None if np.isnan(tested[number]) else float(tested[number]),
            proven=outcome is not None and bool(outcome.certified[number]),
        )
        for number, member in enumerate(members)
    ]


def _promise(measures: Measures, settings: ChoiceSettings) -> CertifySettings | None:
    """What is to be proven; ``None``: nothing."""
    if settings.promised_loss is None and settings.max_wrong_stops is None:
        if not 0.0 < settings.confidence < 1.0:
            raise UsageError(
                f"the confidence must lie above 0 and below 1, found {settings.confidence:g}"
            )
        return None
    metric = measures.metric
    if settings.max_wrong_stops is not None and not (metric.gold or metric.agreement):
        raise UsageError(
            f"wrong stops are told by answers, and {measures.traces.origin.source} is compared by "
            f"{metric.label}; leave out --max-wrong-stops, or compare by gold answers (--metric f1)"
        )
    return CertifySettings(
        max_loss=settings.promised_loss,
        confidence=settings.confidence,
        max_wrong_stops=settings.max_wrong_stops,
        max_cost=settings.max_cost,
        attempts=settings.attempts,
    )


def _counted_attempt(
    certificates: str | Path | None, measures: Measures, settings: ChoiceSettings
) -> Attempt | None:
    """What this promise may spend, counted in the folder before anything of it is seen."""
    if certificates is None:
        return None
    asked = asdict(replace(settings, policies=())) | {
        "chosen": True,
        "policies": [_in_the_count(one) for one in settings.policies],
        "compared_by": measures.metric.name,
    }
    return spend(
        Path(certificates),
        measures.recorded,
        asked,
        confidence=settings.confidence,
        attempts=settings.attempts,
    )


def _in_the_count(wanted: Wanted) -> str:
    if isinstance(wanted, str | Path):
        return str(wanted)
    return policy_hash(wanted.policy if isinstance(wanted, PolicyFile) else wanted)


def _proven(
    halves: list[Half],
    loss: NDArray[np.float64],
    full: int,
    promise: CertifySettings,
    attempt: Attempt | None,
) -> Certification:
    """What the questions that prove show; where a cost is promised too the best of those proven."""
    if attempt is not None and attempt.level != promise.delta:
        promise = replace(promise, level=attempt.level)
    outcome = certify(halves[0], halves[1], full, promise)
    if promise.max_cost is None or outcome.fell_back:
        return outcome
    least = np.where(outcome.certified, loss, np.inf)
    return replace(outcome, chosen=int(np.lexsort((outcome.costs, least))[0]))


# --- on the questions that prove -------------------------------------------------------------------
def _shown(everyone: Candidates, ranked: Sequence[Ranked]) -> list[Candidate]:
    """The fixed budgets, the chosen one and the best of the others that return the same answer."""
    answer = ranked[0].candidate.answer
    alike = [one.candidate for one in ranked if one.candidate.answer == answer]
    others = [one for one in alike if one.group != "fixed"]
    fixed = [replace(one, answer=answer) for one in everyone.members if one.group == "fixed"]
    return [*fixed, *others[: _MOST_SHOWN + 1]]


def _compared(
    prove: Measures,
    shown: list[Candidate],
    everyone: Candidates,
    settings: ChoiceSettings,
    axis: CostAxis,
) -> Comparison:
    answer = shown[-1].answer if shown else LATEST
    result = replay(
        prove,
        [candidate.policy for candidate in shown],
        ReplaySettings(
            baseline=everyone.members[everyone.full].policy.name,
            split=PROVE,
            f1_kind=settings.f1_kind,
            resamples=settings.resamples,
            seed=settings.seed,
            cost=axis.name,
            cost_model=settings.cost_model,
            answer=answer,
            banners=record_banners(prove.traces),
        ),
    )
    return Comparison(measures=prove, result=result)


def _wrong(
    prove: Measures, result: ReplayResult, chosen: Ranked, settings: ChoiceSettings
) -> list[WronglyStopped]:
    """Where the chosen policy is wrong and the full budget right, in the record's order."""
    scored, traces = prove.scores(settings.f1_kind), prove.traces
    policy = next(one for one in result.policies if one.name == chosen.candidate.policy.name)
    if policy.taken is None or prove.seen is not None:
        return []
    rows = np.arange(traces.n_questions)
    wrong = scored.em[rows, policy.answers - 1] < 1.0
    right = scored.em[rows, traces.last_rounds - 1] == 1.0
    at = wrong & right
    records = traces.take(at).records()
    stops, answers = policy.stops[at].tolist(), policy.answers[at].tolist()
    return [
        WronglyStopped(
            id=record.question.id,
            question=record.question.text,
            round=stop,
            answer=record.rounds[returned - 1].answer,
            full_budget_answer=record.rounds[-1].answer,
        )
        for record, stop, returned in zip(records, stops, answers, strict=True)
    ]


def _guarantee(
    outcome: Certification, record: Measures, settings: ChoiceSettings, axis: CostAxis
) -> dict[str, Any]:
    """The promise, as a policy's file says it."""
    return {
        **describe(outcome),
        "family": "all candidates",
        **({"min_rounds": settings.min_rounds} if settings.min_rounds > 1 else {}),
        "metric": record.metric.key(record.metric.score),
        "cost": axis.name,
        "mean_cost": float(outcome.costs[outcome.chosen]),
        "seed": settings.seed,
        **cut_terms(record, outcome.settings),
    }


def _with_guarantee(chosen: Ranked, guarantee: Mapping[str, Any]) -> Ranked:
    """The chosen policy with its promise, where its file has room for one; a budget is a rule too."""
    policy = chosen.candidate.policy.policy
    if isinstance(policy, FixedPolicy):
        policy = RulePolicy(rule=f"round >= {policy.rounds}", kind="certified")
    if not isinstance(policy, RulePolicy):
        return chosen
    named = replace(chosen.candidate.policy, policy=replace(policy, guarantee=guarantee))
    return replace(chosen, candidate=replace(chosen.candidate, policy=named))
