"""Does what ``choose`` promises hold on questions that it never saw?

``python -m benchmarks.choose_kept_aside RECORD ...`` prints the tables of docs/results/choose.md.

*Kept aside*: by seed a random third of a record's labelled questions is set aside, ``choose`` is given the
others with its own division of them, and what it chose and guessed is replayed on the third; beside the
guess also the one of before: the cheapest candidate whose mean loss kept the bound where candidates were
ranked. ``--quick`` leaves out Stop-RAG's network, whose fit is nine tenths of the time.

*Coverage*: the record is taken for the population. Copies of its questions, of which few are drawn at a
time, are nearly independent draws, and what a policy loses on the whole record is the truth. Candidates are
budgets and rules.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.measures.measures import Measures
from suffice.numbers.tests.tails import student_t_upper
from suffice.policies.registry import nameable_methods
from suffice.replay.choose import candidates, procedure
from suffice.replay.choose.candidates import LATEST, Candidates
from suffice.replay.choose.choice import Choice, Ranked
from suffice.replay.run.engine import ReplaySettings, replay
from suffice.replay.settings import ChoiceSettings
from suffice.trace.rounds.reader import read_traces

BOUNDS, DRAWS, DRAWN, COPIES = (0.02, 0.1), 60, 400, 20
SLOW = "stop-rag"
LEVEL = 0.05
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class OnTheThird:
    """A policy on the questions kept aside: its losses by question (n,), and shares.

    ``saved`` is NaN where cuts hide the cost; ``wrong`` is the share of questions that are wrong at the stop
    and right at the full budget.
    """

    losses: Array
    saved: float
    wrong: float

    @property
    def loss(self) -> float:
        """Mean."""
        return float(self.losses.mean())

    def above(self, bound: float) -> bool:
        """Whether the loss is above the bound by a one-sided t-test at 5%."""
        error = self.losses.std(ddof=1) / np.sqrt(len(self.losses))
        if error == 0.0:
            return self.loss > bound
        return bool(student_t_upper((self.loss - bound) / error, len(self.losses) - 1) < LEVEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What one division gave: the policy that was proven, else guesses by means alone and as it is."""

    proven: OnTheThird | None = None
    by_means: OnTheThird | None = None
    guess: OnTheThird | None = None


def labelled_of(path: str) -> Measures:
    """The labelled questions of a record."""
    measures = Measures.of(read_traces(path)).by(None)
    return measures.take(measures.scores().labelled)


