"""Results of a replay, for tables, JSON and the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from suffice._version import VERSION
from suffice.contracts import StopPolicy
from suffice.costs.usage import COSTS, CostModel
from suffice.errors import counted
from suffice.evaluation.replay.answers import SCORES, AnswerSetResult, AtStops, CutRecord, cut_table
from suffice.evaluation.replay.frontier import EQUAL_COSTS, AgainstFixed, Frontier
from suffice.measures.costs import CostAxis
from suffice.policies.rules.policy import rounded
from suffice.results.as_json import as_json, fields_as_json
from suffice.results.formats import amount, count, decimal, percent, points
from suffice.results.markup import shorten
from suffice.results.plots import Plot
from suffice.results.table import Cell, Column, Described, Table, Value, table_of
from suffice.results.tabular import Tabular
from suffice.scoring import METRICS, F1Kind, Metric, ScoreName
from suffice.stats.intervals import EXACT, Interval, draws_in_words
from suffice.stats.units import Array

_ELSEWHERE = {"json": None}  # the document holds these in another form, or not at all
_ROUNDS = "rounds"  # a policy's entry calls the cost mean_rounds; rounds are those of each question
_CALLS = "llm_calls"
_NAME_WIDTH = 20
_MOST_WITH_DECIMALS = 100
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResult:
    """A policy's scores and costs.

    Scores are fractions, means over labeled questions by ``metric`` (``None``: no label or unknown). Costs
    are means per question over all questions, by the names of :data:`suffice.costs.usage.COSTS`. ``stops``
    (n_questions,) are stop rounds, ``answers`` the rounds of the returned answers. ``weights`` are those of
    questions, not 1 if some were cut (NaN: not seen). ``beyond_record``
    counts questions that end before the policy stops. ``label`` is its name in tables: a file's name for a
    policy file.

    The score has an ``interval``, differences ``delta`` to the baseline and ``delta_full`` to the full
    budget, the ``retained`` share of the full budget, the ``frontier_gain`` over fixed-k at equal cost, and
    ``against_fixed``, the gain over the best fixed-k at equal tokens, seconds and dollars. ``precision`` and
    ``recall`` are of the passages up to the stop. ``confidence`` (n_questions,) is the policy's own at the
    stop, and ``auroc`` its AUROC against exact match. ``at_stops`` has the scores and costs of every
    question; unknown ``mean_rounds`` and ``p95_rounds`` are NaN.
    """

    name: str
    kind: str
    preset: str | None
    hash: str
    em: float | None = field(metadata={"json": "{em}"})
    f1: float | None = field(metadata={"json": "{f1}"})
    acc: float | None = field(metadata={"json": "{acc}"})
    mean_rounds: float
    costs: Mapping[str, float | None] = field(metadata=_ELSEWHERE)
    beyond_record: int
    stops: NDArray[np.int16] = field(metadata=_ELSEWHERE)
    answers: NDArray[np.int16] = field(metadata=_ELSEWHERE)
    weights: Array = field(metadata=_ELSEWHERE)
    metric: Metric = field(default=METRICS["f1"], metadata=_ELSEWHERE)
    interval: Interval | None = field(default=None, metadata={"json": "{metric}_interval"})
    delta: Interval | None = field(default=None, metadata={"json": "delta_{metric}"})
    delta_full: Interval | None = None
    retained: float | None = field(default=None, metadata={"json": "retained_{metric}"})
    frontier_gain: Interval | None = None
    against_fixed: tuple[AgainstFixed, ...] = ()
    p95_rounds: float = 0.0
    precision: float | None = field(default=None, metadata=_ELSEWHERE)
    recall: float | None = field(default=None, metadata=_ELSEWHERE)
    policy: StopPolicy | None = field(default=None, metadata=_ELSEWHERE)
    confidence: Array | None = field(default=None, metadata=_ELSEWHERE)
    auroc: float | None = field(default=None, metadata=_ELSEWHERE)
    sets: AnswerSetResult | None = field(default=None, metadata=_ELSEWHERE)
    label: str = field(default="", metadata=_ELSEWHERE)
    max_rounds: int | None = field(default=None, metadata=_ELSEWHERE)
    at_stops: AtStops = field(default_factory=AtStops, metadata=_ELSEWHERE)

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", rounded(self.name))

    @property
    def adaptive(self) -> bool:
        return self.policy is not None and bool(self.policy.specs)

    @property
    def score(self) -> float | None:
        value: float | None = getattr(self, self.metric.score)
        return value

    @property
    def undefined(self) -> int | None:
        """Number of questions with undefined confidence at the stop; ``None``: it has none."""
        return None if self.confidence is None else int(np.isnan(self.confidence).sum())

    def paid(self, cost: str, form: Callable[[float | None], str] = amount) -> str:
        if (ranged := self.at_stops.ranges.get(cost)) is not None:
            return ranged.shown(share=False)
        return form(self.mean_rounds if cost == _ROUNDS else self.costs.get(cost))

    @property
    def stop_counts(self) -> dict[int, float]:
        """Number of questions by stop round, estimated if questions were cut."""
        rounds, at = np.unique(self.stops, return_inverse=True)
        weights = np.nan_to_num(self.weights)
        counts = np.bincount(at, weights, len(rounds)).astype(np.float64)
        told = zip(rounds.tolist(), counts.round(9).tolist(), strict=True)
        return {number: int(n) if float(n).is_integer() else n for number, n in told if n}

    def to_json(self, question_ids: Sequence[str] | None = None) -> dict[str, Any]:
        entry = {
            **self.metric.unknown,
            **fields_as_json(self, self.metric.names),
            **{name: as_json(paid) for name, paid in self.costs.items() if name != _ROUNDS},
            "stop_rounds": as_json(self.stop_counts),
        }
        if self.recall is not None:
            entry |= {"precision": self.precision, "recall": self.recall}
        if self.undefined is not None:
            entry["auroc"] = self.auroc
        if self.sets is not None:
            entry |= self.sets.to_json(question_ids)
        if self.at_stops.ranges or self.at_stops.past is not None:
            names = {name: self.metric.key(name) for name in SCORES} | {_ROUNDS: "mean_rounds"}
            entry["range"] = {
                names.get(k, k): as_json(of) for k, of in self.at_stops.ranges.items()
            }
        if (past := self.at_stops.past) is not None:
            document = fields_as_json(past)
            entry |= {"unseen": document["unseen"], "weighing": document["weighing"]}
            if question_ids is not None:
                entry["weights"] = dict(zip(question_ids, as_json(past.weights), strict=True))
        if question_ids is not None:
            entry[_ROUNDS] = dict(zip(question_ids, self.stops.tolist(), strict=True))
            entry["answer_rounds"] = dict(zip(question_ids, self.answers.tolist(), strict=True))
        return entry


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReplayResult(Tabular):
    """Policies side by side on one record.

    ``notes`` tell readers of default splits, replaced rounds, in-sample scores and prices; ``banners`` warn
    of flaws of the whole record. ``metric`` is the score and ``cost`` the cost of the comparison, priced by
    ``cost_model``. ``full_costs`` are the full budget's, means per question. ``answer`` is the choice of the
    scored answer up to the stop. ``left_out`` gives the reason of every policy that could not run. ``cut``
    describes censored questions.
    """

    MAIN: ClassVar[str | None] = "policies"

    questions: int
    labelled: int
    max_rounds: int
    baseline: str
    split: str | None
    metric: Metric = field(metadata=_ELSEWHERE)
    f1_kind: F1Kind
    seed: int
    resamples: int = field(metadata={"json": "bootstrap"})
    source: str = field(metadata={"json": "traces"})
    policies: tuple[PolicyResult, ...] = field(metadata=_ELSEWHERE)
    frontier: Frontier | None = field(metadata=_ELSEWHERE)
    question_ids: Sequence[str] = field(metadata=_ELSEWHERE)
    cost: CostAxis = field(metadata=_ELSEWHERE)
    cost_model: CostModel = field(metadata=_ELSEWHERE)
    notes: tuple[str, ...] = field(default=())
    full_costs: Mapping[str, float | None] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    banners: tuple[str, ...] = ()
    answer: str = "latest"
    cut: CutRecord | None = field(default=None, metadata=_ELSEWHERE)

    def policy(self, name: str) -> PolicyResult:
        return next(policy for policy in self.policies if policy.name == name)

    @property
    def draws(self) -> str:
        return draws_in_words(self.labelled)

    @property
    def labels(self) -> dict[str, str]:
        return {policy.name: policy.label for policy in self.policies}

    @property
    def baseline_label(self) -> str:
        label = self.labels.get(self.baseline, self.baseline)
        return f"{label}, all rounds" if self.baseline == f"fixed-{self.max_rounds}" else label

    def verdict(self, mine: str = "") -> str:
        """Answer :data:`BY_SIGNALS` by the clearest gain, one of the policy ``mine`` if it has any."""
        adaptive = [policy for policy in self.policies if policy.adaptive]
        if not adaptive:
            return "Not tested: no policy here reads answers or evidence to decide."
        pairs = [(policy, against) for policy in adaptive for against in policy.against_fixed]
        gains = [(policy, of.gain, COSTS[of.cost].label) for policy, of in pairs] or [
            (policy, policy.frontier_gain, self.cost.label)
            for policy in adaptive
            if policy.frontier_gain is not None
        ]
        if not gains:
            cut = self.labelled and self.cut is not None
            lacking = "a round after questions were stopped early" if cut else "a score"
            return f"Not known: the comparison needs {lacking}."
        about = _by_agreement(self.metric)
        if above := [gain for gain in gains if gain[1].low > 0]:
            best, gain, cost = max(above, key=lambda one: (one[0].name == mine, one[1].low))
            name = "this policy" if best.name == mine else best.label
            many, of = (len({one.name for one, *_ in some}) for some in (above, gains))
            others = f" ({many} of {of} policies do)" if of > 1 else ""
            return f"{about}Yes: {name} by {points(gain)} points at equal {cost}{others}."
        at = "the best fixed number of rounds at equal cost"
        worse = [*dict.fromkeys(policy.label for policy, against in pairs if against.loses)]
        more = f" and {len(worse) - _MOST_NAMED} more" if len(worse) > _MOST_NAMED else ""
        named = f"; significantly worse: {', '.join(worse[:_MOST_NAMED])}{more}" if worse else ""
        return f"{about}Not shown: no policy is significantly better than {at}{named}."

    def saving(self, policy: PolicyResult) -> str:
        mean = policy.paid(_ROUNDS, decimal)
        rounds = f"stops after {mean} rounds on average, of {self.max_rounds}"
        name = self.cost.name
        own = policy.costs.get(name)
        full = self.full_costs.get(name)
        paid = ""
        if own is not None and full:
            less = (
                f"{percent(1 - own / full)}% saved" if own <= full else f"{own / full:.2f} times it"
            )
            paid = (
                f"; {short_cost(own)} {self.cost.label} against {short_cost(full)} at the full budget: "
                f"{less}"
            )
        known = policy.delta_full
        label = self.metric.label
        scored = (
            "" if known is None else f"; {label} {points(known)} points against the full budget"
        )
        return f"{rounds}{paid}{scored}"

    @property
    def width(self) -> float | None:
        """Half the mean width of the paired intervals, the smallest visible difference."""
        intervals = [one.delta for one in self.policies if one.name != self.baseline]
        widths = [one.high - one.low for one in intervals if one is not None]
        return float(np.mean(widths)) / 2 if widths else None

    def to_json(self, *, per_question: bool = False) -> dict[str, Any]:
        ids = self.question_ids if per_question else None
        return {
            **fields_as_json(self),
            "metric": self.metric.name,
            "frontier": None
            if self.frontier is None
            else fields_as_json(self.frontier, self.metric.names),
            "version": VERSION,
            "cost": self.cost.name,
            "charge": self.cost_model.charge,
            "prices": as_json(self.cost_model.prices),
            "policies": [policy.to_json(ids) for policy in self.policies],
            **({} if self.cut is None else {"cut_records": fields_as_json(self.cut)}),
        }

    def tables(self) -> tuple[Table, ...]:
        giving = [policy for policy in self.policies if policy.sets is not None]
        notes = [*self._explained(), *self._legend(), *(f"Note: {note}" for note in self.notes)]
        described = [*self._columns()]
        policies = Table(
            name="policies",
            columns=[_POLICY, *(column for _, column in described)],
            rows=[
                [policy.label, *(self._value(policy, name, column) for name, column in described)]
                for policy in self.policies
            ],
            notes=notes,
        )
        banners = Table(name="banners", title="\n".join(self.banners)) if self.banners else None
        looping = looping_table(self.policies, self.verdict())
        sets = _answer_sets(giving) if giving else None
        past = {policy.label: policy.at_stops.past for policy in self.policies}
        cuts = cut_table(self.cut, past, self.metric)
        tables = (banners, looping, policies, sets, cuts)
        return tuple(table for table in tables if table is not None)

    def plotted(self) -> Plot:
        cost = "mean_rounds" if self.cost.name == _ROUNDS else self.cost.name
        return Plot(table=self.table, x=cost, y=self.metric.key(self.metric.score), line="fixed-")

    def _columns(self) -> Iterator[tuple[str, Column]]:
        """The columns, each behind what it shows; that of the cost asked for is left out last."""
        metric, label, cost = self.metric, self.metric.label, self.cost.name
        number = partial(Column, kind="number", digits=2)
        change = partial(Column, kind="points", interval=True)
        for score, rank in _SCORES.items():
            head = metric.head(score).replace(" ", "\n")
            drop = 0 if score == metric.score else rank
            yield score, Column(name=metric.key(score), kind="percent", head=head, drop=drop)
        yield "mean_rounds", number(name="mean_rounds", head="rounds", drop=2)
        yield _CALLS, number(name=_CALLS, head="calls", drop=4)
        if cost not in (_ROUNDS, _CALLS, *_TOKENS):
            head = "\n".join(self.cost.head).strip()
            yield cost, Column(name=cost, kind="number", head=head, drop=1)
        for name, (head, drop) in _TOKENS.items():
            yield name, Column(name=name, kind="count", head=head, drop=1 if name == cost else drop)
        head = f"delta {label}\n[95%]"
        yield "delta", change(name=f"delta_{metric.name}", head=head, drop=5)
        if not metric.agreement:  # the full budget agrees with itself
            name, head = f"retained_{metric.name}", f"{label}\nkept"
            yield "retained", Column(name=name, kind="percent", head=head, drop=9)
        head = "gain over\nfixed-k [95%]"
        yield "frontier_gain", change(name="frontier_gain", head=head, drop=6)

    def _value(self, policy: PolicyResult, name: str, column: Column) -> Value:
        if name == "delta" and policy.name == self.baseline and policy.delta is not None:
            return Cell(policy.delta, "(baseline)")
        if name == self.metric.score and policy.score is not None and policy.interval is not None:
            return replace(policy.interval, estimate=policy.score)
        ranged = policy.at_stops.ranges.get("rounds" if name == "mean_rounds" else name)
        if ranged is not None:
            return Cell(ranged, ranged.shown(share=column.kind == "percent"))
        if name in policy.costs:
            return policy.costs[name]
        return getattr(policy, name, None)

    def _explained(self) -> tuple[str, str]:
        split = "all splits" if self.split is None else f"split {self.split}"
        first = (
            f"{counted(self.questions, 'question')} ({split}), {self.labelled} {self.metric.scored}, "
            f"at most {counted(self.max_rounds, 'round')}."
        )
        if not self.labelled:
            return first, (
                f"No question {self.metric.unscored}, so scores and differences are unknown (-)."
            )
        named = self.cost.name in (_ROUNDS, _CALLS, *_TOKENS)
        spent = "calls and tokens" if named else f"calls, {self.cost.label} and tokens"
        baseline = shorten(self.baseline_label, _NAME_WIDTH, "...")
        label, head = self.metric.label, self.metric.head
        kept = "" if self.metric.agreement else f", {label} kept (of the full budget's {label})"
        which = self.metric.which_f1(self.f1_kind)
        f1 = head("f1") if which is None else f"{head('f1')} ({which})"
        published = self.cost_model.charge == "published"
        return first, (
            f"{head('em')}, {f1}, {head('acc')}{kept} and differences are in percent; rounds, {spent} are "
            f"means per question. delta {label} is against {baseline}; gain over fixed-k is at equal "
            f"{self.cost.label}. Brackets are 95% intervals of {self.resamples} {self.draws} of the "
            f"questions (seed {self.seed}){'' if published else f', {EXACT}'}."
        )

    def _legend(self) -> Iterator[str]:
        told = [
            f"{policy.label} is {policy.kind}{', ' * bool(policy.preset)}{policy.preset or ''}"
            for policy in self.policies
            if policy.label != policy.name
        ]
        if told:
            yield f"Policy files: {'; '.join(told)}."


def unscored_notes(unscored: Mapping[str, int], labelled: int, metric: Metric) -> list[str]:
    named = [f"{name} ({count})" for name, count in unscored.items() if count]
    if not named:
        return []
    return [
        f"no score is known of {', '.join(named)}: in so many of {counted(labelled, 'question')} "
        f"{metric.scored} the stop is at a round {metric.untold}. Shown is the range if these score 0 to 1; "
        f"{metric.remedy}"
    ]


def policy_notes(policies: Sequence[PolicyResult], questions: int, metric: Metric) -> list[str]:
    notes = [
        f"{policy.label}: {counted(policy.beyond_record, 'question')} ended before the policy stopped; the "
        "last recorded round was taken"
        for policy in policies
        if policy.beyond_record
    ]
    notes += [
        f"{policy.label}: its confidence is undefined at the stop of {policy.undefined} of "
        f"{counted(questions, 'question')}"
        for policy in policies
        if policy.undefined
    ]
    sure = [policy.label for policy in policies if policy.undefined is not None]
    if sure and not metric.gold:
        notes.append(f"AUROC needs gold answers: {', '.join(sure)}")
    past = [
        policy.label for policy in policies if policy.at_stops.past is not None and policy.adaptive
    ]
    if past:
        said = "no AUROC, precision, recall or answer sets for policies that need censored rounds"
        notes.append(f"{said}: {', '.join(past)}")
    return notes + [
        f"{policy.label}: {note}"
        for policy in policies
        if policy.sets
        for note in policy.sets.notes
    ]


def short_cost(cost: float) -> str:
    return count(cost) if cost >= _MOST_WITH_DECIMALS else amount(cost)


BY_SIGNALS = "Does stopping by signals beat a fixed number of rounds?"
"""The question that the comparison with the best fixed budgets answers."""
_POLICY = Column(name="policy", most=_NAME_WIDTH)
_SCORES: Mapping[ScoreName, int] = {"em": 3, "f1": 3, "acc": 8}
"""The scores, and when those that policies are not compared by are left out of a narrow table."""
_TOKENS = {"prompt_tokens": ("prompt\ntokens", 7), "completion_tokens": ("compl.\ntokens", 10)}


def looping_table(policies: Sequence[PolicyResult], verdict: str) -> Table | None:
    """Return adaptive policies against the best fixed budget at equal cost; ``None``: nothing to compare."""
    adaptive = [policy for policy in policies if policy.against_fixed]
    if not adaptive:
        return None
    costs = [name for name in EQUAL_COSTS if any(_against(policy, name) for policy in adaptive)]
    metric = adaptive[0].metric
    columns = [_POLICY]
    for number, name in enumerate(costs, start=1):
        label = COSTS[name].label if COSTS[name].unit != "USD" else "USD"
        head = f"at equal\n{label}\n{metric.label} [95%]"
        gain = Column(name=name, kind="points", head=head, interval=True)
        columns += [Column(name=f"{name}_fixed", head="over", drop=number), gain]
    rows: list[list[Value]] = []
    for policy in adaptive:
        row: list[Value] = [policy.label]
        for name in costs:
            against = _against(policy, name)
            row += [None, None] if against is None else [against.fixed, against.gain]
        rows.append(row)
    return Table(
        name="looping",
        title=f"{BY_SIGNALS} {verdict}",
        columns=columns,
        rows=rows,
        notes=(
            f"{metric.label} against the best fixed-k at the same mean cost; fixed-2/4 picks one of two "
            "budgets at random. Cost is cost if deployed. The comparison is deliberately conservative: "
            "an interval below 0 does not show a loss. Each interval counts one comparison alone. gain "
            "over fixed-k compares with the two nearest budgets.",
        ),
    )


def _by_agreement(metric: Metric) -> str:
    """What a verdict answers instead where no gold answer was read; else empty."""
    if not metric.agreement:
        return ""
    return "Not known without gold answers. In keeping the full budget's answers: "


def _against(policy: PolicyResult, cost: str) -> AgainstFixed | None:
    return next((against for against in policy.against_fixed if against.cost == cost), None)


def _answer_sets(policies: Sequence[PolicyResult]) -> Table:
    def of_retention(name: str) -> Callable[[Any], Value]:
        return lambda policy: (
            Cell(None, "")
            if policy.sets.retention is None
            else getattr(policy.sets.retention, name)
        )

    def number(name: str, head: str | None = None, digits: int = 2, **more: bool) -> Column:
        return Column(name=name, kind="number", digits=digits, head=head, **more)

    filtered = Column(name="filtered", kind="count", head="questions\nfiltered", in_text=False)
    described: tuple[Described, ...] = (
        ("label", _POLICY),
        (lambda policy: 1 - policy.sets.alpha, number("promised")),
        ("sets.coverage", number("coverage", "coverage\n[95%]", interval=True)),
        ("sets.set_size", number("set_size", "set size\n[95%]", 1, interval=True)),
        ("sets.answer_rate", number("answer_rate", "answer\nrate")),
        ("sets.objective", number("objective")),
        ("mean_rounds", number("mean_rounds", "rounds", in_text=False)),
        (of_retention("passages"), number("right_kept", "right\nkept")),
        (of_retention("all"), number("all_right_kept", "all right\nkept")),
        (of_retention("shown"), number("shown_kept", "shown\nkept")),
        (of_retention("questions"), filtered),
    )
    title = (
        "Answer sets: promised and measured coverage, members, the share of sets without \"Can't "
        'Answer", and the objective of the fit.'
    )
    kept = (
        "Passage filter: shares of right passages kept, of questions with all right passages kept, and "
        "of shown passages kept."
    )
    has_filter = any(policy.sets and policy.sets.retention for policy in policies)
    return table_of("answer sets", policies, described, title, [kept] if has_filter else [])
