"""Answers asked on the side, from what a loop has found so far, where the loop itself gives none."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from suffice.contracts import ChatModel
from suffice.loops.answers.calls import AnswerCall, AnswerSettings, ask_answer
from suffice.loops.answers.follow_up_prompts import FollowUpPrompts
from suffice.loops.answers.prompts import Api, Prompt, PromptName, SearchStep, render_prompt
from suffice.options import settings_of
from suffice.trace.rounds.records import Draft, LoopView, Passage, Round

AnswerProbe = Callable[[LoopView], Draft]
"""Answers a loop's question from its rounds so far."""


def answer_probe(model: ChatModel, settings: AnswerSettings | None = None) -> AnswerProbe:
    r"""A function that asks the model for the answer to a loop's question from its rounds so far.

    It is what ``suffice probe`` asks in each round, by the prompts of our own loops: where every round so
    far has a query and an intermediate answer, these are shown with their passages, step by step, else
    the passages alone. Of passages that stand in several rounds the first is shown.

    Parameters
    ----------
    model
        Answers: one greedy call, and another for the samples where the settings want some. A function made
        of one that is safe to use from several threads is too.
    settings
        How it is asked; ``None``: for the answer first and then its rating, without samples.

    Examples
    --------
    >>> from suffice.testing.models import ScriptedModel
    >>> ask = answer_probe(ScriptedModel(["Answer: Oslo\nConfidence: 4"]))
    >>> draft = ask(LoopView("Where?", (Round(answer=None),)))
    >>> draft.answer, draft.verbalized_confidence, draft.usage.llm_calls
    ('Oslo', 4.0, 1)
    """
    asked = settings_of(AnswerSettings, settings)

    def ask(view: LoopView) -> Draft:
        started = time.perf_counter()
        call = AnswerCall(
            prompt=_prompt(view, model.api, asked.prompt),
            question_id=view.question,
            number=len(view.rounds),
        )
        made = ask_answer(model, call, asked, samples=asked.samples)
        return draft_of(made, seconds=time.perf_counter() - started)

    return ask


def draft_of(made: Round, *, seconds: float) -> Draft:
    """What a model answered in a round of nothing else, which took so many seconds."""
    return Draft(
        made.answer_text,
        response=made.response,
        tokens=made.tokens,
        samples=made.samples,
        verbalized_confidence=made.verbalized_confidence,
        parse_failure=made.parse_failure,
        # silent on what asking for an answer says nothing about, so that what a round holds of it stays
        usage=replace(
            made.usage,
            sample_calls=made.usage.sample_calls or None,
            judge_calls=None,
            rerank_calls=None,
            retrievals=None,
            latency_s=seconds,
        ),
    )


def _prompt(view: LoopView, api: Api, form: PromptName) -> Prompt:
    added = _added(view.rounds)
    if any(not round_.query or round_.intermediate_answer is None for round_ in view.rounds):
        shown = [passage for passages in added for passage in passages]
        return render_prompt(view.question, shown, api=api, name=form)
    steps = [
        SearchStep(
            said="",
            query=round_.query or "",
            found=passages,
            shown=passages,
            answer=round_.intermediate_answer or "",
        )
        for round_, passages in zip(view.rounds, added, strict=True)
    ]
    prompts = FollowUpPrompts(api=api, documents=True, form=form)
    return prompts.answer(view.question, steps)


def _added(rounds: Sequence[Round]) -> list[tuple[Passage, ...]]:
    """The passages of each round that no earlier one has."""
    seen: set[tuple[str, str, str | None]] = set()
    added = []
    for round_ in rounds:
        new = []
        for passage in round_.passages or ():
            key = (passage.id, passage.title, passage.text)
            if key not in seen:
                seen.add(key)
                new.append(passage)
        added.append(tuple(new))
    return added
