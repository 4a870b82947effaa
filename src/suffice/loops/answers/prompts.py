"""Prompts that let a server reuse its prefix: instructions, examples, evidence so far, question last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from suffice.contracts import Message
from suffice.signals.evidence import evidence_text, one_line, passage_line
from suffice.trace.rounds.records import Passage

Prompt = str | tuple[Message, ...]
"""A text to continue, or messages."""
Api = Literal["chat", "completion"]
NOTHING_NEW = "(nothing new was found)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStep:
    """A search that was made."""

    said: str
    query: str
    found: tuple[Passage, ...]
    shown: tuple[Passage, ...] = ()
    answer: str = ""


def passage_lines(passages: Sequence[Passage]) -> list[str]:
    """Each as :func:`suffice.signals.evidence.passage_line`."""
    return [passage_line(passage.title, passage.text or "") for passage in passages]


def in_reply(prompt: tuple[Message, ...], reply: str, request: str) -> tuple[Message, ...]:
    """A conversation, the reply to it, and what is asked then."""
    return (
        *prompt,
        Message(role="assistant", content=reply),
        Message(role="user", content=request),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkedExample:
    """Evidence as (title, text), empty for an answer from memory, and the reply it should get."""

    evidence: tuple[tuple[str, str], ...]
    question: str
    answer: str
    confidence: int


SHELF: Mapping[str, str] = {
    "Saltmere": "Saltmere is a harbour in Hanno, at the mouth of the river Iver. Saltmere was granted "
    "market rights in 1302.",
    "Wexcombe": "Wexcombe is a village in Hanno, at the mouth of the river Orrin. Wexcombe was granted "
    "market rights in 1417.",
    "Gullhaven": "Gullhaven is a harbour in Hanno, at the mouth of the river Teal. Gullhaven was granted "
    "market rights in 1266.",
    "The Quiet Orchard": "The Quiet Orchard is a film directed by Bram Essiwick. It was shot in nine weeks "
    "in Wexcombe.",
    "The Ferry": "The Ferry is a film directed by Ama Tolliver. It was shot in Saltmere.",
    "Ama Tolliver": "Ama Tolliver was a film director, born in Gullhaven in 1893. The brother of Tolliver "
    "was Piers Tolliver.",
    "Bram Essiwick": "Bram Essiwick was a film director, born in Port Lanyard in 1889. The brother of "
    "Essiwick was Dorrit Essiwick.",
    "Hollin": "Hollin is a village in Hanno, known for its orchards.",
    "Hollin Bridge": "The Hollin Bridge crosses a gorge. It was opened in 1877 by Dorrit Vane.",
    "Saltmere Bridge": "The Saltmere Bridge carries a road over the Iver. It was opened in 1851 by "
    "Piers Okonwe.",
    "Ostrel Lighthouse": "The Ostrel Lighthouse stands on Cape Hanno. The keeper of the Ostrel Lighthouse is "
    "Jora Pell.",
    "Jora Pell": "Jora Pell was born in Wexcombe and lives in Saltmere.",
    "Port Lanyard": "Port Lanyard is a harbour in Hanno. Its lifeboat was built in 1921.",
    "Tolliver Hall": "Tolliver Hall is a concert hall in Gullhaven, named after Ama Tolliver.",
}
"""Passages of the worked examples, by title: of a land that no model has read about."""


def _shelved(*titles: str) -> tuple[tuple[str, str], ...]:
    return tuple((title, SHELF[title]) for title in titles)


EXAMPLES: tuple[WorkedExample, ...] = (
    WorkedExample(
        evidence=_shelved("Saltmere", "Wexcombe", "Gullhaven"),
        question="In what year was Wexcombe granted market rights?",
        answer="1417",
        confidence=5,
    ),
    WorkedExample(
        evidence=_shelved("The Quiet Orchard", "The Ferry", "Ama Tolliver", "Bram Essiwick"),
        question="Who was the brother of the director of the film The Quiet Orchard?",
        answer="Dorrit Essiwick",
        confidence=4,
    ),
    WorkedExample(
        evidence=_shelved("Hollin Bridge", "Saltmere Bridge"),
        question="Who opened the older of the Hollin Bridge and the Saltmere Bridge?",
        answer="Piers Okonwe",
        confidence=3,
    ),
    WorkedExample(
        evidence=_shelved("Ostrel Lighthouse", "Jora Pell"),
        question="Where does the keeper of the Ostrel Lighthouse live?",
        answer="Saltmere",
        confidence=4,
    ),
)

UNANSWERABLE = WorkedExample(
    evidence=_shelved("Port Lanyard", "Tolliver Hall"),
    question="Which architect designed Tolliver Hall?",
    answer="unknown",
    confidence=1,
)
"""The evidence speaks of what is asked about and does not say it."""

CLOSED_BOOK_EXAMPLES: tuple[WorkedExample, ...] = (
    WorkedExample(
        evidence=(), question="What is the capital of Norway?", answer="Oslo", confidence=5
    ),
    WorkedExample(
        evidence=(),
        question="Who was born first, Johann Sebastian Bach or Wolfgang Amadeus Mozart?",
        answer="Johann Sebastian Bach",
        confidence=4,
    ),
    WorkedExample(
        evidence=(), question="In what year did the Titanic sink?", answer="1912", confidence=5
    ),
    WorkedExample(
        evidence=(),
        question="In which town was the painter of The Potato Eaters born?",
        answer="Zundert",
        confidence=2,
    ),
)


PromptName = Literal["answer-first", "confidence-first", "no-confidence", "bare"]
"""In what order answer and confidence are asked for.

