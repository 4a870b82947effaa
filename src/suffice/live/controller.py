"""Run a policy inside somebody's own loop, round by round."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from suffice.errors import DataError, SufficeWarning, UsageError
from suffice.numbers.fields import Fields, number
from suffice.policies.file import (
    PolicyFile,
    check_version,
    load_policy,
    names_policy_file,
    pack_policy,
    policy_hash,
    unpack_policy,
)
from suffice.protocols import Action, Decision, Signal, StopPolicy
from suffice.signals.available import lack_live, policy_lacks
from suffice.signals.table import GrowingRecord, SignalTable, decide
from suffice.trace.rounds.records import LoopView, Round, as_document, round_of_document

CHECKPOINT_VERSION = 1
_ONE_EACH = "a controller follows one question at a time, so give each its own: controller.copy()"


@dataclass(slots=True, eq=False)
class _Start:
    """What remembers the thread or task that began a question; ``cut``: another one began the next."""

    controller: object
    question: str
    cut: bool = False


_LAST_START: ContextVar[_Start | None] = ContextVar("suffice_last_start", default=None)
"""What this thread or asyncio task, or what it was made from, began last."""


@dataclass(slots=True, eq=False, kw_only=True)
class QuestionState:
    """One question: the record that its rounds make, their signals and the last decision."""

    record: GrowingRecord
    question_id: str
    signals: dict[str, list[float]]
    decision: Decision | None = None

    @property
    def loop(self) -> LoopView:
        """Its rounds so far."""
        return self.record.view


def new_state(decider: Decider | None, question: str = "", question_id: str = "") -> QuestionState:
    """A question without rounds, of which a policy will read its signals."""
    specs = () if decider is None else decider.policy.specs
    return QuestionState(
        record=GrowingRecord(LoopView(question, ()), specs),
        question_id=question_id,
        signals={spec.name: [] for spec in specs},
    )


class Decider:
    """A policy under a budget, for any number of questions."""

    def __init__(
        self, policy: StopPolicy | PolicyFile | str | Path, *, max_rounds: int | None, strict: bool
    ) -> None:
        if isinstance(policy, str | PurePath):
            from suffice.live.chosen import named_policy

            policy = named_policy(policy)
        if isinstance(policy, PolicyFile):
            max_rounds = policy.max_rounds if max_rounds is None else max_rounds
            policy = policy.policy
        if max_rounds is not None and max_rounds < 1:
            raise UsageError(f"max_rounds must be at least 1, found {max_rounds}")
        self.policy = policy
        self.max_rounds = max_rounds
        self.strict = strict
        self._specs: tuple[Signal, ...] = policy.specs
        self._seen: set[str] = set()  # signals that were looked into

    def decide(self, now: QuestionState, finished: Round) -> Decision:
        """Take in a round and decide; a round that could not be decided about was not taken in."""
        before = now.loop
        try:
            return self._decide(now, finished)
        except BaseException:
            now.record.see(before)
            for column in now.signals.values():
                del column[len(before.rounds) :]
            raise

    def _decide(self, now: QuestionState, finished: Round) -> Decision:
        for name, value in now.record.observe(finished).items():
            now.signals[name].append(value)
        loop, signals = now.loop, now.signals
        number = len(loop.rounds)
        if number == 1 != self.max_rounds:  # with one round nothing is decided by them
            self._check_inputs(loop, signals)
        decision = decide(self.policy, SignalTable.of_loop(loop, signals, now.question_id))
        now.decision = self._bounded(decision, number)
        return now.decision

    def decide_whole(
        self, view: LoopView, question_id: str
    ) -> tuple[Decision, SignalTable, int | None]:
        """The decision after the last of a question's rounds, what was read in all, the first stop."""
        table = SignalTable.of_view(view, self._specs, question_id)
        fired = np.flatnonzero(self.policy.fires(table)[0])
        decision = self._bounded(decide(self.policy, table), table.n_rounds)
        return decision, table, int(fired[0]) + 1 if fired.size else None

    def _bounded(self, decision: Decision, number: int) -> Decision:
        """The decision under the budget of rounds."""
        if decision.stop:
            return replace(decision, stopped_by="policy")
        if self.max_rounds is None or number < self.max_rounds:
            return decision
        return replace(
            decision,
            action=Action.STOP,
            reason=f"the budget of {self.max_rounds} rounds is spent; {decision.reason}",
            stopped_by="budget",
        )

    def _check_inputs(self, loop: LoopView, signals: Mapping[str, Sequence[float]]) -> None:
        """Say in the first round which signals this loop does not give; silence would cost its budget."""
        undefined = [
            spec
            for spec in self._specs
            if spec.name not in self._seen and math.isnan(signals[spec.name][0])
        ]
        lacks = [lack for spec in undefined if (lack := lack_live(spec, loop)) is not None]
        if not self.strict:
            self._seen.update(spec.name for spec in undefined)
        if not lacks:
            return
        said = policy_lacks(self.policy, lacks)
        if self.strict:
            raise UsageError(said)
        warnings.warn(
            f"{said}. Without it the loop may run to its budget", SufficeWarning, stacklevel=5
        )


