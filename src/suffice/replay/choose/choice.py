"""From a record to one policy: fitted on one part, ranked on a second, its promise proven on a third."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import COSTS
from suffice.errors import UsageError
from suffice.measures.costs import CostAxis
from suffice.measures.measures import Measures, Traces
from suffice.measures.seen import record_banners
from suffice.numbers.intervals.bootstrap import Interval
from suffice.options import settings_of
from suffice.policies.defaults import EVAL_SPLIT, FIT_SPLIT
from suffice.policies.file import PolicyFile, policy_hash
from suffice.policies.fixed import FixedPolicy
from suffice.policies.rules.policy import RulePolicy, rule_needs
from suffice.protocols import StopPolicy
from suffice.replay.choose.attempts import Attempt, spend
from suffice.replay.choose.candidates import LATEST, Candidate, Candidates, Kept, candidates_of
from suffice.replay.choose.certified import cut_terms
from suffice.replay.choose.learn_then_test import (
    Bound,
    Certification,
    CertifySettings,
    Half,
    certify,
    describe,
    joined,
    refuse_caps,
)
from suffice.replay.run.compare import Comparison
from suffice.replay.run.engine import ReplaySettings, replay
from suffice.replay.run.named_policies import Wanted
from suffice.replay.run.results import PolicyResult, ReplayResult, short_cost
from suffice.replay.settings import ChoiceSettings
from suffice.results.formats import counted, decimal, percent, points, signed
from suffice.results.table import Column, Table, Value
from suffice.results.tabular import Tabular
from suffice.scoring import Metric
from suffice.signals.registry import SIGNALS
from suffice.trace.loops import in_words

RANK, PROVE = "rank", "prove"
_RANK_SHARE = 1 / 3
_FEWEST = 4
"""Labelled questions that each part must hold."""
_MOST_WRONG = 50
_MOST_SHOWN = 12
"""Rules and methods that are replayed beside the chosen one."""
_MOST_SUMMARY, _MOST_SIGNALS = 80, 2
"""Characters of a policy's summary, and signals, that fit in an answer."""
_MOST_TIMES = 20
"""Times the questions there are beyond which more of them is no advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A candidate with what it lost and cost on the questions that rank, means a question.

    ``loss`` is the full budget's score minus its own. ``p_value`` is that of the test on the questions that
    prove (``None``: not tested) and ``proven`` whether it keeps the promise.
    """

    candidate: Candidate
    loss: float
    cost: float
    p_value: float | None = None
    proven: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WronglyStopped:
    """A question that the chosen policy gets wrong and the full budget right, and both answers."""

    id: str
    question: str
    round: int
    answer: str | None
    full_budget_answer: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What is said to a question: in a few words, then with the figures."""

    question: str
    short: str
    more: str

    @property
    def text(self) -> str:
        """All of it."""
        return f"{self.short} {self.more}".strip()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Choice(Tabular):
    """One policy for a record, why it was chosen, and what is known of it.

    ``comparison`` is the replay on the questions that prove, which no fit and no rank has seen: the chosen
    policy with every fixed budget and what else came near. ``ranked`` are all candidates, best first.
    ``outcome`` is the test of the promise (``None``: no loss was to be proven); where nothing is proven
    ``guess`` is the cheapest candidate that kept what was asked where candidates were ranked (``None``: none
    did). ``parts`` are the labelled questions of each part, ``warned`` is what fits warned of, ``attempt``
    how often the record was asked before (``None``: not counted).
    """

    chosen: Ranked
    why: str
    comparison: Comparison
    ranked: tuple[Ranked, ...]
    rules_looked_at: int
    outcome: Certification | None
    settings: ChoiceSettings
    parts: Mapping[str, int]
    axis: CostAxis
    wrong: tuple[WronglyStopped, ...]
    wrong_count: int
    left_out: Mapping[str, str]
    notes: tuple[str, ...]
    warned: tuple[str, ...] = ()
    guess: Ranked | None = None
    attempt: Attempt | None = None

    @property
    def policy(self) -> StopPolicy:
        """What runs live."""
        policy = self.chosen.candidate.policy.policy
        if policy is None:
            raise UsageError("the chosen candidate decides nothing")
        return policy

    @property
    def result(self) -> ReplayResult:
        """The replay on the questions that prove."""
        return self.comparison.result

    @property
    def measured(self) -> PolicyResult:
        """The chosen policy on the questions that prove."""
        return self._measured(self.chosen.candidate)

    @property
    def guessed(self) -> PolicyResult | None:
        """The guess on the questions that prove."""
        return None if self.guess is None else self._measured(self.guess.candidate)

    def _measured(self, one: Candidate) -> PolicyResult:
        name = one.policy.name
        return next(policy for policy in self.result.policies if policy.name == name)

    @property
    def metric(self) -> Metric:
        """What candidates are compared by."""
        return self.result.metric

    @property
    def tried(self) -> str:
        """All that was looked at."""
        groups = [member.candidate.group for member in self.ranked]
        named = ", ".join(
            counted(groups.count(group), name)
            for group, name in (
                ("fixed", "fixed budget"),
                ("method", "fitted method"),
                ("rule", "rule"),
            )
            if group in groups
        )
        of = (
            f" (of {self.rules_looked_at:,} looked at where they were fitted)"
            if "rule" in groups
            else ""
        )
        return f"{len(self.ranked)} candidates: {named}{of}"

    # --- the four questions ----------------------------------------------------------------------
    @property
    def headline(self) -> str:
        """What to do, in a line."""
        run, metric = self._doing(self.chosen.candidate), self.metric.label
        known = self.measured.delta_full
        scored = "" if known is None else f", {metric} {signed(known.estimate)} points"
        if self.outcome is None:
            return f"{run}: {self._less(self.measured)}{scored}; nothing is proven"
        promised = joined([self._in_words(bound) for bound in self.outcome.settings.bounds])
        if self.outcome.fell_back:
            return f"{run}: nothing cheaper is proven to {promised}"
        if known is None or known.low <= 0:
            scored = ""
        return f"{run}: {self._less(self.measured)}{scored}, proven to {promised}"

    def answers(self) -> Iterator[Answer]:
        """The questions that a user of a record asks, each with its answer in sentences."""
        yield Answer("Does looping pay here?", *self._looping())
        yield Answer("Which policy?", *self._which())
        yield Answer("What does it cost, what does it save?", *self._saving())
        yield Answer("How sure is that?", *self._surely())

    def _doing(self, candidate: Candidate) -> str:
        """What a loop does that runs a candidate."""
        if candidate.group != "fixed":
            return f"Stop by {'a rule' if candidate.group == 'rule' else candidate.label}"
        if candidate.policy.name == self.result.baseline:
            return f"Run {self._all_rounds}"
        rounds = self._measured(candidate).max_rounds
        return "Stop after round 1" if rounds == 1 else f"Always stop after round {rounds}"

    @property
    def _all_rounds(self) -> str:
        """The full budget, which loops that end by themselves do not reach."""
        if self._ended is None:
            return f"all {self.result.max_rounds} rounds"
        return f"all rounds (at most {self.result.max_rounds})"

    @property
    def _ended(self) -> float | None:
        """After how many rounds loops end by themselves on average; ``None``: nearly all run on."""
        ended = self.result.full_costs.get("rounds")
        return ended if ended is not None and ended < 0.95 * self.result.max_rounds else None

    def _which(self) -> tuple[str, str]:
        """The chosen policy, and what would be tried where nothing is proven."""
        chosen = self.chosen.candidate
        label = (
            f"{self._doing(chosen)} ({chosen.label})" if chosen.group == "fixed" else chosen.label
        )
        before = {"rule": "Stop once ", "method": "Run "}.get(chosen.group, "")
        short = f"{before}{label}."
        if self.outcome is None or not self.outcome.fell_back:
            return short, f"{self._meaning(chosen)}{self.why} Tried: {self.tried}."
        if self.guess is None:
            return short, f"{self.why} No candidate kept that on the questions that rank either."
        guess = self.guess.candidate
        return short, (
            f"{self.why} To try, not proven: {guess.label}, the cheapest that kept it on the "
            f"{counted(self.parts[RANK], 'question')} that rank. {self._meaning(guess)}"
        ).rstrip()

    def _meaning(self, candidate: Candidate) -> str:
        """How a candidate decides, and what the signals are that it reads, where that is short."""
        policy = candidate.policy.policy
        if policy is None or candidate.group == "fixed":
            return ""
        said = []
        if candidate.group == "method" and len(policy.facts.summary) <= _MOST_SUMMARY:
            said.append(f"stops by {policy.facts.summary}")
        if len(policy.signals) <= _MOST_SIGNALS:
            known = [SIGNALS[name] for name in policy.signals if name in SIGNALS]
            if known:
                said.append(f"reads {' and '.join(f'{one.name} ({one.summary})' for one in known)}")
        return f"It {', '.join(said)}. " if said else ""

    def _looping(self) -> tuple[str, str]:
        """Whether more rounds help, and whether deciding by what was read does."""
        frontier, label = self.result.frontier, self.metric.label
        if frontier is None or not (known := frontier.known):
            return "Not known:", "questions were cut before later rounds, or none has a score."
        (first, _, at_first), (last, _, at_last) = known[0], known[-1]
        if last < self.result.max_rounds:
            return "Not known:", (
                f"after round {last} questions were cut, and what more rounds would score was not seen "
                f"({label} {percent(at_last)} after round {last}). {self._deciding()}"
            )
        ends = (
            ""
            if self._ended is None
            else f" The recorded loop ended by itself after {decimal(self._ended)} rounds on average."
        )
        best, _, at_best = max(known, key=lambda at: (at[2], -at[0]))
        if best not in (first, last):
            ends += f" {_first(label)} is highest after round {best} ({percent(at_best)})."
        once = next((p for p in self.result.policies if p.name == f"fixed-{first}"), None)
        if once is None or (lost := once.delta_full) is None or first == last:
            return "Not known:", f"{label} is {percent(at_last)} after {self._all_rounds}.{ends}"
        gain = Interval(estimate=-lost.estimate, low=-lost.high, high=-lost.low)
        moved = (
            f"{_first(label)} is {percent(at_first)} after round {first} and {percent(at_last)} after "
            f"{self._all_rounds}: {points(gain)} points"
        )
        if gain.low > 0:
            short = "Yes, more rounds help."
        elif gain.high < 0:
            short = "No, more rounds make it worse."
        else:
            short = "Not shown that more rounds help."
            moved += f", which {counted(self.parts[PROVE], 'question')} cannot tell from chance"
        return short, f"{moved}.{ends} {self._deciding()}"

    def _deciding(self) -> str:
        """Whether deciding by what was read is above fixed budgets of the same cost.

        Of the policy chosen that is one comparison; where it decides nothing the best of the others is told,
        which are several.
        """
        asked = [self.measured]
        if not self.measured.adaptive:
            asked = [policy for policy in self.result.policies if policy.adaptive]
        if not asked:
            return "No candidate decides by what it reads."
        gains = [(gain, policy, cost) for policy in asked for gain, cost in self._gains(policy)]
        if not gains:
            return "Whether deciding by what was read pays is not known."
        if self.measured.adaptive:
            said = "; ".join(f"{points(gain)} points at equal {cost}" for gain, _, cost in gains)
            surely = "is" if any(gain.low > 0 for gain, *_ in gains) else "is not"
            return f"Stopping by what was read {surely} shown to beat a fixed number of rounds: {said}."
        above = [(gain, policy, cost) for gain, policy, cost in gains if gain.low > 0]
        of = f"the {len(asked)} policies" if len(asked) > 1 else "the one policy"
        if not above:
            return (
                f"None of {of} compared that stop by what was read is shown to beat a fixed number of rounds "
                "at equal cost."
            )
        gain, policy, cost = max(above, key=lambda one: one[0].estimate)
        names = {one.name for _, one, _ in above}
        return (
            f"Of {of} compared that stop by what was read {len(names)} beat a fixed number of rounds at "
            f"equal {cost}, each taken alone; most {policy.label} by {points(gain)} points."
        )

    def _gains(self, policy: PolicyResult) -> list[tuple[Interval, str]]:
        """Its score above fixed budgets of the same cost, and which cost."""
        gains = [(against.gain, COSTS[against.cost].label) for against in policy.against_fixed]
        if not gains and policy.frontier_gain is not None:
            gains = [(policy.frontier_gain, self.result.cost.label)]
        return gains

    def _less(self, policy: PolicyResult) -> str:
        """What a policy saves, in a few words."""
        own, full = policy.costs.get(self.axis.name), self.result.full_costs.get(self.axis.name)
        if own is None or not full:
            return f"{policy.paid('rounds', decimal)} rounds of {self.result.max_rounds}"
        if own > full:
            return f"{own / full:.2f} times the {self.axis.label}"
        return f"saves {percent(1 - own / full)}% of the {self.axis.label}"

    def _paid(self, policy: PolicyResult) -> str:
        """What a policy costs a question, and the full budget."""
        own, full = policy.costs.get(self.axis.name), self.result.full_costs.get(self.axis.name)
        if own is None or full is None:
            return (
                f"{policy.paid('rounds', decimal)} rounds a question, of {self.result.max_rounds}"
            )
        unit = self.axis.unit or self.axis.label
        said = f"{short_cost(own)} instead of {short_cost(full)} {unit} a question"
        if self.axis.name != "rounds":
            said += f", {policy.paid('rounds', decimal)} rounds of {self.result.max_rounds}"
        return said

    def _scored(self, policy: PolicyResult) -> str:
        """What a policy scores beside the full budget."""
        known = policy.delta_full
        if known is None or policy.score is None:
            return f"what that does to {self.metric.label} was not seen"
        return (
            f"{self.metric.label} {percent(policy.score)}, {points(known)} points against "
            f"{self._all_rounds}"
        )

    def _saving(self) -> tuple[str, str]:
        aside = f"on {counted(self.parts[PROVE], 'question')} kept aside"
        if self.chosen.candidate.policy.name != self.result.baseline:
            less = self._less(self.measured)
            return f"{_first(less)}.", (
                f"It costs {self._paid(self.measured)}; {self._scored(self.measured)}, {aside}. "
                f"{self._stopped_wrong()}"
            )
        score = (
            ""
            if self.measured.score is None
            else (f", {self.metric.label} {percent(self.measured.score)}")
        )
        own = self.measured.costs.get(self.axis.name)
        unit = self.axis.unit or self.axis.label
        cost = (
            f"{self.measured.paid('rounds', decimal)} rounds"
            if own is None
            else f"{short_cost(own)} {unit}"
        )
        said = f"Running {self._all_rounds} costs {cost} a question{score}, {aside}."
        if self.guess is not None and (guessed := self.guessed) is not None:
            known = guessed.costs.get(self.axis.name) is not None
            less = f"{self._less(guessed)}: " if known else "takes "
            said += (
                f" The guess, {self.guess.candidate.label}, {less}{self._paid(guessed)}; "
                f"{self._scored(guessed)}."
            )
        return "Saves nothing.", said

    def _stopped_wrong(self) -> str:
        """How often it is wrong where the full budget is right."""
        if self.measured.taken is None or self.result.cut is not None:
            return ""
        return (
            f"It is wrong where {self._all_rounds} are right on {self.wrong_count:,} of "
            f"{self.parts[PROVE]:,}."
        )

    def _surely(self) -> tuple[str, str]:
        outcome, settings = self.outcome, self.settings
        sharper = self._sharper()
        if outcome is None:
            return "Nothing is promised.", (
                "No loss was to be proven (--max-loss); the intervals are of questions that neither fitted "
                f"nor ranked. {sharper}"
            )
        sure = f"{100 * settings.confidence:g}% confidence"
        promised = joined([self._in_words(bound) for bound in outcome.settings.bounds])
        before = "" if self.attempt is None else self._counted(self.attempt)
        if outcome.fell_back:
            return "Not proven.", (
                f"At {sure} nothing cheaper is proven to {promised}, so nothing is cut short. "
                f"{self._needed(outcome)} {before}{sharper}"
            )
        together = f"{counted(len(outcome.parts), 'promise')} together: " * (len(outcome.parts) > 1)
        return f"Proven at {sure}:", (
            f"{together}it will {promised} on average, on questions like these (p = "
            f"{describe(outcome)['p_value']:.2g}, {counted(len(outcome.order), 'candidate')} tested, safest "
            f"first). {before}{sharper}"
        )

    def _in_words(self, bound: Bound) -> str:
        """What is promised, behind "to"."""
        if bound.of == "cost":
            return f"cost at most {bound.most:g} {self.axis.per_question}"
        if bound.of == "wrong-stop":
            return f"turn right into wrong on at most {percent(bound.most)}% of the questions"
        return f"lose at most {percent(bound.most)} points of {self.metric.label}"

    def _needed(self, outcome: Certification) -> str:
        """How many more questions would prove something, where that is an advice."""
        there, needed = self.parts[RANK] + self.parts[PROVE], outcome.questions_needed
        if needed is None:
            return "None looked safe enough to be proven with more questions either."
        if needed <= _MOST_TIMES * there:
            return f"About {needed:,} labelled questions to rank and prove on would do, there are {there:,}."
        return (
            f"Over {_MOST_TIMES} times the {there:,} questions there are would be needed: the nearest "
            "candidate seems to lose about as much as is allowed, so allow more rather than record more."
        )

    def _counted(self, attempt: Attempt) -> str:
        return f"{_first(attempt.said)}. " if attempt.said else ""

    @property
    def sharper(self) -> int | None:
        """Questions to prove on that would halve the interval of the loss; ``None``: unknown."""
        delta = self._asked_of.delta_full
        return None if delta is None or delta.high <= delta.low else 4 * self.parts[PROVE]

    @property
    def _asked_of(self) -> PolicyResult:
        """Whose loss a reader would know better: the guess's, where nothing is proven."""
        return self.guessed or self.measured

    def _sharper(self) -> str:
        delta = self._asked_of.delta_full
        if delta is None or delta.high <= delta.low:
            return ""
        width = (delta.high - delta.low) / 2
        whose = "The loss" if self.guess is None else "The guess's loss"
        return (
            f"{whose} is known to within {percent(width)} points; within {percent(width / 2)} it would "
            f"be with {4 * self.parts[PROVE]:,} questions to prove on."
        )

    def live(self, policy: str) -> Iterator[tuple[str, str]]:
        """How to run the chosen policy from its file, in commands and code."""
        answer = self.chosen.candidate.answer
        chosen = "" if answer == LATEST else f" --answer {answer}"
        chosen_live = "" if answer == LATEST else f", answer={answer!r}"
        path = shlex.quote(policy)
        yield (
            "ask over your own files",
            f"suffice ask 'QUESTION' --corpus NOTES --policy {path}{chosen}",
        )
        stopping = f"record='live', mode='live', explore=0.05{chosen_live}"
        yield (
            "beside your loop, in shadow",
            f"suffice.Watch({policy!r}, record='live'{chosen_live})",
        )
        yield (
            "live, one question in twenty running on to keep measuring",
            f"suffice.Watch({policy!r}, {stopping})",
        )
        yield "on another record", f"suffice replay TRACES --policy {path}{chosen}"

    # --- shown -----------------------------------------------------------------------------------
    def tables(self, *, top: int | None = None) -> tuple[Table, ...]:
        """The four answers, then every candidate, then where the chosen policy is wrong.

        ``top``: the first so many candidates alone, and how many questions are wrong.
        """
        said = Table(
            name="answers",
            columns=(Column(name="question"), Column(name="answer")),
            rows=[[answer.question, answer.text] for answer in self.answers()],
            title=self.headline,
        )
        ranked, wrong = self._ranked_table(), self._wrong_tables()
        if top is None:
            return (said, ranked, *wrong)
        notes = (
            [f"The first {top} of {len(ranked.rows)} candidates."] if len(ranked.rows) > top else []
        )
        notes += [f"{table.title}." for table in wrong]
        return (said, replace(ranked, rows=ranked.rows[:top], notes=notes))

    def _ranked_table(self) -> Table:
        columns = (
            Column(name="kind", drop=2),
            Column(name="loss", kind="points", head="loss when\nranked"),
            Column(name="cost", kind="number", head=f"{self.axis.label}\nwhen ranked"),
            Column(name="p_value", kind="p_value", head="p-value", drop=1),
            Column(name="proven"),
            Column(name="candidate", whole=True),
        )
        rows: list[list[Value]] = [
            [
                *(one.candidate.group, one.loss, one.cost, one.p_value),
                "yes"
                if one.proven
                else "guess"
                if one is self.guess
                else "no"
                if one.p_value is not None
                else "",
                one.candidate.label,
            ]
            for one in self.ranked
        ]
        title = f"{self.tried}; {self._parts_in_words()}"
        return Table(name="candidates", title=title, columns=columns, rows=rows, names=0)

    def _parts_in_words(self) -> str:
        fit, rank, prove = (self.parts[name] for name in (FIT_SPLIT, RANK, PROVE))
        return f"fitted on {fit:,} questions, ranked on {rank:,}, proven on {prove:,}"

    def _wrong_tables(self) -> tuple[Table, ...]:
        if not self.wrong_count:
            return ()
        columns = (
            Column(name="id"),
            Column(name="round", kind="count"),
            Column(name="answer", most=40),
            Column(name="full_budget_answer", head="at the full budget", most=40),
            Column(name="question", most=60),
        )
        rows: list[list[Value]] = [
            [one.id, one.round, one.answer, one.full_budget_answer, one.question]
            for one in self.wrong
        ]
        shown = "" if len(self.wrong) == self.wrong_count else f", the first {len(self.wrong)}"
        of = f"{self.wrong_count} of {self.parts[PROVE]}"
        title = f"Wrong at its stop and right at the full budget: {of}{shown}"
        return (Table(name="wrong", title=title, columns=columns, rows=rows, names=0),)

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        candidate, measured = self.chosen.candidate, self.measured
        return {
            "chosen": {
                "name": candidate.policy.name,
                "kind": candidate.policy.kind,
                "rule": candidate.policy.policy.facts.summary if candidate.policy.policy else None,
                "answer": candidate.answer,
                "hash": candidate.policy.hash,
                **_loss_and_cost(self.chosen),
            },
            "why": self.why,
            "headline": self.headline,
            "answers": {answer.question: answer.text for answer in self.answers()},
            "promise": None
            if self.outcome is None
            else {**describe(self.outcome), "cost": self.axis.name},
            "guess": None
            if self.guess is None or (guessed := self.guessed) is None
            else {
                "name": self.guess.candidate.policy.name,
                **_loss_and_cost(self.guess),
                "measured": guessed.to_json(),
            },
            "attempt": None
            if self.attempt is None
            else {
                "level": self.attempt.level,
                "earlier": self.attempt.earlier,
                "spent": self.attempt.spent,
            },
            "measured": measured.to_json(),
            "questions": dict(self.parts),
            "sharper_with": self.sharper,
            "rules_looked_at": self.rules_looked_at,
            "candidates": [
                {
                    "name": one.candidate.policy.name,
                    "group": one.candidate.group,
                    "answer": one.candidate.answer,
                    **_loss_and_cost(one),
                    "p_value": one.p_value,
                    "proven": one.proven,
                }
                for one in self.ranked
            ],
            "wrong": {
                "count": self.wrong_count,
                "questions": [
                    {
                        "id": one.id,
                        "round": one.round,
                        "answer": one.answer,
                        "full_budget_answer": one.full_budget_answer,
                    }
                    for one in self.wrong
                ],
            },
            "replay": self.result.to_json(),
            "left_out": dict(self.left_out),
            "notes": list(self.notes),
            "warnings": list(self.warned),
        }


