"""What whoever uses a fitted MiCP policy must know, in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from suffice.numbers.conformal.order_statistics import NEVER, smallest_sample, tied_threshold
from suffice.policies.method import Preset
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.micp.relevance_filter import RelevanceFilter
from suffice.policies.micp.stage2 import Objective, Sampled, Stage2
from suffice.signals.samples import Clustering


def unsampled_notes(held: Sampled) -> list[str]:
    """Where no right answer was ever sampled, or nothing was."""
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
    """Where no threshold can fire before the last round, and how many questions would change that.

    ``sizes`` are the questions to optimise and to calibrate on, ``levels`` those of the rounds, and
    ``objective`` what was minimised on the first.
    """
    if not thresholds.stops or any(stop.value > -math.inf for stop in thresholds.stops):
        return []
    asked = [
        math.ceil(smallest_sample(level) * sizes[1] / max(group, 1))
        for level, group in zip(levels, thresholds.group_sizes, strict=True)
        if level > 0
    ]
    needed = smallest_sample(alpha)
    divided = f"{sizes[0]} to optimise and {sizes[1]} to calibrate on"
    if min(sizes) < needed:
        return [
            f"too few questions for alpha = {float(alpha):g} ({divided}): each part needs at least "
            f"{needed}, better some multiple of it; the policy takes the full budget"
        ]
    if asked and min(asked) <= sizes[1]:
        return [
            "the error levels of the rounds stop no calibration question, as too many of them tie: the "
            "policy takes the full budget"
        ]
    if asked:
        return [
            f"too few questions for alpha = {float(alpha):g} ({divided}): at the error levels of the "
            f"rounds about {min(asked)} to calibrate on are needed; the policy takes the full budget"
        ]
    other = "--grid shares" if objective == "rounds" else "--objective rounds"
    return [
        "no division of the error budget is better than no early stop on the questions to optimise on, by "
        f"objective {objective}: the policy takes the full budget; try {other}, or record more questions"
    ]


def tie_notes(held: Sampled, alpha: Fraction, thresholds: Stage2, preset: Preset) -> list[str]:
    """How many stops strict thresholds lose to ties."""
    if preset != "published":
        return []
    tied = np.zeros(held.n, bool)
    for t, stop in enumerate(thresholds.stops):
        score, unsampled = held.score[:, t], ~held.answerable[:, t]
        if stop != NEVER:
            tied |= score == stop.value
            continue
        most = tied_threshold(score[unsampled], alpha, randomised=False)
        if not (score < most.value).any():  # all of the budget would stop nobody
            tied |= score == most.value
    if not tied.any():
        return []
    return [
        f"ties: {int(tied.sum())} of {held.n} calibration questions lie exactly on a threshold, where "
        "the published rule never stops; --preset corrected stops a random share of them"
    ]


def cluster_notes(policy: MiCPPolicy, asked: Clustering | None) -> list[str]:
    """Where the published preset lacks the paper's clusters."""
    if policy.preset != "published" or asked or policy.clusters.by == "embedding":
        return []
    return [
        "the paper clusters samples by meaning; this record is not clustered so, and samples that "
        "normalize alike count as one: type suffice signals TRACES --encoder minilm --cluster-cosine "
        "--out TRACES2, and fit on that"
    ]


def filter_notes(policy: MiCPPolicy) -> list[str]:
    """What became of the first stage."""
    chosen = policy.filter
    if chosen is None:
        return [
            "the first stage was skipped: the traces hold no relevance of passages, or no gold passages"
        ]
    if policy.filtered:
        return []
    few = _few_values(chosen)
    return [
        *few,
        "the passage filter is not used live yet, since the samples come from unfiltered passages: "
        "record other questions with --filter POLICY, then fit on those",
    ]


def refound_notes(unrecorded: int) -> list[str]:
    """Where later queries may have found passages again and the record does not say so.

    ``unrecorded`` is :func:`suffice.policies.micp.relevance_fit.unrecorded_finds`.
    """
    if not unrecorded:
        return []
    return [
        f"{unrecorded} questions were searched with several queries and recorded without what each found "
        "again (column refound): a passage counts with the round that added it, so the filter drops less "
        "than it may and retention is at least what is said; record again to have its best round"
    ]


def _few_values(chosen: RelevanceFilter) -> list[str]:
    needed = smallest_sample(Fraction(str(chosen.alpha)))
    if chosen.values >= needed:
        return []
    units = "right passages" if chosen.preset == "published" else "questions with right passages"
    return [
        f"the passage filter keeps everything: {chosen.values} {units} were retrieved, {needed} are "
        f"needed for alpha_retrieval = {chosen.alpha:g}"
    ]