``no-confidence``: the answer after its marker and no rating; ``bare``: the answer and nothing else.
"""
PROMPTS: tuple[PromptName, ...] = get_args(PromptName)


def asks_rating(name: PromptName) -> bool:
    """Whether the reply is to rate its answer."""
    return name in ("answer-first", "confidence-first")


def asks_marker(name: PromptName) -> bool:
    """Whether the reply itself is to hold ``Answer:``, by which the answer's tokens are found."""
    return name != "bare"


_RATING = "Then rate from 1 (a guess) to 5 (certain) how sure you are."
_FORM = "with a short phrase and nothing else."
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
    if not asks_rating(name):
        return f"Answer: {answer}"
    lines = [f"Answer: {answer}", f"Confidence: {confidence}"]
    return "\n".join(lines if name == "answer-first" else reversed(lines))


def _example(name: PromptName, example: WorkedExample) -> str:
    evidence = "".join(f"{passage_line(*passage)}\n" for passage in example.evidence)
    reply = reply_form(name, example.answer, str(example.confidence))
    shown = f"Evidence:\n{evidence}" if evidence else ""
    return f"{shown}Question: {example.question}\n{reply}"


def _completion(
    instructions: str, name: PromptName, examples: Sequence[WorkedExample], asked: str
) -> str:
    # a bare answer is asked for by its label, so that what is generated is the answer alone
    label = "" if asks_marker(name) else "Answer:"
    worked = (_example(name, example) for example in examples)
    return "\n\n".join([instructions, *worked, f"{asked}\n{label}"])


def _chat(instructions: str, name: PromptName, asked: str) -> tuple[Message, ...]:
    form = ""
    if asks_marker(name):
        lines = "these two lines" if asks_rating(name) else "this line"
        form = f" Reply with exactly {lines}:\n{reply_form(name, '<short phrase>', '<1-5>')}"
    return (Message(role="user", content=f"{instructions}{form}\n\n{asked}"),)


def _told(name: PromptName, instructions: str) -> str:
    return f"{instructions} {_RATING}" if asks_rating(name) else instructions


def render_prompt(
    question: str,
    passages: Sequence[Passage],
    *,
    api: Api,
    name: PromptName = "answer-first",
) -> Prompt:
    """The prompt over the passages so far.

    Two prompts of which the second shows further passages share everything up to the end of the
    first's last passage. A completion model continues after the question; a chat model gets one user
    message. White space is squeezed, and title, text and question are cut after 4,000 characters
    each.
    """
    evidence, asked = evidence_text(passages), f"Question: {one_line(question)}"
    bare = name == "bare"
    instructions = _BARE_INSTRUCTIONS if bare else _told(name, _INSTRUCTIONS)
    if api == "completion":
        return _completion(
            instructions, name, _BARE_EXAMPLES if bare else EXAMPLES, f"{evidence}\n{asked}"
        )
    return _chat(instructions, name, f"{evidence}\n\n{asked}")


def render_closed_book(question: str, *, api: Api, name: PromptName = "answer-first") -> Prompt:
    """The prompt without passages: what the model answers from memory alone (round 0)."""
    asked = f"Question: {one_line(question)}"
    instructions = _BARE_CLOSED_BOOK if name == "bare" else _told(name, _CLOSED_BOOK)
    if api == "completion":
        return _completion(instructions, name, CLOSED_BOOK_EXAMPLES, asked)
    return _chat(instructions, name, asked)
