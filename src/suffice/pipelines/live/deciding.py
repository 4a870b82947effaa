"""A policy over one question's rounds as they come: signals, checks of the first round, the decision."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from suffice.errors import SufficeWarning, UsageError
from suffice.policies.file import PolicyFile
from suffice.protocols import Action, Decision, PolicyView, Signal, StopPolicy
from suffice.signals.available import lack_live, policy_lacks
from suffice.signals.table import signal_value
from suffice.trace.rounds.records import LoopView, Round


@dataclass(slots=True, eq=False, kw_only=True)
class QuestionState:
    """One question: its rounds so far, their signals and the last decision."""

    loop: LoopView
    question_id: str
    signals: dict[str, list[float]]
    decision: Decision | None = None


class Decider:
    """A policy under a budget, for any number of questions.

    Parameters
    ----------
    policy
        What decides.
    max_rounds
        The budget: at this round the loop stops whatever the policy says. ``None``: that of a policy file,
        or no budget.
    strict
        Whether a loop that does not give what the policy decides by is refused in its first round rather
        than warned of, once.
    """

    def __init__(
        self, policy: StopPolicy | PolicyFile, *, max_rounds: int | None, strict: bool
    ) -> None:
        if isinstance(policy, PolicyFile):
            max_rounds = policy.max_rounds if max_rounds is None else max_rounds
            policy = policy.policy
        if isinstance(policy, str | PurePath):
            raise UsageError(
                f"a controller is given a policy, found the text {str(policy)!r}; write "
                "suffice.Controller.load(PATH) for a policy file, suffice.Controller("
                "suffice.RulePolicy(rule=TEXT)) for a rule"
            )
        if max_rounds is not None and max_rounds < 1:
            raise UsageError(f"max_rounds must be at least 1, found {max_rounds}")
        self.policy = policy
        self.max_rounds = max_rounds
        self.strict = strict
        self._specs: tuple[Signal, ...] = policy.specs
        self._seen: set[str] = set()  # signals that were looked into

    def no_signals(self) -> dict[str, list[float]]:
        """The signals of a question without rounds."""
        return {spec.name: [] for spec in self._specs}

    def decide(self, now: QuestionState, finished: Round) -> Decision:
        """Take in a round and decide; a round that could not be decided about was not taken in.

        Raises
        ------
        UsageError
            If it is strict, when a first round does not hold what the policy decides by.

        Warns
        -----
        SufficeWarning
            When it does not, naming the signals and their inputs.
        """
        try:
            return self._decide(now, finished)
        except BaseException:
            for column in now.signals.values():
                del column[len(now.loop.rounds) :]
            raise

    def _decide(self, now: QuestionState, finished: Round) -> Decision:
        loop = LoopView(now.loop.question, (*now.loop.rounds, finished))
        signals = now.signals
        for spec in self._specs:
            signals[spec.name].append(signal_value(spec, loop))
        number = len(loop.rounds)
        if number == 1:
            self._check_inputs(loop, signals)
        decision = self.policy.decide(
            PolicyView(round=number, signals=signals, loop=loop, question_id=now.question_id)
        )
        now.loop = loop
        if decision.stop:
            decision = replace(decision, stopped_by="policy")
        elif self.max_rounds is not None and number >= self.max_rounds:
            decision = replace(
                decision,
                action=Action.STOP,
                reason=f"the budget of {self.max_rounds} rounds is spent; {decision.reason}",
                stopped_by="budget",
            )
        now.decision = decision
        return decision

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
