"""One question of a user's loop: its rounds, decisions, answer and end."""

from __future__ import annotations

import inspect
import math
import time
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from suffice.concurrency import at_once, settled
from suffice.contracts import Action, Decision, StopPolicy, whole_text
from suffice.errors import DataError, SufficeWarning, UsageError, counted, struck
from suffice.live.watching import Spending, Watching, answer_round
from suffice.policies.policy_file import PolicyFile
from suffice.signals.signal_table import (
    GrowingRecord,
    SignalTable,
    decide,
    decisions,
    lack_live,
    policy_lacks,
)
from suffice.trace.rounds.records import (
    DROPPED_CALLS,
    SCORE,
    Draft,
    Gold,
    LoopView,
    Question,
    Round,
    StoppedBy,
    with_draft,
    without_answer,
)

if TYPE_CHECKING:
    from suffice.live.observing import RoundEnded

OWN_ID = "give every question its own id, or none to have one made"
Probe = Callable[[LoopView], "Draft | str | Awaitable[Draft | str]"]
"""Asked for the answer that the rounds so far would give; a coroutine function under ``aobserve``."""
Asking = bool | Literal["in-loop"] | Probe  # what an adapter of agents takes

_UNASKED = Decision(action=Action.CONTINUE, reason="no policy decides", values={})


