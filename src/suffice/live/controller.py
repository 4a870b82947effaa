"""The controller: it runs a policy inside the user's own loop, round by round."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from suffice.contracts import Decision, StopPolicy
from suffice.errors import DataError, SufficeWarning
from suffice.live.loop import Loop
from suffice.live.watching import Watching
from suffice.policies.policy_file import PolicyFile
from suffice.trace.rounds.records import LoopView, Question, Round


class Controller:
    """A controller of one loop at a time: it says when the loop has seen enough.

    Questions in parallel threads or asyncio tasks need a :meth:`copy` each, or their rounds mix.

    Parameters
    ----------
    policy
        The policy that decides.
    max_rounds
        The budget: the loop stops at this round at the latest. ``None``: no budget.

    Examples
    --------
    >>> from suffice.policies.rules.policy import Rule
    >>> controller = Controller(Rule(rule="answer_stable"), max_rounds=5)
    >>> controller.observe(Round(answer="Oslo")).stop
    False
    >>> decision = controller.observe(Round(answer="oslo."))
    >>> decision.stop, decision.reason
    (True, 'answer_stable holds at round 2: answer_stable = 1')
    """

    def __init__(
        self, policy: StopPolicy | PolicyFile | str | Path, *, max_rounds: int | None = None
    ) -> None:
        self._of(Watching.of(policy, max_rounds=max_rounds, raises=True))

    def _of(self, watching: Watching) -> None:
        self._watching = watching
        self._loop = self._fresh("", "")

    @classmethod
    def load(cls, path: str | Path, *, max_rounds: int | None = None) -> Controller:
        """Make a controller from a policy file, with the file's budget unless given here."""
        return cls(path, max_rounds=max_rounds)

    @property
    def policy(self) -> StopPolicy:
        """The policy that decides."""
        return cast("StopPolicy", self._watching.policy)

    @property
    def max_rounds(self) -> int | None:
        """The budget in rounds; ``None``: no budget."""
        return self._watching.max_rounds

    def copy(self) -> Controller:
        """Return a fresh controller with the same policy and budget, for another question."""
        copied = object.__new__(type(self))
        copied._of(self._watching)
        return copied

    def start(self, question: str = "", *, question_id: str | None = None) -> Controller:
        """Forget the observed rounds and begin a new question.

        A policy with random draws takes them from ``question_id`` (default: the question's text).
        """
        self._loop = self._fresh(question, question if question_id is None else question_id)
        return self

    def _fresh(self, question: str, question_id: str) -> Loop:
        return Loop(self._watching, Question(id=question_id, text=question))

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The rounds observed since the last start."""
        return self._loop.rounds

    @property
    def signals(self) -> Mapping[str, Sequence[float]]:
        """The policy's signals in those rounds, by name; NaN: undefined."""
        return self._loop.signals

    def observe(self, finished: Round) -> Decision:
        """Take in a finished round and decide; after a stop return the same decision, and count no round.

        A warning names inputs of the policy's signals that the first round lacks, and a loop that goes on.

        Raises
        ------
        DataError
            If ``finished`` is no :class:`Round`.
        """
        if not isinstance(finished, Round):
            raise DataError(
                f"observe() takes a suffice.Round, found {type(finished).__name__}; "
                "write suffice.Round(answer=...)"
            )
        told = self._loop.told
        if told is not None and told.stop:
            return _again(told, self._loop.view, finished)
        return self._loop.follow(finished)


def _again(decision: Decision, loop: LoopView, finished: Round) -> Decision:
    if finished != loop.current:  # the same round once more is a step that a framework repeats
        warnings.warn(
            f"the loop of {loop.question!r:.60} was told to stop after round {len(loop.rounds)} and went "
            "on; it gets the same decision again, and the round does not count. End the loop when .stop is "
            "true, and begin the next question with controller.start(question)",
            SufficeWarning,
            stacklevel=3,
        )
    return decision
