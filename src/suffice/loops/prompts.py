"""Prompts that only grow at their end, so that a server reuses its prefix: evidence, question last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from suffice.contracts import Message
from suffice.signals.evidence import evidence_text, one_line, passage_line
from suffice.trace.rounds.records import Passage

Prompt = str | tuple[Message, ...]  # a text to continue, or messages
Api = Literal["chat", "completion"]
NOTHING_NEW = "(nothing new was found)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStep:
    """A search: the query as said and as sent, its new passages, and those shown to the answerer.

    ``note`` tells the model after it where the loop stands.
    """

    said: str
    query: str
    found: tuple[Passage, ...]
    shown: tuple[Passage, ...] = ()
    answer: str = ""
    note: str = ""


def passage_lines(passages: Sequence[Passage]) -> list[str]:
    return [passage_line(passage.title, passage.text or "") for passage in passages]


def in_reply(prompt: tuple[Message, ...], reply: str, request: str) -> tuple[Message, ...]:
    """Return a conversation with a reply to it and the next request."""
    return (
        *prompt,
        Message(role="assistant", content=reply),
        Message(role="user", content=request),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkedExample:
    """Evidence (empty for an answer from memory) and the reply that it should get."""

    evidence: tuple[Passage, ...]
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


def shelved(*titles: str) -> tuple[Passage, ...]:
    return tuple(Passage(id=title, title=title, text=SHELF[title]) for title in titles)


EXAMPLES: tuple[WorkedExample, ...] = (
    WorkedExample(
        evidence=shelved("Saltmere", "Wexcombe", "Gullhaven"),
        question="In what year was Wexcombe granted market rights?",
        answer="1417",
        confidence=5,
    ),
    WorkedExample(
        evidence=shelved("The Quiet Orchard", "The Ferry", "Ama Tolliver", "Bram Essiwick"),
        question="Who was the brother of the director of the film The Quiet Orchard?",
        answer="Dorrit Essiwick",
        confidence=4,
    ),
    WorkedExample(
        evidence=shelved("Hollin Bridge", "Saltmere Bridge"),
        question="Who opened the older of the Hollin Bridge and the Saltmere Bridge?",
        answer="Piers Okonwe",
        confidence=3,
    ),
    WorkedExample(
        evidence=shelved("Ostrel Lighthouse", "Jora Pell"),
        question="Where does the keeper of the Ostrel Lighthouse live?",
        answer="Saltmere",
        confidence=4,
    ),
)

UNANSWERABLE = WorkedExample(
    evidence=shelved("Port Lanyard", "Tolliver Hall"),
    question="Which architect designed Tolliver Hall?",
    answer="unknown",
    confidence=1,
)
"""The evidence speaks of what is asked about and does not say it."""

CLOSED_BOOK_EXAMPLES = tuple(
    WorkedExample(evidence=(), question=question, answer=answer, confidence=confidence)
    for question, answer, confidence in (
        ("What is the capital of Norway?", "Oslo", 5),
        (
            "Who was born first, Johann Sebastian Bach or Wolfgang Amadeus Mozart?",
            "Johann Sebastian Bach",
            4,
        ),
        ("In what year did the Titanic sink?", "1912", 5),
        ("In which town was the painter of The Potato Eaters born?", "Zundert", 2),
    )
)


PromptName = Literal["answer-first", "confidence-first", "no-confidence", "bare", "in-loop"]
"""In what order answer and confidence are asked for.

``no-confidence``: the answer after its marker and no rating; ``bare``: the answer and nothing else;
``in-loop``: the same, as one more turn of the loop's own conversation.
"""
PROMPTS: tuple[PromptName, ...] = get_args(PromptName)


def asks_rating(name: PromptName) -> bool:
    """Whether the prompt asks for a rating of the answer."""
    return name in ("answer-first", "confidence-first")


def asks_marker(name: PromptName) -> bool:
    """Whether the reply holds ``Answer:``, which locates the answer's tokens."""
    return name not in ("bare", "in-loop")


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


ANSWER_NOW = (
    "Answer the question now, from what was found, with a short phrase. Reply with exactly this line:\n"
    "Answer: <short phrase>"
)
"""What asks for the answer at the end of a conversation."""


def answer_now(question: str) -> str:
    """Ask for the answer after worked examples: the question is told again, or a small model loses it."""
    return f"Question: {one_line(question)}\n{ANSWER_NOW}"


def reply_form(name: PromptName, answer: str, confidence: str) -> str:
    """Return answer and rating in the order that the prompt asks for."""
    if not asks_rating(name):
        return f"Answer: {answer}"
    lines = [f"Answer: {answer}", f"Confidence: {confidence}"]
    return "\n".join(lines if name == "answer-first" else reversed(lines))


