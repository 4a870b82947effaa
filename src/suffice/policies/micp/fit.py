"""Fitting of MiCP: read the samples, divide the error budget, calibrate (paper 3)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from suffice.contracts import Clusters
from suffice.errors import SufficeWarning, UsageError, counted
from suffice.measures.measures import Measures
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.fitting import CUT, fit_questions, refuse_without_gold
from suffice.policies.method import Preset
from suffice.policies.micp.micp_settings import (
    CALIBRATE,
    DEFAULT_ALPHA_RETRIEVAL,
    DEFAULT_SHARE,
    OPTIMIZE,
    MiCPSettings,
    Objective,
)
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.micp.relevance_filter import RelevanceFilter, fit_filter, scored_by
from suffice.policies.micp.sampled_answers import read_samples, samples_a_round
from suffice.policies.micp.stage2 import (
    Allocation,
    Sampled,
    Stage2,
    budget_spent,
    calibrate,
    search_allocations,
)
from suffice.scoring import Match
from suffice.signals.asking.meaning_clusters import clustered_by
from suffice.signals.columns.rounds import asked_in_both
from suffice.signals.samples import Clustering
from suffice.stats.conformal import NEVER, exact_level, smallest_sample, tied_threshold
from suffice.stats.units import drawn_units
from suffice.trace.rounds.labels import names_passages
from suffice.trace.rounds.trace_set import TraceSet

DEFAULT_ROUNDS = 3
LOOP_FACTS = ("model", "pipeline", "retriever", "pool", "prompt", "step", "temperature", "top_p")


@dataclass(frozen=True, slots=True, kw_only=True)
class FitParts:
    """Two disjoint sets of labeled questions: one divides the budget, the other sets thresholds."""

    optimize: Measures
    calibrate: Measures
    splits: tuple[str, ...] = ()
    how: str = "as given"
    cut: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shared = asked_in_both(self.optimize.traces, self.calibrate.traces)
        if shared:
            warnings.warn(
                f"optimized and calibrated on {counted(len(shared), 'question')} alike, "
                f"for example {min(shared)!r}: the promise needs them disjoint",
                SufficeWarning,
                stacklevel=4,
            )


def fit_parts(questions: TraceSet | Measures, split: str, settings: MiCPSettings) -> FitParts:
    """Return the splits ``optimize`` and ``calibrate`` if the traces have both, else parts of ``split``."""
    measures = Measures.of(questions)
    refuse_without_gold(measures, "micp", "it promises how often its sets hold the right answer")
    traces = measures.traces
    if split == FIT_SPLIT and {OPTIMIZE, CALIBRATE} <= set(traces.splits):
        if settings.share != DEFAULT_SHARE:
            raise UsageError(
                f"{traces.origin.source} names splits {OPTIMIZE!r} and {CALIBRATE!r}, so there is "
                "nothing to divide; leave share out"
            )
        splits: tuple[str, ...] = (OPTIMIZE, CALIBRATE)
        parts = measures.only_split(OPTIMIZE), measures.only_split(CALIBRATE)
        how = f"splits {OPTIMIZE!r} and {CALIBRATE!r}"
    elif split in traces.splits:
        splits, chosen = (split,), measures.only_split(split)
        count = round(settings.share * chosen.traces.n_questions)
        first = drawn_units(chosen.units, count, settings.seed)
        parts = chosen.take(first), chosen.take(~first)
        how = f"split {split!r}, {settings.share:.3g} of it by seed {settings.seed} to optimize"
    else:
        raise UsageError(
            f"{traces.origin.source} has no split {split!r}; "
            f"splits found: {', '.join(traces.splits) or 'none'}; name one with --split, or "
            f"{traces.how_to_split(f'{OPTIMIZE}=0.2,{CALIBRATE}=0.4,eval=0.4')}"
        )
    read = [fit_questions(part) for part in parts]
    optimize, calibration = (
        part.take(part.labelled & uncut) for part, (uncut, _) in zip(parts, read, strict=True)
    )
    for name, part in ((OPTIMIZE, optimize), (CALIBRATE, calibration)):
        if not part.traces.n_questions:
            raise UsageError(
                f"no labeled question to {name} on in {traces.origin.source} ({how}); micp needs "
                "gold answers in both parts"
            )
    counts = [stated[CUT] for _, stated in read if stated]
    cut = {CUT: {name: sum(part[name] for part in counts) for name in counts[0]}} if counts else {}
    return FitParts(optimize=optimize, calibrate=calibration, splits=splits, how=how, cut=cut)


# --- fitting --------------------------------------------------------------------------------------
def fit_on(parts: FitParts, preset: Preset, settings: MiCPSettings) -> MiCPPolicy:
    """Fit on two parts: the first divides the budget, the second sets the thresholds."""
    record = parts.calibrate.traces
    run = record.origin.run  # the promise holds for the loop that it tells of
    chosen, filtered = _filter(record, preset, settings)
    draft = replace(
        draft_policy([parts.optimize, parts.calibrate], settings, preset),
        preset=preset,
        filter=chosen,
        filtered=filtered,
    )
    alpha = exact_level(settings.alpha)
    data = read_samples(parts.optimize, draft)
    levels, allocation = _levels(data, alpha, preset, settings)
    held = read_samples(parts.calibrate, draft)
    thresholds = calibrate(held, alpha, levels, preset)
    sizes = (data.n, held.n)
    warned = unsampled_notes(held) or few_notes(
        sizes, alpha, levels, thresholds, settings.objective
    )
    for warning in warned:
        warnings.warn(warning, SufficeWarning, stacklevel=3)
    questions, first = data.n + held.n, held.score[:, 0]
    values, counts = np.unique(first[~np.isnan(first)], return_counts=True)
    return replace(
        draft,
        stops=thresholds.stops,
        final=thresholds.final,
        budget=_budget(thresholds, allocation, settings),
        fitted_on={
            "source": record.origin.source,
            "split": " and ".join(parts.splits) or parts.how,
            "splits": list(parts.splits),
            "division": parts.how,
            "questions": questions,
            "labelled": questions,
            **parts.cut,
            "rounds": draft.rounds,
            "loop": {name: run[name] for name in LOOP_FACTS if name in run},
            "optimize_questions": data.n,
            "calibration_questions": held.n,
            "first_round_scores": {"values": values.tolist(), "counts": counts.tolist()},
        },
        notes=(*warned, *_notes(draft, held, alpha, thresholds, settings.clusters)),
    )


def draft_policy(
    questions: Sequence[TraceSet | Measures], settings: MiCPSettings, preset: Preset = "corrected"
) -> MiCPPolicy:
    parts = [Measures.of(part) for part in questions]
    records = [part.traces for part in parts]
    rounds = settings.rounds or min(DEFAULT_ROUNDS, *(record.n_rounds for record in records))
    for part in records:
        if part.n_rounds < rounds:
            raise UsageError(
                f"{rounds} rounds asked for, {part.n_rounds} recorded in {part.origin.source}; "
                f"type --rounds {part.n_rounds}, or record with --rounds {rounds}"
            )
    samples = {samples_a_round(part, rounds) for part in parts}
    if len(samples) > 1:
        raise UsageError(
            f"the questions to optimize and to calibrate on hold {min(samples)} and {max(samples)} "
            "samples a round; record both with one --samples"
        )
    return MiCPPolicy(
        alpha=settings.alpha,
        rounds=rounds,
        samples=samples.pop(),
        stops=(NEVER,) * (rounds - 1),
        final=-math.inf,
        stop_on=settings.stop_on,
        penalty=settings.penalty,
        clusters=_clusters(records, settings.clusters, preset),
        match=Match(f1=settings.match_f1),
        seed=settings.seed,
    )


def _clusters(records: Sequence[TraceSet], by: Clustering | None, preset: Preset) -> Clusters:
    traces = records[-1]
    by_meaning = preset == "published" and all(part.has("sample_clusters") for part in records)
    by = by or ("embedding" if by_meaning else "string")
    if by == "string":
        return Clusters()
    if not traces.has("sample_clusters"):
        raise UsageError(
            f"the samples of {traces.origin.source} are not clustered by meaning; type suffice "
            "signals TRACES --encoder minilm --cluster-cosine --out TRACES2, or use --clusters string"
        )
    made = clustered_by(traces) or {}  # somebody's own clusters may not say how they were made
    return Clusters(by=by, cosine=made.get("cosine"), encoder=made.get("encoder"))


def _filter(
    calibration: TraceSet, preset: Preset, settings: MiCPSettings
) -> tuple[RelevanceFilter | None, bool]:
    stated = calibration.origin.run.get("passage_filter")
    if stated is not None:
        recorded = RelevanceFilter.from_json(stated)
        if settings.alpha_retrieval not in (DEFAULT_ALPHA_RETRIEVAL, recorded.alpha):
            raise UsageError(
                f"the rounds of {calibration.origin.source} were recorded with a filter of "
                f"alpha_retrieval = {recorded.alpha:g}, which is the policy's; leave alpha_retrieval out"
            )
        return recorded, True
    relevance = scored_by(calibration)
    if relevance is None or not names_passages(calibration).any():
        return None, False
    level = exact_level(settings.alpha_retrieval)
    return fit_filter(calibration, level, preset, relevance), False


def _levels(
    data: Sampled, alpha: Fraction, preset: Preset, settings: MiCPSettings
) -> tuple[tuple[Fraction, ...], Allocation | None]:
    """Return the error levels of rounds 1..T-1, and their search unless they are set by hand."""
    if settings.allocation is None:
        options = {name: getattr(settings, name) for name in ("steps", "weight", "grid")}
        found = search_allocations(data, alpha, preset, (settings.objective,), **options)
        allocation = found[settings.objective]
        return allocation.levels, allocation
    if len(settings.allocation) != data.rounds - 1:
        raise UsageError(
            f"for {counted(data.rounds, 'round')} give {counted(data.rounds - 1, 'level')} by hand, found "
            f"{len(settings.allocation)}; the answer set gets what they leave"
        )
    levels = tuple(Fraction(Decimal(str(level))) for level in settings.allocation)
    spent = budget_spent(data, levels, preset)
    if spent > alpha:
        raise UsageError(
            f"the levels {', '.join(map(str, settings.allocation))} spend {float(spent):.4g} on the "
            f"questions to optimize on, and alpha is {settings.alpha:g}; lower them, or raise --alpha "
            "(levels that add up to alpha never overspend)"
        )
    return levels, None


def _budget(
    thresholds: Stage2, allocation: Allocation | None, settings: MiCPSettings
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "rounds": [float(level) for level in thresholds.alpha_rounds],
        "answer_set": float(thresholds.alpha_final),
        "group_sizes": list(thresholds.group_sizes),
        "answerable": thresholds.answerable,
        "weight": settings.weight,
    }
    if allocation is None:
        return {**body, "allocation": "by hand"}
    return {
        **body,
        "allocation": "searched",
        "objective": settings.objective,
        "grid": settings.grid,
        "shares": [float(share) for share in allocation.shares],
        "on_optimize": allocation.objective,
        "tried": allocation.tried,
    }


# --- notes for users of a fitted policy ------------------------------------------------------------
def unsampled_notes(held: Sampled) -> list[str]:
    """Note a calibration without sampled right answers, or without samples."""
    if np.isnan(held.score).all():
        return [
            "the agreement of samples is undefined in every round of the calibration questions (one "
            "sample a round, or all of them empty), so nothing stops early"
        ]
    if not held.answerable.any():
        return [
            "no calibration question's right answer was ever sampled, so every cluster is kept and the "
            'promise rests on "Can\'t Answer"; look at samples and gold_answers'
        ]
    return []


def few_notes(
    sizes: tuple[int, int],
    alpha: Fraction,
    levels: Sequence[Fraction],
    thresholds: Stage2,
    objective: Objective,
) -> list[str]:
    """Note thresholds that never fire before the last round, and the remedy."""
    if not thresholds.stops or any(stop.value > -math.inf for stop in thresholds.stops):
        return []
    budget = "the policy takes the full budget"
    asked = [
        math.ceil(smallest_sample(level) * sizes[1] / max(group, 1))
        for level, group in zip(levels, thresholds.group_sizes, strict=True)
        if level > 0
    ]
    needed = max(smallest_sample(alpha), min(asked, default=0))
    if needed > min(sizes):
        return [
            f"too few questions for alpha = {float(alpha):g} ({sizes[0]} to optimize and {sizes[1]} to "
            f"calibrate on): about {needed} are needed in each part; {budget}"
        ]
    if asked:
        return [f"too many calibration questions tie at the error levels of the rounds: {budget}"]
    return [
        "no division of the error budget is better than no early stop on the questions to optimize on, by "
        f"objective {objective}: {budget}; try another --objective or --grid, or record more"
    ]


def _notes(
    policy: MiCPPolicy, held: Sampled, alpha: Fraction, thresholds: Stage2, asked: Clustering | None
) -> Iterator[str]:
    chosen = policy.filter
    if chosen is None:
        yield (
            "the first stage was skipped: the traces hold no relevance of passages, or no gold passages"
        )
    elif not policy.filtered:
        needed = smallest_sample(Fraction(str(chosen.alpha)))
        if chosen.values < needed:
            published = chosen.preset == "published"
            units = "right passages" if published else "questions with right passages"
            yield (
                f"the passage filter keeps everything: {chosen.values} {units} were retrieved, {needed} are "
                f"needed for alpha_retrieval = {chosen.alpha:g}"
            )
        yield (
            "the passage filter is not used live yet, since the samples come from unfiltered passages: "
            "record other questions with --filter POLICY, then fit on those"
        )
    if policy.preset != "published":
        return
    # what all of the budget would stop by, where a round has no threshold of its own
    values = [
        tied_threshold(held.score[~held.answerable[:, t], t], alpha, randomised=False).value
        if stop == NEVER
        else stop.value
        for t, stop in enumerate(thresholds.stops)
    ]
    tied = (held.score[:, : len(values)] == values).any(axis=1)
    if tied.any():
        yield (
            f"ties: {int(tied.sum())} of {held.n} calibration questions lie exactly on a threshold, where "
            "the published rule never stops; --preset corrected stops a random share of them"
        )
    if not asked and policy.clusters.by != "embedding":
        yield (
            "the paper clusters samples by meaning; this record is not clustered so, and samples that "
            "normalize alike count as one: type suffice signals TRACES --encoder minilm --cluster-cosine "
            "--out TRACES2, and fit on that"
        )
