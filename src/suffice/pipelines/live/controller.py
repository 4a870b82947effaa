"""Run a policy inside somebody's own loop, round by round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from suffice.errors import DataError, UsageError
from suffice.policies.file import load_policy
from suffice.protocols import Action, Decision, PolicyView, Signal, StopPolicy
from suffice.signals.table import signal_value
from suffice.trace.rounds.records import LoopView, Round


class Controller:
    """Watches one loop at a time and says when it has seen enough.

    Parameters
    ----------
    policy
        What decides.
    max_rounds
        The budget: at this round the loop stops whatever the policy says. ``None``: no budget.

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

    def __init__(self, policy: StopPolicy, *, max_rounds: int | None = None) -> None:
        if max_rounds is not None and max_rounds < 1:
            raise UsageError(f"max_rounds must be at least 1, found {max_rounds}")
        self.policy = policy
        self.max_rounds = max_rounds
        self._specs: tuple[Signal, ...] = policy.specs
        self.start()

    @classmethod
    def load(cls, path: str | Path, *, max_rounds: int | None = None) -> Controller:
        """A controller from a policy file; its budget is the file's unless given here.

        Raises
        ------
        DataError
            When the file is not a policy this version can read.
        """
        file = load_policy(path)
        return cls(file.policy, max_rounds=file.max_rounds if max_rounds is None else max_rounds)

    def start(self, question: str = "", *, question_id: str | None = None) -> Controller:
        """Forget the rounds seen and begin a new question.

        ``question_id`` (default: the question's text) is what a policy that draws lots draws by.
        """
        self._loop = LoopView(question, ())
        self._question_id = question if question_id is None else question_id
        self._signals: dict[str, list[float]] = {spec.name: [] for spec in self._specs}
        self._stopped = False
        return self

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The rounds observed since the last start."""
        return self._loop.rounds

    def observe(self, finished: Round) -> Decision:
        """Take in a finished round and decide.

        Raises
        ------
        UsageError
            When the loop was already told to stop; call :meth:`start` for the next question.
        DataError
            When ``finished`` is no :class:`Round`.
        """
        if not isinstance(finished, Round):
            raise DataError(
                f"observe() takes a suffice.Round, found {type(finished).__name__}; "
                "write suffice.Round(answer=...)"
            )
        if self._stopped:
            raise UsageError("this loop was told to stop; call start() before the next question")
        self._loop = loop = LoopView(self._loop.question, (*self._loop.rounds, finished))
        for spec in self._specs:
            self._signals[spec.name].append(signal_value(spec, loop))
        decision = self._decide(loop)
        self._stopped = decision.stop
        return decision

    def _decide(self, loop: LoopView) -> Decision:
        number = len(loop.rounds)
        view = PolicyView(
            round=number, signals=self._signals, loop=loop, question_id=self._question_id
        )
        decision = self.policy.decide(view)
        if decision.stop:
            return replace(decision, stopped_by="policy")
        if self.max_rounds is not None and number >= self.max_rounds:
            return replace(
                decision,
                action=Action.STOP,
                reason=f"the budget of {self.max_rounds} rounds is spent; {decision.reason}",
                stopped_by="budget",
            )
        return decision