def _first(text: str) -> str:
    """As a sentence begins."""
    return f"{text[:1].upper()}{text[1:]}"


def _loss_and_cost(one: Ranked) -> dict[str, float]:
    return {"ranked_loss": one.loss, "ranked_cost": one.cost}


# --- choosing ------------------------------------------------------------------------------------
def choose(
    traces: Traces,
    settings: ChoiceSettings | None = None,
    *,
    certificates: str | Path | None = None,
) -> Choice:
    """The one policy that a record speaks for, with what it promises.

    Every candidate is fitted on the split ``tune``. A third of the other questions ranks: what is tested,
    in which order, and what is best by an aim without a promise, depends on fits and these alone. The rest
    proves, by the tests of :mod:`suffice.replay.choose.learn_then_test` (Angelopoulos et al. 2021), and is
    what all figures of the result are of. By an aim without a promise, what no label was fitted to is ranked
    by the questions of ``tune`` too.

    Parameters
    ----------
    traces
        The recorded questions.
    settings
        What to choose by, and among what.
    certificates
        The folder in which promises proven on this record are counted, see
        :mod:`suffice.replay.choose.attempts`; ``None``: this one is not counted.

    Raises
    ------
    UsageError
        For files of different loops, fewer than 4 labelled questions in a part, a record of one round,
        scores that never differ, an unknown cost, a cap that no candidate keeps, a record that has been
        used up.
    DataError
        For traces that cannot be read, and a split that is missing where another is there.
    """
    settings = settings_of(ChoiceSettings, settings)
    measures = Measures.of(traces).by(settings.metric)
    _refuse_several_loops(measures)
    promise = _promise(measures, settings)
    record, drawn = _in_parts(measures, settings)
    fit, rank, prove = (record.only_split(name) for name in (FIT_SPLIT, RANK, PROVE))
    kept = record.take(record.traces.in_split(RANK) | record.traces.in_split(PROVE))
    _refuse_pointless(measures, kept, settings)
    everyone = candidates_of(record, kept, settings)
    field = Kept.of(kept, everyone.members, settings)
    ranks = kept.traces.in_split(RANK)
    random = np.random.default_rng(settings.seed)
    rows = [random.permutation(np.flatnonzero(part)) for part in (ranks, ~ranks)]
    capped = promise is not None and promise.max_cost is not None
    most = field.most_paid(rows[0]) if capped else None
    halves = [field.half(of_part, most) for of_part in rows]
    members = np.arange(len(everyone.members))
    loss = 2.0 * halves[0].losses(members, "signed").mean(axis=0) - 1.0
    loss, cost = loss * field.reach, halves[0].costs
    if promise is None:
        paid = replace(settings, cost=field.axis.name)
        loss, cost = _with_tune(loss, cost, fit, everyone, (len(rows[0]), paid))
    outcome, attempt = None, None
    if promise is not None:
        refuse_caps(halves[0], promise, field.axis.label)
        attempt = _counted_attempt(certificates, measures, settings)
        outcome = _proven(halves, loss, everyone.full, promise, attempt)
    number, why = _best(loss, cost, outcome, settings, field.axis)
    ranked = _ranked(everyone.members, loss, cost, outcome)
    order = _by_aim(loss, cost, settings)
    guess = None
    if outcome is not None:
        kept_it = _kept_when_ranked(outcome)
        order = np.lexsort((cost, np.where(kept_it, 0.0, loss), ~kept_it, ~outcome.certified))
        guess = _guess(everyone, cost, kept_it) if outcome.fell_back else None
    first = [number] if guess is None or guess == number else [number, guess]
    order = np.array([*first, *order[~np.isin(order, first)]], np.intp)
    chosen = ranked[number]
    shown = _shown(everyone, [ranked[at] for at in order.tolist()])
    comparison = _compared(prove, shown, everyone, settings, field.axis)
    wrong = _wrong(prove, comparison.result, chosen, settings)
    notes = [*everyone.notes]
    if outcome is not None and not outcome.fell_back:
        promised = _with_guarantee(chosen, _guarantee(outcome, record, settings, field.axis))
        if promised is chosen:
            notes.append(
                "the promise stands in choice.json: this policy's file has no room for one"
            )
        chosen = promised
    if promise is not None and (cut := cut_terms(record, promise)):
        notes.append(f"{cut['cut']}; to prove more, record some in shadow or let more run on")
    return Choice(
        chosen=chosen,
        why=why,
        comparison=comparison,
        ranked=tuple(ranked[at] for at in order.tolist()),
        rules_looked_at=everyone.rules_looked_at,
        outcome=outcome,
        settings=settings,
        parts={FIT_SPLIT: _labelled(fit), RANK: _labelled(rank), PROVE: _labelled(prove)},
        axis=field.axis,
        wrong=tuple(wrong[:_MOST_WRONG]),
        wrong_count=len(wrong),
        left_out={one.name: one.reason for one in everyone.left_out},
        notes=(
            *record_banners(measures.traces),
            *measures.notes(settings.metric),
            *drawn,
            *notes,
        ),
        warned=everyone.warned,
        guess=None if guess is None else ranked[guess],
        attempt=attempt,
    )