@dataclass(slots=True, eq=False, kw_only=True)
class _UnderWay(QuestionState):
    """A question that a controller follows; ``over`` is one that another thread had under way then."""

    begun: _Start | None = None
    over: str | None = None
    busy: bool = False

    @property
    def open(self) -> bool:
        """Whether rounds may follow."""
        stopped = self.decision is not None and self.decision.stop
        return not stopped and (self.begun is not None or bool(self.loop.rounds))


class Controller:
    """Watches one loop at a time and says when it has seen enough.

    Where questions run side by side, in threads or asyncio tasks, each takes its own :meth:`copy`: one
    controller that several began at once is refused rather than mixing them.

    Parameters
    ----------
    policy
        What decides.
    max_rounds
        The budget: at this round the loop stops whatever the policy says. ``None``: no budget.
    strict
        Whether a loop that does not give what the policy decides by is refused in its first round rather
        than warned of, once for all copies.

    Examples
    --------
    >>> from suffice.policies.rules.policy import RulePolicy
    >>> controller = Controller(RulePolicy(rule="answer_stable"), max_rounds=5)
    >>> controller.observe(Round(answer="Oslo")).stop
    False
    >>> decision = controller.observe(Round(answer="oslo."))
    >>> decision.stop, decision.reason
    (True, 'answer_stable holds at round 2: answer_stable = 1')
    """

    def __init__(
        self,
        policy: StopPolicy | PolicyFile | str | Path,
        *,
        max_rounds: int | None = None,
        strict: bool = False,
    ) -> None:
        self._decider = Decider(policy, max_rounds=max_rounds, strict=strict)
        self._mark = object()
        self._now = self._fresh("", "")

    @classmethod
    def load(
        cls, path: str | Path, *, max_rounds: int | None = None, strict: bool = False
    ) -> Controller:
        """A controller from a policy file; its budget is the file's unless given here."""
        given = load_policy(path) if names_policy_file(str(path)) else path
        return cls(given, max_rounds=max_rounds, strict=strict)

    @property
    def policy(self) -> StopPolicy:
        """What decides."""
        return self._decider.policy

    @property
    def max_rounds(self) -> int | None:
        """The budget."""
        return self._decider.max_rounds

    @property
    def strict(self) -> bool:
        """Whether a loop that lacks what the policy decides by is refused."""
        return self._decider.strict

    def copy(self) -> Controller:
        """Another controller of the same policy and budget, for another question; it saw no round."""
        copied = Controller(self.policy, max_rounds=self.max_rounds, strict=self.strict)
        copied._decider = self._decider
        return copied

    # --- a question -----------------------------------------------------------------------------
    def start(self, question: str = "", *, question_id: str | None = None) -> Controller:
        """Forget the rounds seen and begin a new question.

        ``question_id`` (default: the question's text) is what a policy that draws lots draws by.
        """
        before = self._now
        own = before.begun is not None and _LAST_START.get() is before.begun
        if before.begun is not None and not own:
            before.begun.cut = True
        now = self._fresh(question, question if question_id is None else question_id)
        now.begun = _Start(self._mark, question)
        now.over = before.loop.question if before.open and not own else None
        self._now = now
        _LAST_START.set(now.begun)
        return self

    def _fresh(self, question: str, question_id: str) -> _UnderWay:
        new = new_state(self._decider, question, question_id)
        return _UnderWay(record=new.record, question_id=question_id, signals=new.signals)

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The rounds observed since the last start."""
        return self._now.loop.rounds

    @property
    def signals(self) -> Mapping[str, Sequence[float]]:
        """What the policy read in those rounds, by the signal's name; NaN: undefined."""
        return self._now.signals

    def observe(self, finished: Round) -> Decision:
        """Take in a finished round and decide.

        After a stop the same decision is given again, and the round is not counted.

        Raises
        ------
        UsageError
            When another thread or task began a question meanwhile: each needs a :meth:`copy`. If it is
            strict, when a first round does not hold what the policy decides by.
        DataError
            When ``finished`` is no :class:`Round`.

        Warns
        -----
        SufficeWarning
            When a first round does not hold what the policy decides by, naming the signals and their
            inputs; when a loop that was told to stop went on.
        """
        if not isinstance(finished, Round):
            raise DataError(
                f"observe() takes a suffice.Round, found {type(finished).__name__}; "
                "write suffice.Round(answer=...)"
            )
        now = self._now
        if now.busy or _LAST_START.get() is not now.begun:
            self._refuse_mixing(now)
        before = now.decision
        if before is not None and before.action is Action.STOP:
            return _again(before, now.loop, finished)
        now.busy = True
        try:
            return self._decider.decide(now, finished)
        finally:
            now.busy = False

    def _refuse_mixing(self, now: _UnderWay) -> None:
        """Refuse a round of another question than the one under way, as far as can be told."""
        held = _LAST_START.get()
        if held is not None and held.controller is self._mark and held.cut:
            raise UsageError(
                f"this round is of the question {_short(held.question)}, and another thread or task has "
                f"begun {_short(now.loop.question)} on the same controller since; {_ONE_EACH}.start(question)"
            )
        if now.busy:
            raise UsageError(f"two threads are in observe() at once; {_ONE_EACH}")
        if now.over is not None:
            over, now.over = now.over, None
            warnings.warn(
                f"the question {_short(now.loop.question)} was begun while {_short(over)} was under way, and "
                "this round comes from a thread or task that began neither, so which of the two it is of "
                f"cannot be told; {_ONE_EACH}.start(question)",
                SufficeWarning,
                stacklevel=3,
            )

    # --- checkpoints ----------------------------------------------------------------------------
    def to_dict(self, *, policy: bool = True) -> dict[str, Any]:
        """The question under way as strict JSON, for a checkpoint or a framework's state.

        ``policy=False`` leaves the policy out, which :meth:`from_dict` is then to be given.

        Raises
        ------
        UsageError
            For a policy without a file format, unless it is left out.
        """
        now = self._now
        return {
            "suffice_controller": CHECKPOINT_VERSION,
            "policy": pack_policy(self.policy) if policy else None,
            "policy_hash": _hash(self.policy),
            "max_rounds": self.max_rounds,
            "strict": self.strict,
            "question": now.loop.question,
            "question_id": now.question_id,
            "rounds": [as_document(finished) for finished in now.loop.rounds],
            "signals": {
                name: [None if math.isnan(value) else as_document(value) for value in values]
                for name, values in now.signals.items()
            },
            "decision": None if now.decision is None else as_document(now.decision),
        }

    @classmethod
    def from_dict(
        cls, document: Mapping[str, Any], *, policy: StopPolicy | None = None
    ) -> Controller:
        """The controller of which :meth:`to_dict` gave this document; it goes on as that one would have.

        ``policy`` stands for the document's own, so that it need not be built again.

        Raises
        ------
        DataError
            For what is no such document, or one of a newer version, naming the field.
        UsageError
            When the document holds no policy and none is given, or another one than it was made under.
        """
        if not isinstance(document, Mapping):
            raise DataError(f"a checkpoint is an object, found {document!r:.60}")
        fields = Fields(document)
        check_version(document, "suffice_controller", CHECKPOINT_VERSION)
        fields.need("question", "question_id", "rounds", "signals")
        if policy is None:
            if document.get("policy") is None:
                raise UsageError(
                    "this checkpoint holds no policy; give it: Controller.from_dict(document, policy=...)"
                )
            policy = unpack_policy(fields.of("policy", dict))
        elif document.get("policy_hash") not in (None, _hash(policy)):
            raise UsageError(
                f"this checkpoint was made under another policy, {document['policy_hash']}, than the one "
                f"given, {_hash(policy)}; give that one, or begin the question anew"
            )
        controller = cls(
            policy, max_rounds=fields.of("max_rounds", int), strict=fields.of("strict", bool, False)
        )
        now = controller._fresh(fields.of("question", str), fields.of("question_id", str))
        rounds = tuple(map(round_of_document, fields.of("rounds", list)))
        now.record.see(LoopView(now.loop.question, rounds))
        now.signals = _signals_of(fields.part("signals"), tuple(now.signals), len(rounds))
        decision = fields.of("decision", dict)
        now.decision = None if decision is None else _decision_of(Fields(decision, "decision"))
        controller._now = now
        return controller


