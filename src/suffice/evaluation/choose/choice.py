"""The chosen policy of a record: its savings, its promise and the reasons, in words and tables."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from suffice.contracts import StopPolicy
from suffice.errors import UsageError, counted
from suffice.evaluation.choose.bounds import LOSE, LOSES, bound_in_words, joined
from suffice.evaluation.choose.candidates import LATEST, PROVE, RANK, Candidate
from suffice.evaluation.choose.proof import LIKELY, Promised, Proven, Row
from suffice.evaluation.choose.sample_size import POWER, SampleSize
from suffice.evaluation.replay.compare import Comparison
from suffice.evaluation.replay.results import BY_SIGNALS, PolicyResult, ReplayResult
from suffice.evaluation.settings import ChoiceSettings
from suffice.measures.costs import ANSWERS_ASSUMED, CostAxis, CostChange, cost_changes
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.policy_file import policy_hash, save_policy
from suffice.policies.rules.policy import coin_sides
from suffice.results.formats import amount, decimal, percent, points
from suffice.results.plots import Plot
from suffice.results.table import Column, Described, Table, Value, table_of
from suffice.results.tabular import Tabular
from suffice.scoring import Metric
from suffice.stats.intervals import Interval
from suffice.stats.units import Array

_DEARER = 0.05
"""Rise of a known cost beyond which the headline begins with it."""
_WIDTH = 80
_MOST_NAMED = 50  # questions by id
_ASSUMED = (
    "Assumed: the call of a round only answers, so all rounds cost one call. If your loop needs the call "
    "to go on, log answer_calls as 0."
)
_SHOWN = {"time": "seconds", "price": "dollars", "retrievals": "retrieval calls"}
"""Costs that a first screen calls otherwise than an axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A candidate's mean loss and cost on the ranking questions; ``kept``: within the promise there."""

    candidate: Candidate
    loss: float
    cost: float
    kept: bool = True
    p_value: float | None = None


