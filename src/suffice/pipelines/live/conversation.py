"""The last message of a conversation, put as a question that can be understood alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from suffice.pipelines.answers.calls import usage_of
from suffice.protocols import ChatModel, GenerationRequest, Message
from suffice.trace.rounds.records import Usage

_MOST_TOKENS = 96
_MOST_LETTERS = 1_000  # of a message, from its beginning
_INSTRUCTIONS = (
    "Rewrite the user's last message as one question that can be understood without the conversation. Put "
    "names in place of words such as he, it or there, and change nothing else.\n\n"
    "User: Who wrote Hedda Gabler?\n"
    "Assistant: Henrik Ibsen\n"
    "User: And where was he born?\n"
    "Question: Where was Henrik Ibsen born?"
)


def put_alone(model: ChatModel, earlier: Sequence[Message], question: str) -> tuple[str, Usage]:
    """The question as one that needs no conversation, by one greedy call, and what that cost.

    Where the reply holds none, the question stays as it is.

    Parameters
    ----------
    model
        Is asked.
    earlier
        What was said before, oldest first; at least one message.
    question
        The user's last message.

    Raises
    ------
    BackendError
        When the model fails.
    """
    said = [*earlier, Message(role="user", content=question)]
    lines = [
        f"{turn.role.capitalize()}: {' '.join(turn.content.split())[:_MOST_LETTERS]}"
        for turn in said
    ]
    prompt = "\n".join([_INSTRUCTIONS, "", *lines, "Question:"])
    chats = model.api == "chat"
    reply = model.generate(
        GenerationRequest(
            prompt=(Message(role="user", content=prompt),) if chats else prompt,
            max_tokens=_MOST_TOKENS,
            stop=("\n\n",) if chats else ("\n",),
        )
    )
    first, _, _ = reply.completions[0].text.strip().partition("\n")
    usage = replace(usage_of(reply, calls=1), latency_s=reply.latency_s)
    return first.removeprefix("Question:").strip() or question, usage
