"""Sweep the open number of a rule: the curve on tune and eval, its knee, and what choosing costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice._version import VERSION
from suffice.errors import UsageError
from suffice.measures.costs import CostAxis, cost_reads, shared_axis
from suffice.measures.measures import Measures, Traces
from suffice.measures.scores import Outcomes
from suffice.measures.seen import record_banners
from suffice.options import settings_of
from suffice.policies.defaults import FLOORS
from suffice.policies.fitting import FitData, fit_data, fit_notes, fitted_rule
from suffice.policies.rules.policy import rule_needs
from suffice.policies.thresholds import (
    OpenRule,
    ThresholdScore,
    cheapest_within_one_error,
    fill,
    open_rule,
    score_stops,
)
from suffice.replay.choose.candidates import refuse_unscored
from suffice.replay.choose.families import policies_at
from suffice.replay.choose.rule_stops import grid_of
from suffice.replay.run.answers import answer_notes, chosen_by_signal
from suffice.replay.settings import SweepSettings
from suffice.results.as_json import as_json
from suffice.results.formats import percent, points
from suffice.results.markup import visible
from suffice.results.table import Column, Table
from suffice.results.tabular import Tabular
from suffice.scoring import AnswerChoice, Metric
from suffice.signals.registry import resolve
from suffice.signals.table import SignalTable, first_stops
from suffice.stats.intervals import Interval, Sums, from_sums, percentile_interval, resampled_means

_CLEAR_SHARE = 0.8  # a curve of nothing but noise passes 0.5 every other time, 0.8 seldom
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """Where the curve of the tune score over cost bends most: farthest above its chord."""

    threshold: float | None
    share: float = field(metadata={"json": "share_of_resamples"})
    warning: str | None

    @property
    def in_words(self) -> str:
        """Where it is and how sure that is, or why there is none."""
        if self.warning is not None:
            return f"{self.warning}."
        return (
            f"{self.threshold:.6g}, where {self.share:.0%} of the resamples put it or a neighbour."
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SweepResult(Tabular):
    """A sweep with its choice."""

    points: tuple[Mapping[str, Any], ...]
    chosen: float
    knee: Knee
    fold_choices: tuple[float, ...]
    held_out_score: float
    selection_gap: Interval
    split_gap: Interval
    questions: tuple[int, int]
    settings: SweepSettings
    source: str
    metric: Metric
    cost: CostAxis
    notes: tuple[str, ...] = field(default=())

    @property
    def chosen_rule(self) -> str:
        """The rule with the chosen threshold."""
        return fill(self.settings.rule, self.chosen)

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "rule": self.settings.rule,
            "calibrator": self.settings.calibrator,
            "thresholds": as_json(self.points),
            "chosen": self.chosen,
            "chosen_rule": self.chosen_rule,
            "knee": as_json(self.knee),
            "cross_validation": {
                "fold_choices": list(self.fold_choices),
                f"held_out_{self.metric.name}": self.held_out_score,
                "selection_gap": as_json(self.selection_gap),
                "split_gap": as_json(self.split_gap),
            },
            "tune_split": self.settings.tune_split,
            "eval_split": self.settings.eval_split,
            "labelled": {"tune": self.questions[0], "eval": self.questions[1]},
            "metric": self.metric.name,
            "answer": self.settings.answer,
            "f1_kind": self.settings.f1_kind,
            "cost": self.cost.name,
            "charge": self.settings.cost_model.charge,
            "seed": self.settings.seed,
            "bootstrap": self.settings.resamples,
            "version": VERSION,
            "traces": self.source,
            "notes": list(self.notes),
        }

    def tables(self) -> tuple[Table]:
        """Every threshold on both splits; the choice, the knee and the gaps below."""
        metric, other = self.metric, self.metric.beside
        columns = [
            Column(name="threshold", kind="significant"),
            Column(name=f"tune_{metric.name}", kind="percent", head=f"tune {metric.label}"),
            Column(name="tune_standard_error", kind="percent", head="s.e."),
            Column(name="tune_rounds", kind="number", digits=2, head="rounds"),
            Column(name="gain_per_round", kind="points", head=f"{metric.label}/round"),
            Column(name=f"eval_{metric.name}", kind="percent", head=f"eval {metric.label}"),
            Column(name=f"eval_{metric.key(other)}", kind="percent", head=metric.head(other)),
            Column(name="eval_rounds", kind="number", digits=2, head="rounds"),
            Column(name="choice", head=""),
        ]
        if self.cost.name != "rounds":
            head = "\n".join(self.cost.head).strip()
            columns[4:4] = [Column(name="tune_cost", kind="number", head=head)]
            columns[-1:-1] = [Column(name="eval_cost", kind="number", head=head)]
        rows = [
            [*(point[column.name] for column in columns[:-1]), self.mark(point["threshold"])]
            for point in self.points
        ]
        return (
            Table(
                name="thresholds",
                title=self.settings.rule,
                columns=columns,
                rows=rows,
                notes=self.explained(),
            ),
        )

    def mark(self, threshold: float | None) -> str:
        """``chosen`` and ``knee`` where they apply."""
        marks = ["chosen"] if threshold == self.chosen else []
        if threshold == self.knee.threshold:
            marks.append("knee" if self.knee.warning is None else "knee, unclear")
        return ", ".join(marks)

    def explained(self) -> list[str]:
        """What the figures are, the choice, the knee and the gaps, sentence by sentence."""
        tune, held, label = self.settings.tune_split, self.settings.eval_split, self.metric.label
        choices = ", ".join(f"{threshold:.6g}" for threshold in self.fold_choices)
        return [
            f"Tune: out of fold on {self.questions[0]} questions {self.metric.scored}, split {tune}; eval: "
            f"fitted on {tune}, scored on {self.questions[1]} of split {held}. Scores in percent; "
            f"{label}/round: points of tune {label} gained per extra round over the threshold with the "
            "next fewer.",
            f"Chosen: the cheapest in {self.cost.label} within one standard error of the best tune {label}: "
            f"{visible(self.chosen_rule)}",
            f"Knee, where more cost buys less from there on: {self.knee.in_words}",
            f"Held-out folds (fitted and chosen without them): {label} "
            f"{percent(self.held_out_score)}, choices {choices}.",
            f"Selection gap, tune minus held-out folds: {points(self.selection_gap)}. "
            f"Difference of the splits, {held} minus held-out folds: {points(self.split_gap)}.",
            *(f"Note: {visible(note)}" for note in self.notes),
        ]


def sweep(traces: Traces, settings: SweepSettings | None = None, **stated: Any) -> SweepResult:
    """Sweep on tune out of fold, score on eval, cross-validate the choice.

    Raises
    ------
    UsageError
        For a rule without exactly one ``?``, a threshold out of its signal's range, a grid that is
        empty, fewer labelled tune questions than two, a cost that the record does not hold.
    DataError
        When a split is missing.
    """
    settings = settings_of(SweepSettings, settings, **stated)
    needs = rule_needs(fill(settings.rule, 0.5))
    measures = Measures.of(traces).by(settings.metric)
    tune = measures.only_split(settings.tune_split)
    data = fit_data(measures, needs.signals, split=settings.tune_split, f1_kind=settings.f1_kind)
    if data.outcomes.labelled.sum() < 2:
        raise UsageError(
            f"a sweep needs at least 2 labelled questions in split {settings.tune_split!r}, found 1"
        )
    evaluated = measures.only_split(settings.eval_split)
    answers = [chosen_by_signal(part, settings.answer) for part in (tune, evaluated)]
    data = replace(data, returned=answers[0].returned(data.outcomes))
    books = [part.costs(settings.cost_model, answers[0].reads) for part in (tune, evaluated)]
    reads = cost_reads(resolve(name, also=data.table.values) for name in needs.signals)
    axis = shared_axis(books, settings.cost, {settings.rule: reads})
    costs = [book.known(axis, reads) for book in books]
    swept = open_rule(settings.rule, data, calibrator=settings.calibrator, costs=costs[0])
    grid = _grid(settings, swept)
    chosen = _chosen(settings, swept, grid)
    thresholds = tuple(sorted({*grid, chosen.threshold}))
    on_tune = swept.scores(thresholds)
    scored = answers[1].returned(evaluated.scores(settings.f1_kind))
    for part, rows in ((tune, data.outcomes.labelled), (evaluated, scored.labelled)):
        _refuse_unseen(part, rows)
    refuse_unscored(evaluated, settings.eval_split, settings.f1_kind)
    evaluated.scores_throughout("a sweep", settings.f1_kind)
    if evaluated.seen is not None:
        scored = evaluated.seen.outcomes(scored)
    on_eval = _on_eval(settings, thresholds, data, evaluated, scored, costs[1])
    choices, held_out = _cross_validate(settings, data, grid, costs[0])
    scores = _scores_at(data.stopped, chosen.stops)
    on_held = _scores_at(scored, on_eval[thresholds.index(chosen.threshold)].stops)
    selection, split = _gaps(scores, held_out, on_held, settings)
    return SweepResult(
        points=_points(on_tune, on_eval, measures.metric),
        chosen=chosen.threshold,
        knee=find_knee(on_tune, data.stopped, settings),
        fold_choices=choices,
        held_out_score=float(held_out.mean()),
        selection_gap=selection,
        split_gap=split,
        questions=(int(data.outcomes.labelled.sum()), int(scored.labelled.sum())),
        settings=settings,
        source=measures.traces.origin.source,
        metric=measures.metric,
        cost=axis,
        notes=(
            *evaluated.notes(settings.metric),
            *answer_notes(AnswerChoice.parse(settings.answer), {}),
            *fit_notes(data.provenance),
            *_notes(settings, (tune, evaluated)),
            *books[1].notes(axis),
        ),
    )


def _refuse_unseen(part: Measures, rows: NDArray[np.bool_]) -> None:
    """A sweep compares stops of any length; nothing stands for those of which a part was not seen."""
    seen = part.seen
    if seen is None or not (seen.unseen & rows).any():
        return
    raise UsageError(
        f"a sweep needs to know what going on brings, and {int((seen.unseen & rows).sum())} of "
        f"{int(rows.sum())} questions {part.metric.scored} were cut where nothing stands for what lies past; "
        "sweep questions recorded to the full budget, or live ones of which a share was explored "
        "(explore=0.05); for a single rule replay --stop-when gives a range; which were cut: suffice traces "
        f"info {part.traces.at}"
    )


def _notes(settings: SweepSettings, parts: Sequence[Measures]) -> list[str]:
    notes = [*record_banners(parts[1].traces)]
    if settings.tune_split == settings.eval_split:
        notes.append("thresholds were chosen on the questions that are scored: eval is in-sample")
    budget = max(part.traces.n_rounds for part in parts)
    ended = [
        (part.traces.last_rounds < budget) & (True if part.seen is None else ~part.seen.cut)
        for part in parts
    ]
    short = [int(one.sum()) for one in ended]
    if any(short):
        notes.append(
            f"{short[0]} questions of tune and {short[1]} of eval end before round {budget}; their last "
            "recorded round stands for later ones"
        )
    return notes


def _chosen(settings: SweepSettings, swept: OpenRule, grid: Sequence[float]) -> ThresholdScore:
    """The choice; a number that was not typed is written as short as can be."""
    if settings.thresholds is None:
        return swept.chosen(grid, cheapest_within_one_error)
    return cheapest_within_one_error(swept.scores(grid))


def _grid(settings: SweepSettings, rule: OpenRule) -> tuple[float, ...]:
    if settings.thresholds is not None:
        if not settings.thresholds:
            raise UsageError("the grid holds no threshold")
        return tuple(sorted(set(settings.thresholds)))
    swept = settings.rule.partition("?")[0].rstrip(" <>=")
    if swept.endswith(")"):
        return FLOORS
    name = swept.replace("(", " ").rpartition(" ")[2]
    values = rule.data.table.values
    if name not in values:
        raise UsageError(
            f"which signal '?' is compared with is not plain in {settings.rule!r}; give the grid"
        )
    grid = grid_of(values[name], "quantiles")[1:-1]  # the ends never or always hold
    if not grid.size:
        raise UsageError(f"signal {name!r} has too few values on tune to sweep; give the grid")
    return tuple(sorted({rule.shortest(threshold) for threshold in grid.tolist()}))


def _on_eval(
    settings: SweepSettings,
    thresholds: Sequence[float],
    data: FitData,
    evaluated: Measures,
    scored: Outcomes,
    costs: Array,
) -> list[ThresholdScore]:
    """Every threshold on eval, with maps fitted on all of ``data``; weighted where questions were cut."""
    ends, rounds = evaluated.ends, np.cumsum(evaluated.traces.exists, axis=1, dtype=np.float64)
    if (seen := evaluated.seen) is not None:
        costs, rounds = seen.matrix(costs), seen.matrix(rounds)
    _, stopped = policies_at(settings.rule, thresholds, data, evaluated, settings.calibrator)
    rows, scores = np.arange(len(ends)), []
    for threshold, stops in zip(thresholds, stopped, strict=True):
        mean_rounds = float(rounds[rows, stops - 1][scored.labelled].mean())
        score = score_stops(threshold, stops, scored, costs)
        scores.append(replace(score, mean_rounds=mean_rounds))
    return scores


def _scores_at(scored: Outcomes, stops: NDArray[np.int16]) -> Array:
    return scored.compared[np.arange(len(stops)), stops - 1][scored.labelled]


def _points(
    on_tune: Sequence[ThresholdScore], on_eval: Sequence[ThresholdScore], metric: Metric
) -> tuple[dict[str, Any], ...]:
    cheaper = sorted(on_tune, key=lambda score: score.mean_rounds)
    points: list[dict[str, Any]] = []
    for tune, held in zip(on_tune, on_eval, strict=True):
        before = [score for score in cheaper if score.mean_rounds < tune.mean_rounds]
        gain = None
        if before:
            extra = tune.mean_rounds - before[-1].mean_rounds
            gain = (tune.score - before[-1].score) / extra
        points.append(
            {
                "threshold": tune.threshold,
                f"tune_{metric.name}": tune.score,
                "tune_standard_error": tune.standard_error,
                "tune_rounds": tune.mean_rounds,
                "tune_cost": tune.cost,
                f"eval_{metric.name}": held.score,
                f"eval_{metric.key(metric.beside)}": held.other,
                "eval_rounds": held.mean_rounds,
                "eval_cost": held.cost,
                "gain_per_round": gain,
            }
        )
    return tuple(points)


# --- the knee ------------------------------------------------------------------------------------
def find_knee(scores: Sequence[ThresholdScore], scored: Outcomes, settings: SweepSettings) -> Knee:
    """The knee of the tune curve, and how often resampled questions put it there."""
    labelled, count = np.flatnonzero(scored.labelled), len(scores)
    if len({score.cost for score in scores}) < 3:
        warning = "fewer than three thresholds differ in cost: there is no knee"
        return Knee(threshold=None, share=0.0, warning=warning)

    def columns(part: slice) -> Array:
        """What every threshold pays for some questions, then what it scores."""
        rows = labelled[part]
        at = [score.stops[rows] - 1 for score in scores]
        paid = [
            stop + 1.0 if score.costs is None else score.costs[rows, stop]
            for score, stop in zip(scores, at, strict=True)
        ]
        return np.stack([*paid, *(scored.compared[rows, stop] for stop in at)], axis=1)

    if from_sums(len(labelled)):
        sums = Sums.by_blocks(len(labelled), 2 * count, columns)
        means, drawn = sums.mean, sums.draws
    else:
        everything = columns(slice(None))
        means, drawn = everything.mean(axis=0), partial(resampled_means, everything)
    bent = _bend(means[:count], means[count:])
    if bent is None:
        warning = "no threshold lies above the line from the cheapest to the dearest: no knee"
        return Knee(threshold=None, share=0.0, warning=warning)
    draws = drawn(resamples=settings.resamples, seed=settings.seed)
    bends = [_bend(draw[:count], draw[count:]) for draw in draws]
    near = sum(bend is not None and abs(bend - bent) <= 1 for bend in bends)
    share = near / len(bends)
    unclear = None
    if share < _CLEAR_SHARE:
        unclear = (
            f"no single knee: only {share:.0%} of the resamples put it at or next to "
            f"{scores[bent].threshold:g}"
        )
    return Knee(threshold=scores[bent].threshold, share=share, warning=unclear)


def _bend(costs: Array, scores: Array) -> int | None:
    """The point farthest above the chord between the cheapest and the dearest; ``None``: none is."""
    cheap, dear = int(costs.argmin()), int(costs.argmax())
    width = costs[dear] - costs[cheap]
    if width <= 0:
        return None
    chord = scores[cheap] + (scores[dear] - scores[cheap]) * (costs - costs[cheap]) / width
    above = scores - chord
    return int(above.argmax()) if above.max() > 1e-12 else None


# --- what choosing costs -------------------------------------------------------------------------
def _cross_validate(
    settings: SweepSettings, data: FitData, thresholds: tuple[float, ...], costs: Array
) -> tuple[tuple[float, ...], Array]:
    """Per fold the choice made without it; the score of every labelled question under its fold's choice."""
    costs, data = costs[data.outcomes.labelled], _only(data, data.outcomes.labelled)
    fold = data.folds(settings.seed)
    scores = np.empty(len(fold))
    choices = []
    for number in np.unique(fold):
        inside = fold == number
        others = _only(data, ~inside)
        swept = open_rule(
            settings.rule, others, calibrator=settings.calibrator, costs=costs[~inside]
        )
        choice = _chosen(settings, swept, thresholds).threshold
        choices.append(choice)
        policy = fitted_rule(
            fill(settings.rule, choice),
            others,
            own_signals=tuple(data.table.values),
            calibrator=settings.calibrator,
        )
        held = _only(data, inside)
        stops = np.minimum(first_stops(policy, held.table), held.table.exists.sum(axis=1))
        scores[inside] = held.stopped.compared[np.arange(len(stops)), stops - 1]
    return tuple(choices), scores


def _only(data: FitData, rows: NDArray[np.bool_]) -> FitData:
    return replace(
        data,
        table=SignalTable(
            values={name: values[rows] for name, values in data.table.values.items()},
            exists=data.table.exists[rows],
        ),
        outcomes=data.outcomes.take(rows),
        units=data.units[rows],
        returned=data.stopped.take(rows),
    )


def _gaps(
    chosen: Array, held_out: Array, evaluated: Array, settings: SweepSettings
) -> tuple[Interval, Interval]:
    tune = resampled_means(
        np.stack([chosen, held_out], axis=1), resamples=settings.resamples, seed=settings.seed
    )
    other = resampled_means(
        evaluated[:, None], resamples=settings.resamples, seed=settings.seed + 1
    )
    selection = percentile_interval(float((chosen - held_out).mean()), tune[:, 0] - tune[:, 1])
    split = percentile_interval(float(evaluated.mean() - held_out.mean()), other[:, 0] - tune[:, 1])
    return selection, split