CHANGED = "Which answers change?"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Choice(Tabular):
    """The policy chosen for a record, the reasons, and its figures.

    ``title`` is its decision in words, ``promised`` the promises (``None``: not asked for),
    ``guarantee`` the one of the policy, as in its file (empty: nothing proven). ``whole`` replays
    candidates without labels (fixed budgets, proven paths) on all labeled questions; ``comparison`` replays
    the best fitted candidates on the held-out questions. ``ranked`` are all fitted candidates, best first,
    ``parts`` the sizes of the splits. ``by_majority`` is the full budget's gain by its most frequent answer.
    ``incomplete`` counts labeled questions without an answer in some round. ``made`` tells the questions that
    chose, by keys of some of them and a hash of the held-out ones, and ``max_rounds`` the full budget.
    """

    chosen: Candidate
    title: str
    why: str
    promised: Promised | None
    guarantee: Mapping[str, Any]
    whole: ReplayResult
    comparison: Comparison
    ranked: tuple[Ranked, ...]
    rules_looked_at: int
    settings: ChoiceSettings
    made: Mapping[str, Any]
    max_rounds: int
    parts: Mapping[str, int]
    axis: CostAxis
    left_out: Mapping[str, str]
    notes: tuple[str, ...]
    warned: tuple[str, ...] = ()
    incomplete: str | None = None
    by_majority: Interval | None = None

    @property
    def policy(self) -> StopPolicy:
        policy = self.chosen.policy.policy
        if policy is None:
            raise UsageError("the chosen candidate decides nothing")
        return policy

    @property
    def guess(self) -> Candidate | None:
        """A candidate that likely keeps the unproven promise; ``None``: no guess."""
        found = None if self.promised is None else self.promised.guess
        return None if found is None else found.candidate

    def save(self, path: str | Path, *, guess: bool = False) -> Path:
        """Write the chosen policy, or the guess, as a policy file that says which questions chose it."""
        if guess and self.guess is None:
            raise UsageError("this choice has no guess; leave guess out")
        policy = ((guess and self.guess) or self.chosen).policy.policy or self.policy
        held = guess or policy.facts.guarantee
        told = {"policy": policy_hash(policy), "promise": {} if held else self.guarantee}
        remark = "a guess: likely at 80% confidence, not proven" if guess else None
        made = {**self.made, **told}
        return save_policy(policy, path, max_rounds=self.max_rounds, remark=remark, chosen_on=made)

    @property
    def result(self) -> ReplayResult:
        return self._where(self.chosen)

    @property
    def measured(self) -> PolicyResult:
        return self.measured_of(self.chosen)

    @property
    def full(self) -> PolicyResult:
        return self._full_of(self.chosen)

    def _where(self, candidate: Candidate) -> ReplayResult:
        return self.whole if candidate.of_no_label else self.comparison.result

    def _full_of(self, candidate: Candidate) -> PolicyResult:
        where = self._where(candidate)
        return where.policy(where.baseline)

    def measured_of(self, candidate: Candidate) -> PolicyResult:
        """Return a candidate's figures: a fitted one's on held-out questions, else on all labeled ones."""
        return self._where(candidate).policy(candidate.policy.name)

    @property
    def metric(self) -> Metric:
        return self.result.metric

    @property
    def in_full(self) -> bool:
        return self.chosen.policy.name == self.result.baseline

    @property
    def changes(self) -> tuple[CostChange, ...]:
        return self.changes_of(self.chosen)

    def changes_of(self, candidate: Candidate) -> tuple[CostChange, ...]:
        full = self._full_of(candidate)
        changes = cost_changes(full.costs, self.measured_of(candidate).costs)
        return tuple(one for one in changes if one.name != "retrievals" or one.full is not None)

    @property
    def early(self) -> Mapping[str, Sequence[str]]:
        """Questions that stop early, and those of them with a lower or higher score than going on has."""
        own, full = self.measured, self.full
        stops, gain = own.stops < full.stops, self._returned(own) - self._returned(full)
        parts = {"all": stops, "lower": stops & (gain < 0), "higher": stops & (gain > 0)}
        ids = np.asarray(self.result.question_ids)
        return {
            name: ids[part & (self.result.cut is None)].tolist() for name, part in parts.items()
        }

    def _returned(self, policy: PolicyResult) -> Array:
        return (policy.at_stops.tossed or policy.at_stops.scores)[self.metric.score]

    def saved_by(self, candidate: Candidate) -> float | None:
        both = self.measured_of(candidate), self._full_of(candidate)
        own, before = (one.costs.get(self.axis.name) for one in both)
        return None if own is None or not before else 1.0 - own / before

    def savings(self) -> Iterator[tuple[Row, Proven | None]]:
        """Yield every promise with its proven policy, or with the guess for the one asked for."""
        promised = self.promised
        for row in () if promised is None else promised.rows:
            asked = promised is not None and row is promised.rows[promised.asked]
            yield row, row.proven or (promised.guess if promised and asked else None)

    def placed(self) -> Iterator[tuple[Candidate, float, float, Interval | None]]:
        """Yield every candidate with its share of the full cost, and its change of the score.

        A change without an interval is from the ranking questions.
        """
        ranked = {one.candidate.policy.name: one for one in self.ranked}
        fixed = [one.candidate for one in self.ranked if one.candidate.group == "fixed"]
        promised = [] if self.promised is None else self.promised.candidates
        measured = {one.policy.name: one for one in (self.chosen, *promised, *fixed)}
        for candidate in measured.values():
            saved, change = self.saved_by(candidate), self.measured_of(candidate).delta_full
            if saved is not None and change is not None:
                yield candidate, 1.0 - saved, change.estimate, change
        full = ranked[self.result.baseline].cost
        for one in ranked.values():
            if one.candidate.policy.name not in measured and full:
                yield one.candidate, one.cost / full, -one.loss, None

    @property
    def headline(self) -> str:
        return " ".join((*self.dearer(), *self.decision))

    @property
    def decision(self) -> tuple[str, str]:
        return f"{_first(self.title)}.", " ".join(filter(None, (self._saves(), self._promise())))

    def dearer(self) -> Iterator[str]:
        """Say which costs rise: of models that differ dollars and seconds, since calls do not add up."""
        traces = self.comparison.traces
        apart = traces.has("model") and len(traces.table.column("model").unique()) > 1
        changes = [one for one in self.changes if not apart or one.name in ("seconds", "usd")]
        if rises := [one for one in changes if (one.change or 0.0) > _DEARER]:
            told = joined([f"{_label(one)} by {percent(one.change)}%" for one in rises])
            yield f"This raises {told}."

    def _saves(self) -> str:
        saved, cut = self.saved_by(self.chosen), self.result.cut is not None
        if self.in_full or saved is None:
            return "What it saves is not known: questions were cut." * (cut and not self.in_full)
        if saved < 0.0:
            return f"Costs {percent(-saved)}% more {_label(self.axis)}."
        return f"Saves {percent(saved)}% of the {_label(self.axis)}."

    def _promise(self) -> str:
        if self.promised is None:
            return "Nothing is proven: no loss was to be proven (--max-loss)."
        row, asked = self.promised.row, self.promised.rows[self.promised.asked]
        sure = f"{100 * self.settings.confidence:g}% confidence"
        if row.proven is None:
            least = self.promised.rows[-1]
            return f"No cheaper policy is proven to {self.in_words(least)} ({sure})."
        missed = "" if row is asked else f"; {_points(asked)} are not proven"
        return f"{_first(self.in_words(row, LOSES))} (proven, {sure}){missed}."

    def in_words(self, row: Row, verbs: Sequence[str] = LOSE) -> str:
        """Say a promise, by default behind "to"."""
        metric = self.metric
        said = [
            bound_in_words(bound.of, bound.most, metric.label, verbs, agreement=metric.agreement)
            for bound in row.promise.bounds
        ]
        return joined(said)

    def screen(self) -> Iterator[str]:
        for sentence in (*self.dearer(), *self.decision):
            yield from wrap(sentence, _WIDTH)
        yield ""
        yield from _aligned(self._side_by_side())
        if self.early["all"] or self.result.cut is not None:
            yield from wrap(" ".join(self._changed()), _WIDTH)
        if self.promised is not None:
            yield ""
            yield from self._allowed(self.promised.rows)
        if self.incomplete is not None:
            yield from wrap(f"{self.incomplete}.", _WIDTH)
        if ANSWERS_ASSUMED in self.result.notes:
            yield from wrap(_ASSUMED, _WIDTH)
        yield ""

    def _side_by_side(self) -> Iterator[tuple[str, str, str, str]]:
        own, delta = self.measured, self.measured.delta_full
        yield "", self.all_rounds, "with this policy", "change"
        change = "unknown" if delta is None else points(delta)
        yield self.metric.label, percent(self.full.score), percent(own.score), change
        for one in self.changes:
            if one.full is not None or one.own is not None:
                change = "" if one.change is None else f"{100 * one.change:+z.0f}%"
                yield _label(one), _amount(one.full), _amount(one.own), change

    def _allowed(self, rows: Sequence[Row]) -> Iterator[str]:
        yield f"If you allow   you can save ({_label(self.axis)})"
        before = None
        for row in rows:
            if row.proven is None:
                told = f"nothing proven; {row.more}"
            else:
                same = before is not None and row.proven.candidate.policy.name == before
                what = "the same" if same else row.proven.title
                before = row.proven.candidate.policy.name
                told = f"{percent(self.saved_by(row.proven.candidate)):>5}%  {what}"
            yield from wrap(f"{_points(row):>11}    {told}", _WIDTH, subsequent_indent=" " * 23)
        yield from wrap(self._together(), _WIDTH)

    def _together(self) -> str:
        """What the lines of the table promise; nothing where none is proven."""
        if self.promised is None or all(row.proven is None for row in self.promised.rows):
            return ""
        several = len(self.promised.rows) > 1
        together = "All these losses are bounded at once" if several else "The loss is bounded"
        units, questions = self.promised.row.units, self.parts["all"]
        of = "" if units == questions else f" in {units:,} independent texts or groups"
        return (
            f"{together}, at {100 * self.settings.confidence:g}% confidence, for questions like these "
            f"{questions:,}{of}. Savings are measured."
        )

    @property
    def all_rounds(self) -> str:
        """The full budget in words; loops that end by themselves do not reach it."""
        rounds = f"all {counted(self.result.max_rounds, 'round')}"
        return rounds if self._ended is None else rounds.replace("all", "up to", 1)

    @property
    def _ended(self) -> float | None:
        ended = self.result.full_costs.get("rounds")
        return ended if ended is not None and ended < 0.95 * self.result.max_rounds else None

    def answers(self) -> Mapping[str, tuple[str, str]]:
        return {
            "Do more rounds help?": self._more_rounds(),
            BY_SIGNALS: self._by_signals(),
            "Which policy?": self._which(),
            "What does it cost, what does it save?": self._saving(),
            CHANGED: self._changed(),
            "How sure is that?": self._surely(),
        }

    def _more_rounds(self) -> tuple[str, str]:
        frontier, label = self.whole.frontier, self.metric.label
        if frontier is None or not (known := frontier.known):
            return "Not known:", "questions were cut before later rounds, or none has a score."
        (first, _, at_first), (last, _, at_last) = known[0], known[-1]
        if last < self.whole.max_rounds:
            return "Not known:", (
                f"after round {last} questions were cut, and what more rounds would score was not seen "
                f"({label} {percent(at_last)} after round {last})."
            )
        ends = (
            ""
            if self._ended is None
            else f" The recorded loop may end by itself, and takes {decimal(self._ended)} rounds on average."
        )
        best, _, at_best = max(known, key=lambda at: (at[2], -at[0]))
        if best not in (first, last):
            how = "highest after" if at_best > at_last else "as high already after"
            ends += f" {_first(label)} is {how} round {best} ({percent(at_best)})."
        once = next((p for p in self.whole.policies if p.name == f"fixed-{first}"), None)
        if once is None or (lost := once.delta_full) is None or first == last:
            return "Not known:", f"{label} is {percent(at_last)} after {self.all_rounds}.{ends}"
        gain = Interval(estimate=-lost.estimate, low=-lost.high, high=-lost.low)
        moved = (
            f"{_first(label)} is {percent(at_first)} after round {first} and {percent(at_last)} after "
            f"{self.all_rounds}: {points(gain)} points"
        )
        if gain.low > 0:
            short = "Yes, more rounds help."
        elif gain.high < 0:
            short = "No, more rounds make it worse."
        else:
            short = "Not shown that more rounds help."
            moved += f". {_power(gain)}"
        return short, f"{moved.rstrip('.')}.{ends}{self._voting()}"

    def _voting(self) -> str:
        gain = self.by_majority
        if gain is None or gain.low <= 0 <= gain.high:
            return ""
        return (
            f" Returning the most frequent answer instead of the latest (--answer majority) changes "
            f"{self.metric.label} by {points(gain)} points."
        )

    def _by_signals(self) -> tuple[str, str]:
        """Answer from the questions of the policy's own figures, if a policy there reads signals."""
        both = self.result, self.comparison.result
        of = next((one for one in both if any(p.adaptive for p in one.policies)), self.result)
        short, _, more = of.verdict(self.chosen.policy.name).partition(": ")
        gains = [against.gain for policy in of.policies for against in policy.against_fixed]
        varied = [gain for gain in gains if gain.high > gain.low]
        if varied and all(gain.low <= 0 for gain in gains):
            more += f" {_power(max(varied, key=lambda gain: gain.low))}"
        if of is not self.result:
            more += f" That is of {counted(of.questions, 'held-out question')}."
        return f"{short}:", more

    def _which(self) -> tuple[str, str]:
        short = f"{_first(self.title)}."
        likely, promised = "", self.promised
        if promised is not None and promised.guess is not None:
            likely = (
                f" Likely to {self.in_words(promised.rows[promised.asked])} "
                f"({100 * LIKELY:g}% confidence, not proven): {promised.guess.title}."
            )
        return short, f"{self.why}{likely} {self.tried}."

    @property
    def tried(self) -> str:
        groups = [one.candidate.group for one in self.ranked]
        kinds = (("fixed", "fixed budget"), ("method", "fitted method"), ("rule", "rule"))
        named = [counted(groups.count(group), name) for group, name in kinds if group in groups]
        steps = 0 if self.promised is None else self.promised.row.tested
        along = f"Tested {steps:,} polic{'y' if steps == 1 else 'ies'}; " if steps else ""
        looked = f" of {self.rules_looked_at:,}" if "rule" in groups else ""
        return f"{along}fitted and ranked {', '.join(named)}{looked}"

    def _saving(self) -> tuple[str, str]:
        where = "all" if self.chosen.of_no_label else "held-out"
        size = self.parts["all" if self.chosen.of_no_label else PROVE]
        delta = self.measured.delta_full
        scored = "is not known" if delta is None else f"changes by {points(delta)} points"
        said = f"On {where} {counted(size, 'question')} {self.metric.label} {scored}."
        return self._saves() or "Saves nothing.", f"{said}{self._above_the_cap()}"

    def _changed(self) -> tuple[str, str]:
        if self.result.cut is not None:
            if self.promised is None or (proven := self.promised.row.proven) is None:
                return "Not known:", "questions were cut before their full budget."
            lost = f"By the proof's weights of explored ones it loses {percent(proven.measured[0])} points."
            return "Questions were cut.", lost
        if not self.early["all"]:
            return "None:", "no question stops early."
        early, lower, higher = (f"{len(ids):,}" for ids in self.early.values())
        both = np.concatenate([self._returned(self.measured), self._returned(self.full)])
        if self.metric.agreement:
            told = f"{lower} with another answer"
        elif np.isin(both[~np.isnan(both)], (0.0, 1.0)).all():
            told = f"{lower} now wrong, {higher} now right"
        else:
            told = f"{self.metric.label} lower for {lower}, higher for {higher}"
        by = "By its coin, " if coin_sides(self.policy) else ""
        asked = counted(len(self.measured.stops), "question")
        return f"{by}{early} of {asked} stop early:", f"{told}."

    def _above_the_cap(self) -> str:
        most, own = self.settings.max_cost, self.measured.costs.get(self.axis.name)
        if most is None or own is None or own <= most:
            return ""
        return f" That is above the {most:g} allowed."

    def _surely(self) -> tuple[str, str]:
        if self.promised is None:
            return "Nothing is promised.", "No loss was to be proven (--max-loss)."
        row = self.promised.row
        sure = f"{100 * self.settings.confidence:g}% confidence"
        if row.proven is None:
            return "Not proven.", (
                f"At {sure} nothing cheaper is proven to {self.in_words(row)}. {_first(row.more)} "
                f"({100 * POWER:g}% power, if losses are as measured)."
            )
        how = (
            f"on all {counted(self.parts['all'], 'question')}, since nothing was fitted"
            if row.proven.path
            else f"on {self.parts[PROVE]:,} held-out questions"
        )
        together = (
            " The table holds at once, so reading several of its lines costs nothing."
            if len(self.promised.rows) > 1
            else ""
        )
        return f"Proven at {sure}:", (
            f"{self.in_words(row, LOSES)}, for independent questions like these and this loop "
            f"as it was recorded once (p = {row.proven.p_value:.2g}, {how}).{together}"
        )

    def live(self, policy: str, guess: str) -> Iterator[tuple[str, str]]:
        answer = self.chosen.answer
        chosen = "" if answer == LATEST else f" --answer {answer}"
        chosen_live = "" if answer == LATEST else f", answer={answer!r}"
        path = shlex.quote(policy)
        yield (
            "beside your agent (stops nothing)",
            f"suffice.Watch({policy!r}, record='live.db'{chosen_live})",
        )
        if self.policy.facts.earliest < self.result.max_rounds:
            stopping = f"record='live.db', mode='live', explore=0.05{chosen_live}"
            yield (
                "live, one question in twenty running on to keep measuring",
                f"suffice.Watch({policy!r}, {stopping})",
            )
        yield (
            "over your own files",
            f"suffice ask 'QUESTION' --corpus NOTES --policy {path}{chosen}",
        )
        yield "on another record", f"suffice replay TRACES --policy {path}{chosen}"
        if self.guess is not None:
            yield "the guess, beside your agent", f"suffice.Watch({guess!r}, record='live.db')"

    def tables(self) -> tuple[Table, ...]:
        head, *costs = self._side_by_side()
        before = Table(
            name="costs",
            title=f"What a question costs, {self.all_rounds} and with this policy",
            columns=tuple(Column(name=name or "mean") for name in head),
            rows=costs,
        )
        said = Table(
            name="answers",
            columns=(Column(name="question"), Column(name="answer")),
            rows=[[question, " ".join(said)] for question, said in self.answers().items()],
        )
        allowed = () if self.promised is None else (self._allowed_table(self.promised.rows),)
        return (before, *allowed, said, self._ranked_table())

    def plotted(self) -> Plot:
        if self.promised is None:
            return Tabular.plotted(self)
        return Plot(
            table=self._allowed_table(self.promised.rows), x="max_loss", y="saved", label="policy"
        )

    def _allowed_table(self, promises: Sequence[Row]) -> Table:
        columns = (
            Column(name="max_loss", kind="percent", head="allowed\n(points)"),
            Column(name="saved", kind="percent", head="saved\n(%)"),
            Column(name="policy"),
        )
        rows: list[list[Value]] = [
            [row.promise.max_loss, None, f"nothing proven; {row.more}"]
            if row.proven is None
            else [row.promise.max_loss, self.saved_by(row.proven.candidate), row.proven.title]
            for row in promises
        ]
        title = f"What you can save ({_label(self.axis)}) for what you allow"
        note = self._together()
        return Table(name="allowed", title=title, columns=columns, rows=rows, notes=[note])

    def _ranked_table(self) -> Table:
        described: list[Described] = [
            ("candidate.group", Column(name="kind", drop=2)),
            (
                lambda one: -one.loss,
                Column(name="change", kind="points", head="change when\nranked"),
            ),
            ("cost", Column(name="cost", kind="number", head=f"{self.axis.label}\nwhen ranked")),
            ("p_value", Column(name="p_value", kind="p_value", head="p-value", drop=1)),
            ("candidate.policy.label", Column(name="candidate", whole=True)),
        ]
        fit, rank, prove = (self.parts[name] for name in (FIT_SPLIT, RANK, PROVE))
        title = (
            f"{len(self.ranked)} fitted candidates: fitted on {fit:,} questions, ranked on {rank:,}, tested "
            f"on {prove:,}"
        )
        return replace(table_of("candidates", self.ranked, described, title), names=0)

    def to_json(self) -> dict[str, Any]:
        candidate, promised = self.chosen, self.promised
        return {
            "headline": self.headline,
            "chosen": {
                "title": self.title,
                "name": candidate.policy.name,
                "kind": candidate.policy.kind,
                "rule": self.policy.facts.summary,
                "answer": candidate.answer,
                "hash": candidate.policy.hash,
            },
            "why": self.why,
            "promise": None
            if promised is None
            else {**promised.row.document(), "cost": self.axis.name},
            "table": [] if promised is None else [self._row_json(row) for row in promised.rows],
            "guess": None
            if promised is None or promised.guess is None
            else {
                "title": promised.guess.title,
                "name": promised.guess.candidate.policy.name,
                "confidence": LIKELY,
                "measured": self.measured_of(promised.guess.candidate).to_json(),
            },
            "measured": self.measured.to_json(),
            "costs": {
                one.name: {"before": one.full, "after": one.own, "change": one.change}
                for one in self.changes
            },
            "axis": self.axis.name,
            "by_majority": None if self.by_majority is None else asdict(self.by_majority),
            "answers": {question: " ".join(said) for question, said in self.answers().items()},
            "questions": dict(self.parts),
            "rules_looked_at": self.rules_looked_at,
            "candidates": [
                {
                    "name": one.candidate.policy.name,
                    "group": one.candidate.group,
                    "answer": one.candidate.answer,
                    "ranked_loss": one.loss,
                    "ranked_cost": one.cost,
                    "p_value": one.p_value,
                }
                for one in self.ranked
            ],
            "early_stops": {
                name: {"count": len(ids), "questions": ids[:_MOST_NAMED]}
                for name, ids in self.early.items()
            },
            "replay": self.result.to_json(),
            "left_out": dict(self.left_out),
            "notes": list(self.notes),
            "warnings": list(self.warned),
        }

    def _row_json(self, row: Row) -> dict[str, Any]:
        """A line of what can be saved; costs are those of its policy, ``None`` where nothing is proven."""
        changes = self.changes if row.proven is None else self.changes_of(row.proven.candidate)
        costs = {one.name: None if row.proven is None else one.own for one in changes}
        return {
            "max_loss": row.promise.max_loss,
            "proven": row.proven is not None,
            "title": None if row.proven is None else row.proven.title,
            "rule": None if row.proven is None else row.proven.candidate.policy.name,
            "saved": None if row.proven is None else self.saved_by(row.proven.candidate),
            **(row.needed or SampleSize()).to_json(),
            "mean_rounds": costs.pop("rounds"),
            **costs,
        }


def _label(change: CostChange | CostAxis) -> str:
    return _SHOWN.get(change.label, change.label)


def _amount(cost: float | None) -> str:
    return "unknown" if cost is None else amount(cost)


def _points(row: Row) -> str:
    loss = row.promise.max_loss
    return "" if loss is None else f"{100 * loss:g} point{'' if loss == 0.01 else 's'}"


def _power(interval: Interval) -> str:
    """What a record of this size could have shown of what is not shown."""
    error = (interval.high - interval.low) / (2 * 1.96)
    shown = percent((1.96 + 0.84) * error)
    return f"A difference of {shown} points would have been shown ({100 * POWER:g}% power)."


def _aligned(rows: Iterator[tuple[str, str, str, str]]) -> Iterator[str]:
    cells = [*rows]
    widths = [max(len(row[at]) for row in cells) for at in range(4)]
    for name, *others in cells:
        numbers = (text.rjust(width) for text, width in zip(others, widths[1:], strict=True))
        yield f"{name:<{widths[0]}}   {'   '.join(numbers)}".rstrip()


def _first(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
