"""Go through every rule of a form: thresholds and order from tune, figures from eval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import CostReads
from suffice.errors import UsageError
from suffice.measures.costs import cost_reads, shared_axis
from suffice.measures.measures import Measures, Traces
from suffice.measures.seen import record_banners
from suffice.numbers.intervals.simultaneous import (
    SimultaneousBand,
    bands_from_sums,
    paired_p_values,
    paired_p_values_from_sums,
    simultaneous_bands,
)
from suffice.numbers.intervals.sums import Sums, from_sums
from suffice.numbers.tests.p_values import holm
from suffice.numbers.units import unit_means, unit_weights
from suffice.options import settings_of
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.fitting import fit_data
from suffice.replay.choose.conditions import (
    Operand,
    RuleFigures,
    RuleScorer,
    both_ways,
    calibrators_of,
    grid_of,
    operands_of,
    scoring_columns,
    tuning_columns,
)
from suffice.replay.choose.rule_stops import Formula, RuleStops, enumerate_formulas
from suffice.replay.choose.search_results import ChosenThreshold, SearchedRule, SearchResult
from suffice.replay.choose.splits import refuse_unscored
from suffice.replay.diagnose.signal_flags import refuse_unusable
from suffice.replay.run.answers import answer_notes, chosen_by_signal
from suffice.replay.run.frontier import pareto_front
from suffice.replay.run.named_policies import named_policies
from suffice.replay.settings import SearchSettings
from suffice.results.formats import counted
from suffice.scoring import AnswerChoice, ScoreName

_BLOCK = 512
_SCORES: tuple[ScoreName, ...] = ("f1", "em", "acc")
_DIGITS = 12  # of a mean: beyond lies the rounding of sums
Array = NDArray[np.float64]


def search(traces: Traces, settings: SearchSettings | None = None, **stated: Any) -> SearchResult:
    """Evaluate every formula of the form over the signals.

    Each signal first gets one threshold: the one of its grid that is best on the tune split by the
    objective, among those within the cost cap; ties go to the lowest. A signal without a threshold
    under the cap never fires. Rules are then ordered by the objective on tune (those within the cap
    first) and scored on eval. The correction covers every formula and every threshold tried.

    Raises
    ------
    UsageError
        For unknown names, a constant or look-ahead signal, unlabelled splits, an unknown cost.
    DataError
        When a split is missing.
    """
    settings = settings_of(SearchSettings, settings, **stated)
    measures = Measures.of(traces).by(settings.metric)
    operands = operands_of(settings.signals, measures.traces)
    formulas = enumerate_formulas(settings.form, len(operands))
    names = tuple(dict.fromkeys(operand.spec.name for operand in operands))
    refuse_unusable(measures, names, tune_split=settings.tune_split)
    on_tune = measures.only_split(settings.tune_split)
    on_eval = measures.only_split(settings.eval_split)
    data = fit_data(
        measures,
        names,
        split=settings.tune_split,
        f1_kind=settings.f1_kind,
        fits=any(operand.calibrated for operand in operands),
    )
    refuse_unscored(on_eval, settings.eval_split, settings.f1_kind)
    parts = (on_tune, on_eval)
    answers = [chosen_by_signal(part, settings.answer) for part in parts]
    books = [part.costs(settings.cost_model, answers[0].reads) for part in parts]
    axis = shared_axis(
        books,
        settings.cost,
        {operand.text: cost_reads((operand.spec,)) for operand in operands},
        capped=settings.max_cost is not None,
    )
    columns = (
        tuning_columns(data, operands),
        scoring_columns(on_eval.signals(names), calibrators_of(data, operands)),
    )
    tune, held_out = (
        RuleScorer(
            part,
            of_part,
            scored=returned.returned(part.scores_throughout("a search", settings.f1_kind)),
            book=book,
            operands=operands,
            axis=axis,
        )
        for part, of_part, returned, book in zip(parts, columns, answers, books, strict=True)
    )
    budget = max(on_tune.traces.n_rounds, on_eval.traces.n_rounds)
    chosen = tuple(_choose(tune, operand, settings, budget) for operand in operands)
    for scorer in (tune, held_out):
        scorer.use([threshold.condition for threshold in chosen])
    known = _known(formulas, (tune, held_out))
    searched = _Searched(
        tune=tune,
        held_out=held_out,
        operands=operands,
        formulas=known,
        chosen=chosen,
        unknown=len(formulas) - len(known),
    )
    return _result(measures, searched, settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Searched:
    """Formulas over the chosen thresholds, on tune and on eval."""

    tune: RuleScorer
    held_out: RuleScorer
    operands: tuple[Operand, ...]
    formulas: tuple[Formula, ...]
    chosen: tuple[ChosenThreshold, ...]
    unknown: int  # formulas that go past what is known

    @property
    def texts(self) -> list[str]:
        conditions = [threshold.condition for threshold in self.chosen]
        return [formula.text(conditions) for formula in self.formulas]

    @property
    def reads(self) -> list[CostReads]:
        """What each pays for; a condition that never holds does not name its signal."""
        return [
            cost_reads(
                self.operands[number].spec
                for clause in formula.clauses
                for number in clause
                if not self.chosen[number].never
            )
            for formula in self.formulas
        ]


def _known(formulas: tuple[Formula, ...], scorers: Sequence[RuleScorer]) -> tuple[Formula, ...]:
    """Those that stop no question past a cut which nothing stands for."""
    cut = [scorer for scorer in scorers if scorer.measures.seen is not None]
    if not cut:
        return formulas
    known = np.all([scorer.known(scorer.stops(formulas)) for scorer in cut], axis=0)
    if not known.any():
        raise UsageError(
            f"of {counted(len(formulas), 'rule')} each goes past the cut of some question, and nothing "
            "stands for what lies there, so none can be scored; replay --stop-when gives a range. Search "
            "questions that were recorded to the full budget, or live ones of which a share was explored; "
            "which were cut: "
            f"suffice traces info {scorers[0].measures.traces.at}"
        )
    return tuple(formula for formula, is_known in zip(formulas, known, strict=True) if is_known)


def _choose(
    tune: RuleScorer, operand: Operand, settings: SearchSettings, budget: int
) -> ChosenThreshold:
    """One signal's threshold on tune, of one's own the better way; ``budget`` is the last round of both."""
    if operand.binary:
        return ChosenThreshold(
            signal=operand.text, condition=operand.condition(), threshold=None, tried=0
        )
    tried = grid_of(operand.values(tune.columns), settings.grid).tolist()
    if not tried:
        return _never(operand, budget, ())
    ways = both_ways((operand,))
    objective = np.stack([_objectives(tune, way, tried, settings) for way in ways])
    # the first of equals: as declared, the lowest threshold; sums in another order differ by rounding alone
    way, best = np.unravel_index(np.round(objective, _DIGITS).argmax(), objective.shape)
    if objective[way, best] == -np.inf or not ways[way].can_hold(tried[best]):
        return _never(operand, budget, tuple(tried))
    threshold = ways[way].shortest(tried[best], tune.columns)
    return ChosenThreshold(
        signal=operand.text,
        condition=ways[way].condition(threshold),
        threshold=threshold,
        tried=len(tried) * len(ways),
        grid=tuple(tried),
    )


def _objectives(
    tune: RuleScorer, operand: Operand, tried: Sequence[float], settings: SearchSettings
) -> Array:
    """What each threshold reaches on tune, -inf where it is unknown or above the cost cap."""
    stops, reads = tune.threshold_stops(operand, tried), [cost_reads((operand.spec,))] * len(tried)
    figures = tune.figures(stops, reads, _ordered_by(tune, settings))
    objective = tune.objective(_objective(tune, settings), figures)
    kept = ~np.isnan(objective)  # stops past a cut
    if settings.max_cost is not None:
        kept &= figures.costs <= settings.max_cost
    return np.where(kept, objective, -np.inf)


def _objective(tune: RuleScorer, settings: SearchSettings) -> str:
    return settings.objective or tune.scored.metric.score


def _ordered_by(tune: RuleScorer, settings: SearchSettings) -> tuple[ScoreName, ...]:
    """The scores that rules are ordered by."""
    asked = _objective(tune, settings)
    names = (tune.scored.metric.score, *(name for name in _SCORES if name == asked))
    return tuple(dict.fromkeys(names))


def _never(operand: Operand, budget: int, tried: tuple[float, ...]) -> ChosenThreshold:
    """A condition that holds in the last round only, where every rule stops."""
    return ChosenThreshold(
        signal=operand.text,
        condition=f"round >= {budget}",
        threshold=None,
        tried=len(tried) * len(both_ways((operand,))),
        never=True,
        grid=tried,
    )


# --- the result ----------------------------------------------------------------------------------
class _Family:
    """Rules on one split; those that stop every question alike are worked on once."""

    def __init__(self, stops: RuleStops) -> None:
        self.digests = stops.digests()
        first: dict[bytes, int] = {}
        for number, digest in enumerate(self.digests):
            first.setdefault(digest, number)
        place = {digest: at for at, digest in enumerate(first)}
        self.stops = stops.take(np.array([*first.values()], np.intp))
        """Of different rules, (n, n_questions)."""
        self.same = np.array([place[digest] for digest in self.digests], np.intp)
        """For every rule the number of the one there that has its stops."""

    def figures(
        self, scorer: RuleScorer, reads: Sequence[CostReads], scores: Iterable[ScoreName]
    ) -> RuleFigures:
        """What every rule scores and costs, the first ones of which pay for so much."""
        pairs = list(zip(self.same.tolist(), reads, strict=False))
        distinct = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
        rules = np.array([rule for rule, _ in distinct], np.intp)
        figures = scorer.figures(self.stops.take(rules), [kind for _, kind in distinct], scores)
        return figures.of(np.array([distinct[pair] for pair in pairs], np.intp))


def _result(measures: Measures, searched: _Searched, settings: SearchSettings) -> SearchResult:
    tune, held_out = searched.tune, searched.held_out
    baseline_name, baseline = _baseline(measures, held_out, settings)
    family = _Family(RuleStops.joined([held_out.stops(searched.formulas), *_tried_stops(searched)]))
    bands, p_holm = _corrected(held_out, family, baseline, settings)
    rules = _rules(searched, family, (bands, p_holm), settings)
    return SearchResult(
        rules=rules,
        evaluated=len(rules),
        thresholds=searched.chosen,
        family=len(family.digests),
        critical_score=bands[0].critical,
        critical_delta=bands[1].critical,
        baseline=baseline_name,
        baseline_score=float(baseline.mean()),
        questions=(tune.measures.traces.n_questions, held_out.measures.traces.n_questions),
        labelled=(int(tune.labelled.sum()), int(held_out.labelled.sum())),
        max_rounds=held_out.measures.traces.n_rounds,
        metric=measures.metric,
        cost=held_out.axis,
        settings=settings,
        source=measures.traces.origin.source,
        notes=(
            *held_out.measures.notes(settings.metric),
            *answer_notes(AnswerChoice.parse(settings.answer), {}),
            *_notes(searched, settings, rules),
        ),
    )


def _rules(
    searched: _Searched,
    family: _Family,
    corrected: tuple[tuple[SimultaneousBand, ...], Array],
    settings: SearchSettings,
) -> tuple[SearchedRule, ...]:
    """Every rule with its figures on eval, in the order of tune."""
    (score, delta), p_holm = corrected
    tune, held_out, texts = searched.tune, searched.held_out, searched.texts
    on_tune, reads = _Family(tune.stops(searched.formulas)), searched.reads
    known, figures = (
        on_tune.figures(tune, reads, _ordered_by(tune, settings)),
        family.figures(held_out, reads, _SCORES),
    )
    costs, scores = known.costs, known.scores[tune.scored.metric.score]
    objective, front = (
        tune.objective(_objective(tune, settings), known),
        pareto_front(costs, scores),
    )
    within = costs <= (np.inf if settings.max_cost is None else settings.max_cost)
    # those within the cap first, best objective first, then the cheaper, then the earlier
    rounded = (np.round(costs, _DIGITS), -np.round(objective, _DIGITS))
    order = np.lexsort((np.arange(len(texts)), *rounded, ~within)).tolist()
    alike = [*zip(on_tune.digests, family.digests[: len(texts)], strict=True)]
    first, ways = {alike[n]: n for n in reversed(order)}, Counter(alike)
    return tuple(
        SearchedRule(
            rule=texts[n],
            metric=held_out.scored.metric,
            **{name: float(values[n]) for name, values in figures.scores.items()},
            mean_rounds=float(figures.rounds[n]),
            cost=float(figures.costs[n]),
            interval=score.at_once(n),
            naive=score.alone(n),
            delta=delta.at_once(n),
            naive_delta=delta.alone(n),
            p_holm=float(p_holm[n]),
            tune_score=float(scores[n]),
            tune_cost=float(costs[n]),
            tune_objective=float(objective[n]),
            within_cap=bool(within[n]),
            pareto=bool(front[n]),
            ways=ways[alike[n]],
            like=None if first[alike[n]] == n else texts[first[alike[n]]],
        )
        for n in order
    )


def _tried_stops(searched: _Searched) -> list[RuleStops]:
    """Stop rounds on eval of every threshold that was tried alone: they were looked at too."""
    held_out = searched.held_out
    tried = [
        held_out.threshold_stops(way, chosen.grid)
        for operand, chosen in zip(searched.operands, searched.chosen, strict=True)
        for way in both_ways((operand,))
        if chosen.grid
    ]
    return [stops.take(np.flatnonzero(held_out.known(stops))) for stops in tried]


def _baseline(
    measures: Measures, held_out: RuleScorer, settings: SearchSettings
) -> tuple[str, Array]:
    most = min(3, held_out.measures.traces.n_rounds)
    names = [settings.baseline] if settings.baseline else [f"fixed-{k}" for k in range(most, 0, -1)]
    for name in names:
        candidate = named_policies(measures, [name])[0]
        if candidate.policy is None:
            raise UsageError(
                f"baseline {name!r} is no policy a rule can be compared with; use fixed-K"
            )
        stops = np.minimum(held_out.measures.wanted_rounds(candidate.policy), held_out.last)
        if candidate.max_rounds is not None:
            stops = np.minimum(stops, candidate.max_rounds)
        stops = stops.astype(np.int16)[None, :]
        if held_out.known(RuleStops.of_array(stops))[0]:
            return name, held_out.at(held_out.scored.compared, stops)[:, 0]
    raise UsageError(
        f"baseline {name!r} goes past the cut of questions of which nothing shows what lies there; compare "
        "with an earlier stop: --baseline fixed-1"
    )


def _corrected(
    held_out: RuleScorer, family: _Family, baseline: Array, settings: SearchSettings
) -> tuple[tuple[SimultaneousBand, ...], Array]:
    """Of rules that differ, then of all."""
    n_rules, scored = len(family.stops), held_out.scored.compared
    if from_sums(family.stops.shape[1]):
        sums = _sums(held_out, family.stops, baseline)
        bands = bands_from_sums(
            sums, n_rules, (None, n_rules), resamples=settings.resamples, seed=settings.seed
        )
        p_values = paired_p_values_from_sums(sums, n_rules)[:n_rules]
    else:

        def columns(part: slice) -> Array:
            return unit_means(held_out.at(scored, family.stops[part]), held_out.units)

        means = unit_means(baseline, held_out.units)
        bands = simultaneous_bands(
            n_rules,
            columns,
            (None, means),
            resamples=settings.resamples,
            seed=settings.seed,
        )
        p_values = np.concatenate(
            [
                paired_p_values(columns(slice(start, start + _BLOCK)) - means[:, None])
                for start in range(0, n_rules, _BLOCK)
            ]
        )
    return tuple(band.of(family.same) for band in bands), holm(p_values[family.same])


def _sums(held_out: RuleScorer, stops: RuleStops, baseline: Array) -> Sums:
    """Those of all rules' scores and the baseline's, of so many questions that no rule's scores are held."""
    sums, labelled = Sums.none(len(stops) + 1), np.cumsum(held_out.labelled)
    repeated = unit_weights(held_out.units) < 1.0
    kept: list[Array] = []  # of units that may lie in several blocks
    for rows, taken in stops.by_questions():
        before = int(labelled[rows.start - 1]) if rows.start else 0
        scores = held_out.at(held_out.scored.compared, taken, rows)
        against = baseline[before : before + len(scores)]
        both, again = np.column_stack([scores, against]), repeated[before : before + len(scores)]
        sums = sums.add(Sums.of(both[~again]))
        kept.append(both[again])
    if repeated.any():
        sums = sums.add(Sums.of(unit_means(np.concatenate(kept), held_out.units[repeated])))
    return sums


