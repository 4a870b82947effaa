"""The parts of a record that fit, rank and prove, and records on which there is nothing to choose."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np

from suffice.errors import UsageError
from suffice.measures.measures import Measures
from suffice.policies.defaults import EVAL_SPLIT, FIT_SPLIT
from suffice.replay.settings import ChoiceSettings
from suffice.trace.loops import in_words

RANK, PROVE = "rank", "prove"
_RANK_SHARE = 1 / 3
_FEWEST = 4
"""Labelled questions that each part must hold."""


def in_parts(measures: Measures, settings: ChoiceSettings) -> tuple[Measures, list[str]]:
    """The record with its labelled questions in the splits tune, rank and prove, and how they were drawn."""
    traces = measures.traces
    labelled = measures.scores(settings.f1_kind).labelled
    splits: list[str | None] = list(traces.of_questions("split"))
    names = (settings.tune_split, settings.split)
    random = np.random.default_rng(settings.seed)
    missing = [name for name in names if name not in traces.splits]
    if missing and names != (FIT_SPLIT, EVAL_SPLIT):
        traces.only_split(missing[0])  # refuses, saying which there are
    if not missing:
        fit, kept = (traces.in_split(name) & labelled for name in names)
        drawn = random.permutation(np.flatnonzero(kept))
        ranks = drawn[: round(len(drawn) * _RANK_SHARE)]
        notes = [f"a third of split {settings.split} ranks, drawn by seed {settings.seed}"]
    else:
        drawn = random.permutation(np.flatnonzero(labelled))
        first, second = round(0.4 * len(drawn)), round(0.6 * len(drawn))
        fit = np.isin(np.arange(len(labelled)), drawn[:first])
        kept, ranks = labelled & ~fit, drawn[first:second]
        there = ", ".join(f"{name} ({size:,})" for name, size in traces.splits.items()) or "none"
        notes = [
            f"the record has no splits {FIT_SPLIT} and {EVAL_SPLIT} (it has {there}): all questions were "
            f"divided by seed {settings.seed}"
        ]
    sizes = {FIT_SPLIT: int(fit.sum()), RANK: len(ranks), PROVE: int(kept.sum()) - len(ranks)}
    short = [f"{size} to {name} on" for name, size in sizes.items() if size < _FEWEST]
    if short:
        raise UsageError(
            f"choosing needs at least {_FEWEST} questions {measures.metric.scored} to fit on, to rank on and "
            f"to prove on, and {traces.origin.source} has {', '.join(short).replace('tune', 'fit')}; record "
            "or label more, or compare without gold answers: --metric agreement"
        )
    for number, label in enumerate(splits):
        if fit[number]:
            splits[number] = FIT_SPLIT
        elif kept[number]:
            splits[number] = PROVE
        elif label in (FIT_SPLIT, RANK, PROVE):
            splits[number] = None
    for number in ranks.tolist():
        splits[number] = RANK
    unlabelled = int((~labelled).sum())
    if unlabelled:
        notes.append(f"{unlabelled} questions not {measures.metric.scored} were left out")
    return measures.in_splits(splits), notes


def labelled_in(part: Measures) -> int:
    """How many questions of a part have gold answers, or another score where that is compared."""
    return int(part.labelled.sum()) if part.metric.gold else int(part.scores().labelled.sum())


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


def refuse_pointless(measures: Measures, kept: Measures, settings: ChoiceSettings) -> None:
    """Refuse a record on which every choice is the same."""
    source = measures.traces.origin.source
    if measures.traces.n_rounds < 2 and measures.seen is None:
        raise UsageError(
            f"every question of {source} has one round, so there is nothing to choose; record more rounds: "
            "suffice record --rounds 5"
        )
    scored = kept.scores_throughout("choosing", settings.f1_kind).compared
    if (
        not np.nanmax(
            np.ptp(np.where(np.isnan(scored), scored[:, :1], scored), axis=1), initial=0.0
        )
        > 0
    ):
        raise UsageError(
            f"{measures.metric.label} is the same in every round of every question kept aside of {source}, "
            "so no policy loses anything: stop after round 1 (--policy fixed-1), or compare by another "
            "--metric"
        )
