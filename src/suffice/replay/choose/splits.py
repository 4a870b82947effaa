"""The questions that a choice goes by, the parts that fit, rank and prove, and records without a choice."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.measures.measures import Measures
from suffice.policies.defaults import EVAL_SPLIT, FIT_SPLIT
from suffice.replay.settings import ChoiceSettings
from suffice.results.formats import counted, signed
from suffice.scoring import F1Kind
from suffice.trace.rounds.table import in_words

RANK, PROVE = "rank", "prove"
_RANK_SHARE = 1 / 3
_FEWEST = 4
"""Labelled questions that each part must hold."""
_UNLIKE = 0.05
_FEW = 5  # questions left out, with fewer of which no difference is told


def without_gaps(measures: Measures, who: str, f1_kind: F1Kind) -> tuple[Measures, str | None]:
    """All but labelled questions with a round that has no score, and what is to be said of these."""
    scored = measures.scores(f1_kind)
    gaps = (measures.traces.exists & np.isnan(scored.compared)).any(axis=1) & scored.labelled
    if not gaps.any():
        return measures, None
    if measures.seen is not None or (gaps == scored.labelled).all():
        measures.scores_throughout(who, f1_kind)  # refuses, saying what would mend it
    return measures.take(~gaps), (
        f"{counted(int(gaps.sum()), 'labeled question')} left out: some round has no answer to score"
        f"{_unlike(scored.compared, gaps, scored.labelled)}"
    )


def refuse_unscored(part: Measures, split: str, f1_kind: F1Kind) -> None:
    """Refuse a split of which no question can be scored."""
    if not part.scores(f1_kind).labelled.any():
        raise UsageError(
            f"no question of split {split!r} {part.metric.unscored}; which ones do: suffice traces info "
            f"{part.traces.at}"
        )


def labelled_only(measures: Measures, settings: ChoiceSettings) -> tuple[Measures, list[str]]:
    """The labelled questions, and what is to be said of the others."""
    labelled = measures.scores(settings.f1_kind).labelled
    if not labelled.any():
        raise UsageError(
            f"no question of {measures.traces.origin.source} {measures.metric.unscored}; record or label "
            "some, or compare without gold answers: --metric agreement"
        )
    if labelled.all():
        return measures, []
    left_out = counted(int((~labelled).sum()), "question")
    return measures.take(labelled), [f"{left_out} not {measures.metric.scored} left out"]


def _unlike(
    scores: NDArray[np.float64], gaps: NDArray[np.bool_], labelled: NDArray[np.bool_]
) -> str:
    """Whether questions with gaps score unlike the others where both have scores."""
    others = labelled & ~gaps
    # of each round what is above the others' mean: questions with gaps have other rounds
    above = scores - np.nanmean(scores[others], axis=0) if others.any() else scores
    known = np.isfinite(above).any(axis=1)
    means = np.full(len(scores), np.nan)
    means[known] = np.nanmean(above[known], axis=1)
    there, rest = means[gaps & known], means[others & known]
    if min(len(there), len(rest)) < _FEW:
        return "; too few to tell whether they are unlike the others"
    spread = math.sqrt(there.var(ddof=1) / len(there) + rest.var(ddof=1) / len(rest))
    apart = float(there.mean() - rest.mean())
    p_value = 1.0 if not spread else 2.0 * NormalDist().cdf(-abs(apart) / spread)
    said = f"they score {signed(apart)} points in rounds that have answers"
    if p_value < _UNLIKE:
        return (
            f". WARNING: they are unlike the others ({said}, p = {p_value:.2g}), so the choice holds for "
            "questions like the others alone"
        )
    return f"; {said}, no significant difference (p = {p_value:.2g})"


def in_parts(measures: Measures, settings: ChoiceSettings) -> tuple[Measures, list[str]]:
    """Labelled questions in the splits tune, rank and prove, and how they were drawn; no unit is divided."""
    traces, units = measures.traces, measures.units
    names = (settings.tune_split, settings.split)
    random = np.random.default_rng(settings.seed)
    missing = [name for name in names if name not in traces.splits]
    if missing and names != (FIT_SPLIT, EVAL_SPLIT):
        traces.only_split(missing[0])  # refuses, saying which there are
    n_units = int(units.max(initial=-1)) + 1
    notes = []
    if missing:
        drawn = random.permutation(n_units)
        first, second = round(0.4 * n_units), round(0.6 * n_units)
        fits, ranks = np.isin(units, drawn[:first]), np.isin(units, drawn[first:second])
        proves = ~fits & ~ranks
        there = ", ".join(f"{name} ({size:,})" for name, size in traces.splits.items()) or "none"
        notes.append(
            f"the record has no splits {FIT_SPLIT} and {EVAL_SPLIT} (it has {there}): all questions were "
            f"divided by seed {settings.seed} for what is fitted"
        )
    else:
        fits, kept = (traces.in_split(name) for name in names)
        both = kept & np.isin(units, units[fits])
        if both.any():
            notes.append(
                f"{counted(int(both.sum()), 'question')} of split {settings.split} fit nothing and rank "
                f"nothing: split {settings.tune_split} holds others of the same unit"
            )
        drawn = random.permutation(np.unique(units[kept & ~both]))
        ranks = kept & ~both & np.isin(units, drawn[: round(len(drawn) * _RANK_SHARE)])
        proves = kept & ~both & ~ranks
    parts = {FIT_SPLIT: fits, RANK: ranks, PROVE: proves}
    short = [
        f"{int(part.sum())} to {name} on" for name, part in parts.items() if part.sum() < _FEWEST
    ]
    if short:
        raise UsageError(
            f"choosing needs at least {_FEWEST} questions {measures.metric.scored} to fit on, to rank on and "
            f"to prove on, and {traces.origin.source} has {', '.join(short).replace('tune', 'fit')}; record "
            "or label more, or compare without gold answers: --metric agreement"
        )
    splits: list[str | None] = [None] * traces.n_questions
    for name, part in parts.items():
        for number in np.flatnonzero(part).tolist():
            splits[number] = name
    return measures.in_splits(splits), notes


def refuse_several_loops(measures: Measures) -> None:
    """Refuse a folder whose files were recorded by different loops; joined on purpose they are one file."""
    traces = measures.traces
    apart = [difference for difference in traces.origin.loops if difference.between_files]
    if apart:
        file = Path(traces.origin.source) / next(iter(apart[0].files.values()))[0]
        raise UsageError(
            f"the files of {traces.origin.source} are of different loops, {in_words(apart)}; a policy is "
            f"chosen for one: suffice choose {shlex.quote(str(file))} --out NEW (where one "
            "policy shall serve them all, join them first: suffice traces merge FILE FILE --out NEW)"
        )


def refuse_one_round(measures: Measures) -> None:
    """Refuse a record of one round, on which every choice is the same."""
    if measures.traces.n_rounds < 2 and measures.seen is None:
        raise UsageError(
            f"every question of {measures.traces.origin.source} has one round, so there is nothing to "
            "choose; record more rounds: suffice record --rounds 5"
        )