def _with_tune(
    loss: NDArray[np.float64],
    cost: NDArray[np.float64],
    fit: Measures,
    everyone: Candidates,
    ranked: tuple[int, ChoiceSettings],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Losses and costs on the questions that rank and, of what no label was fitted to, on those of tune too.

    More questions tell more than the slight favour that rules have where they were listed takes away: on
    200 populations with known truth that regrets less than either part alone (docs/benchmarks.md).
    """
    count, settings = ranked
    alike = np.flatnonzero([_unfitted(member) for member in everyone.members])
    if fit.seen is not None or everyone.full not in alike:
        return loss, cost
    tuned = Kept.of(fit, [everyone.members[number] for number in alike.tolist()], settings)
    half = tuned.half(np.arange(len(tuned.last)))
    on_tune = 2.0 * half.losses(np.arange(len(alike)), "signed").mean(axis=0) - 1.0
    share = len(half) / (len(half) + count)
    loss, cost = loss.copy(), cost.copy()
    loss[alike] = share * on_tune + (1.0 - share) * loss[alike]
    cost[alike] = share * half.costs + (1.0 - share) * cost[alike]
    return loss, cost


def _unfitted(member: Candidate) -> bool:
    """Whether no label made it what it is."""
    if member.answer != LATEST or member.group == "method":
        return False
    return member.group == "fixed" or not rule_needs(member.policy.name).fitting


def _promise(measures: Measures, settings: ChoiceSettings) -> CertifySettings | None:
    """What is to be proven; ``None``: nothing."""
    if settings.promised_loss is None and settings.max_wrong_stops is None:
        if not 0.0 < settings.confidence < 1.0:
            raise UsageError(
                f"the confidence must lie above 0 and below 1, found {settings.confidence:g}"
            )
        return None
    metric = measures.metric
    if settings.max_wrong_stops is not None and not (metric.gold or metric.agreement):
        raise UsageError(
            f"wrong stops are told by answers, and {measures.traces.origin.source} is compared by "
            f"{metric.label}; leave out --max-wrong-stops, or compare by gold answers (--metric f1)"
        )
    return CertifySettings(
        max_loss=settings.promised_loss,
        confidence=settings.confidence,
        max_wrong_stops=settings.max_wrong_stops,
        max_cost=settings.max_cost,
        attempts=settings.attempts,
    )


def _counted_attempt(
    certificates: str | Path | None, measures: Measures, settings: ChoiceSettings
) -> Attempt | None:
    """What this promise may spend, counted in the folder before anything of it is seen."""
    if certificates is None:
        return None
    named = [_in_the_count(one) for one in settings.policies]
    asked = asdict(replace(settings, policies=())) | {
        "chosen": True,
        "policies": named,
        "compared_by": measures.metric.name,
    }
    return spend(
        Path(certificates),
        measures.recorded,
        asked,
        confidence=settings.confidence,
        attempts=settings.attempts,
    )


def _in_the_count(wanted: Wanted) -> str:
    if isinstance(wanted, str | Path):
        return str(wanted)
    return policy_hash(wanted.policy if isinstance(wanted, PolicyFile) else wanted)


def _proven(
    halves: list[Half],
    loss: NDArray[np.float64],
    full: int,
    promise: CertifySettings,
    attempt: Attempt | None,
) -> Certification:
    """What the questions that prove show; where a cost is promised too the best of those proven."""
    if attempt is not None and attempt.level != promise.delta:
        promise = replace(promise, level=attempt.level)
    outcome = certify(halves[0], halves[1], full, promise)
    if promise.max_cost is None or outcome.fell_back:
        return outcome
    least = np.where(outcome.certified, loss, np.inf)
    return replace(outcome, chosen=int(np.lexsort((outcome.costs, least))[0]))


def _kept_when_ranked(outcome: Certification) -> NDArray[np.bool_]:
    """Which members kept every bound on the questions that rank."""
    kept = np.ones(len(outcome.costs), np.bool_)
    for part in outcome.parts:
        kept &= part.learned <= part.bound.most
    return kept


def _guess(everyone: Candidates, cost: NDArray[np.float64], kept: NDArray[np.bool_]) -> int | None:
    """The cheapest candidate that kept every bound where it was ranked, cheaper than the full budget."""
    latest = np.array([member.answer == LATEST for member in everyone.members])
    able = np.flatnonzero(kept & latest & (cost < cost[everyone.full]))
    return int(able[np.argmin(cost[able])]) if len(able) else None


def _labelled(part: Measures) -> int:
    return int(part.labelled.sum()) if part.metric.gold else int(part.scores().labelled.sum())


def _in_parts(measures: Measures, settings: ChoiceSettings) -> tuple[Measures, list[str]]:
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


def _refuse_several_loops(measures: Measures) -> None:
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


def _refuse_pointless(measures: Measures, kept: Measures, settings: ChoiceSettings) -> None:
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


# --- which one -----------------------------------------------------------------------------------
def _best(
    loss: NDArray[np.float64],
    cost: NDArray[np.float64],
    outcome: Certification | None,
    settings: ChoiceSettings,
    axis: CostAxis,
) -> tuple[int, str]:
    """The candidate by its number, and why."""
    if outcome is None and settings.max_cost is not None and not (cost <= settings.max_cost).any():
        raise UsageError(
            f"no candidate costs at most {settings.max_cost:g} {axis.per_question}: the least is "
            f"{cost.min():.4g}; raise --max-cost"
        )
    if outcome is not None:
        if outcome.fell_back:
            return outcome.chosen, "Nothing cheaper is proven to keep what was asked."
        if settings.max_cost is not None:
            return outcome.chosen, "It loses least of those proven to keep what was asked."
        return outcome.chosen, "It is the cheapest that is proven to keep what was asked."
    number = int(_by_aim(loss, cost, settings)[0])
    if settings.cost_per_error is not None:
        return number, (
            f"Its cost plus {settings.cost_per_error:g} an error was the least on the questions that rank."
        )
    return number, (
        f"It lost least of those that cost at most {settings.max_cost:g} {axis.label} on the questions "
        "that rank."
    )


def _by_aim(
    loss: NDArray[np.float64], cost: NDArray[np.float64], settings: ChoiceSettings
) -> NDArray[np.intp]:
    """All candidates, best first."""
    if settings.cost_per_error is not None:
        return np.lexsort((cost, cost + settings.cost_per_error * loss))
    most = math.inf if settings.max_cost is None else settings.max_cost
    return np.lexsort((cost, loss, cost > most))


def _ranked(
    members: tuple[Candidate, ...],
    loss: NDArray[np.float64],
    cost: NDArray[np.float64],
    outcome: Certification | None,
) -> list[Ranked]:
    tested = np.full(len(members), np.nan) if outcome is None else outcome.p_values
    return [
        Ranked(
            candidate=member,
            loss=float(loss[number]),
            cost=float(cost[number]),
            p_value=None if np.isnan(tested[number]) else float(tested[number]),
            proven=outcome is not None and bool(outcome.certified[number]),
        )
        for number, member in enumerate(members)
    ]


# --- on the questions that prove -------------------------------------------------------------------
def _shown(everyone: Candidates, ranked: list[Ranked]) -> list[Candidate]:
    """The fixed budgets, the chosen one and the best of the others that return the same answer."""
    answer = ranked[0].candidate.answer
    alike = [one.candidate for one in ranked if one.candidate.answer == answer]
    others = [one for one in alike if one.group != "fixed"]
    fixed = [replace(one, answer=answer) for one in everyone.members if one.group == "fixed"]
    return [*fixed, *others[: _MOST_SHOWN + 1]]


def _compared(
    prove: Measures,
    shown: list[Candidate],
    everyone: Candidates,
    settings: ChoiceSettings,
    axis: CostAxis,
) -> Comparison:
    answer = shown[-1].answer if shown else LATEST
    result = replay(
        prove,
        [candidate.policy for candidate in shown],
        ReplaySettings(
            baseline=everyone.members[everyone.full].policy.name,
            split=PROVE,
            f1_kind=settings.f1_kind,
            resamples=settings.resamples,
            seed=settings.seed,
            cost=axis.name,
            cost_model=settings.cost_model,
            answer=answer,
            banners=record_banners(prove.traces),
        ),
    )
    return Comparison(measures=prove, result=result)


def _wrong(
    prove: Measures, result: ReplayResult, chosen: Ranked, settings: ChoiceSettings
) -> list[WronglyStopped]:
    """Where the chosen policy is wrong and the full budget right, in the record's order."""
    scored, traces = prove.scores(settings.f1_kind), prove.traces
    policy = next(one for one in result.policies if one.name == chosen.candidate.policy.name)
    if policy.taken is None or prove.seen is not None:
        return []
    rows = np.arange(traces.n_questions)
    wrong = scored.em[rows, policy.answers - 1] < 1.0
    right = scored.em[rows, traces.last_rounds - 1] == 1.0
    at = wrong & right
    records = traces.take(at).records()
    stops, answers = policy.stops[at].tolist(), policy.answers[at].tolist()
    return [
        WronglyStopped(
            id=record.question.id,
            question=record.question.text,
            round=stop,
            answer=record.rounds[returned - 1].answer,
            full_budget_answer=record.rounds[-1].answer,
        )
        for record, stop, returned in zip(records, stops, answers, strict=True)
    ]


def _guarantee(
    outcome: Certification, record: Measures, settings: ChoiceSettings, axis: CostAxis
) -> dict[str, Any]:
    """The promise, as a policy's file says it."""
    return {
        **describe(outcome),
        "family": "all candidates",
        **({"min_rounds": settings.min_rounds} if settings.min_rounds > 1 else {}),
        "metric": record.metric.key(record.metric.score),
        "cost": axis.name,
        "mean_cost": float(outcome.costs[outcome.chosen]),
        "seed": settings.seed,
        **cut_terms(record, outcome.settings),
    }


def _with_guarantee(chosen: Ranked, guarantee: Mapping[str, Any]) -> Ranked:
    """The chosen policy with its promise, where its file has room for one; a budget is a rule too."""
    policy = chosen.candidate.policy.policy
    if isinstance(policy, FixedPolicy):
        policy = RulePolicy(rule=f"round >= {policy.rounds}", kind="certified")
    if not isinstance(policy, RulePolicy):
        return chosen
    named = replace(chosen.candidate.policy, policy=replace(policy, guarantee=guarantee))
    return replace(chosen, candidate=replace(chosen.candidate, policy=named))