def _example(name: PromptName, example: WorkedExample) -> str:
    evidence = "".join(f"{line}\n" for line in passage_lines(example.evidence))
    reply = reply_form(name, example.answer, str(example.confidence))
    shown = f"Evidence:\n{evidence}" if evidence else ""
    return f"{shown}Question: {example.question}\n{reply}"


def continued(instructions: str, examples: Iterable[str], asked: str, label: str) -> str:
    """Return a prompt for a completion model, which continues after ``label``."""
    return "\n\n".join([instructions, *examples, f"{asked}\n{label}"])


def render_prompt(
    question: str, passages: Sequence[Passage], *, api: Api, name: PromptName = "answer-first"
) -> Prompt:
    """Return the prompt over the passages so far; it begins as the prompt over fewer of them."""
    bare = not asks_marker(name)
    instructions = _BARE_INSTRUCTIONS if bare else _INSTRUCTIONS
    examples = _BARE_EXAMPLES if bare else EXAMPLES
    asked = evidence_text(passages), f"Question: {one_line(question)}"
    return _rendered(instructions, examples, asked, api=api, name=name)


def render_closed_book(question: str, *, api: Api, name: PromptName = "answer-first") -> Prompt:
    """Return the prompt without passages, for the answer from memory (round 0)."""
    instructions = _CLOSED_BOOK if asks_marker(name) else _BARE_CLOSED_BOOK
    asked = (f"Question: {one_line(question)}",)
    return _rendered(instructions, CLOSED_BOOK_EXAMPLES, asked, api=api, name=name)


def _rendered(
    instructions: str,
    examples: Sequence[WorkedExample],
    asked: Sequence[str],
    *,
    api: Api,
    name: PromptName,
) -> Prompt:
    if asks_rating(name):
        instructions = f"{instructions} {_RATING}"
    if api == "completion":
        # a bare answer follows its label, so that the reply is the answer alone
        label = "" if asks_marker(name) else "Answer:"
        worked = (_example(name, example) for example in examples)
        return continued(instructions, worked, "\n".join(asked), label)
    if asks_marker(name):
        lines = "these two lines" if asks_rating(name) else "this line"
        form = reply_form(name, "<short phrase>", "<1-5>")
        instructions = f"{instructions} Reply with exactly {lines}:\n{form}"
    return (Message(role="user", content="\n\n".join([instructions, *asked])),)


FinalAnswer = Literal["short", "ircot"]
"""``short``: the answer alone; ``ircot``: behind a chain of thought, after "So the answer is:"."""
SO_THE_ANSWER = "So the answer is:"
FINAL_ANSWERS: tuple[FinalAnswer, ...] = get_args(FinalAnswer)
FOLLOW_UP = "Follow-up:"  # what a completion model continues with its next question
VERDICT = "Analysis:"  # what it continues with its verdict
_THOUGHT = "Reasoning:"

_STEP_BY_STEP = (
    "A main question is answered step by step. Each step has a follow-up question, a document that was "
    "found for it, and the intermediate answer that the document gives. A follow-up question asks for one "
    "missing fact, names whom or what it is about, and never repeats an earlier one. When a document does "
    "not help, the next follow-up question asks in other words, or for something else. At the end the main "
    "question is answered"
)
_FINAL: Mapping[FinalAnswer, str] = {
    "short": "with a short phrase, from the steps alone.",
    "ircot": "by reasoning from the steps alone, one fact a sentence, and last with a short phrase after "
    f"the words: {SO_THE_ANSWER}",
}
_RATED = "The answer is rated from 1 (a guess) to 5 (certain) by how sure it is."
_ASK = "Ask the next follow-up question."
_REPEATED = "That was asked before. Ask another follow-up question, about a fact still missing."
_READ = (
    "Answer the question from the document alone, in a few words and without a sentence around them. If "
    "the document does not say it, answer: unknown"
)
_JUDGE = (
    "A main question is to be answered from what was found for follow-up questions. Say in one or two "
    "sentences which facts the answer needs and which of them the steps state, then decide:\n"
    "<STOP> when every fact that the answer needs is there,\n"
    "<CONTINUE> when one is missing."
)


