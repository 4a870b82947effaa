"""Answer one question over a corpus, stopping when a policy says so."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from suffice.errors import BackendError, UsageError
from suffice.pipelines.controller import Controller
from suffice.pipelines.cumulative import CumulativePipeline, CumulativeSettings
from suffice.protocols import (
    ChatModel,
    Decision,
    Generation,
    GenerationRequest,
    Retriever,
    StopPolicy,
)
from suffice.signals.recorded import JUDGE_SUPPORT
from suffice.trace.records import Question, Round

__all__ = ["Answered", "Budgets", "answer", "check_policy"]

StoppedBy = Literal["policy", "budget", "end", "error"]

_PROVIDED = frozenset(
    {"passages", "candidate_scores", "verbalized_confidence", "query", "response"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Limits beside the policy; whichever is reached first ends the loop. ``None``: no limit."""

    tokens: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer with the rounds behind it.

    ``stopped_by``: the policy, a budget, the end of the passages, or an error after at least one
    round; ``reason`` says more. ``decisions[t - 1]`` was taken after round t.
    """

    answer: str
    rounds: tuple[Round, ...]
    decisions: tuple[Decision, ...]
    stopped_by: StoppedBy
    reason: str


def check_policy(policy: StopPolicy, settings: CumulativeSettings, *, logprobs: bool) -> None:
    """Refuse, before the first call, a policy that reads what this loop does not produce.

    Raises
    ------
    UsageError
        Naming the signal, what it needs and what to use instead.
    """
    provided = set(_PROVIDED)
    if settings.samples:
        provided.add("samples")
    if logprobs:
        provided.add("tokens")
    for spec in policy.specs:
        missing = [column for column in spec.needs if column not in provided]
        if spec.recorded_only and not (settings.judge and spec.name == JUDGE_SUPPORT.name):
            missing = ["a recorded value"]
        if missing:
            why = (
                "the model's server gives no log-probabilities"
                if "tokens" in missing
                else (f"this loop does not produce {missing[0]}")
            )
            instead = f"; use {spec.instead} instead" if spec.instead else ""
            raise UsageError(f"the policy reads {spec.name!r}, but {why}{instead}")


def answer(
    question: str,
    retriever: Retriever,
    model: ChatModel,
    controller: Controller,
    settings: CumulativeSettings,
    budgets: Budgets = Budgets(),
) -> Answered:
    """Run the cumulative loop until the controller, a budget or the passages end it.

    Raises
    ------
    BackendError
        When the model fails before the first round is finished; a later failure returns the last
        answer with ``stopped_by = "error"``.
    UsageError
        For a question without text, and when the retriever gives no passage at all.
    """
    if not question.strip():
        raise UsageError("the question is empty; type what you want to know")
    metered = _Metered(model)
    loop = CumulativePipeline(metered, settings)
    controller.start(question)
    decisions: list[Decision] = []
    started = time.perf_counter()
    try:
        for finished in loop.rounds(Question(id="ask", text=question), retriever):
            decision = controller.observe(finished)
            decisions.append(decision)
            if decision.stop:
                return _answered(
                    controller, decisions, decision.stopped_by or "policy", decision.reason
                )
            spent = _spent(metered.tokens, budgets, time.perf_counter() - started)
            if spent:
                return _answered(controller, decisions, "budget", spent)
    except BackendError as error:
        if not controller.rounds:
            raise
        return _answered(controller, decisions, "error", str(error))
    if not controller.rounds:
        raise UsageError("the corpus gave no passage for this question")
    if len(controller.rounds) >= settings.rounds:
        spent = f"the budget of {settings.rounds} rounds is spent"
        return _answered(controller, decisions, "budget", spent)
    return _answered(controller, decisions, "end", "no passage is left to show")


class _Metered:
    """The model with a count of the tokens of all its calls: answers, samples and verdicts."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self.tokens = 0

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def api(self) -> Literal["chat", "completion"]:
        return self._model.api

    def generate(self, request: GenerationRequest) -> Generation:
        reply = self._model.generate(request)
        self.tokens += (reply.prompt_tokens or 0) + (reply.completion_tokens or 0)
        return reply


def _spent(tokens: int, budgets: Budgets, seconds: float) -> str | None:
    if budgets.seconds is not None and seconds >= budgets.seconds:
        return f"the budget of {budgets.seconds:g} seconds is spent"
    if budgets.tokens is not None and tokens >= budgets.tokens:
        return f"the budget of {budgets.tokens} tokens is spent"
    return None


def _answered(
    controller: Controller, decisions: Sequence[Decision], stopped_by: StoppedBy, reason: str
) -> Answered:
    return Answered(
        answer=controller.rounds[-1].answer,
        rounds=controller.rounds,
        decisions=tuple(decisions),
        stopped_by=stopped_by,
        reason=reason,
    )
