"""Prompts that let a server reuse its prefix: instructions, examples, evidence so far, question last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from suffice.pipelines.few_shot import (
    CLOSED_BOOK_EXAMPLES,
    EXAMPLES,
    UNANSWERABLE,
    WorkedExample,
)
from suffice.protocols import Message
from suffice.signals.evidence import evidence_text, one_line
from suffice.trace.records import Passage

__all__ = ["PROMPTS", "PromptName", "render_closed_book", "render_prompt", "reply_form"]

PromptName = Literal["answer-first", "confidence-first", "bare"]
"""In what order answer and confidence are asked for; ``bare``: the answer and nothing else."""
PROMPTS: tuple[PromptName, ...] = get_args(PromptName)

_RATING = "Then rate from 1 (a guess) to 5 (certain) how sure you are."
_FORM = f"with a short phrase and nothing else. {_RATING}"
_INSTRUCTIONS = f"Answer each question from the evidence above it, {_FORM}"
_CLOSED_BOOK = f"Answer each question from memory, {_FORM}"
_BARE_FORM = "in a few words, with the answer alone and no sentence around it."
_BARE_INSTRUCTIONS = (
    "Read the evidence and answer the question below it. Rely on the evidence only, not on what you "
    f"know besides. Answer {_BARE_FORM} If the evidence does not settle the question, answer: unknown"
)
_BARE_CLOSED_BOOK = f"Answer the question from memory, {_BARE_FORM}"
# the first and the last leave the strongest trace in a small model: neither of them gives up
_BARE_EXAMPLES = (EXAMPLES[0], UNANSWERABLE, *EXAMPLES[1:])


def reply_form(name: PromptName, answer: str, confidence: str) -> str:
    """Answer and rating in the order in which they are asked for."""
    if name == "bare":
        return f"Answer: {answer}"
    lines = [f"Answer: {answer}", f"Confidence: {confidence}"]
    return "\n".join(lines if name == "answer-first" else reversed(lines))


def _example(name: PromptName, example: WorkedExample) -> str:
    evidence = "".join(f"[{title}] {text}\n" for title, text in example.evidence)
    reply = reply_form(name, example.answer, str(example.confidence))
    shown = f"Evidence:\n{evidence}" if evidence else ""
    return f"{shown}Question: {example.question}\n{reply}"


def _examples(name: PromptName, examples: Sequence[WorkedExample]) -> str:
    return "\n\n".join(_example(name, example) for example in examples)


def _completion(
    instructions: str, name: PromptName, examples: Sequence[WorkedExample], asked: str
) -> str:
    # a bare answer is asked for by its label, so that what is generated is the answer alone
    label = "Answer:" if name == "bare" else ""
    return f"{instructions}\n\n{_examples(name, examples)}\n\n{asked}\n{label}"


def _chat(instructions: str, name: PromptName, asked: str) -> tuple[Message, ...]:
    form = ""
    if name != "bare":
        form = (
            f" Reply with exactly these two lines:\n{reply_form(name, '<short phrase>', '<1-5>')}"
        )
    return (Message(role="user", content=f"{instructions}{form}\n\n{asked}"),)


def render_prompt(
    question: str,
    passages: Sequence[Passage],
    *,
    api: Literal["chat", "completion"],
    name: PromptName = "answer-first",
) -> str | tuple[Message, ...]:
    """The prompt over the passages so far.

    Two prompts of which the second shows further passages share everything up to the end of the
    first's last passage. A completion model continues after the question; a chat model gets one user
    message. White space is squeezed, and title, text and question are cut after 4,000 characters
    each.
    """
    evidence, asked = evidence_text(passages), f"Question: {one_line(question)}"
    bare = name == "bare"
    instructions = _BARE_INSTRUCTIONS if bare else _INSTRUCTIONS
    if api == "completion":
        return _completion(
            instructions, name, _BARE_EXAMPLES if bare else EXAMPLES, f"{evidence}\n{asked}"
        )
    return _chat(instructions, name, f"{evidence}\n\n{asked}")


def render_closed_book(
    question: str, *, api: Literal["chat", "completion"], name: PromptName = "answer-first"
) -> str | tuple[Message, ...]:
    """The prompt without passages: what the model answers from memory alone (round 0)."""
    asked = f"Question: {one_line(question)}"
    instructions = _BARE_CLOSED_BOOK if name == "bare" else _CLOSED_BOOK
    if api == "completion":
        return _completion(instructions, name, CLOSED_BOOK_EXAMPLES, asked)
    return _chat(instructions, name, asked)