class Loop:
    """One watched question, made by :meth:`Watch.question`; used by one thread or task at a time.

    It begins where ``with`` enters it and ends with the block. An exception in the block after a round with
    an answer ends the loop with that answer, ``stopped_by`` and ``error``; a warning names it. Without an
    answer the exception is raised; so are interrupts and wrong uses of Suffice always.
    """

    def __init__(
        self, watch: Watching, question: Question, gold: Gold | None = None, *, named: bool = False
    ) -> None:
        self._watch = watch
        self.policy: StopPolicy | None = watch.policy
        self.policy_hash: str | None = watch.policy_hash
        """The policy's name in the record."""
        self._gold = Gold() if gold is None else gold
        self._named = named
        specs = () if watch.policy is None else watch.policy.specs
        self._growing = GrowingRecord(LoopView(question.text, ()), specs)
        self._signals: dict[str, list[float]] = {spec.name: [] for spec in specs}
        self.told: Decision | None = None  # last: the policy's decision as mode and budgets have it
        self._ask_for(question)
        self._decisions: list[Decision] = []
        self._ids: set[str] = set()
        self._phase: Literal["new", "open", "over"] = "new"
        self.stopped_by: StoppedBy | None = None
        """``policy``, ``budget``, ``end`` (by itself), ``error`` or ``user``; ``None``: it goes on."""
        self.reason: str = ""  # why it ended, or what the policy said last
        self._full = False
        self._last: Round | None = None
        self._began = self._ticked = self._took = 0.0
        self._ran: list[RoundEnded] = []  # where anybody hears of the end
        self.spending: Spending | None = None  # whoever counts what the question costs
        if watch.budgets is not None:
            self.spending = Spending(watch.budgets, watch.window)
        self.error: Exception | None = None  # what a later round failed with; None: nothing
        self.dropped_calls: int = 0  # of tools after the stop, which were not run
        self.explored: bool = watch.mode == "live" and watch.explores(question.id)
        """Whether it runs to the full budget although the policy is live."""
        self.stays: bool = (
            False  # whether another process may resume it; said before the first round
        )

    @classmethod
    def alone(
        cls,
        policy: StopPolicy | PolicyFile | str | Path,
        *,
        max_rounds: int | None = None,
        question: Question | None = None,
    ) -> Loop:
        """Begin a question without a watch and a record."""
        watching = Watching.of(policy, max_rounds=max_rounds, raises=True)
        return cls(watching, question or Question(id="", text="")).begin()

    @property
    def question(self) -> str:
        """The question's text."""
        return self._asked.text

    @property
    def question_id(self) -> str:
        """Its id in the record, by which it is labeled; settled when the question is entered."""
        return self._asked.id

    @property
    def signals(self) -> Mapping[str, Sequence[float]]:
        """The policy's signals in its rounds, by name; NaN: undefined."""
        return self._signals

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The rounds as observed."""
        rounds = self._growing.view.rounds
        return rounds if self._last is None else (*rounds[:-1], self._last)

    @property
    def view(self) -> LoopView:
        """The view that a probe gets."""
        return LoopView(self.question, self.rounds)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The policy's decision after each round, before mode and budgets change it."""
        return tuple(self._decisions)

    @property
    def would_stop(self) -> int | None:
        """The first round after which the policy said stop; ``None``: none so far."""
        numbered = enumerate(self._decisions, start=1)
        return next((number for number, decision in numbered if decision.stop), None)

    @property
    def done(self) -> bool:
        """Whether the loop should end."""
        return self.stopped_by is not None or self._phase == "over"

    @property
    def answer(self) -> str | None:
        """The returned answer, by the watch's choice; ``None``: no round has an answer."""
        number = self.answer_round
        return None if number is None else self.rounds[number - 1].answer

    @property
    def answer_round(self) -> int | None:
        """The round, from 1, of the returned answer."""
        return answer_round(self._watch.choice, self.view, self._decisions, self._signals)

    def observe(
        self,
        finished: Round | None = None,
        *,
        score: float | None = None,
        probe: Probe | None = None,
        **held: Any,
    ) -> Decision:
        """Take in a finished round and decide.

        Parameters
        ----------
        finished
            The round, if the caller makes it; else it is made from ``held``.
        score
            The score of the answer that the loop would return now, in [0, 1]: kept for ``--metric score``,
            never seen by the policy.
        probe
            Asked for an answer if the round has none and something needs one: in every round while recording
            to the full budget, live if the policy reads answers, and at a stop. A failing probe is counted,
            and warned of once.
        **held
            The parts of the round. ``passages``: what the round's search found, as any framework gives it;
            passages of earlier rounds are marked as found again. ``answer``: the answer that the loop would
            return now; left out: the loop was not asked. ``logprobs`` or ``tokens``: of the answer, as
            OpenAI, LangChain or llama.cpp report them. ``usage``: the usage of the round's calls as
            reported, several in a list. ``answer_usage``: the part that only the answer took,
            which a policy that reads no answers saves; left out: none, so that every round is paid for.
            ``samples``, ``response``, ``query``, ``action``, ``signals`` and other
            columns: as in :class:`Round`; ``signals={"error": 3}`` are values of your own.

        Returns
        -------
        Decision
            Whether the loop stops; in shadow, and if the question explores, it never stops for the policy.

        Raises
        ------
        UsageError
            Outside the ``with`` block.
        DataError
            For a value of another shape, with its name.
        """
        return at_once(self._observed(finished, score, probe, held, waits=False))

    async def aobserve(
        self,
        finished: Round | None = None,
        *,
        score: float | None = None,
        probe: Probe | None = None,
        **held: Any,
    ) -> Decision:
        """Take in a round as :meth:`observe`, with a probe that may be a coroutine function."""
        return await self._observed(finished, score, probe, held, waits=True)

    async def _observed(
        self,
        finished: Round | None,
        score: float | None,
        probe: Probe | None,
        held: dict[str, Any],
        *,
        waits: bool,
    ) -> Decision:
        asked, score = self._round(finished, held), None if score is None else SCORE(score, "score")
        if self.done:
            return self._after_the_end(asked, score)
        if probe is not None and self._wants_draft(asked):
            draft = await self._ask(probe, asked, waits=waits)
            self._ticked = time.perf_counter()
            if draft is not None:  # a policy that reads answers would have asked for it anyway
                asked = with_draft(asked, draft, probed=not self._stops)
        decision = self.follow(asked, score)
        if probe is not None and self.done and self.rounds[-1].answer is None:
            self._replace_last(await self._ask(probe, None, waits=waits), probed=False)
        return decision

    def answered(self, answer: str, **held: Any) -> None:
        """Set the answer of the last round, for loops that answer once at their end.

        It takes the parts of an answer that ``observe`` takes: ``logprobs``, ``samples``, ``response``,
        ``verbalized_confidence``, ``usage`` (of the answer alone).

        Raises
        ------
        UsageError
            Before a round was observed, or after the ``with`` block.
        """
        from suffice.live.reported import OF_ANSWER, draft_of, named

        self._check_open()
        if not self.rounds:
            raise UsageError("answered() before a round was observed; call observe(...) first")
        if unknown := held.keys() - OF_ANSWER:
            raise UsageError(
                f"answered() takes {', '.join(sorted(OF_ANSWER))}; found {named(unknown)}"
            )
        self._replace_last(draft_of(answer, held))

    def concluded(self, last: Round | None, stopped_by: StoppedBy, reason: str) -> None:
        """Set the end of a built-in loop; ``last`` replaces its last round, ``None`` keeps it."""
        self._check_open()
        self._last = last
        if self.stopped_by is None:
            self.stopped_by, self.reason = stopped_by, reason

    def stop(self, reason: str = "") -> None:
        """End the loop for a reason of your own: ``stopped_by`` is ``user``."""
        self._check_open()
        if not self.done:
            self.stopped_by, self.reason = "user", reason or "the caller ended it"

    def dropped(self, calls: int) -> None:
        """Note calls of tools after the stop, which were not run, in ``reason`` and in the last round."""
        self.dropped_calls += calls
        self.reason += f"; called {counted(calls, 'tool')} after the stop; dropped"
        last = self.rounds[-1]
        signals = {**last.signals, DROPPED_CALLS: float(self.dropped_calls)}
        self._last = replace(last, signals=signals)

    def _round(self, finished: Round | None, held: dict[str, Any]) -> Round:
        from suffice.live.reported import round_of

        self._check_open()
        if finished is None:
            finished = round_of(held, self._ids)
        elif held or not isinstance(finished, Round):
            raise DataError(
                f"observe() takes a suffice.Round or named values, found {type(finished).__name__}; write "
                "observe(passages=..., answer=...)"
            )
        now = time.perf_counter()
        self._took, self._ticked = now - self._ticked, now
        return finished

    def resume(self, rounds: Sequence[Round]) -> Loop:
        """Begin with rounds that are in the record, and in the window of what a day costs."""
        self.begin()
        if self.spending is not None:
            self.spending.window = None
        for finished in rounds:
            self.follow(finished, stored=True)
        if self.spending is not None:
            self.spending.window = self._watch.window
        return self

    def follow(self, asked: Round, score: float | None = None, *, stored: bool = False) -> Decision:
        """Take in a round, decide and record; a policy that fails leaves the round out if it ``raises``."""
        try:
            said = self._decide(asked)
        except Exception as error:
            if self._watch.raises or isinstance(error, UsageError):
                raise
            why = f"the policy could not decide: {type(error).__name__}: {error}"
            self._watch.count("failed_decisions")
            self._watch.warn("decide", why)
            for column in self._signals.values():
                column.append(math.nan)
            self._growing.see(LoopView(self.question, (*self._growing.view.rounds, asked)))
            said = replace(_UNASKED, reason=why)
        decision = self._settle(said, asked)
        self._ids.update(passage.id for passage in asked.passages or ())
        if not stored:
            self._record(asked, score)
        # what others ran at the same time is seen once this round is in the record
        if not decision.stop and self.spending is not None and (spent := self.spending.barred()):
            self.told = decision = _budget(decision, spent)
            self.stopped_by, self.reason = "budget", decision.reason
        if self._watch.observers:
            from suffice.live.observing import RoundEnded

            number, took_s = len(self._decisions), self._took
            ran = RoundEnded(
                number=number, round=asked, decision=decision, took_s=took_s, score=score
            )
            self._ran.append(ran)
        return decision

    def follow_all(self, rounds: Sequence[Round]) -> Decision:
        """Take in all rounds of a question at once; only the last decision has a reason."""
        policy = cast("StopPolicy", self._watch.policy)
        view = LoopView(self.question, tuple(rounds))
        table = SignalTable.of_view(view, policy.specs, self.question_id)
        *self._decisions, last = decisions(policy, table)
        self._growing.see(view)
        self._signals = {name: column[0].tolist() for name, column in table.values.items()}
        return self._settle(last, rounds[-1])

    def _decide(self, finished: Round) -> Decision:
        before, policy = self._growing.view, self._watch.policy
        try:
            for name, value in self._growing.observe(finished).items():
                self._signals[name].append(value)
            if policy is None:
                return _UNASKED
            view = self._growing.view
            if len(view.rounds) == 1 != self._watch.max_rounds:  # a budget of 1 decides alone
                self._check_inputs(policy, view)
            return decide(policy, SignalTable.of_loop(view, self._signals, self.question_id))
        except BaseException:
            self._growing.see(before)
            for column in self._signals.values():
                del column[len(before.rounds) :]
            raise

    def _check_inputs(self, policy: StopPolicy, view: LoopView) -> None:
        seen = self._watch.lacking
        undefined = [
            spec
            for spec in policy.specs
            if spec.name not in seen and math.isnan(self._signals[spec.name][0])
        ]
        lacks = [lack for spec in undefined if (lack := lack_live(spec, view)) is not None]
        seen.update(spec.name for spec in undefined)
        if lacks:
            said = f"{policy_lacks(policy, lacks)}. Without it the loop may run to its budget"
            warnings.warn(said, SufficeWarning, stacklevel=5)

    def _settle(self, said: Decision, asked: Round) -> Decision:
        self._decisions.append(said)
        if self.spending is not None:
            self.spending.add_round(asked.usage)
        self.told = decision = self._effective(said)
        self.reason = decision.reason
        if decision.stop:
            self.stopped_by = decision.stopped_by
        return decision

    def _effective(self, decision: Decision) -> Decision:
        watch, number = self._watch, len(self._growing.view.rounds)
        if watch.max_rounds is None and number - 1 == watch.full_budget:
            watch.warn(
                "past",
                f"a loop goes past round {watch.full_budget}, the full budget of the policy file, and "
                f"in shadow nothing ends it; type Watch(..., max_rounds={watch.full_budget}) to end it there",
            )
        if watch.max_rounds is not None and number >= watch.max_rounds:
            self._full = not decision.stop or not self._stops
            if self._full:
                return _budget(
                    decision, f"the budget of {counted(watch.max_rounds, 'round')} is spent"
                )
        elif decision.stop and not self._stops:
            why = "in shadow" if watch.mode == "shadow" else "exploring"
            said = f"{why}, so it goes on; {decision.reason}"
            decision = replace(decision, action=Action.CONTINUE, reason=said, stopped_by=None)
        if decision.stop or self.spending is None:
            return decision
        spent, uncounted = self.spending.spent(), self.spending.uncounted
        if spent is None and uncounted is not None:
            if self.spending.ends_uncounted:
                return _budget(decision, uncounted)
            watch.warn("budget", f"{uncounted}: give observe(usage=...)")
        return decision if spent is None else _budget(decision, spent)

    @property
    def _stops(self) -> bool:
        return self._watch.mode == "live" and not self.explored

    def _after_the_end(self, asked: Round, score: float | None) -> Decision:
        """Record a round after the end, which stays as it was."""
        self._watch.warn(
            "after",
            f"a loop that was told to end ({self.reason}) went on, and its further rounds are recorded. End "
            "the loop where loop.done is true",
        )
        ended = self.stopped_by, self.reason, self._full
        self._growing.see(self.view)
        self._last = None
        decision = self.follow(asked, score)
        self.stopped_by, self.reason, self._full = ended
        by = self.stopped_by if self.stopped_by in ("policy", "budget") else None
        return replace(decision, action=Action.STOP, reason=self.reason, stopped_by=by)

    def _wants_draft(self, asked: Round) -> bool:
        policy, records = self.policy, self._watch.writer is not None
        return asked.answer is None and (
            (records and not self._stops)
            or self._watch.choice.rule != "latest"
            or (policy is not None and policy.needs.answers)
        )

    async def _ask(self, probe: Probe, asked: Round | None, *, waits: bool) -> Draft | None:
        begun = time.perf_counter()
        rounds = self.rounds if asked is None else (*self.rounds, asked)
        try:
            given: Any = probe(LoopView(self.question, rounds))
            if waits:
                given = await settled(given)
            if not inspect.iscoroutine(given):
                return _draft_of(given, begun)
        except Exception as error:  # noqa: BLE001
            self._watch.count("failed_probes")
            why = f"{type(error).__name__}: {error}"
            self._watch.warn("probe", f"the probe failed: {why}; such rounds have no answer")
            return None
        given.close()
        raise UsageError("the probe is a coroutine function; await loop.aobserve(..., probe=...)")

    def _replace_last(self, draft: Draft | None, *, probed: bool | None = None) -> None:
        """Set the answer of the last round; a draft that it had stays paid for."""
        if draft is None:
            return
        last = self.rounds[-1]
        kept = last.answer is None or last.probed is False
        bare = last if kept else without_answer(last, paid=True)
        self._last = with_draft(bare, draft, probed=probed if last.probed is None else False)
        if self.spending is not None:
            self.spending.add_round(draft.usage)

    def kept(self) -> bool:
        """Whether a kill loses none of the rounds observed, or nothing is recorded."""
        return self._watch.writer is None or self._watch.writer.kept(self.question_id)

    def _record(self, asked: Round, score: float | None) -> None:
        watch = self._watch
        if watch.writer is None:
            return
        from suffice.trace.loop_record import Begun

        veiled, began = self._veiled, None
        if len(self._decisions) == 1:
            began = Begun(
                question=self._asked if veiled is None else veiled.question,
                gold=self._gold if veiled is None else veiled.gold,
                propensity=self._watch.explore or None,
                policy_hash=self.policy_hash,
                explored=self.explored,
                stays=self.stays,
            )
        kept = asked if veiled is None else veiled.round(self.view)
        stop = None if watch.policy is None else self.would_stop is not None
        watch.writer.observe(
            self.question_id, kept, began=began, took_s=self._took, stop=stop, score=score
        )

    def describe(self, model: Any = None, prompt: object = None) -> None:
        """Record the name of a framework's model and the system prompt, in the run document."""
        from suffice.live.privacy import without_secrets

        names = (getattr(model, of, "") for of in ("model_name", "model", "model_id"))
        told = {"model": next(filter(None, names), ""), "prompt": prompt}
        kept = {of: struck(it[:20_000]) for of, it in told.items() if it and isinstance(it, str)}
        if (writer := self._watch.writer) is not None:
            writer.describe(without_secrets(kept, paths=self._watch.privacy is None))

    def restate(self, question: str) -> None:
        """Change the question's text before its first round; the record keeps the new text."""
        if self.rounds:
            raise UsageError("a question has its text before its first round")
        self._ask_for(replace(self._asked, text=whole_text(question)))

    def _ask_for(self, question: Question) -> None:
        self._asked, privacy = question, self._watch.privacy
        self._growing.see(LoopView(question.text, ()))
        self._veiled = None if privacy is None else privacy.question(question, self._gold)

    def begin(self) -> Loop:
        """Enter the question without a ``with`` block; this settles its id in the record.

        Raises
        ------
        UsageError
            If it was entered before.
        """
        if self._phase != "new":
            raise UsageError("a question is entered once; ask watch.question(...) for another")
        if self.question_id in self._watch.under_way:
            raise UsageError(f"the question {self.question_id!r} is under way; {OWN_ID}")
        if self._watch.writer is not None and self._named:
            name = self._watch.writer.settle(self.question_id)
            self._ask_for(replace(self._asked, id=name))
        self._watch.under_way[self.question_id] = self
        self._watch.count("questions")
        self._phase = "open"
        self._began = self._ticked = time.perf_counter()
        if self.spending is not None and (why := self.spending.barred()) is not None:
            self.stopped_by, self.reason = "budget", why
        return self

    def end(self, error: BaseException | None = None, *, mend: bool = True) -> bool:
        """Leave the question; return whether an earlier answer replaces ``error``, if ``mend`` allows it.

        On return a kill loses nothing of the question; a warning says if it cannot be written.
        """
        self._leave(error)
        mended = (
            mend
            and isinstance(error, Exception)
            and not isinstance(error, UsageError | DataError)
            and self.answer is not None
        )
        if mended:
            warnings.warn(
                f"a loop failed after round {len(self.rounds)} ({type(error).__name__}: {error!s:.200}); the "
                f"answer of round {self.answer_round} is kept, see loop.answer and loop.error",
                SufficeWarning,
                stacklevel=3,
            )
        return mended

    def _leave(self, error: BaseException | None) -> None:
        if self._phase != "open":
            return
        self._phase = "over"
        self._watch.under_way.pop(self.question_id, None)
        self._watch.count("rounds", len(self._decisions))
        if error is not None:
            if isinstance(error, Exception):
                self.error = error
            if self.stopped_by is None:
                self.stopped_by, self.reason = "error", f"{type(error).__name__}: {error}"
        elif self.stopped_by is None:
            self.stopped_by, self.reason = "end", "the loop ended by itself"
        writer = self._watch.writer
        if writer is not None and self._decisions:
            last = self._last
            if last is not None and self._veiled is not None:
                last = self._veiled.round(self.view)
            writer.end(self.question_id, None if self._full else self.stopped_by, last)
            self._watch.complain()
        elif writer is not None and self._named:
            writer.release(self.question_id)
        if self._watch.observers:
            from suffice.live.observing import ended_of, tell

            took_s = time.perf_counter() - self._began
            ended = partial(ended_of, self, self._watch, self._ran, took_s, self._full)
            tell(self._watch.observers, ended)

    def _check_open(self) -> None:
        if self._phase == "new":
            raise UsageError(
                "the question was not entered; write: with watch.question(...) as loop: ..."
            )
        if self._phase == "over":
            raise UsageError(
                f"the question {self.question_id!r} ended ({self.reason}); a round of another one is "
                "observed in its own: with watch.question(...) as loop: ..."
            )

    __enter__ = begin

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        return self.end(error)

    async def __aenter__(self) -> Loop:
        return self.begin()

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        return self.end(error)


def _budget(decision: Decision, why: str) -> Decision:
    said = f"{why}; {decision.reason}"
    return replace(decision, action=Action.STOP, reason=said, stopped_by="budget")


def _draft_of(given: Any, begun: float) -> Draft:
    draft = Draft(given) if isinstance(given, str) else given
    if not isinstance(draft, Draft):
        raise DataError(f"it gave {given!r:.60}, and a suffice.Draft or a text was wanted")
    if draft.usage.latency_s is None:
        took = time.perf_counter() - begun
        draft = replace(draft, usage=replace(draft.usage, latency_s=took))
    with_draft(Round(answer=None), draft, probed=True)
    return draft
