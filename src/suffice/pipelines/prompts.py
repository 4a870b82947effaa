"""Prompts that let a server reuse its prefix: instructions, examples, evidence so far, question last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from suffice.pipelines.few_shot import EXAMPLES, WorkedExample
from suffice.protocols import Message
from suffice.trace.records import Passage

__all__ = ["PROMPTS", "PromptName", "render_prompt"]

PromptName = Literal["answer-first", "confidence-first"]
PROMPTS: tuple[PromptName, ...] = get_args(PromptName)

_MAX_PASSAGE_CHARACTERS = 4_000


_INSTRUCTIONS = (
    "Answer each question from the evidence above it, with a short phrase and nothing else. "
    "Then rate from 1 (a guess) to 5 (certain) how sure you are."
)


def _reply(name: PromptName, answer: str, confidence: str) -> str:
    lines = [f"Answer: {answer}", f"Confidence: {confidence}"]
    return "\n".join(lines if name == "answer-first" else reversed(lines))


def _one_line(text: str) -> str:
    """White space squeezed, so that a passage cannot imitate the prompt's own lines."""
    return " ".join(text[:_MAX_PASSAGE_CHARACTERS].split())


def _evidence(passages: Sequence[Passage]) -> str:
    lines = [f"[{_one_line(each.title)}] {_one_line(each.text or '')}" for each in passages]
    return "\n".join(["Evidence:", *lines])


def _example(name: PromptName, example: WorkedExample) -> str:
    evidence = "\n".join(f"[{title}] {text}" for title, text in example.evidence)
    reply = _reply(name, example.answer, str(example.confidence))
    return f"Evidence:\n{evidence}\nQuestion: {example.question}\n{reply}"


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
    evidence = _evidence(passages)
    asked = f"Question: {_one_line(question)}\n"
    if api == "completion":
        examples = "\n\n".join(_example(name, example) for example in EXAMPLES)
        return f"{_INSTRUCTIONS}\n\n{examples}\n\n{evidence}\n{asked}"
    layout = _reply(name, "<short phrase>", "<1-5>")
    text = f"{_INSTRUCTIONS} Reply with exactly these two lines:\n{layout}\n\n{evidence}\n\n{asked}"
    return (Message(role="user", content=text.rstrip("\n")),)