def attempts(record: Measures, seed: int) -> Iterator[Attempt]:
    """One division of a record, its candidates made once, under every bound."""
    random = np.random.default_rng([7, seed])
    aside = np.zeros(record.traces.n_questions, np.bool_)
    aside[random.permutation(len(aside))[: len(aside) // 3]] = True
    given = record.take(~aside)
    given = given.in_splits([None] * given.traces.n_questions)
    third = record.take(aside)
    third = third.in_splits([None] * third.traces.n_questions)
    everyone: list[Candidates] = []

    def once(*asked: Any) -> Candidates:
        if not everyone:
            everyone.append(candidates.candidates_of(*asked))
        return everyone[0]

    for bound in BOUNDS:
        with patch.object(procedure, "candidates_of", once):
            choice = procedure.choose(given, ChoiceSettings(max_loss=bound, seed=seed, resamples=2))
        if choice.outcome is not None and not choice.outcome.fell_back:
            yield Attempt(proven=_on(third, choice.chosen, choice))
            continue
        full = next(
            one for one in choice.ranked if one.candidate.policy.name == choice.result.baseline
        )
        kept = [
            one
            for one in choice.ranked
            if one.loss <= bound and one.cost < full.cost and one.candidate.answer == LATEST
        ]
        by_means = min(kept, key=lambda one: one.cost, default=None)
        yield Attempt(by_means=_on(third, by_means, choice), guess=_on(third, choice.guess, choice))


def _on(third: Measures, one: Ranked | None, choice: Choice) -> OnTheThird | None:
    if one is None:
        return None
    candidate = one.candidate
    settings = ReplaySettings(
        baseline=candidate.policy.name,
        split=None,
        resamples=2,
        cost=choice.axis.name,
        answer=candidate.answer,
    )
    result = replay(third, [candidate.policy], settings)
    policy = result.policies[0]
    scored = third.scores()
    rows, last = np.arange(third.traces.n_questions), third.traces.last_rounds - 1
    own, full = policy.costs.get(choice.axis.name), result.full_costs.get(choice.axis.name)
    stopped = policy.answers - 1
    return OnTheThird(
        losses=scored.compared[rows, last] - scored.compared[rows, stopped],
        saved=1.0 - own / full if own is not None and full else float("nan"),
        wrong=float(((scored.em[rows, stopped] < 1.0) & (scored.em[rows, last] == 1.0)).mean()),
    )


def kept_aside(record: Measures, seeds: int, named: tuple[str, ...]) -> Iterator[str]:
    """A row of the first table for every bound."""
    with patch.object(candidates, "nameable_methods", lambda: named):
        divisions = [list(attempts(record, seed)) for seed in range(seeds)]
    for bound, tried in zip(BOUNDS, zip(*divisions, strict=True), strict=True):
        cells = [f"{100 * bound:g}"]
        for way in ("proven", "by_means", "guess"):
            shown = [one for attempt in tried if (one := getattr(attempt, way)) is not None]
            cells += [f"{len(shown)} of {seeds}", *_told(shown, bound)]
        yield " | ".join(cells)


def _told(shown: list[OnTheThird], bound: float) -> Iterator[str]:
    """Mean loss with the range of nine tenths of the divisions, saving, wrong stops, and above the bound."""
    if not shown:
        yield from ("-",) * 4
        return
    losses = 100 * np.array([one.loss for one in shown])
    low, high = np.quantile(losses, (0.05, 0.95))
    yield f"{losses.mean():+z.1f} ({low:+z.1f} to {high:+z.1f})"
    saved = np.array([one.saved for one in shown])
    yield "-" if np.isnan(saved).all() else f"{100 * np.nanmean(saved):.0f}%"
    yield f"{100 * np.mean([one.wrong for one in shown]):.1f}%"
    above = sum(one.loss > bound for one in shown)
    yield f"{above} ({sum(one.above(bound) for one in shown)})"


def superpopulation(record: Measures) -> Measures:
    """Copies of every question, under names of their own."""
    table = record.traces.table
    place = table.schema.get_field_index("question_id")
    kind = table.schema.field(place)
    ids = table.column(place).cast(pa.string())
    copies = pa.concat_tables(
        table.set_column(
            place, kind, pc.binary_join_element_wise(ids, f"-{copy}", "").cast(kind.type)
        )
        for copy in range(COPIES)
    ).sort_by([("question_id", "ascending"), ("round", "ascending")])
    whole = replace(
        record.traces,
        table=copies,
        closed_book=record.traces.closed_book.slice(0, 0),
        known_starts=None,
    )
    return Measures.of(whole).by(record.metric.name)


def coverage(record: Measures, bound: float) -> str:
    """A row of the second table: draws with a proof, of those the promises broken, the worst in points."""
    everyone = superpopulation(record)
    scores, rows = record.scores().compared, np.arange(record.traces.n_questions)
    full = scores[rows, record.traces.last_rounds - 1]
    proven, broken, worst = 0, 0, 0.0
    for draw in range(DRAWS):
        chosen = np.zeros(everyone.traces.n_questions, np.bool_)
        chosen[np.random.default_rng([9, draw]).permutation(len(chosen))[:DRAWN]] = True
        drawn = everyone.take(chosen)
        drawn = drawn.in_splits([None] * DRAWN)
        with patch.object(candidates, "nameable_methods", tuple):
            choice = procedure.choose(drawn, ChoiceSettings(max_loss=bound, seed=draw, resamples=2))
        if choice.outcome is None or choice.outcome.fell_back:
            continue
        loss = float((full - scores[rows, record.stop_rounds(choice.policy) - 1]).mean())
        proven += 1
        broken += loss > bound
        worst = max(worst, loss - bound)
    return f"{100 * bound:g} | {proven} of {DRAWS} | {broken} | {100 * worst:.1f}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", nargs="+")
    parser.add_argument("--only", choices=("kept-aside", "coverage"))
    parser.add_argument("--quick", action="store_true", help="without Stop-RAG's network")
    parser.add_argument("--seeds", type=int, default=30, help="divisions of a record")
    asked = parser.parse_args(arguments)
    named = tuple(
        name for name in nameable_methods() if not (asked.quick and name.startswith(SLOW))
    )
    for path in asked.records:
        record, name = labelled_of(path), Path(path).stem
        if asked.only != "coverage":
            for row in kept_aside(record, asked.seeds, named):
                print(f"kept-aside: | {name} | {row} |", flush=True)
        if asked.only != "kept-aside":
            for bound in BOUNDS:
                print(f"coverage: | {name} | {coverage(record, bound)} |", flush=True)


if __name__ == "__main__":
    main()