def _short(question: str) -> str:
    return repr(question if len(question) <= 60 else f"{question[:57]}...")


def _again(decision: Decision, loop: LoopView, finished: Round) -> Decision:
    """The decision that stopped the loop, for whoever did not end it."""
    if finished != loop.current:  # the same round once more is a step that a framework repeats
        warnings.warn(
            f"the loop of {_short(loop.question)} was told to stop after round {len(loop.rounds)} and went "
            "on; that decision is given again and the round is not counted. End the loop where .stop is "
            "true, and begin the next question with controller.start(question)",
            SufficeWarning,
            stacklevel=3,
        )
    return decision


def _hash(policy: StopPolicy) -> str | None:
    """What tells the policy from others; ``None`` for one without a file format."""
    try:
        return policy_hash(policy)
    except UsageError:
        return None


def _signals_of(fields: Fields, names: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """The values of a checkpoint's rounds."""
    if set(fields.document) != set(names):
        raise DataError(
            f"the policy reads {', '.join(names) or 'none'}, found {', '.join(fields.document) or 'none'}",
            column="signals",
        )
    values = {name: fields.of(name, list, []) for name in names}
    for name, column in values.items():
        if len(column) != rounds:
            raise DataError(
                f"must have a value for each of {rounds} rounds, found {len(column)}",
                column=fields.column(name),
            )
    return {name: [_float(value, name) for value in column] for name, column in values.items()}


def _decision_of(fields: Fields) -> Decision:
    values = fields.of("values", dict, {})
    return Decision(
        action=Action(fields.one_of("action", tuple(Action))),
        reason=fields.of("reason", str, ""),
        values={
            name: None if value is None else _float(value, name) for name, value in values.items()
        },
        confidence=fields.number_or_none("confidence"),
        stopped_by=None
        if fields.document.get("stopped_by") is None
        else fields.one_of("stopped_by", ("policy", "budget")),
    )


def _float(value: object, column: str) -> float:
    """A number, with what JSON has no numbers for."""
    if value is None:
        return math.nan
    return float(value) if value in ("nan", "inf", "-inf") else number(value, column)
