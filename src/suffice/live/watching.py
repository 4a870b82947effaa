"""Shared state of a watch's loops: settings, record, counts, budgets and the returned answer."""

from __future__ import annotations

import hashlib
import math
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from suffice.concurrency import may_be_cut
from suffice.contracts import ChatModel, Decision, Generation, GenerationRequest, StopPolicy
from suffice.errors import SufficeWarning, UsageError, counted
from suffice.policies.policy_file import PolicyFile, load_policy, names_policy_file, policy_hash
from suffice.scoring import AnswerChoice
from suffice.signals.known_signals import resolve
from suffice.signals.signal_table import GrowingRecord, SignalTable, answer_votes
from suffice.trace.rounds.records import LoopView, Usage
from suffice.trace.values import MOST_INT16, whole

if TYPE_CHECKING:
    from suffice.costs.prices import Prices, Tariff
    from suffice.live.loop import Loop
    from suffice.live.observing import Observer
    from suffice.live.privacy import Privacy
    from suffice.trace.loop_record import LoopRecord

Mode = Literal["shadow", "live"]


def hash_of(policy: StopPolicy | None) -> str | None:
    """Return a policy's hash; ``None`` for one without a file format."""
    try:
        return None if policy is None else policy_hash(policy)
    except UsageError:
        return None


@dataclass(slots=True, weakref_slot=True, eq=False, kw_only=True)
class Watching:
    """The settings, record, counts and warnings that all loops of a watch share.

    ``max_rounds`` ends loops, ``full_budget`` is the known full budget. ``raises``: a policy that fails is an
    error of the loop, rather than counted and warned of.
    """

    policy: StopPolicy | None = None
    policy_hash: str | None = None
    mode: Mode = "live"
    explore: float = 0.0
    max_rounds: int | None = None
    full_budget: int | None = None
    raises: bool = False
    budgets: Budgets | None = None
    choice: AnswerChoice = field(default_factory=AnswerChoice)
    writer: LoopRecord | None = None
    window: Window | None = None
    privacy: Privacy | None = None
    observers: tuple[Observer, ...] = ()
    under_way: dict[str, Loop] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)
    lacking: set[str] = field(default_factory=set)  # signals checked for missing inputs
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(
        cls,
        policy: StopPolicy | PolicyFile | str | Path | None,
        *,
        max_rounds: int | None = None,
        mode: Mode = "live",
        **further: Any,
    ) -> Watching:
        """Watch for a policy in any form; in ``live`` a file's budget is the default."""
        if isinstance(max_rounds, int) and max_rounds < 1:
            raise UsageError(f"max_rounds must be at least 1, found {max_rounds}")
        if max_rounds is not None:
            whole(MOST_INT16, max_rounds, "max_rounds")
        if isinstance(policy, str | PurePath):
            if names_policy_file(str(policy)):
                policy = load_policy(policy)
            else:  # loads the loops, which a file needs not
                from suffice.live.requirements import choose_policy

                policy = choose_policy(policy).policy
        full_budget = max_rounds
        if isinstance(policy, PolicyFile):
            full_budget = policy.max_rounds if max_rounds is None else max_rounds
            policy = policy.policy
        return cls(
            policy=policy,
            mode=mode,
            max_rounds=full_budget if mode == "live" else max_rounds,
            full_budget=full_budget,
            **further,
        )

    def explores(self, name: str) -> bool:
        """Whether a question runs to the full budget, drawn by its id, once."""
        drawn = hashlib.sha256(f"42:explore:{name}".encode(errors="surrogatepass"))
        return int.from_bytes(drawn.digest()[:8], "big") / 2**64 < self.explore

    def count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self.counts[what] = self.counts.get(what, 0) + number

    def warn(self, what: str, said: str) -> None:
        """Warn once of a problem that may repeat in every round."""
        if what not in self.said:
            self.said.add(what)
            warnings.warn(f"{said} (said once)", SufficeWarning, stacklevel=4)

    def close(self) -> None:
        if self.writer is not None and (said := ended(self.writer)):
            self.said.add("record")
            self.warn("lost", said)
        self.complain()

    def complain(self) -> None:
        if self.writer is not None and self.writer.problem is not None:
            self.warn(
                "record",
                f"loops are not recorded: {self.writer.problem}. The loops go on; rounds that are not "
                "written by the end are lost, and lost_rounds counts them"
                + (
                    "" if self.window is None else ". Meanwhile usd_per_day sees no loops of others"
                ),
            )
        if self.window is not None and self.window.uncounted:
            said = f"{self.window.uncounted:,} rounds of others in the record have no token counts"
            self.warn("window", f"{said}, so usd_per_day lacks them: give observe(usage=...) there")


def ended(writer: LoopRecord) -> str:
    """Close a record; return its losses in words."""
    writer.close()
    lost = writer.lost
    if not lost.questions:
        return ""
    what = f"{counted(lost.rounds, 'round')} of" if lost.rounds else "the ends of"
    said = f"not in the record: {what} {counted(lost.questions, 'question')}"
    return f"{said}: {writer.problem}"


