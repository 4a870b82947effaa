"""Prompts of loops that ask follow-up questions, which only grow at their end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from suffice.contracts import Message
from suffice.loops.answers.prompts import (
    NOTHING_NEW,
    SHELF,
    Api,
    Prompt,
    PromptName,
    SearchStep,
    asks_marker,
    asks_rating,
    in_reply,
    passage_lines,
    reply_form,
)
from suffice.signals.evidence import one_line, passage_line
from suffice.trace.rounds.records import Passage

FinalAnswer = Literal["short", "ircot"]
"""``short``: the answer alone; ``ircot``: behind a chain of thought, after "So the answer is:"."""
SO_THE_ANSWER = "So the answer is:"
FINAL_ANSWERS: tuple[FinalAnswer, ...] = get_args(FinalAnswer)
FOLLOW_UP = "Follow-up:"
"""What a completion model continues with its next question."""
VERDICT = "Analysis:"
"""What it continues with its verdict."""
_THOUGHT = "Reasoning:"

_INSTRUCTIONS = (
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A follow-up question, its documents as lines, and what they answer."""

    query: str
    documents: tuple[str, ...]
    answer: str

    def lines(self, *, shown: bool) -> list[str]:
        """What came of the question; without its documents where they are not ``shown``."""
        read = [f"Document: {text}" for text in self.documents or (NOTHING_NEW,)] if shown else []
        return [*read, f"Intermediate answer: {self.answer}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transcript:
    """A main question and the steps made for it, each on lines of its own."""

    question: str
    steps: tuple[_Step, ...]

    def text(self, *, shown: bool) -> str:
        """For a model that continues."""
        lines = [f"Main question: {self.question}"]
        for step in self.steps:
            lines += [f"{FOLLOW_UP} {step.query}", *step.lines(shown=shown)]
        return "\n".join(lines)

    def turns(self, *, shown: bool, last: str) -> list[Message]:
        """For a chat: it asks the follow-up questions; ``last`` is what is wanted in the end."""
        said = [[f"Main question: {self.question}"], *(e.lines(shown=shown) for e in self.steps)]
        wanted = [*(_ASK for _ in self.steps), last]
        turns = []
        for number, (lines, asked) in enumerate(zip(said, wanted, strict=True)):
            turns.append(Message(role="user", content="\n".join([*lines, asked])))
            if number < len(self.steps):
                turns.append(Message(role="assistant", content=self.steps[number].query))
        return turns


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worked:
    """What an answer lacks after its first step (``missing``), and that it lacks nothing in the end."""

    made: _Transcript
    answer: str
    confidence: int
    missing: str
    enough: str
    thought: str


def _shelved(title: str) -> str:
    return passage_line(title, SHELF[title])


_EXAMPLES: tuple[_Worked, ...] = (
    _Worked(
        made=_Transcript(
            question="Who was the brother of the director of the film The Quiet Orchard?",
            steps=(
                _Step(
                    query="Who directed the film The Quiet Orchard?",
                    documents=(_shelved("The Quiet Orchard"),),
                    answer="Bram Essiwick",
                ),
                _Step(
                    query="Who was the brother of Bram Essiwick?",
                    documents=(_shelved("Bram Essiwick"),),
                    answer="Dorrit Essiwick",
                ),
            ),
        ),
        answer="Dorrit Essiwick",
        confidence=5,
        missing="The director, Bram Essiwick, is known. His brother is not named.",
        enough="The director, Bram Essiwick, and his brother, Dorrit Essiwick, are both named.",
        thought="The Quiet Orchard was directed by Bram Essiwick. His brother was Dorrit Essiwick.",
    ),
    _Worked(
        made=_Transcript(
            question="Who opened the older of the Hollin Bridge and the Saltmere Bridge?",
            steps=(
                _Step(
                    query="When was the Hollin Bridge opened, and by whom?",
                    documents=(_shelved("Hollin Bridge"),),
                    answer="1877, by Dorrit Vane",
                ),
                _Step(
                    query="When was the Saltmere Bridge opened?",
                    documents=(
                        passage_line(
                            "Saltmere",
                            "Saltmere is a harbour in Hanno, at the mouth of the river Iver.",
                        ),
                    ),
                    answer="unknown",
                ),
                _Step(
                    query="Who opened the Saltmere Bridge over the Iver, and in what year?",
                    documents=(_shelved("Saltmere Bridge"),),
                    answer="Piers Okonwe, in 1851",
                ),
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
    """The prompts of one loop; without ``documents`` a question is asked for by earlier answers alone."""

    api: Api
    documents: bool
    form: PromptName
    final: FinalAnswer = "short"

    def next_query(self, question: str, steps: Sequence[SearchStep]) -> Prompt:
        """Asks for the next follow-up question; a completion model continues after :data:`FOLLOW_UP`."""
        made = _made(question, steps)
        if self.api == "completion":
            head = self._head(shown=self.documents)
            return f"{head}\n\n{made.text(shown=self.documents)}\n{FOLLOW_UP}"
        return (
            *self._examples_as_turns(shown=self.documents),
            *made.turns(shown=self.documents, last=_ASK),
        )

    def another_query(self, prompt: Prompt, repeated: str) -> Prompt:
        """Asks once more when the reply to that prompt was a question asked before."""
        if isinstance(prompt, str):
            return f"{prompt} {one_line(repeated)}\n{_REPEATED}\n{FOLLOW_UP}"
        return in_reply(prompt, one_line(repeated), _REPEATED)

    def answer(self, question: str, steps: Sequence[SearchStep]) -> Prompt:
        """Asks for the answer to the main question from all of the steps, documents included."""
        made = _made(question, steps, shown=True)
        if self.api == "completion":
            label = "" if asks_marker(self.form) else "Answer:"
            if self.final == "ircot" and self.form != "confidence-first":
                label = _THOUGHT
            asked = _again(made.question)
            return f"{self._head(shown=True)}\n\n{made.text(shown=True)}\n{asked}\n{label}"
        return (
            *self._examples_as_turns(shown=True),
            *made.turns(shown=True, last=self._wanted(made.question)),
        )

    def verdict(self, question: str, steps: Sequence[SearchStep]) -> Prompt:
        """Asks whether the steps suffice; a completion model continues after :data:`VERDICT`."""
        made = _made(question, steps)
        judged = [pair for example in _EXAMPLES for pair in _judged(example)]
        if self.api == "completion":
            examples = "\n\n".join(f"{asked}\n{reply}" for asked, reply in judged)
            return f"{_JUDGE}\n\n{examples}\n\n{made.text(shown=True)}\n{VERDICT}"
        return _few_shot(_JUDGE, judged, made.text(shown=True))

    def _head(self, *, shown: bool) -> str:
        examples = [
            f"{example.made.text(shown=shown)}\n{_again(example.made.question)}\n{self._reply(example)}"
            for example in _EXAMPLES
        ]
        return "\n\n".join([self._instructions, *examples])

    def _examples_as_turns(self, *, shown: bool) -> list[Message]:
        turns = [Message(role="system", content=self._instructions)]
        for example in _EXAMPLES:
            turns += example.made.turns(shown=shown, last=self._wanted(example.made.question))
            turns.append(Message(role="assistant", content=self._reply(example)))
        return turns

    @property
    def _instructions(self) -> str:
        told = f"{_INSTRUCTIONS} {_FINAL[self.final]}"
        return f"{told} {_RATED}" if asks_rating(self.form) else told

    def _reply(self, example: _Worked) -> str:
        said = reply_form(self.form, example.answer, str(example.confidence))
        thought = f"{_THOUGHT} {example.thought} {SO_THE_ANSWER}"
        return said if self.final == "short" else said.replace("Answer:", thought, 1)

    def _wanted(self, question: str) -> str:
        how = "" if self.final == "short" else ", reasoning step by step"
        return f"Answer the main question{how}: {question}"


def _judged(example: _Worked) -> list[tuple[str, str]]:
    """What is asked after its first step and at its end, and the reply each should get."""
    first = _Transcript(question=example.made.question, steps=example.made.steps[:1])
    return [
        (first.text(shown=True), f"{VERDICT} {example.missing}\nDecision: <CONTINUE>"),
        (example.made.text(shown=True), f"{VERDICT} {example.enough}\nDecision: <STOP>"),
    ]


def _few_shot(instructions: str, examples: Sequence[tuple[str, str]], asked: str) -> Prompt:
    turns = [Message(role="system", content=instructions)]
    for request, reply in examples:
        turns.append(Message(role="user", content=request))
        turns.append(Message(role="assistant", content=reply))
    return (*turns, Message(role="user", content=asked))


def _made(question: str, steps: Sequence[SearchStep], *, shown: bool = False) -> _Transcript:
    """The steps with the documents found, or with those that were ``shown`` to the answerer."""
    made = (
        _Step(
            query=one_line(step.query),
            documents=tuple(passage_lines(step.shown if shown else step.found)),
            answer=one_line(step.answer),
        )
        for step in steps
    )
    return _Transcript(question=one_line(question), steps=tuple(made))


def _asked_of(query: str, documents: Sequence[str]) -> str:
    shown = "\n".join(f"Document: {document}" for document in documents)
    return f"{shown}\nQuestion: {query}"


def render_reading(query: str, passages: Sequence[Passage], *, api: Api) -> Prompt:
    """Asks for the answer to a follow-up question from the documents found for it, and nothing else."""
    asked = _asked_of(one_line(query), passage_lines(passages))
    examples = [
        (_asked_of(step.query, step.documents), step.answer)
        for example in _EXAMPLES
        for step in example.made.steps
    ]
    if api == "chat":
        return _few_shot(_READ, examples, asked)
    worked = "\n\n".join(f"{asked}\nAnswer: {answer}" for asked, answer in examples)
    return f"{_READ}\n\n{worked}\n\n{asked}\nAnswer:"
