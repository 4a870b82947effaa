"""Prompts that let a server reuse its prefix: instructions, examples, evidence so far, question last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from suffice.pipelines.few_shot import CLOSED_BOOK_EXAMPLES, EXAMPLES, WorkedExample
from suffice.protocols import Message
from suffice.signals.evidence import evidence_text, one_line
from suffice.trace.records import Passage

__all__ = ["PROMPTS", "PromptName", "render_closed_book", "render_prompt"]

PromptName = Literal["answer-first", "confidence-first"]
PROMPTS: tuple[PromptName, ...] = get_args(PromptName)

_RATING = "Then rate from 1 (a guess) to 5 (certain) how sure you are."
_FORM = f"with a short phrase and nothing else. {_RATING}"
_INSTRUCTIONS = f"Answer each question from the evidence above it, {_FORM}"
_CLOSED_BOOK = f"Answer each question from memory, {_FORM}"


def _reply(name: PromptName, answer: str, confidence: str) -> str:
    lines = [f"Answer: {answer}", f"Confidence: {confidence}"]
    return "\n".join(lines if name == "answer-first" else reversed(lines))


def _example(name: PromptName, example: WorkedExample) -> str:
    evidence = "".join(f"[{title}] {text}\n" for title, text in example.evidence)
    reply = _reply(name, example.answer, str(example.confidence))
    shown = f"Evidence:\n{evidence}" if evidence else ""
    return f"{shown}Question: {example.question}\n{reply}"


def _examples(name: PromptName, examples: Sequence[WorkedExample]) -> str:
    return "\n\n".join(_example(name, example) for example in examples)


def _chat(instructions: str, name: PromptName, asked: str) -> tuple[Message, ...]:
    layout = _reply(name, "<short phrase>", "<1-5>")
    text = f"{instructions} Reply with exactly these two lines:\n{layout}\n\n{asked}"
    return (Message(role="user", content=text),)


def render_prompt(
    question: str,
    passages: Sequence[Passage],
    *,
    api: Literal["chat", "completion"],
    name: PromptName = "answer-first",
) -> str | tuple[Message, ...]:
    """The prompt over the passages so far.

    Two prompts over passages 1..t and 1..t+1 share everything up to the end of passage t. A
    completion model continues after the question; a chat model gets one user message. White space
    is squeezed, and title, text and question are cut after 4,000 characters each.
    """
    evidence = evidence_text(passages)
    asked = f"Question: {one_line(question)}"
    if api == "completion":
        return f"{_INSTRUCTIONS}\n\n{_examples(name, EXAMPLES)}\n\n{evidence}\n{asked}\n"
    return _chat(_INSTRUCTIONS, name, f"{evidence}\n\n{asked}")


def render_closed_book(
    question: str, *, api: Literal["chat", "completion"], name: PromptName = "answer-first"
) -> str | tuple[Message, ...]:
    """The prompt without passages: what the model answers from memory alone (round 0)."""
    asked = f"Question: {one_line(question)}"
    if api == "completion":
        return f"{_CLOSED_BOOK}\n\n{_examples(name, CLOSED_BOOK_EXAMPLES)}\n\n{asked}\n"
    return _chat(_CLOSED_BOOK, name, asked)
