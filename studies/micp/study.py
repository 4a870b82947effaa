"""The evaluation of MiCP (its paper): coverage, rounds, sets and retention over levels and divisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from studies.command import Band, Found, out_option, own_options, report
from studies.micp.populations import calibrate_without_stopping
from studies.micp.results import BASELINE, FIGURES, PARTS, WAYS, MiCPStudySettings, Way, tables_of
from suffice._version import VERSION
from suffice.cli.output import Form, waiting
from suffice.cli.parser import Given, command
from suffice.cli.shared_options import Reading, SeveralTraces
from suffice.errors import UsageError
from suffice.measures.scores import gold_answers
from suffice.policies.method import Preset
from suffice.policies.micp.fit import draft_policy, unsampled_notes
from suffice.policies.micp.micp_settings import OBJECTIVES, MiCPSettings
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.micp.relevance_filter import Relevances, scored_by
from suffice.policies.micp.sampled_answers import read_samples
from suffice.policies.micp.stage2 import Sampled, Stage2, calibrate, evaluate, search_allocations
from suffice.stats.conformal import exact_level, lower_order_statistic, smallest_sample
from suffice.stats.p_values import rate_interval
from suffice.stats.units import lots
from suffice.trace.rounds.labels import names_passages
from suffice.trace.rounds.trace_set import TraceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledRecord:
    """A trace set's labelled questions.

    ``steps`` of each round (n_entries, 3) say how many answers a set holds for any threshold: a question, the
    confidence from which an entry counts, and how many answers it adds (less than 1: it joins some).
    """

    traces: TraceSet
    unlabelled: int
    draft: MiCPPolicy
    sampled: Sampled
    steps: list[NDArray[np.float64]]
    relevances: Relevances | None

    @property
    def last_rounds(self) -> NDArray[np.int64]:
        return np.minimum(self.traces.last_rounds, self.draft.rounds).astype(np.int64)

    @property
    def filtered(self) -> bool:
        return self.traces.origin.run.get("passage_filter") is not None

    def drawn_by(self, seed: int) -> Sampled:
        """The samples, with ties broken by this seed."""
        rounds = range(1, self.draft.rounds + 1)
        drawn = [lots(f"{seed}:{number}", self.traces.question_ids) for number in rounds]
        return replace(self.sampled, draws=np.stack(drawn, axis=1))

    def set_sizes(self, stops: NDArray[np.integer], final: float) -> NDArray[np.int64]:
        """Answers in the set of every question (n,), stopped at rounds ``stops`` (n,); 0: not asked."""
        sizes = np.zeros(len(stops), np.int64)
        for number, steps in enumerate(self.steps, start=1):
            question, confidence, added = steps[:, 0].astype(np.intp), steps[:, 1], steps[:, 2]
            held = (stops[question] == number) & (confidence >= final)
            of_round = np.bincount(question[held], weights=added[held], minlength=len(stops))
            sizes += of_round.astype(np.int64)
        return sizes


def read_record(traces: TraceSet, settings: MiCPSettings) -> LabelledRecord:
    """Read scores, clusters and relevance of the labelled questions."""
    labelled = gold_answers(traces).labelled
    if not labelled.any():
        raise UsageError(
            f"no question of {traces.origin.source} has gold answers; the evaluation needs them"
        )
    chosen = traces.take(labelled)
    draft = draft_policy([chosen], settings)
    record = LabelledRecord(
        traces=chosen,
        unlabelled=int((~labelled).sum()),
        draft=draft,
        sampled=read_samples(chosen, draft),
        steps=_set_steps(chosen, draft),
        relevances=None,
    )
    relevance = None if record.filtered else scored_by(chosen)
    if relevance is None or not names_passages(chosen).any():
        return record
    return replace(record, relevances=Relevances.read(chosen, relevance))


_Cluster = tuple[float, frozenset[str]]


def _set_steps(traces: TraceSet, draft: MiCPPolicy) -> list[NDArray[np.float64]]:
    steps: list[list[tuple[int, float, int]]] = [[] for _ in range(draft.rounds)]
    for index, views in enumerate(traces.views(["samples", "sample_clusters", "signals"])):
        so_far: list[_Cluster] = []
        recorded = views[-1].rounds
        for number in range(draft.rounds):
            if number < len(recorded):
                so_far += [
                    (confidence, cluster.members)
                    for cluster, confidence in draft.confidences(recorded[number])
                ]
            steps[number] += [(index, *step) for step in _steps(so_far)]
    return [np.array(own, np.float64).reshape(-1, 3) for own in steps]


def _steps(clusters: Sequence[_Cluster]) -> Iterator[tuple[float, int]]:
    """How a set grows as its threshold falls: clusters that share a member are one answer."""
    apart: list[frozenset[str]] = []
    for confidence, members in sorted(clusters, key=lambda cluster: -cluster[0]):
        touching = [group for group in apart if not group.isdisjoint(members)]
        if touching:
            apart = [group for group in apart if group.isdisjoint(members)]
        apart.append(members.union(*touching))
        if len(touching) != 1:
            yield confidence, 1 - len(touching)


class Division(NamedTuple):
    """Which questions optimise, calibrate and test, each (n,)."""

    optimize: NDArray[np.bool_]
    calibrate: NDArray[np.bool_]
    test: NDArray[np.bool_]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(int(part.sum()) for part in self)


def micp_study(traces: Sequence[TraceSet], wanted: MiCPStudySettings) -> Found:
    """Evaluate MiCP on every trace set."""
    records = [_study(trace_set, wanted) for trace_set in traces]
    fit = wanted.fit
    names = ("grid", "steps", "weight", "stop_on", "penalty", "match_f1")
    document = {
        "alphas": wanted.alphas,
        "presets": wanted.presets,
        "seeds": wanted.seeds,
        "shares": dict(zip(PARTS, wanted.shares, strict=True)),
        "fit": {name: getattr(fit, name) for name in names}
        | {"clusters": fit.clusters or "string"},
        "band": "mean, least and greatest over divisions of the same questions",
        "version": VERSION,
        "trace_sets": records,
    }
    notes = [
        note if len(records) == 1 else f"{record['traces']}: {note}"
        for record in records
        for note in record["notes"]
    ]
    return Found(document=document, shown=tuple(tables_of(wanted, records)), notes=notes)


def divide(n: int, shares: Sequence[float], seed: int) -> Division:
    """A random division of ``n`` questions by these shares."""
    order = np.random.default_rng(seed).permutation(n)
    ends = [round(n * share) for share in np.cumsum(shares).tolist()]
    found = Division(
        *(np.isin(np.arange(n), part) for part in np.split(order[: ends[-1]], ends[:-1]))
    )
    if not all(found.sizes):
        raise UsageError(
            f"{n} labelled questions do not divide into {', '.join(PARTS)} by shares "
            f"{', '.join(f'{share:.3g}' for share in shares)}; record more questions"
        )
    return found


def _study(traces: TraceSet, settings: MiCPStudySettings) -> dict[str, Any]:
    record, fit = read_record(traces, settings.fit), settings.fit
    n = record.traces.n_questions
    divisions = [divide(n, settings.shares, seed) for seed in settings.seeds]
    sizes = divisions[0].sizes
    scored: dict[tuple[float, Preset, Way], list[dict[str, Any]]] = {}
    said: list[str] = []
    for seed, division in zip(settings.seeds, divisions, strict=True):
        sampled = record.drawn_by(seed)
        optimise, held = sampled.take(division.optimize), sampled.take(division.calibrate)
        said += unsampled_notes(held)
        for preset, alpha in product(settings.presets, settings.alphas):
            level = exact_level(alpha)
            best = search_allocations(
                optimise,
                level,
                preset,
                OBJECTIVES,
                steps=fit.steps,
                weight=fit.weight,
                grid=fit.grid,
            )
            thresholds: dict[Way, Stage2] = {
                BASELINE: calibrate_without_stopping(held, level, preset),
                **{way: calibrate(held, level, one.levels, preset) for way, one in best.items()},
            }
            for way, threshold in thresholds.items():
                scores = {"seed": seed, **_score(record, division, sampled, threshold, fit.weight)}
                scored.setdefault((alpha, preset, way), []).append(scores)
    notes = [*_about_the_record(record), *dict.fromkeys(said), *_few(sizes, settings.alphas)]
    pipeline = record.traces.origin.run.get("pipeline")
    return {
        "traces": record.traces.origin.source,
        "pipeline": pipeline if isinstance(pipeline, str) else None,
        "questions": n,
        "unlabelled": record.unlabelled,
        **dict(zip(PARTS, sizes, strict=True)),
        "rounds": record.draft.rounds,
        "samples": record.draft.samples,
        "relevance": None if record.relevances is None else record.relevances.relevance,
        "cells": [
            {
                "alpha": alpha,
                "preset": preset,
                "budget_for": way,
                **{name: Band.of([one[name] for one in own]) for name in FIGURES},
                "divisions": own,
            }
            for preset, alpha, way in product(settings.presets, settings.alphas, WAYS)
            for own in [scored[alpha, preset, way]]
        ],
        "retention": list(_retention(record, divisions, settings)),
        "notes": notes,
    }


def _score(
    record: LabelledRecord, division: Division, sampled: Sampled, thresholds: Stage2, weight: float
) -> dict[str, Any]:
    """Thresholds of one division on its questions to test."""
    test = division.test
    seen = evaluate(sampled.take(test), thresholds)
    stops = np.zeros(len(test), np.int64)
    stops[test] = seen.stop
    answers = record.set_sizes(stops, thresholds.final)[test]
    questions, covered = len(seen.stop), int(seen.covered.sum())
    return {
        "questions": questions,
        "covered": covered,
        "mean_rounds": float(np.minimum(seen.stop, record.last_rounds[test]).mean()),
        "set_size": float((answers + ~seen.early).mean()),
        "answer_rate": seen.answer_rate,
        "objective": seen.composite(weight),
        "coverage": covered / questions,
        "coverage_exact_95": rate_interval(covered, questions),
    }


def _retention(
    record: LabelledRecord, divisions: Sequence[Division], settings: MiCPStudySettings
) -> Iterator[dict[str, Any]]:
    """What the passage filter of every level and preset leaves of the questions to test."""
    held = record.relevances
    if held is None:
        return
    for preset, alpha in product(settings.presets, settings.alphas):
        level, kept = exact_level(alpha), []
        for division in divisions:
            values = held.values(division.calibrate, preset)
            kept.append(held.kept(division.test, lower_order_statistic(values, level)))
        shares = ("passages", "all", "shown")
        bands = {name: Band.of([getattr(one, name) for one in kept]) for name in shares}
        yield {"alpha": alpha, "preset": preset, **bands, "divisions": kept}


def _about_the_record(record: LabelledRecord) -> Iterator[str]:
    if record.unlabelled:
        yield f"{record.unlabelled} questions without gold answers are left out"
    short = int((record.last_rounds < record.draft.rounds).sum())
    if short:
        yield (
            f"{short} questions hold fewer than {record.draft.rounds} rounds: they sample nothing in the "
            "ones they lack"
        )
    if record.filtered:
        yield (
            "no retention: its passages were filtered when it was recorded, and those dropped are not in it"
        )
    elif record.relevances is None:
        yield "no retention: the record holds no relevance of passages, or no gold passages"


def _few(sizes: Sequence[int], alphas: Sequence[float]) -> Iterator[str]:
    needed = {alpha: smallest_sample(exact_level(alpha)) for alpha in alphas}
    few = [alpha for alpha in alphas if min(sizes[:2]) < needed[alpha]]
    if few:
        yield (
            f"too few questions ({sizes[0]} to optimise, {sizes[1]} to calibrate on) for alpha = "
            f"{', '.join(f'{alpha:g}' for alpha in few)}: each part needs at least "
            f"{', '.join(f'{needed[alpha]} for {alpha:g}' for alpha in few)}"
        )


_FIT = ("rounds", "weight", "grid", "steps", "stop_on", "penalty", "clusters", "match_f1")


@command(
    *own_options(MiCPStudySettings),
    *own_options(MiCPSettings, only=_FIT, group="Fitting, as in 'suffice fit micp'"),
)
def run(
    traces: SeveralTraces,
    *,
    reading: Reading,
    out: Annotated[str | None, out_option("also write micp.json")] = None,
    form: Form,
    given: Given,
) -> int:
    """Evaluate MiCP on records that hold samples, as the paper does.

    Over random divisions of the labelled questions and a grid of alpha: what the answer sets cover, rounds,
    set size, answer rate and objective, by what the error budget is divided for and against no early stop;
    and what the passage filter keeps.
    """
    # --seed is that of the divisions
    fit = replace(given.settings(MiCPSettings), seed=MiCPSettings().seed)
    settings = replace(given.settings(MiCPStudySettings), fit=fit)
    records = [reading.open(path) for path in traces]
    with waiting("micp"):
        found = micp_study(records, settings)
    return report("micp", found, form, out)
