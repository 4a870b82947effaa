"""One policy of a record: why it was chosen, what is promised, and what it saves, in words and tables."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from suffice.costs.usage import COSTS
from suffice.errors import UsageError
from suffice.measures.costs import CostAxis
from suffice.numbers.intervals.bootstrap import Interval
from suffice.policies.defaults import FIT_SPLIT
from suffice.protocols import StopPolicy
from suffice.replay.choose.attempts import Attempt
from suffice.replay.choose.candidates import LATEST, Candidate
from suffice.replay.choose.learn_then_test import (
    Bound,
    Certification,
    describe,
    joined,
)
from suffice.replay.choose.parts import PROVE, RANK
from suffice.replay.choose.ranking import LIKELY
from suffice.replay.run.compare import Comparison
from suffice.replay.run.results import PolicyResult, ReplayResult, short_cost
from suffice.replay.settings import ChoiceSettings
from suffice.results.formats import counted, decimal, percent, points, signed
from suffice.results.table import Column, Table, Value
from suffice.results.tabular import Tabular
from suffice.scoring import Metric
from suffice.signals.registry import SIGNALS

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
    ``guess`` is the cheapest candidate that is likely to keep what was asked, by all questions and at a lower
    confidence (``None``: none is). ``parts`` are the labelled questions of each part, ``warned`` is what fits
    warned of, ``attempt`` how often the record was asked before (``None``: not counted).
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
        if self.outcome.fell_back and self._in_full:
            return f"{run}: nothing cheaper is proven to {promised}"
        if self.outcome.fell_back:
            return f"{run}: {self._less(self.measured)}; not proven to {promised}"
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
        rounds = max(self._measured(candidate).stop_counts)
        return "Stop after round 1" if rounds == 1 else f"Always stop after round {rounds}"

    @property
    def _in_full(self) -> bool:
        """Whether the full budget is what is chosen."""
        return self.chosen.candidate.policy.name == self.result.baseline

    @property
    def _all_rounds(self) -> str:
        """The full budget, which loops that end by themselves do not reach."""
        if self._ended is None:
            return f"all {self.result.max_rounds} rounds"
        return f"all rounds, at most {self.result.max_rounds}"

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
        if self.outcome is None or not self.outcome.fell_back or not self._in_full:
            return short, f"{self._meaning(chosen)}{self.why} Tried: {self.tried}."
        sure = (
            f"{100 * self.guess_confidence:g}% confidence, by all questions that fitted nothing and with all "
            "candidates counted"
        )
        if self.guess is None:
            return short, f"{self.why} None is likely to keep it either (at {sure})."
        guess = self.guess.candidate
        return short, (
            f"{self.why} To try, not proven: {guess.label}, the cheapest that is likely to keep it (at "
            f"{sure}). {self._meaning(guess)}"
        ).rstrip()

    @property
    def guess_confidence(self) -> float:
        """That the guess keeps what was asked, by approximation; a proof is asked for more."""
        return min(LIKELY, self.settings.confidence)

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
            how = "highest after" if at_best > at_last else "as high already after"
            ends += f" {_first(label)} is {how} round {best} ({percent(at_best)})."
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
        said = f"{self._cost(own, '')} instead of {self._cost(full)}"
        if self.axis.name != "rounds":
            said += f", {policy.paid('rounds', decimal)} rounds of {self.result.max_rounds}"
        return said

    def _cost(self, mean: float, unit: str | None = None) -> str:
        """A mean cost a question with its unit; of prices that of a thousand."""
        if self.axis.name == "usd":
            of, mean = "USD per 1,000 questions", 1000.0 * mean
        else:
            of = f"{self.axis.unit or self.axis.label} a question"
        return f"{short_cost(mean)} {of if unit is None else unit}".rstrip()

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
        if not self._in_full:
            less = self._less(self.measured)
            return f"{_first(less)}.", (
                f"It costs {self._paid(self.measured)}; {self._scored(self.measured)}, {aside}. "
                f"{self._above_the_cap()}{self._stopped_wrong()}"
            )
        score = (
            ""
            if self.measured.score is None
            else (f", {self.metric.label} {percent(self.measured.score)}")
        )
        own = self.measured.costs.get(self.axis.name)
        rounds = f"{self.measured.paid('rounds', decimal)} rounds a question"
        said = (
            f"Running {self._all_rounds} costs {rounds if own is None else self._cost(own)}{score}, {aside}. "
            f"{self._above_the_cap()}"
        ).rstrip()
        if self.guess is not None and (guessed := self.guessed) is not None:
            known = guessed.costs.get(self.axis.name) is not None
            less = f"{self._less(guessed)}: " if known else "takes "
            said += (
                f" The guess, {self.guess.candidate.label}, {less}{self._paid(guessed)}; "
                f"{self._scored(guessed)}, by questions that helped to pick it."
            )
        return "Saves nothing.", said

    def _above_the_cap(self) -> str:
        """That it costs more than was allowed, where it does."""
        most, own = self.settings.max_cost, self.measured.costs.get(self.axis.name)
        if most is None or own is None or own <= most:
            return ""
        return f"That is above the {most:g} allowed. "

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
        said = "" if self.attempt is None else self.attempt.said
        before = f"{_first(said)}. " if said else ""
        if outcome.fell_back:
            return "Not proven.", (
                f"At {sure} nothing{' cheaper' if self._in_full else ''} is proven to {promised}"
                f"{', so nothing is cut short' if self._in_full else ''}. "
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

    def live(self, policy: str, guess: str) -> Iterator[tuple[str, str]]:
        """How to run the chosen policy, and try the guess, from their files, in commands and code."""
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
        if self.guess is not None:
            yield (
                "the guess, in shadow: it stops nothing",
                f"suffice.Watch({guess!r}, record='live')",
            )

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
                "confidence": self.guess_confidence,
                **_loss_and_cost(self.guess),
                "measured": guessed.to_json(),
            },
            "attempt": None
            if self.attempt is None
            else {name: getattr(self.attempt, name) for name in ("level", "earlier", "spent")},
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
                    {name: value for name, value in asdict(one).items() if name != "question"}
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