def answer_round(
    choice: AnswerChoice,
    view: LoopView,
    decisions: Sequence[Decision],
    signals: Mapping[str, Sequence[float]],
) -> int | None:
    """Return the round, from 1, of a loop's answer, as replay chooses it; ``None``: no answer.

    It is the round with the best value among those with an answer; of equal ones the latest or the first.
    Without any value it is the latest.
    """
    from suffice.stats.series import running_best

    there = [number for number, held in enumerate(view.rounds, start=1) if held.answer is not None]
    if choice.rule == "latest" or not there:
        return there[-1] if there else None

    if choice.rule == "majority":
        record = GrowingRecord(view, [resolve("abstained")]).rounds.traces
        values = answer_votes(record)[:, np.array(there) - 1]
    elif choice.rule == "most-confident":
        values = np.array([[decisions[number - 1].confidence for number in there]], np.float64)
    else:
        column = signals.get(choice.signal)
        if column is None:
            spec = resolve(choice.signal, also=(choice.signal,))
            column = SignalTable.of_view(view, [spec], "").signal(spec.name)[0].tolist()
        sign = -1.0 if choice.rule == "lowest" else 1.0
        values = sign * np.array([[column[number - 1] for number in there]])
    values = np.where(np.isfinite(values), values, np.nan)
    return there[int(running_best(values, first=choice.first)[0, -1]) - 1]