def _came(step: SearchStep, *, shown: bool) -> list[str]:
    """Return the lines that a follow-up question added, without its documents unless ``shown``."""
    documents = (passage_lines(step.found) or [NOTHING_NEW]) if shown else []
    read = [f"Document: {document}" for document in documents]
    return [
        *read,
        f"Intermediate answer: {one_line(step.answer)}",
        *([step.note] if step.note else []),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transcript:
    question: str
    steps: tuple[SearchStep, ...]

    def text(self, *, shown: bool) -> str:
        lines = [f"Main question: {self.question}"]
        for step in self.steps:
            lines += [f"{FOLLOW_UP} {one_line(step.query)}", *_came(step, shown=shown)]
        return "\n".join(lines)

    def turns(self, *, shown: bool, last: str) -> list[Message]:
        """Return the transcript for a chat model that asks the questions; ``last`` is the last request."""
        came = (_came(step, shown=shown) for step in self.steps)
        said = [[f"Main question: {self.question}"], *came]
        wanted = [*(_ASK for _ in self.steps), last]
        turns = []
        for number, (lines, asked) in enumerate(zip(said, wanted, strict=True)):
            turns.append(Message(role="user", content="\n".join([*lines, asked])))
            if number < len(self.steps):
                query = one_line(self.steps[number].query)
                turns.append(Message(role="assistant", content=query))
        return turns


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worked(_Transcript):
    """An example; ``missing`` says why its first step is not enough, ``enough`` why all are."""

    answer: str
    confidence: int
    missing: str
    enough: str
    thought: str


def _step(query: str, found: tuple[Passage, ...], answer: str) -> SearchStep:
    return SearchStep(said="", query=query, found=found, answer=answer)


_MOUTH = "Saltmere is a harbour in Hanno, at the mouth of the river Iver."
_EXAMPLES: tuple[_Worked, ...] = (
    _Worked(
        question="Who was the brother of the director of the film The Quiet Orchard?",
        steps=(
            _step(
                "Who directed the film The Quiet Orchard?",
                shelved("The Quiet Orchard"),
                "Bram Essiwick",
            ),
            _step(
                "Who was the brother of Bram Essiwick?", shelved("Bram Essiwick"), "Dorrit Essiwick"
            ),
        ),
        answer="Dorrit Essiwick",
        confidence=5,
        missing="The director, Bram Essiwick, is known. His brother is not named.",
        enough="The director, Bram Essiwick, and his brother, Dorrit Essiwick, are both named.",
        thought="The Quiet Orchard was directed by Bram Essiwick. His brother was Dorrit Essiwick.",
    ),
    _Worked(
        question="Who opened the older of the Hollin Bridge and the Saltmere Bridge?",
        steps=(
            _step(
                "When was the Hollin Bridge opened, and by whom?",
                shelved("Hollin Bridge"),
                "1877, by Dorrit Vane",
            ),
            _step(
                "When was the Saltmere Bridge opened?",
                (Passage(id="", title="Saltmere", text=_MOUTH),),
                "unknown",
            ),
            _step(
                "Who opened the Saltmere Bridge over the Iver, and in what year?",
                shelved("Saltmere Bridge"),
                "Piers Okonwe, in 1851",
            ),
        ),
        answer="Piers Okonwe",
        confidence=4,
        missing="The Hollin Bridge is of 1877. When the Saltmere Bridge was opened is not stated.",
        enough="1851 is before 1877, so the Saltmere Bridge is older, and Piers Okonwe opened it.",
        thought="The Hollin Bridge was opened in 1877 by Dorrit Vane. The Saltmere Bridge was opened in 1851 "
        "by Piers Okonwe. 1851 is before 1877, so the Saltmere Bridge is the older one.",
    ),
)


def _again(question: str) -> str:
    return f"Back to the main question: {one_line(question)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUpPrompts:
    """The prompts of one loop; without ``documents`` the model sees earlier answers alone when it asks."""

    api: Api
    documents: bool
    form: PromptName
    final: FinalAnswer = "short"

    def next_query(self, question: str, steps: Sequence[SearchStep]) -> Prompt:
        """Return the prompt for the next question; a completion model continues :data:`FOLLOW_UP`."""
        asked = self._so_far(question, steps, last=_ASK)
        return f"{asked}\n{FOLLOW_UP}" if isinstance(asked, str) else asked

    def conversation(self, question: str, steps: Sequence[SearchStep]) -> Prompt:
        return self._so_far(question, steps, last="")

    def answer_in_loop(self, question: str, steps: Sequence[SearchStep]) -> Prompt:
        """Return the prompt for the answer at the end of the same conversation, as in its examples."""
        asked = self._so_far(question, steps, last=self._wanted(one_line(question)))
        return f"{asked}\n{_again(question)}\nAnswer:" if isinstance(asked, str) else asked

    def _so_far(self, question: str, steps: Sequence[SearchStep], *, last: str) -> Prompt:
        made = _made(question, steps)
        if self.api == "completion":
            text = self._continued(made.text(shown=self.documents), "", shown=self.documents)
            return text.removesuffix("\n")
        return (
            *self._examples_as_turns(shown=self.documents),
            *made.turns(shown=self.documents, last=last),
        )

    def another_query(self, prompt: Prompt, repeated: str) -> Prompt:
        if isinstance(prompt, str):
            return f"{prompt} {one_line(repeated)}\n{_REPEATED}\n{FOLLOW_UP}"
        return in_reply(prompt, one_line(repeated), _REPEATED)

    def answer(self, question: str, steps: Sequence[SearchStep]) -> Prompt:
        made = _made(question, steps, shown=True)
        if self.api == "completion":
            label = "" if asks_marker(self.form) else "Answer:"
            if self.final == "ircot" and self.form != "confidence-first":
                label = _THOUGHT
            asked = f"{made.text(shown=True)}\n{_again(made.question)}"
            return self._continued(asked, label, shown=True)
        return (
            *self._examples_as_turns(shown=True),
            *made.turns(shown=True, last=self._wanted(made.question)),
        )

    def verdict(self, question: str, steps: Sequence[SearchStep]) -> Prompt:
        """Return the prompt for a verdict on the steps; a completion model continues :data:`VERDICT`."""
        made = _made(question, steps)
        judged = [pair for example in _EXAMPLES for pair in _judged(example)]
        if self.api == "completion":
            examples = (f"{asked}\n{reply}" for asked, reply in judged)
            return continued(_JUDGE, examples, made.text(shown=True), VERDICT)
        return few_shot(_JUDGE, judged, made.text(shown=True))

    def _continued(self, asked: str, label: str, *, shown: bool) -> str:
        examples = (
            f"{example.text(shown=shown)}\n{_again(example.question)}\n{self._reply(example)}"
            for example in _EXAMPLES
        )
        return continued(self._instructions, examples, asked, label)

    def _examples_as_turns(self, *, shown: bool) -> list[Message]:
        turns = [Message(role="system", content=self._instructions)]
        for example in _EXAMPLES:
            turns += example.turns(shown=shown, last=self._wanted(example.question))
            turns.append(Message(role="assistant", content=self._reply(example)))
        return turns

    @property
    def _instructions(self) -> str:
        told = f"{_STEP_BY_STEP} {_FINAL[self.final]}"
        return f"{told} {_RATED}" if asks_rating(self.form) else told

    def _reply(self, example: _Worked) -> str:
        said = reply_form(self.form, example.answer, str(example.confidence))
        thought = f"{_THOUGHT} {example.thought} {SO_THE_ANSWER}"
        return said if self.final == "short" else said.replace("Answer:", thought, 1)

    def _wanted(self, question: str) -> str:
        how = "" if self.final == "short" else ", reasoning step by step"
        return f"Answer the main question{how}: {question}"


def _judged(example: _Worked) -> list[tuple[str, str]]:
    first = _Transcript(question=example.question, steps=example.steps[:1])
    return [
        (first.text(shown=True), f"{VERDICT} {example.missing}\nDecision: <CONTINUE>"),
        (example.text(shown=True), f"{VERDICT} {example.enough}\nDecision: <STOP>"),
    ]


def few_shot(instructions: str, examples: Iterable[tuple[str, str]], asked: str) -> Prompt:
    """Return a prompt for a chat model, with examples as turns."""
    turns = [Message(role="system", content=instructions)]
    for request, reply in examples:
        turns.append(Message(role="user", content=request))
        turns.append(Message(role="assistant", content=reply))
    return (*turns, Message(role="user", content=asked))


def _made(question: str, steps: Sequence[SearchStep], *, shown: bool = False) -> _Transcript:
    """Return the steps with the documents found, or with those ``shown`` to the answerer."""
    made = (replace(step, found=step.shown) if shown else step for step in steps)
    return _Transcript(question=one_line(question), steps=tuple(made))


def _asked_of(query: str, passages: Sequence[Passage]) -> str:
    shown = "\n".join(f"Document: {document}" for document in passage_lines(passages))
    return f"{shown}\nQuestion: {query}"


def render_reading(query: str, passages: Sequence[Passage], *, api: Api) -> Prompt:
    asked = _asked_of(one_line(query), passages)
    examples = [
        (_asked_of(step.query, step.found), step.answer)
        for example in _EXAMPLES
        for step in example.steps
    ]
    if api == "chat":
        return few_shot(_READ, examples, asked)
    worked = (f"{asked}\nAnswer: {answer}" for asked, answer in examples)
    return continued(_READ, worked, asked, "Answer:")
