"""From recorded rounds to a certified policy: along paths on all questions, and a family learned on half."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any

import numpy as np

from suffice.contracts import StopPolicy
from suffice.costs.usage import CostModel
from suffice.errors import InternalError, UsageError, unknown_name
from suffice.measures.costs import CostAxis, shared_axis
from suffice.measures.measures import Measures, Traces
from suffice.measures.seen import record_banners
from suffice.options import Option, settings_of
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.fitting import LABELS, fit_notes, fit_questions
from suffice.policies.method import FitRun, Fitted, Method, Preset, RuleKind
from suffice.policies.rules.policy import RulePolicy, rule_needs
from suffice.replay.choose.bounds import (
    CertifySettings,
    Half,
    OrderedTests,
    allowed_in_words,
    joined,
    mean_of,
    refuse_caps,
)
from suffice.replay.choose.candidates import Candidate, betting_orders, without_gaps
from suffice.replay.choose.families import Family, FamilySettings, build_family, paid_by_rules
from suffice.replay.choose.proof import POWER, Along, Learned, Row, paths_of, prove
from suffice.replay.choose.rule_stops import RuleStops
from suffice.replay.run.answers import answer_notes, chosen_by_signal
from suffice.replay.run.named_policies import NamedPolicy
from suffice.replay.settings import F1, ChoiceSettings, ComparedBy, CostName, WhichAnswer
from suffice.results.table import Column, Described, Table, table_of
from suffice.results.tabular import Tabular
from suffice.scoring import METRICS, AnswerChoice, Metric, ScoreName
from suffice.signals.abstained import ABSTAINED, stated_phrases
from suffice.signals.registry import given_by, own_among, resolve

_FEWEST, _MOST_LISTED = 4, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedSettings:
    """Everything that certified choice is asked.

    ``split`` is halved by ``seed``; ``cost_model`` prices usage. ``metric`` says what must not be lost
    (``None``: as :meth:`suffice.measures.measures.Measures.by` chooses); the loss wrong-stop reads EM, and so
    does agreement: its loss is how often the answer is another than the full budget's.
    """

    promise: CertifySettings = field(default_factory=CertifySettings)
    family: FamilySettings = field(default_factory=FamilySettings)
    metric: ComparedBy = None
    answer: WhichAnswer = "latest"
    split: str = FIT_SPLIT
    cost: CostName = None
    cost_model: CostModel = field(default_factory=CostModel)
    f1_kind: F1 = "hotpotqa"
    seed: Annotated[int, Option(help="of the halves", at_least=0)] = 42

    def __post_init__(self) -> None:
        if self.metric is not None and self.metric not in METRICS:
            raise UsageError(unknown_name("metric", self.metric, METRICS))
        counts_wrong = "wrong-stop" in (bound.of for bound in self.promise.bounds)
        if counts_wrong and self.metric == "acc":
            raise UsageError("the loss wrong-stop is about exact match; leave out --metric acc")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CertifiedPolicy(Tabular):
    """The policy with how it was found; ``notes`` are what a reader must know."""

    policy: RulePolicy
    row: Row
    rules: tuple[str, ...]
    full: int
    members: tuple[Mapping[str, Any], ...]
    cost: CostAxis
    notes: tuple[str, ...]

    @property
    def tests(self) -> OrderedTests:
        """Those of the family."""
        if self.row.learned is None:
            raise InternalError("the learned family was not tested")
        return self.row.learned[0]

    def tables(self) -> tuple[Table]:
        """The members tested, safest first."""
        # a cost has its column, and the first bound is the loss
        bounds = self.row.promise.bounds[1:]
        beside = [bound.of for bound in bounds if bound.of != "cost"]
        described: list[Described] = [("loss", Column(name="loss", kind="number", digits=4))]
        described += [(f"means.{of}", Column(name=of, kind="number", digits=4)) for of in beside]
        p_value = Column(name="p_value", kind="significant", digits=3, head="p-value")
        described += [
            ("p_value", p_value),
            ("cost", Column(name="cost", kind="number", head=self.cost.label)),
            (lambda member: "yes" if member["certified"] else "no", Column(name="certified")),
            ("rule", Column(name="rule", whole=True)),
        ]
        notes = [f"Note: {note}" for note in self.notes]
        title = f"Chosen: {self.policy.rule}"
        members = table_of("members", self.members, described, title, notes)
        return (replace(members, names=0),)

    def to_json(self) -> dict[str, Any]:
        """The guarantee, then the members tested, safest first."""
        return {
            "rule": self.policy.rule,
            "guarantee": dict(self.policy.guarantee),
            "members": [dict(member) for member in self.members],
            "notes": list(self.notes),
        }


def fit_certified(traces: Traces, settings: CertifiedSettings | None = None) -> CertifiedPolicy:
    """The cheapest policy whose bounds are certified, of paths and of the family.

    Raises
    ------
    UsageError
        For fewer than 4 labelled questions, a family the trace cannot give, an unknown cost, a cost cap
        that every member keeps or none.
    DataError
        When the split is missing.
    """
    settings = settings_of(CertifiedSettings, settings)
    asked = Measures.of(traces).by(settings.metric).only_split(settings.split)
    questions, incomplete = without_gaps(asked, "certified choice", settings.f1_kind)
    chosen, metric = questions.traces, questions.metric
    is_labelled = questions.scores(settings.f1_kind).labelled
    labelled = int(is_labelled.sum())
    if labelled < _FEWEST:
        raise UsageError(
            f"certified choice needs at least {_FEWEST} questions {metric.scored} in split "
            f"{settings.split!r} of {chosen.origin.source}, found {labelled}"
        )
    units = np.unique(questions.units[is_labelled])
    shuffled = np.random.default_rng(settings.seed).permutation(units)
    learn, test = questions.divided(
        is_labelled & np.isin(questions.units, part)
        for part in (shuffled[: len(units) // 2], shuffled[len(units) // 2 :])
    )
    family = build_family(learn, test, settings.split, settings.family)
    axis, halves, dearer = _halves(family, questions, (learn, test), settings)
    promise = settings.promise
    refuse_caps(halves[0], promise, axis.label)
    along = None
    if settings.family.with_paths and promise.max_cost is None:
        everyone = questions.take(is_labelled)
        # the paths of the labelled questions, scored and charged as the family is
        asked_of_paths = ChoiceSettings(
            metric=settings.metric,
            f1_kind=settings.f1_kind,
            cost=axis.name,
            cost_model=settings.cost_model,
        )
        paths = [*paths_of(everyone, axis.name, min_rounds=settings.family.min_rounds)]
        along = Along(everyone, asked_of_paths, paths, settings.answer)

    candidate = partial(_member, family, questions)
    learned = Learned(candidate=candidate, rank=halves[0], prove=halves[1], full=family.full)
    row = prove(along, learned, [promise])[0]
    if row.learned is None:
        raise InternalError("the learned family was not tested")
    tests, passed = row.learned
    best, first = row.proven, settings.family.min_rounds
    chosen_one = candidate(family.full) if best is None else best.candidate
    found = chosen_one.policy.policy
    if not isinstance(found, RulePolicy):
        raise InternalError("what is certified is no rule")
    fits = family.calibrators or family.base_rates
    left_out = fit_questions(learn).stated if fits else {}
    guarantee = {
        "correction": promise.correction,
        "members": len(family.rules),
        "duplicates": tests.duplicates,
        **row.document(),
        **(
            {} if dearer is None else {"cost_counted_to": halves[1].most_paid, "cost_above": dearer}
        ),
        "family": settings.family.family,
        **({"min_rounds": first} if first > 1 else {}),
        "metric": metric.key(_lost(metric, settings)),
        **({} if settings.answer == "latest" else {"answer": settings.answer}),
        "questions": {"learn": learn.traces.n_questions, "test": test.traces.n_questions},
        "cost": axis.name,
        "mean_cost": float(tests.costs[family.full]) * (1.0 - (best.saved if best else 0.0)),
        "full_budget_cost": float(tests.costs[family.full]),
        "seed": settings.seed,
        **cut_terms(questions, promise),
    }
    return CertifiedPolicy(
        policy=replace(
            found,
            guarantee=guarantee,
            fitted_on={
                "source": chosen.origin.source,
                "split": settings.split,
                "labelled": labelled,
                **({} if metric.gold else {LABELS: metric.name}),
                **left_out,
            },
        ),
        row=row,
        rules=family.rules,
        full=family.full,
        members=tuple(_members(family.rules, halves[1], tests, passed, promise)),
        cost=axis,
        notes=(
            *_notes(questions, labelled, tests.duplicates, settings),
            *([] if incomplete is None else [incomplete]),
            *questions.take(is_labelled).unit_notes,
            *fit_notes(left_out),
            *family.notes,
        ),
    )


def _members(
    rules: Sequence[str], half: Half, tests: OrderedTests, passed: int, promise: CertifySettings
) -> Iterator[dict[str, Any]]:
    """The first members tested; of several bounds the means that each is of."""
    means = {bound.of: mean_of(half, bound) for bound in promise.bounds}
    p_values, (loss, *more) = tests.tested_at.max(axis=0), means.values()
    for place, number in enumerate(tests.order[:_MOST_LISTED].tolist()):
        yield {
            "rule": rules[number],
            "p_value": float(p_values[number]),
            "certified": place < passed,
            "loss": float(loss[number]),
            "cost": float(tests.costs[number]),
            **({"means": {of: float(mean[number]) for of, mean in means.items()}} if more else {}),
        }


def _lost(metric: Metric, settings: CertifiedSettings) -> ScoreName:
    counted = settings.promise.loss == "wrong-stop" or metric.agreement
    return "em" if counted else metric.score


def _halves(
    family: Family,
    questions: Measures,
    parts: tuple[Measures, Measures],
    settings: CertifiedSettings,
) -> tuple[CostAxis, tuple[Half, Half], int | None]:
    """The cost, the halves, and how many of the second cost more than counts in a cap (``None``: no cap)."""
    kinds = list(dict.fromkeys(family.reads))
    readers = {f"member {number}": reads for number, reads in enumerate(kinds)}
    answers = [chosen_by_signal(part, settings.answer) for part in parts]
    books = [
        part.costs(settings.cost_model, of_part.reads)
        for part, of_part in zip(parts, answers, strict=True)
    ]
    capped = settings.promise.max_cost is not None
    axis = shared_axis(books, settings.cost, readers, capped=capped)
    of, most, dearer = np.array([kinds.index(reads) for reads in family.reads], np.intp), 0.0, None
    tables = [[book.known(axis, kind) for kind in kinds] if capped else [] for book in books]
    if capped:
        in_rounds = float(questions.traces.n_rounds)
        most = in_rounds if axis.name == "rounds" else float(np.nanmax(tables[0]))
        dearer = int(np.any([(table > most).any(axis=1) for table in tables[1]], axis=0).sum())

    def half(number: int, stops: RuleStops) -> Half:
        part, scored = parts[number], parts[number].scores(settings.f1_kind)
        seen = part.seen and part.seen.of(scored)
        return Half(
            stops=stops,
            scores=getattr(answers[number].returned(scored), _lost(part.metric, settings)),
            right=None
            if settings.promise.max_wrong_stops is None
            else answers[number].returned(scored).em,
            last=part.traces.last_rounds,
            costs=paid_by_rules(books[number], axis, stops, family.reads, part.seen),
            seen=seen,
            reach=1.0 if questions.seen is None else questions.seen.reach,
            tables=tables[number],
            paid_by=of if capped else None,
            most_paid=most,
            units=part.units,
            orders=betting_orders(part.traces.question_ids, part.units),
        )

    return axis, (half(0, family.learn_stops), half(1, family.test_stops)), dearer


def _member(family: Family, questions: Measures, number: int) -> Candidate:
    rule = family.rules[number]
    needs = rule_needs(rule)
    made_of = (given_by(resolve(name, also=family.own_signals)).name for name in needs.signals)
    policy = RulePolicy(
        rule=rule,
        calibrators={name: family.calibrators[name] for name in needs.calibrated},
        base_rates=family.base_rates if needs.base_rate else (),
        kind="certified",
        own_signals=own_among(needs.signals, family.own_signals),
        abstention=stated_phrases(questions.traces.origin.run)
        if ABSTAINED.name in made_of
        else None,
    )
    return Candidate(policy=NamedPolicy.of(policy, rule), group="rule")


def cut_terms(questions: Measures, promise: CertifySettings) -> dict[str, Any]:
    """How a promise on a record with cut questions was proven, as its file says it."""
    if (seen := questions.seen) is None:
        return {}
    parts = []
    if seen.stood_for.any():
        parts.append(
            f"{int(seen.explored.sum())} explored questions, of weight {seen.reach:.4g} at most, stand for "
            f"{int(seen.stood_for.sum())} that the policy which ran cut"
        )
    if seen.unseen.any():
        parts.append(
            f"the worst is assumed of {int(seen.unseen.sum())} that were cut and are not stood for: right at "
            "the full budget, wrong at a stop past the cut"
            + ("" if promise.max_cost is None else ", at the greatest cost that counts")
        )
    return {"cut": "; ".join(parts), "bounded": bool(seen.unseen.any())}


def _notes(
    questions: Measures, labelled: int, duplicates: int, settings: CertifiedSettings
) -> list[str]:
    chosen = questions.traces
    notes = [*record_banners(chosen), *questions.notes(settings.metric)]
    notes += answer_notes(AnswerChoice.parse(settings.answer), {})
    if questions.metric.gold and chosen.n_questions > labelled:
        notes.append(
            f"{chosen.n_questions - labelled} questions without gold answers were left out"
        )
    if cut := cut_terms(questions, settings.promise):
        notes.append(
            f"{cut['cut']}; to prove more, record some in shadow or let a greater share run on"
        )
    short = int((chosen.last_rounds < chosen.n_rounds).sum())
    if short and not cut:
        notes.append(
            f"{short} questions were recorded to fewer than {chosen.n_rounds} rounds: their full budget "
            "is their last recorded round"
        )
    if duplicates:
        notes.append(
            f"{duplicates} members stop every question of the first half like another one "
            "and were not tested"
        )
    return notes


# --- as a method -----------------------------------------------------------------------------------
class Certified(RuleKind, Method):
    """Certified choice among what ``suffice fit`` knows; it stands above the policies it chooses from."""

    name = "certified"
    summary = "the cheapest policy of a family whose loss against the full budget is proven small"
    source = "Angelopoulos et al. 2021"
    about = "half of the split fits, orders and sets thresholds, the other half proves"
    presets = ("corrected",)

    def settings(self, preset: Preset) -> type[Any]:
        """Everything but the split."""
        del preset
        return CertifiedSettings

    def fit(
        self,
        measures: Measures,
        preset: Preset,
        settings: Any,
        split: str,
        run: FitRun | None = None,
    ) -> StopPolicy:
        """The policy of :func:`fit_certified`."""
        return self.fit_told(measures, preset, settings, split, run).policy

    def fit_told(
        self,
        measures: Measures,
        preset: Preset,
        settings: Any,
        split: str,
        run: FitRun | None = None,
    ) -> Fitted:
        """The same with the members tested; what goes to a folder is counted there."""
        del preset, run
        outcome = fit_certified(measures, replace(settings, split=split))
        return Fitted(
            policy=outcome.policy,
            max_rounds=measures.traces.n_rounds,
            lines=_told(outcome),
            document=outcome.to_json(),
            notes=outcome.notes,
        )


METHOD = Certified()


def _told(outcome: CertifiedPolicy) -> tuple[str, ...]:
    promise, row, label = outcome.policy.guarantee, outcome.row, outcome.cost.label
    measured, at_least = ("at most ", "at least ") if promise.get("bounded") else ("", "")
    promised = allowed_in_words(promise, label)
    if "cost_counted_to" in promise:
        promised += (
            f" (a question's cost counts up to {promise['cost_counted_to']:.4g}, which "
            f"{promise['cost_above'] or 'none'} of {promise['questions']['test']} passed)"
        )
    if row.proven is None:
        kept = (
            f"result   nothing cheaper is proven to keep: {promised}; {row.more} "
            f"({100 * POWER:g}% power)",
            "         so the policy takes the full budget",
        )
    else:
        means = [
            f"{mean:.4g} {label}" if bound.of == "cost" else f"{mean:+.4f}"
            for bound, mean in zip(row.promise.bounds, row.proven.measured, strict=True)
        ]
        whose = (
            f"path {row.proven.path}, all {row.units}"
            if row.proven.path
            else "the half that proves,"
        )
        kept = (
            f"result   {row.proven.title}",
            f"promise  {promised} with probability {promise['confidence']:g}; measured "
            f"{measured}{joined(means)} on {whose} questions, p = {row.proven.p_value:.2g}",
        )
    return (
        f"rule     {outcome.policy.rule}",
        *kept,
        f"cost     {at_least}{promise['mean_cost']:.4g} {label} a question, "
        f"{at_least}{promise['full_budget_cost']:.4g} at the full budget",
        f"tested   {row.tested} policies, {row.rejected} certified; family {promise['family']}: "
        f"{promise['members']} members, halves of {promise['questions']['learn']} and "
        f"{promise['questions']['test']} questions ({promise['correction']})",
        "holds    for independent questions drawn like these, with this model, prompt and retriever",
        "use      suffice replay {traces} --policy {policy}",
    )