# --- what a question may cost, and does -----------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Limits in addition to the policy; the first one reached ends the loop. ``None``: no limit.

    They are checked after each round, so the last round may exceed them.

    Parameters
    ----------
    tokens, seconds, usd
        Of a question: prompt and generated tokens of all calls, seconds since it was asked, US dollars.
    usd_per_day
        US dollars in the last 24 hours, to the minute, of all loops in the watch's record, whatever process
        they run in. Once they are spent, a question ends after its first round.
    hard
        Begin no round past ``usd_per_day``: a later question is done when it is entered. A round without
        token counts ends its question.
    prices
        Prices of tokens, calls, retrievals and reranker calls.

    Raises
    ------
    UsageError
        When built: for a limit that is not above 0, US dollars without prices, or ``hard`` without
        ``usd_per_day``, which needs a :class:`Watch` with a record.
    """

    tokens: int | None = None
    seconds: float | None = None
    usd: float | None = None
    usd_per_day: float | None = None
    hard: bool = False
    prices: Prices | None = None

    def __post_init__(self) -> None:
        limits = ("tokens", "seconds", "usd", "usd_per_day")
        for name in limits:
            limit = getattr(self, name)
            if limit is not None and not 0 < limit < math.inf:
                raise UsageError(f"a budget must be a number above 0, found {limit!r} {name}")
        if self.hard and self.usd_per_day is None:
            raise UsageError("a hard budget is one of a day; give usd_per_day too")
        if self.prices is None and (self.usd, self.usd_per_day) != (None, None):
            raise UsageError(
                "a budget in US dollars needs prices: --price-model MODEL, or "
                "--prices input=0.15,output=0.60 (USD per million tokens)"
            )


class Spending:
    """The usage of a question so far, from its rounds, against its budgets."""

    ends_uncounted: bool = False  # whether what cannot be counted ends the loop, or is warned of

    def __init__(self, budgets: Budgets, window: Window | None = None) -> None:
        self._budgets = budgets
        self.ends_uncounted: bool = self.ends_uncounted or budgets.hard
        self.window: Window | None = window
        self._tariffs = () if budgets.prices is None else budgets.prices.tariffs
        self._started = time.perf_counter()
        self.counted: bool = True  # whether the tokens of all calls are known
        self.tokens: int = 0
        self.paid: float = 0.0  # US dollars, as far as tokens are counted

    @property
    def usd(self) -> float | None:
        """Dollars so far; ``None`` without prices, or without token counts."""
        return self.paid if self._tariffs and self.counted else None

    def add_calls(self, calls: int, *tokens: int | None, prompts: int = 1) -> None:
        """Count calls by prompt, cached and generated tokens; ``prompts`` of equal length were evaluated."""
        self.counted &= tokens[0] is not None and tokens[2] is not None
        prompt, cached, completion = (known or 0 for known in tokens)
        cached = min(cached, prompt)  # not reported: all of it is paid in full
        self.tokens += prompt + completion
        tariff: Tariff | None = None
        for above, dearer in self._tariffs:
            tariff = dearer if prompt > above * prompts else tariff
        if tariff is not None:
            self._pay(
                (prompt - cached) * tariff.prompt
                + cached * tariff.cached
                + completion * tariff.completion
                + calls * tariff.call
            )

    def _pay(self, usd: float) -> None:
        self.paid += usd
        if self.window is not None:
            self.window.pay(usd)

    def add_lookups(self, usage: Usage) -> None:
        if self._tariffs:
            _, tariff = self._tariffs[0]
            lookups, reranked = usage.retrievals or 0, usage.rerank_calls or 0
            self._pay(lookups * tariff.retrieval + reranked * tariff.rerank)

    def add_round(self, usage: Usage) -> None:
        known = usage.llm_calls
        samples, judging = usage.sample_calls or 0, usage.judge_calls or 0
        plain = max(1, (known or 0) - samples) if known != samples else 0
        looking = usage.look_calls or 0
        parts = {"": plain, "sample_": samples, "judge_": judging, "look_": looking}
        for kind, calls in parts.items():
            if calls:
                names = ("prompt_tokens", "cached_tokens", "completion_tokens")
                tokens = (getattr(usage, f"{kind}{name}") for name in names)
                self.add_calls(calls, *tokens, prompts=calls)
        self.add_lookups(usage)

    def spent(self) -> str | None:
        """Return the spent budget in words; ``None``: none, as far as known."""
        budgets = self._budgets
        limits = (
            ("seconds", budgets.seconds, time.perf_counter() - self._started),
            ("tokens", budgets.tokens, self.tokens if self.counted else 0),
            ("USD", budgets.usd, self.paid if self.counted else 0.0),
        )
        for unit, limit, used in limits:
            if limit is not None and used >= limit:
                return f"the budget of {limit:g} {unit} is spent"
        return None if self.window is None else self.window.spent()

    def barred(self) -> str | None:
        """Return why no round may begin, in words; ``None``: one may."""
        return self.window.spent() if self.window is not None and self._budgets.hard else None

    @property
    def uncounted(self) -> str | None:
        """The budget that cannot be checked, in words; ``None``: all can."""
        budgets = self._budgets
        dollars = ("USD", budgets.usd), ("USD in 24 hours", budgets.usd_per_day)
        for unit, limit in (("tokens", budgets.tokens), *dollars):
            if limit is not None and not self.counted:
                return f"the server counts no tokens: a budget of {limit:g} {unit} cannot be kept"
        return None


_DAY_MIN, _MOST_MIN = 1_440, 4_000  # minutes of the window; more are kept in case the clock is set


class Window:
    """US dollars of the last 24 hours: this watch's as they are spent, those of others from the record."""

    def __init__(self, budgets: Budgets, limit: float, record: LoopRecord) -> None:
        self._budgets, self._limit, self._record = budgets, limit, record
        self.uncounted: int = 0  # rounds of others without token counts
        self._read()  # the whole day, so that no question waits for it

    @classmethod
    def of(cls, budgets: Budgets | None, record: LoopRecord | None) -> Window | None:
        """Return the window of a watch with a record; ``None``: no such budget."""
        if budgets is None or budgets.usd_per_day is None:
            return None
        if record is None:
            raise UsageError(
                "usd_per_day counts the loops of a record, and none is given: "
                "Watch(record=FILE.db, budgets=...), or suffice serve --record FILE.db"
            )
        return cls(budgets, budgets.usd_per_day, record)

    def pay(self, usd: float) -> None:
        """Count what this watch spends now."""
        with self._record.lock:
            self._record.check_process()
            self._add(int(time.time() // 60), usd)

    def spent(self) -> str | None:
        """Return the spent budget in words; ``None``: it is not spent, as far as known."""
        with self._record.lock:
            self._read()
            minutes, now = self._record.minutes, int(time.time() // 60)
            for ahead in [minute for minute in minutes if minute > now]:  # a clock was wrong
                self._add(now, minutes.pop(ahead))
            used = sum(usd for minute, usd in minutes.items() if minute >= now - _DAY_MIN)
        if used < self._limit:
            return None
        return (
            f"the budget of {self._limit:g} USD in 24 hours is spent: {used:.4g} USD by all loops of the "
            "record; wait, or raise usd_per_day"
        )

    def _add(self, minute: int, usd: float) -> None:
        minutes = self._record.minutes
        minutes[minute] = minutes.get(minute, 0.0) + usd
        if len(minutes) > _MOST_MIN:
            del minutes[next(iter(minutes))]

    def _read(self) -> None:
        since, theirs = time.time() - 60 * _DAY_MIN, Spending(self._budgets)
        for question, turn, number, moment, usage in self._record.usage_of_others(since):
            running = self._record.running
            before, theirs.counted = theirs.paid, True
            theirs.add_round(usage)
            minute, usd = int(moment // 60), theirs.paid - before
            if turn:  # its last round may have changed at the end
                for _, then, paid in running.pop(question, ()):
                    self._add(then, -paid)
                self.uncounted += moment > since and not theirs.counted
            else:
                running.setdefault(question, []).append((number, minute, usd))
            self._add(minute, usd)


class Meter(Spending):
    """A model that counts the usage of all its calls: answers, samples and verdicts."""

    ends_uncounted = True

    def __init__(self, model: ChatModel, budgets: Budgets, window: Window | None = None) -> None:
        super().__init__(budgets, window)
        self._model, self.api = model, model.api
        self.name: str = model.name

    def generate(self, request: GenerationRequest) -> Generation:
        with may_be_cut():
            reply = self._model.generate(request)
            tokens = reply.prompt_tokens, reply.cached_tokens, reply.completion_tokens
            self.add_calls(len(reply.completions), *tokens)
        return reply

    def add_round(self, usage: Usage) -> None:
        """Count a round's usage apart from the calls, which were counted already."""
        self.add_lookups(usage)
