"""Go through every rule of a form: thresholds and order from tune, figures from eval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice._version import VERSION
from suffice.costs.usage import CostReads
from suffice.errors import UsageError, counted
from suffice.evaluation.choose.candidates import refuse_unscored
from suffice.evaluation.choose.rule_stops import (
    Formula,
    Operand,
    RuleStops,
    both_ways,
    enumerate_formulas,
    grid_of,
    operands_of,
    packed_conditions,
    scoring_columns,
    tuning_columns,
)
from suffice.evaluation.diagnose.signal_checks import refuse_unusable
from suffice.evaluation.replay.answers import answer_notes, answer_rounds
from suffice.evaluation.replay.frontier import interpolate, pareto_front
from suffice.evaluation.replay.named_policies import named_policies
from suffice.evaluation.settings import GAIN_AT_COST, SearchSettings
from suffice.measures.costs import CostAxis, CostBook, cost_reads, fixed_stops
from suffice.measures.measures import Measures, Traces
from suffice.measures.scores import Outcomes
from suffice.measures.seen import record_banners
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.fitting import fit_data
from suffice.policies.rules.language import RuleColumns
from suffice.results.as_json import as_json, fields_as_json
from suffice.results.formats import percent
from suffice.results.markup import visible
from suffice.results.plots import Plot
from suffice.results.table import Column, Described, Table, table_of
from suffice.results.tabular import Tabular
from suffice.scoring import AnswerChoice, Metric, ScoreName
from suffice.stats.intervals import Interval, Sums, draws_in_words, from_sums
from suffice.stats.p_values import holm
from suffice.stats.simultaneous import (
    SimultaneousBand,
    bands_from_sums,
    paired_p_values,
    paired_p_values_from_sums,
    simultaneous_bands,
)
from suffice.stats.units import Array, per_unit

_BLOCK = 512
_SCORES: tuple[ScoreName, ...] = ("f1", "em", "acc")
_DIGITS = 12  # of a mean: beyond lies the rounding of sums
_STATED = ("form", "answer", "max_cost", "tune_split", "eval_split", "f1_kind", "seed")
_ELSEWHERE = {"json": None}  # the document holds these in another form, or not at all


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenThreshold:
    """A signal and its threshold; ``None``: a binary signal, or ``never`` within the cost cap."""

    signal: str
    condition: str
    threshold: float | None
    tried: int
    never: bool = field(default=False, metadata={"json": "never_fires"})
    grid: tuple[float, ...] = field(default=(), metadata={"json": None})


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedRule:
    rule: str
    metric: Metric = field(metadata=_ELSEWHERE)
    f1: float = field(metadata={"json": "{f1}"})
    em: float = field(metadata={"json": "{em}"})
    acc: float = field(metadata={"json": "{acc}"})
    mean_rounds: float
    cost: float
    interval: Interval = field(metadata=_ELSEWHERE)
    naive: Interval = field(metadata=_ELSEWHERE)
    delta: Interval = field(metadata={"json": "delta_{metric}"})
    naive_delta: Interval = field(metadata=_ELSEWHERE)
    p_holm: float
    tune_score: float = field(metadata={"json": "tune_{metric}"})
    tune_cost: float
    tune_objective: float
    within_cap: bool
    pareto: bool
    ways: int = 1
    like: str | None = None

    @property
    def score(self) -> float:
        value: float = getattr(self, self.metric.score)
        return value

    def to_json(self, *, naive: bool = False) -> dict[str, Any]:
        document = {**self.metric.unknown, **fields_as_json(self, self.metric.names)}
        entry = {**document, "low": self.interval.low, "high": self.interval.high}
        if naive:
            entry |= {
                "naive_low": self.naive.low,
                "naive_high": self.naive.high,
                f"naive_delta_{self.metric.name}": as_json(self.naive_delta),
            }
        return entry


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SearchResult(Tabular):
    """Every rule of a search, in the order of the objective on tune.

    The correction covers ``family`` rules: formulas and single thresholds. A simultaneous interval spans
    ``critical_score`` or ``critical_delta`` standard errors to each side, not 1.96. ``questions`` and
    ``labelled`` count tune and eval.
    """

    rules: tuple[SearchedRule, ...]
    evaluated: int
    thresholds: tuple[ChosenThreshold, ...]
    family: int
    critical_score: float
    critical_delta: float
    baseline: str
    baseline_score: float
    questions: tuple[int, int]
    labelled: tuple[int, int]
    max_rounds: int
    metric: Metric
    cost: CostAxis
    settings: SearchSettings
    source: str
    notes: tuple[str, ...]

    @property
    def objective(self) -> str:
        asked = self.settings.objective or self.metric.score
        return self.metric.names.get(asked, asked)

    @property
    def listed(self) -> tuple[SearchedRule, ...]:
        return tuple(rule for rule in self.rules if rule.like is None)

    def pick(self, number: int) -> SearchedRule:
        listed = self.listed
        if not 1 <= number <= len(listed):
            raise UsageError(f"there is no rule {number}; the search lists 1 to {len(listed)}")
        return listed[number - 1]

    @property
    def thresholds_tried(self) -> int:
        return sum(condition.tried for condition in self.thresholds)

    @property
    def naive_share(self) -> float | None:
        """Mean width of the uncorrected intervals over that of the simultaneous ones."""
        corrected = sum(rule.interval.high - rule.interval.low for rule in self.rules)
        naive = sum(rule.naive.high - rule.naive.low for rule in self.rules)
        return naive / corrected if corrected > 0 else None

    def to_json(self, *, naive: bool = False) -> dict[str, Any]:
        settings = self.settings
        document: dict[str, Any] = {
            "evaluated": self.evaluated,
            "thresholds_tried": self.thresholds_tried,
            "rules": [rule.to_json(naive=naive) for rule in self.rules],
            "listed": len(self.listed),
            **{name: getattr(settings, name) for name in _STATED},
            "metric": self.metric.name,
            "objective": self.objective,
            "cost": self.cost.name,
            "thresholds": as_json(self.thresholds),
            "correction": {
                "family": self.family,
                f"critical_{self.metric.name}": self.critical_score,
                "critical_delta": self.critical_delta,
                "p_values": "paired t, Holm",
            },
            "baseline": self.baseline,
            f"baseline_{self.metric.name}": self.baseline_score,
            "questions": {"tune": self.questions[0], "eval": self.questions[1]},
            "labelled": {"tune": self.labelled[0], "eval": self.labelled[1]},
            "max_rounds": self.max_rounds,
            "bootstrap": settings.resamples,
            "version": VERSION,
            "traces": self.source,
            "notes": list(self.notes),
        }
        if naive:
            document["naive_share_of_width"] = self.naive_share
        return document

    def tables(self, *, top: int | None = None, naive: bool = False) -> tuple[Table, ...]:
        settings, metric = self.settings, self.metric
        label = metric.label
        everywhere, beside = f"{label} [95%, all]", metric.beside
        numbers = {rule.rule: number for number, rule in enumerate(self.listed, 1)}
        percents = partial(Column, kind="percent")
        described: list[Described] = [
            (lambda rule: numbers[rule.rule], Column(name="number", kind="count", head="#")),
            ("tune_score", percents(name=f"tune_{metric.name}", head=f"tune {label}")),
            ("interval", percents(name=metric.name, head=everywhere, interval=True)),
            (beside, percents(name=metric.key(beside), head=metric.head(beside))),
            ("mean_rounds", Column(name="mean_rounds", kind="number", digits=2, head="rounds")),
            ("cost", Column(name="cost", kind="number", head=self.cost.label)),
        ]
        name, head = f"delta_{metric.name}", f"delta {everywhere}"
        described.append(("delta", Column(name=name, kind="points", head=head, interval=True)))
        if naive:
            alone = percents(name="naive", head=f"{label} [95%, alone]", interval=True)
            described.append(("naive", alone))
        fewer = len(self.listed) < self.evaluated
        described += [
            ("p_holm", Column(name="p_holm", kind="p_value", head="p\n(Holm)", in_text=False)),
            ("ways", Column(name="ways", kind="count", in_text=fewer)),
            ("rule", Column(name="rule", whole=True)),
        ]
        rules = table_of(
            "rules",
            self.listed[:top],
            described,
            f"{counted(self.evaluated, 'rule')} of form {settings.form!r}, {self.thresholds_tried} "
            f"thresholds tried. Ordered by {self.objective} on split {settings.tune_split}, scored on "
            f"split {settings.eval_split}.",
        )
        front = table_of(
            "Pareto front",
            sorted((rule for rule in self.listed if rule.pareto), key=lambda rule: rule.tune_cost),
            described,
            "Pareto front: no other rule is both cheaper and better on tune.",
            [*self.explained(naive=naive), *(f"Note: {note}" for note in self.notes)],
        )
        return replace(rules, names=0), replace(front, names=0)

    def plotted(self) -> Plot:
        return Plot(table=self.named("Pareto front"), x="cost", y=self.metric.name, label="rule")

    def explained(self, *, naive: bool) -> list[str]:
        settings, label = self.settings, self.metric.label
        which = self.metric.which_f1(settings.f1_kind)
        kind = "" if which is None else f" ({which})"
        texts = [
            f"{label}, {self.metric.head(self.metric.beside)}{kind} and differences are in percent, means "
            f"over {self.labelled[1]:,} questions {self.metric.scored} of split {settings.eval_split}. "
            f"delta {label} is against {visible(self.baseline)} ({label} {percent(self.baseline_score)}).",
            f"Intervals hold together for all {counted(self.family, 'rule')} and thresholds: "
            f"{self.critical_score:.2f} ({label}) and {self.critical_delta:.2f} (delta {label}) bootstrap "
            f"standard errors to each side, not 1.96 as for one rule ({settings.resamples} "
            f"{draws_in_words(self.labelled[1])}, seed {settings.seed}).",
            f"{self.verdict} in {label} at 5% (paired t, Holm).",
        ]
        if len(self.listed) < self.evaluated:
            texts.insert(
                0,
                f"The {self.evaluated:,} rules stop in {counted(len(self.listed), 'different way')}. The "
                "cheapest of each is listed; ways counts its duplicates.",
            )
        if naive and self.naive_share is not None:
            texts.append(
                f"Intervals for one rule alone would be {self.naive_share:.0%} as wide, which ignores the "
                "search."
            )
        return texts

    @property
    def verdict(self) -> str:
        """Number of rules that differ from the baseline after correction, without a full stop."""
        differ = sum(rule.p_holm <= 0.05 for rule in self.rules)
        which = "No rule differs"
        if differ:
            which = "1 rule differs" if differ == 1 else f"{differ} rules differ"
        return f"{which} significantly from {visible(self.baseline)}"


def search(traces: Traces, settings: SearchSettings) -> SearchResult:
    """Evaluate every formula of the form over the signals.

    Each signal gets the threshold of its grid with the best objective on tune within the cost cap; ties go
    to the lowest. A signal without one never fires. The objective on tune orders the rules, those within the
    cap first, and eval scores them. The correction covers every formula and every threshold.
    """
    measures = Measures.of(traces).by(settings.metric)
    operands = operands_of(settings.signals, measures.traces)
    formulas = enumerate_formulas(settings.form, len(operands))
    names = tuple(dict.fromkeys(operand.spec.name for operand in operands))
    refuse_unusable(measures, names, tune_split=settings.tune_split)
    parts = [measures.only_split(name) for name in (settings.tune_split, settings.eval_split)]
    for part in parts:
        if part.seen is not None and part.seen.of(part.scores(settings.f1_kind)).unseen.any():
            raise UsageError(
                f"some questions of {part.traces.origin.source} were stopped early and no explored question "
                "represents them, so rules cannot be compared; replay --stop-when gives a range. To search, "
                "record to the full budget or explore a share; to see which were stopped: suffice traces "
                f"info {part.traces.at}"
            )
    data = fit_data(
        measures,
        names,
        split=settings.tune_split,
        f1_kind=settings.f1_kind,
        fits=any(operand.calibrated for operand in operands),
    )
    refuse_unscored(parts[1], settings.eval_split, settings.f1_kind)
    choice = AnswerChoice.parse(settings.answer)
    answers = [answer_rounds(part, choice, None) for part in parts]
    books = [part.costs(settings.cost_model, answers[0].reads) for part in parts]
    readers = {operand.text: cost_reads((operand.spec,)) for operand in operands}
    capped = settings.max_cost is not None
    axes = [book.axis(settings.cost, readers, capped=capped) for book in books]
    alike = len({axis.name for axis in axes}) == 1
    axis = axes[0] if alike else books[0].axis("rounds", readers)  # their usual costs may differ
    columns = (
        tuning_columns(data, operands),
        scoring_columns(parts[1].signals(names), data, operands),
    )
    tune, held_out = (
        _Split(
            part,
            of_part,
            scored=returned.returned(part.scores_throughout("a search", settings.f1_kind)),
            book=book,
            operands=operands,
            axis=axis,
        )
        for part, of_part, returned, book in zip(parts, columns, answers, books, strict=True)
    )
    budget = max(part.traces.n_rounds for part in parts)
    chosen = tuple(_choose(tune, operand, settings, budget) for operand in operands)
    for split in (tune, held_out):
        split.use([threshold.condition for threshold in chosen])
    baseline_name, baseline = _baseline(measures, held_out, settings)
    # every threshold that was tried alone was looked at too
    tried = [
        held_out.threshold_stops(way, threshold.grid)
        for operand, threshold in zip(operands, chosen, strict=True)
        for way in both_ways((operand,))
        if threshold.grid
    ]
    stops, same = RuleStops.joined([held_out.stops(formulas), *tried]).distinct()
    bands, p_values = _corrected(held_out, stops, baseline, settings)
    score, delta = (band.of(same) for band in bands)
    p_holm = holm(p_values[same])
    conditions = [threshold.condition for threshold in chosen]
    texts = [formula.text(conditions) for formula in formulas]
    # a condition that never holds does not name its signal
    reads = [
        cost_reads(
            operands[number].spec
            for clause in formula.clauses
            for number in clause
            if not chosen[number].never
        )
        for formula in formulas
    ]
    on_tune, on_eval = (split.stops(formulas) for split in (tune, held_out))
    fitted, objective = tune.judged(on_tune, reads, settings.objective)
    figures = held_out.figures(on_eval, reads, _SCORES)
    costs, scores = fitted["cost"], fitted[tune.scored.metric.score]
    # of equal ones, but for the rounding of sums, the first
    rounded_costs = np.round(costs, _DIGITS)
    front = pareto_front(rounded_costs, np.round(scores, _DIGITS))
    within = costs <= (np.inf if settings.max_cost is None else settings.max_cost)
    # those within the cap first, best objective first, then the cheaper, then the earlier
    keys = (np.arange(len(texts)), rounded_costs, -np.round(objective, _DIGITS), ~within)
    order = np.lexsort(keys).tolist()
    kinds = [*zip(on_tune.distinct()[1].tolist(), same[: len(texts)].tolist(), strict=True)]
    first, ways = {kinds[n]: n for n in reversed(order)}, Counter(kinds)
    rules = tuple(
        SearchedRule(
            rule=texts[n],
            metric=measures.metric,
            **{name: float(figures[name][n]) for name in _SCORES},
            mean_rounds=float(figures["rounds"][n]),
            cost=float(figures["cost"][n]),
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
            ways=ways[kinds[n]],
            like=None if first[kinds[n]] == n else texts[first[kinds[n]]],
        )
        for n in order
    )
    return SearchResult(
        rules=rules,
        evaluated=len(rules),
        thresholds=chosen,
        family=len(same),
        critical_score=score.critical,
        critical_delta=delta.critical,
        baseline=baseline_name,
        baseline_score=float(baseline.mean()),
        questions=(parts[0].traces.n_questions, parts[1].traces.n_questions),
        labelled=(int(tune.labelled.sum()), int(held_out.labelled.sum())),
        max_rounds=parts[1].traces.n_rounds,
        metric=measures.metric,
        cost=axis,
        settings=settings,
        source=measures.traces.origin.source,
        notes=(
            *parts[1].notes(settings.metric),
            *answer_notes(choice, {}),
            *_notes(held_out, chosen, settings, rules),
        ),
    )


class _Split:
    def __init__(
        self,
        measures: Measures,
        columns: RuleColumns,
        *,
        scored: Outcomes,
        book: CostBook,
        operands: Sequence[Operand],
        axis: CostAxis,
    ) -> None:
        self.measures, self.columns, self.book, self.axis = measures, columns, book, axis
        seen = None if measures.seen is None else measures.seen.of(scored)
        self.scored = scored if seen is None else seen.outcomes(scored)
        self._operands = operands
        self.last = measures.ends
        self.labelled = scored.labelled
        self.units = measures.units[self.labelled]
        budgets = RuleStops.of_array(fixed_stops(self.last, measures.traces.n_rounds).T)
        metric = scored.metric.score
        of_fixed = self.figures(budgets, [CostReads()] * len(budgets), [metric])
        self._frontier = (of_fixed["cost"], of_fixed[metric])

    def use(self, conditions: Sequence[str]) -> None:
        self._packed = packed_conditions(conditions, self._operands, self.columns)

    def stops(self, formulas: Sequence[Formula]) -> RuleStops:
        return RuleStops.of_formulas(self._packed, formulas, self.last)

    def threshold_stops(self, operand: Operand, thresholds: Sequence[float]) -> RuleStops:
        """(n_thresholds, n_questions); a threshold at the end of the range never fires."""
        never = f"round >= {self.columns.shape[1]}"
        conditions = [
            operand.condition(threshold) if operand.can_hold(threshold) else never
            for threshold in thresholds
        ]
        packed = packed_conditions(conditions, self._operands, self.columns)
        alone = [Formula(((number,),)) for number in range(len(conditions))]
        return RuleStops.of_formulas(packed, alone, self.last)

    def at(self, values: Array, stops: NDArray[np.int16], rows: slice | None = None) -> Array:
        """Values (n_questions, n_rounds) at stop rounds of those in ``rows``, (n_labelled, n_rules)."""
        rows = rows or slice(0, len(values))
        taken = np.take_along_axis(values[rows], stops.T.astype(np.int64) - 1, axis=1)
        return taken[self.labelled[rows]]

    def figures(
        self, stops: RuleStops, reads: Sequence[CostReads], scores: Iterable[ScoreName]
    ) -> dict[str, Array]:
        """What every rule scores, its ``cost`` and how many ``rounds`` it takes, (n_rules,) each."""
        seen = self.measures.seen
        labelled = self.labelled[:, None]
        share, of_score = 1.0 / len(self.labelled), labelled / max(int(labelled.sum()), 1)
        shape = self.measures.traces.exists.shape
        rounds = np.broadcast_to(np.arange(1.0, shape[1] + 1), shape)
        tables: dict[str, Array] = {
            name: np.where(labelled, getattr(self.scored, name) * of_score, 0.0) for name in scores
        }
        tables["rounds"] = share * (rounds if seen is None else seen.matrix(rounds))
        kinds = list(dict.fromkeys(reads))
        of_kind = np.array([kinds.index(kind) for kind in reads], np.intp)
        paid = [self.book.known(self.axis, kind) for kind in kinds]
        paid = [share * (of if seen is None else seen.matrix(of)) for of in paid]
        figures = {name: np.zeros(len(stops)) for name in ("cost", *tables)}
        for rows, taken in stops.by_questions():
            for start in range(0, len(stops), _BLOCK):
                some = slice(start, start + _BLOCK)
                at = taken[some].T.astype(np.int64) - 1
                for name, values in tables.items():
                    figures[name][some] += np.take_along_axis(values[rows], at, axis=1).sum(axis=0)
                for kind, values in enumerate(paid):
                    of = np.flatnonzero(of_kind[some] == kind)
                    costs = np.take_along_axis(values[rows], at[:, of], axis=1)
                    figures["cost"][start + of] += costs.sum(axis=0)
        return figures

    def judged(
        self, stops: RuleStops, reads: Sequence[CostReads], asked: str | None
    ) -> tuple[dict[str, Array], Array]:
        """Return figures, and the objective: a score (default: the metric's) or the gain at equal cost."""
        metric = self.scored.metric.score
        asked = asked or metric
        names = (metric, *(name for name in _SCORES if name == asked != metric))
        figures = self.figures(stops, reads, names)
        if asked != GAIN_AT_COST:
            return figures, figures[asked]
        scores = figures[metric]
        costs, frontier = (np.tile(fixed, (len(scores), 1)) for fixed in self._frontier)
        return figures, scores - interpolate(costs, frontier, figures["cost"])


def _choose(
    tune: _Split, operand: Operand, settings: SearchSettings, budget: int
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
    tune: _Split, operand: Operand, tried: Sequence[float], settings: SearchSettings
) -> Array:
    """What each threshold reaches on tune, -inf above the cost cap."""
    reads = [cost_reads((operand.spec,))] * len(tried)
    stops = tune.threshold_stops(operand, tried)
    figures, objective = tune.judged(stops, reads, settings.objective)
    if settings.max_cost is None:
        return objective
    return np.where(figures["cost"] <= settings.max_cost, objective, -np.inf)


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


def _baseline(measures: Measures, held_out: _Split, settings: SearchSettings) -> tuple[str, Array]:
    name = settings.baseline or f"fixed-{held_out.measures.traces.n_rounds}"
    (candidate,) = named_policies(measures, [name])
    if candidate.policy is None:
        raise UsageError(f"rules cannot be compared with baseline {name!r}; use fixed-K")
    stops = np.minimum(held_out.measures.wanted_rounds(candidate.policy), held_out.last)
    if candidate.max_rounds is not None:
        stops = np.minimum(stops, candidate.max_rounds)
    return name, held_out.at(held_out.scored.compared, stops[None, :].astype(np.int16))[:, 0]


def _corrected(
    held_out: _Split, stops: RuleStops, baseline: Array, settings: SearchSettings
) -> tuple[tuple[SimultaneousBand, ...], Array]:
    """Bands of the score and of its difference to the baseline, and p-values of the latter."""
    n_rules, scored = len(stops), held_out.scored.compared
    if from_sums(stops.shape[1]):
        sums = _sums(held_out, stops, baseline)
        bands = bands_from_sums(
            sums, n_rules, (None, n_rules), resamples=settings.resamples, seed=settings.seed
        )
        p_values = paired_p_values_from_sums(sums, n_rules)[:n_rules]
    else:

        def columns(part: slice) -> Array:
            return per_unit(held_out.at(scored, stops[part]), held_out.units)

        means = per_unit(baseline, held_out.units)
        bands = simultaneous_bands(
            n_rules, columns, (None, means), resamples=settings.resamples, seed=settings.seed
        )
        p_values = np.concatenate(
            [
                paired_p_values(columns(slice(start, start + _BLOCK)) - means[:, None])
                for start in range(0, n_rules, _BLOCK)
            ]
        )
    return bands, p_values


def _sums(held_out: _Split, stops: RuleStops, baseline: Array) -> Sums:
    sums, labelled = Sums.none(len(stops) + 1), np.cumsum(held_out.labelled)
    repeated = np.bincount(held_out.units)[held_out.units] > 1
    kept: list[Array] = []  # of units that may lie in several blocks
    for rows, taken in stops.by_questions():
        before = int(labelled[rows.start - 1]) if rows.start else 0
        scores = held_out.at(held_out.scored.compared, taken, rows)
        against = baseline[before : before + len(scores)]
        both, again = np.column_stack([scores, against]), repeated[before : before + len(scores)]
        sums = sums.add(Sums.of(both[~again]))
        kept.append(both[again])
    return sums.with_units(np.concatenate(kept), held_out.units[repeated])


def _notes(
    held_out: _Split,
    chosen: Sequence[ChosenThreshold],
    settings: SearchSettings,
    rules: Sequence[SearchedRule],
) -> list[str]:
    notes = [
        *record_banners(held_out.measures.traces, held_out.scored.metric),
        *held_out.book.notes(held_out.axis),
    ]
    for threshold in chosen:
        if not threshold.never:
            continue
        if not threshold.grid:
            why = "it is undefined on tune"
        elif settings.max_cost is None:
            why = "no threshold improves the score on tune"
        else:
            why = "no threshold keeps the cost cap on tune"
        notes.append(
            f"{threshold.signal}: {why}, so the condition never fires (written {threshold.condition}, the "
            "last round)"
        )
    if settings.tune_split == settings.eval_split:
        notes.append(
            f"thresholds were chosen on the questions that score them (split {settings.eval_split}): the "
            "figures are in-sample"
        )
    if settings.tune_split != FIT_SPLIT and any(
        threshold.signal.startswith("calibrated(") for threshold in chosen
    ):
        notes.append(
            f"calibrated(...) was fitted on split {settings.tune_split}; replay --stop-when fits it on "
            f"split {FIT_SPLIT}, so its figures may differ"
        )
    outside = sum(not rule.within_cap for rule in rules)
    if outside:
        which = "1 rule costs" if outside == 1 else f"{outside} rules cost"
        notes.append(f"{which} more than the cap on tune; listed last")
    short = int((held_out.last < held_out.measures.traces.n_rounds).sum())
    if short:
        notes.append(
            f"{counted(short, 'question')} ended before round {held_out.measures.traces.n_rounds}; the last "
            "recorded round is used for later ones"
        )
    return notes
