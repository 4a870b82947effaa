"""What ``choose`` proves, and whether that holds on questions that it never saw.

``python -m benchmarks.choose_kept_aside RECORD ...`` prints the tables of studies/results/choose.md.
Throughout *paths* is what the command does, and *divided* the same without paths: all of the error is for
what is fitted on one part of the questions, ranked on a second and proven on a third.

*Proven*: mean rounds of the policy that is proven along paths at each bound asked alone, on all questions of
the record and on random parts of 300 and 1,000; the cost is rounds.

*Kept aside*: by seed a random third of the labelled questions is set aside, ``choose`` is given the others,
and what it chose is replayed on the third. ``--quick`` leaves out Stop-RAG's network, whose fit is most of
the time.

*Respelled*: the ids of the questions are spelled anew, and then their groups, too. No coin and no order
depends on more. Told is how many verdicts of the five bounds, tested together, are not the most common one
of their bound.

*Coverage*: the record is taken for the population. Copies of its questions, of which few are drawn at a
time, are nearly independent draws, and what a policy loses on the whole record is the truth. Candidates are
budgets, rules and paths.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.evaluation.choose import candidates, procedure
from suffice.evaluation.choose.bounds import Promise
from suffice.evaluation.choose.candidates import Candidate, Candidates
from suffice.evaluation.choose.choice import Choice
from suffice.evaluation.choose.proof import PathTests, paths_of, prove
from suffice.evaluation.replay.runner import replay
from suffice.evaluation.settings import LOSSES, ChoiceSettings, ComparisonSettings
from suffice.measures.measures import Measures
from suffice.policies.registry import nameable_methods
from suffice.policies.rules.policy import coin_sides
from suffice.stats.p_values import student_t_upper
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.trace_set import unit_keys

BOUNDS, DRAWS, DRAWN, COPIES = (0.02, 0.1), 60, 400, 20
SIZES, PARTS = (300, 1000, 3000), 10
SLOW = "stop-rag"
LEVEL = 0.05
WAYS = ("paths", "divided")
Array = NDArray[np.float64]


def way(name: str) -> Any:
    """While it lasts choices are made so."""
    return (
        nullcontext() if name == "paths" else patch.object(procedure, "PathTests", lambda *_: None)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OnTheThird:
    """A policy on the questions kept aside: its losses by question (n,), and the share saved."""

    losses: Array
    saved: float

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


def labelled_of(path: str) -> Measures:
    """The labelled questions of a record; ``PATH@METRIC`` compares them by a metric."""
    file, _, metric = path.partition("@")
    measures = Measures.of(read_traces(file)).by(metric or None)
    return measures.take(measures.scores().labelled)


# --- what is proven --------------------------------------------------------------------------------
def rounds_proven(record: Measures, bounds: tuple[float, ...] = LOSSES) -> list[float]:
    """Mean rounds of what paths prove at each bound asked alone; of the full budget where nothing is."""
    settings = ChoiceSettings(cost="rounds")
    along = PathTests(record, record, settings, [*paths_of(record, "rounds")])
    rounds = []
    for bound in bounds:
        proven = prove(along, None, [Promise(max_loss=bound)])[0].proven
        rounds.append(along.full_cost * (1.0 - (0.0 if proven is None else proven.saved)))
    return rounds


def proven_rows(record: Measures) -> Iterator[str]:
    """Rows of the first table, of all questions and of parts."""
    count = record.traces.n_questions
    full = float(record.ends.mean())
    for size in sorted({*(size for size in SIZES if size < count), count}):
        parts = []
        for seed in range(PARTS if size < count else 1):
            chosen = np.random.default_rng([3, seed]).permutation(count)[:size]
            parts.append(rounds_proven(record.take(np.isin(np.arange(count), chosen))))
        means = " | ".join(f"{mean:.2f}" for mean in np.mean(parts, axis=0))
        yield f"{size:,} | {full:.2f} | {means}"


def respelled(record: Measures, spellings: int) -> str:
    """A row: verdicts, and those that are not the most common one of their bound."""
    cells = [str(spellings * len(LOSSES))]
    for groups in (False, True):
        told = []
        for number in range(spellings):
            anew = renamed(record, number, groups=groups)
            settings = ChoiceSettings(cost="rounds", metric=record.metric.name)
            along = PathTests(anew, anew, settings, [*paths_of(anew, "rounds")])
            rows = prove(along, None, [Promise(max_loss=bound) for bound in LOSSES])
            told.append([row.proven.title if row.proven else None for row in rows])
        cells.append(str(sum(spellings - max(map(of.count, of)) for of in zip(*told, strict=True))))
    return " | ".join(cells)


def renamed(record: Measures, number: int, *, groups: bool) -> Measures:
    """The record with a number before the ids, which toss coins; ``groups``, which make orders, too."""
    table = record.traces.table
    names = {"question_id": table.column("question_id")}
    if groups:
        rows = np.repeat(unit_keys(record.traces), record.traces.last_rounds)
        names["group"] = pa.array(rows.astype(np.int64))
    for name, cells in names.items():
        spelled = pc.binary_join_element_wise(f"{number}-", cells.cast(pa.string()), "")
        if name in table.column_names:
            place = table.schema.get_field_index(name)
            kind = table.schema.field(place).type
            table = table.set_column(place, name, spelled.cast(kind))
        else:
            table = table.append_column(name, spelled)
    return Measures.of(replace(record.traces, table=table)).by(record.metric.name)


# --- on questions kept aside -----------------------------------------------------------------------
def attempts(record: Measures, seed: int) -> Iterator[dict[str, OnTheThird | None]]:
    """One division of a record, its candidates made once: what each way proves under every bound."""
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
        settings = ChoiceSettings(max_loss=bound, seed=seed, resamples=2)
        found: dict[str, OnTheThird | None] = {}
        for name in WAYS:
            with patch.object(procedure, "candidates_of", once), way(name):
                choice = procedure.choose(given, settings)
            proven = None if choice.promised is None else choice.promised.row.proven
            found[name] = None if proven is None else on_the_third(third, proven.candidate, choice)
            if name == "paths":
                guess = choice.guess
                found["guess"] = None if guess is None else on_the_third(third, guess, choice)
        yield found


def on_the_third(third: Measures, candidate: Candidate, choice: Choice) -> OnTheThird:
    """What a candidate loses and saves there."""
    settings = ComparisonSettings(
        baseline=candidate.policy.name, resamples=2, cost=choice.axis.name, answer=candidate.answer
    )
    result = replay(third, [candidate.policy], settings)
    policy, scored = result.policies[0], third.scores()
    rows, last = np.arange(third.traces.n_questions), third.traces.last_rounds - 1
    own, full = policy.costs.get(choice.axis.name), result.full_costs.get(choice.axis.name)
    told = policy.at_stops.scores[scored.metric.score]
    if np.isnan(told).any():  # sessions that were cut: their last round stands for the full budget
        told = at_stops(third, candidate.policy.policy)
    return OnTheThird(
        losses=scored.compared[rows, last] - told,
        saved=1.0 - own / full if own is not None and full else float("nan"),
    )


def at_stops(record: Measures, policy: Any) -> Array:
    """Scores at the rounds where a policy stops, (n_questions,), means over its coin."""
    scores, rows = record.scores().compared, np.arange(record.traces.n_questions)
    sides = coin_sides(policy) or ((1.0, policy),)
    parts = [of * scores[rows, record.stop_rounds(side) - 1] for of, side in sides]
    return np.asarray(np.sum(parts, axis=0))


def kept_aside(record: Measures, seeds: int, named: tuple[str, ...]) -> Iterator[str]:
    """A row of the second table for every bound."""
    with patch.object(candidates, "nameable_methods", lambda: named):
        divisions = [list(attempts(record, seed)) for seed in range(seeds)]
    for bound, tried in zip(BOUNDS, zip(*divisions, strict=True), strict=True):
        cells = [f"{100 * bound:g}"]
        for name in (*WAYS, "guess"):
            shown = [one for attempt in tried if (one := attempt[name]) is not None]
            cells += [f"{len(shown)} of {seeds}", *told(shown, bound)]
        yield " | ".join(cells)


def told(shown: list[OnTheThird], bound: float) -> Iterator[str]:
    """Mean loss with the range of nine tenths of the divisions, saving, and how many above the bound."""
    if not shown:
        yield from ("-",) * 3
        return
    losses = 100 * np.array([one.loss for one in shown])
    low, high = np.quantile(losses, (0.05, 0.95))
    yield f"{losses.mean():+z.1f} ({low:+z.1f} to {high:+z.1f})"
    saved = np.array([one.saved for one in shown])
    yield "-" if np.isnan(saved).all() else f"{100 * np.nanmean(saved):.0f}%"
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
        if choice.promised is None or choice.promised.row.proven is None:
            continue
        loss = float((full - at_stops(record, choice.policy)).mean())
        proven += 1
        broken += loss > bound
        worst = max(worst, loss - bound)
    return f"{100 * bound:g} | {proven} of {DRAWS} | {broken} | {100 * worst:.1f}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", nargs="+")
    parser.add_argument("--only", choices=("proven", "kept-aside", "coverage", "respelled"))
    parser.add_argument("--spellings", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="without Stop-RAG's network")
    parser.add_argument("--seeds", type=int, default=30, help="divisions of a record")
    asked = parser.parse_args(arguments)
    named = tuple(
        name for name in nameable_methods() if not (asked.quick and name.startswith(SLOW))
    )
    for path in asked.records:
        record, name = labelled_of(path), Path(path.partition("@")[0]).stem
        if asked.only in (None, "proven"):
            for row in proven_rows(record):
                print(f"proven: | {name} | {row} |", flush=True)
        if asked.only in (None, "kept-aside"):
            for row in kept_aside(record, asked.seeds, named):
                print(f"kept-aside: | {name} | {row} |", flush=True)
        if asked.only in (None, "respelled"):
            print(f"respelled: | {name} | {respelled(record, asked.spellings)} |", flush=True)
        if asked.only in (None, "coverage"):
            for bound in BOUNDS:
                print(f"coverage: | {name} | {coverage(record, bound)} |", flush=True)


if __name__ == "__main__":
    main()