def _why_never(chosen: ChosenThreshold, settings: SearchSettings) -> str:
    """Why a condition was left without a threshold."""
    if not chosen.grid:
        return "it is undefined on tune"
    if settings.max_cost is None:
        return "no threshold does better on tune than one that nothing passes"
    return "no threshold keeps the cost cap on tune"


def _notes(
    searched: _Searched,
    settings: SearchSettings,
    rules: Sequence[SearchedRule],
) -> list[str]:
    held_out = searched.held_out
    notes = [
        *record_banners(held_out.measures.traces),
        *held_out.book.notes(held_out.axis),
    ]
    notes += [
        f"{chosen.signal}: {_why_never(chosen, settings)}, so the condition never fires "
        f"(written {chosen.condition}, where every rule stops)"
        for chosen in searched.chosen
        if chosen.never
    ]
    if settings.tune_split == settings.eval_split:
        notes.append(
            f"thresholds were chosen on the questions that are scored (split {settings.eval_split}): "
            "the figures are in-sample"
        )
    if settings.tune_split != FIT_SPLIT and any(
        operand.calibrated for operand in searched.operands
    ):
        notes.append(
            f"calibrated(...) was fitted on split {settings.tune_split}; replay --stop-when fits it on "
            f"split {FIT_SPLIT} and so may give other figures"
        )
    outside = sum(not rule.within_cap for rule in rules)
    if outside:
        which = "1 rule costs" if outside == 1 else f"{outside} rules cost"
        notes.append(f"{which} more than the cap on tune; listed last")
    if searched.unknown:
        notes.append(
            f"left out {counted(searched.unknown, 'rule')} that go past the cut of questions which nothing "
            "stands for, so of whose figures only ranges are known; replay --stop-when gives these"
        )
    short = int((held_out.last < held_out.measures.traces.n_rounds).sum())
    if short:
        notes.append(
            f"{short} questions end before round {held_out.measures.traces.n_rounds}; their last "
            "recorded round stands for later ones"
        )
    return notes
