"""The ReAct loop: the model thinks, searches, reads its findings, and says when it would finish."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from suffice.contracts import MAX_REPLY_LETTERS, Message
from suffice.loops.calls import greedy, usage_sum
from suffice.loops.prompts import (
    NOTHING_NEW,
    Api,
    Prompt,
    SearchStep,
    answer_now,
    continued,
    in_reply,
    passage_lines,
    shelved,
)
from suffice.loops.query_loop import QueryChoice, QueryLoop, QueryLoopSettings
from suffice.scoring import normalize_answer
from suffice.signals.asking.looks import one_turn_more
from suffice.signals.evidence import one_line
from suffice.signals.known_signals import LLM_STOP
from suffice.trace.rounds.records import Passage, Usage

_STOP = ("\nObservation", "\nQuestion:")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactSettings(QueryLoopSettings):
    """Settings of rounds with a thought and an action, at most ``step`` new passages, and an answer."""

    pipeline: ClassVar[str] = "react"
    summary: ClassVar[str] = "the model thinks, and chooses each round's query"
    # an agent stops where it would by itself
    default_rule: ClassVar[str] = LLM_STOP.name

    rounds: int = 3
    max_action_tokens: int = 128


class ReactPipeline(QueryLoop):
    """A loop that chooses queries by thought and action (Yao et al. 2023).

    An action that cannot be read, or that repeats an earlier query, is asked for once more, with a reminder.
    If the second reply cannot be read either, the question is the query. A query repeated again is sent, and
    finds the next passages of the ranking. An agent that may not finish must search. If it finishes again,
    the question is the query.
    """

    settings: ReactSettings

    def choose(
        self, question: str, steps: Sequence[SearchStep], *, refused: QueryChoice | None = None
    ) -> QueryChoice:
        prompt = render_agent(question, steps, api=self.model.api)
        if refused is not None:
            text, usage = self._ask(render_once_more(prompt, refused.said), FORCED)
            action = parse_action(text)
            if action is not None and action.kind == "finish":
                action = replace(action, kind="search", argument=one_line(question))
        else:
            text, usage = self._ask(prompt, LABEL)
            action = parse_action(text)
            made = {normalize_answer(step.query) for step in steps}
            repeated = (
                action is not None
                and action.kind == "search"
                and normalize_answer(action.argument) in made
            )
            if action is None or repeated:
                again = render_repair(prompt, text, repeated=repeated)
                repaired, more = self._ask(again, REPAIR_LABEL)
                action = parse_action(repaired) or action
                text, usage = f"{text}\n\n{repaired}", usage_sum(usage, more)
        read = action or AgentAction(kind="search", argument=one_line(question))
        return QueryChoice(
            query=read.argument,
            said=said(read),
            action=text,
            usage=usage,
            finishes=read.kind == "finish",
            unread=action is None,
        )

    def conversation(self, question: str, steps: Sequence[SearchStep]) -> Prompt:
        return render_trail(question, steps, api=self.model.api)

    def answer_in_loop(self, question: str, steps: Sequence[SearchStep]) -> Prompt:
        return render_finish(question, steps, api=self.model.api)

    def _ask(self, prompt: Prompt, label: str) -> tuple[str, Usage]:
        text, usage = greedy(self.model, prompt, self.settings.max_action_tokens, _STOP)
        return (f"{label}{text}" if isinstance(prompt, str) else text), usage


# --- what it says ------------------------------------------------------------------------------
_MAX_THOUGHT = 400
_MAX_ARGUMENT = 300
_PAIRS = {"[": "]", "(": ")", "{": "}", "【": "】", "<": ">"}
_QUOTES = " \"'`“”‘’*"
_PLACEHOLDERS = frozenset({"query", "answer", "the query", "the answer", "..."})

_MARKUP = re.compile(r"[*`#]+|_{2,}")
# nothing below gives back what it took
_OBSERVATION = re.compile(r"^[^\w\n]*+observation", re.IGNORECASE | re.MULTILINE)
_VERBS = (
    re.compile(  # behind a label
        r"\b(?:next[ ]++)?action[ ]*+\d*+[^\S\n]*+[:\-=\n]\W*+(?P<verb>search|finish)(?:ing|ed)?\b",
        re.IGNORECASE,
    ),
    re.compile(r"\b(?P<verb>search|finish)[^\S\n]*+(?=[\[【({])", re.IGNORECASE),
    re.compile(  # at the begin of a line
        r"^[^\w\n]*+(?P<verb>search|finish)[^\S\n]*+(?=[:\"“])", re.IGNORECASE | re.MULTILINE
    ),
)
_ANSWER = re.compile(
    r"^[^\w\n]*+(?:final[ ]++answer|answer)[^\S\n]*+:[^\S\n]*+(?P<rest>\S[^\n]*+)",
    re.IGNORECASE | re.MULTILINE,
)
_INPUT = re.compile(
    r"\s*+action[ _]input[^\S\n]*+\d*+[^\S\n]*+:(?=[^\n])[^\S\n]*+(?P<rest>[^\n]*+)", re.IGNORECASE
)
_THOUGHT = re.compile(r"^(?:\W*+thought[ ]*+\d*+[ ]*+[:\-][ ]*+)++", re.IGNORECASE)
_FILLER = re.compile(r"^(?:for|query|with)\b[^\S\n]*[:=]?[^\S\n]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAction:
    """What an agent wants: a search for ``argument``, or an end with that answer."""

    kind: Literal["search", "finish"]
    argument: str
    thought: str = ""


def parse_action(text: str) -> AgentAction | None:
    """Return the first action of a reply, read tolerantly; ``None``: there is none, or its query is empty."""
    text = text[:MAX_REPLY_LETTERS]
    made_up = _OBSERVATION.search(text)
    plain = _MARKUP.sub("", text[: made_up.start()] if made_up else text)
    for pattern in _VERBS:
        if match := pattern.search(plain):
            argument = _clean(_argument(plain[match.end() :]))
            searches = match["verb"].lower() == "search"
            empty = not re.search(r"\w", argument) or argument.casefold() in _PLACEHOLDERS
            if searches and empty:
                return None
            kind: Literal["search", "finish"] = "search" if searches else "finish"
            thought = _thought(plain[: match.start()])
            return AgentAction(kind=kind, argument=argument, thought=thought)
    if answer := _ANSWER.search(plain):
        thought = _thought(plain[: answer.start()])
        return AgentAction(kind="finish", argument=_clean(answer["rest"]), thought=thought)
    return None


def _argument(rest: str) -> str:
    """Return the text in the brackets, or to the end of the line if a bracket is missing."""
    match = _INPUT.match(rest)
    line = (match["rest"] if match else rest.partition("\n")[0]).strip()
    closing = _PAIRS.get(line[:1])
    if closing is None:
        return _FILLER.sub("", line.lstrip(":=- \t"))
    depth = 0
    for at, letter in enumerate(line):
        depth += (letter == line[0]) - (letter == closing)
        if depth == 0:
            return line[1:at]
    return line[1:]


def _clean(argument: str) -> str:
    """Remove brackets and quotes around an argument, and put it on one line."""
    squeezed = " ".join(argument.split())[:_MAX_ARGUMENT].strip(_QUOTES)
    while squeezed and _PAIRS.get(squeezed[0]) == squeezed[-1]:
        squeezed = squeezed[1:-1].strip(_QUOTES)
    return squeezed


def _thought(before: str) -> str:
    return _THOUGHT.sub("", " ".join(before.split())).strip(" ->")[:_MAX_THOUGHT]


# --- what it is told --------------------------------------------------------------------------
LABEL = "Thought:"  # what a completion model continues
REPAIR_LABEL = "Action:"  # what it continues when its action could not be read
FORCED = "Thought: I search once more, to be sure.\nAction: Search["
"""What it continues when it may not finish."""

_INSTRUCTIONS = (
    "Find the answer to a question by searching a collection of passages, one search at a time. Trust "
    "the passages only, not your memory: begin with a search. Each step is one thought and one action. "
    "There are two actions:\n"
    "Search[query]: look for passages. The query names one person, work, place or thing and what you "
    "want to know of it, in a few words. It never repeats the question, nor an earlier query.\n"
    "Finish[answer]: end, when the passages found state everything that the answer needs."
)
_REMINDER = "Reply with one action and nothing else, either Search[query] or Finish[answer]."
_REPEATED = (
    "That query was made before. Search for something else with other words: Search[query], or "
    "Finish[answer]."
)
_ONCE_MORE = (
    "Do not finish yet. Search for something that was not searched for, to confirm or complete the answer: "
    "one thought and Search[query]."
)


_NOW = ("Thought: I finish now, with what the passages state.", "Action: Finish[")
"""What makes a completion model finish."""


# the question, then every thought and action with its observation; that of the last action is empty
_Trajectory = tuple[str, tuple[tuple[str, str], ...]]


def _observation(passages: Sequence[Passage], note: str = "") -> str:
    told = [note] if note else []
    return "\n".join(["Observation:", *(passage_lines(passages) or [NOTHING_NEW]), *told])


def said(action: AgentAction) -> str:
    verb = "Search" if action.kind == "search" else "Finish"
    thought = f"Thought: {action.thought}\n" if action.thought else ""
    return f"{thought}Action: {verb}[{action.argument}]"


def _search(thought: str, query: str, *found: str) -> tuple[str, str]:
    action = AgentAction(kind="search", argument=query, thought=thought)
    return said(action), _observation(shelved(*found))


def _finish(thought: str, answer: str) -> tuple[str, str]:
    return said(AgentAction(kind="finish", argument=answer, thought=thought)), ""


_EXAMPLES: tuple[_Trajectory, ...] = (
    (
        "Question: Who was the brother of the director of the film The Quiet Orchard?",
        (
            _search(
                "I need to know who directed The Quiet Orchard.",
                "The Quiet Orchard film director",
                *("The Quiet Orchard", "The Ferry"),
            ),
            _search(
                "The director is Bram Essiwick. His brother is not named yet.",
                "Bram Essiwick brother",
                "Bram Essiwick",
            ),
            _finish(
                "The passages state the director and his brother, Dorrit Essiwick.",
                "Dorrit Essiwick",
            ),
        ),
    ),
    (
        "Question: Who opened the older of the Hollin Bridge and the Saltmere Bridge?",
        (
            _search(
                "I need to know when each bridge was opened and by whom. First the Hollin Bridge.",
                "Hollin Bridge opened",
                *("Hollin Bridge", "Hollin"),
            ),
            _search(
                "The Hollin Bridge was opened in 1877 by Dorrit Vane. Now the other bridge.",
                "Saltmere Bridge opened",
                "Saltmere Bridge",
            ),
            _finish(
                "1851 is before 1877, so the Saltmere Bridge is older, opened by Piers Okonwe.",
                "Piers Okonwe",
            ),
        ),
    ),
    (
        "Question: In what year was the village where the keeper of the Ostrel Lighthouse was born "
        "granted market rights?",
        (
            _search(
                "I need to know who keeps the Ostrel Lighthouse.",
                "Ostrel Lighthouse keeper",
                "Ostrel Lighthouse",
            ),
            _search(
                "The keeper is Jora Pell. Where she was born is missing.",
                "Jora Pell birthplace",
                "Jora Pell",
            ),
            _search(
                "She was born in Wexcombe. The year of its market rights is missing.",
                "Wexcombe market rights",
                "Wexcombe",
            ),
            _finish("The passages state that Wexcombe was granted market rights in 1417.", "1417"),
        ),
    ),
)


def render_agent(question: str, steps: Sequence[SearchStep], *, api: Api) -> Prompt:
    trajectory = (
        f"Question: {one_line(question)}",
        tuple((step.said, _observation(step.found, step.note)) for step in steps),
    )
    if api == "completion":
        worked = (_lines(*example) for example in _EXAMPLES)
        return continued(_INSTRUCTIONS, worked, _lines(*trajectory), LABEL)
    first, *turns = [turn for example in (*_EXAMPLES, trajectory) for turn in _turns(*example)]
    return (replace(first, content=f"{_INSTRUCTIONS}\n\n{first.content}"), *turns)


def render_repair(prompt: Prompt, reply: str, *, repeated: bool = False) -> Prompt:
    """Return the prompt after a reply without a readable action, or with a repeated one."""
    shown, reminder = one_line(reply), _REPEATED if repeated else _REMINDER
    if isinstance(prompt, str):
        return f"{prompt.removesuffix(LABEL)}{shown}\n{reminder}\n{REPAIR_LABEL}"
    return in_reply(prompt, shown or "...", reminder)


def render_once_more(prompt: Prompt, finish: str) -> Prompt:
    if isinstance(prompt, str):
        return prompt.removesuffix(LABEL) + FORCED
    return in_reply(prompt, finish, _ONCE_MORE)


def render_trail(question: str, steps: Sequence[SearchStep], *, api: Api) -> Prompt:
    """Return the conversation after these steps, before anything is asked."""
    prompt = render_agent(question, steps, api=api)
    return prompt.removesuffix(f"\n{LABEL}") if isinstance(prompt, str) else prompt


def render_finish(question: str, steps: Sequence[SearchStep], *, api: Api) -> Prompt:
    """Return the prompt that makes the agent finish after these steps."""
    asked = (f"Do not search any more.\n{answer_now(question)}", "")
    return one_turn_more(
        render_trail(question, steps, api=api), *(asked if api == "chat" else _NOW)
    )


def said_then(action: str, query: str) -> str:
    """Return what a recorded action says in later prompts; of one that cannot be read, its query."""
    read = [parse_action(part) for part in reversed(action.split("\n\n"))]
    searches = (one for one in read if one is not None and one.kind == "search")
    return said(next(searches, AgentAction(kind="search", argument=query)))


def _lines(question: str, steps: tuple[tuple[str, str], ...]) -> str:
    return "\n".join([question, *(line for step in steps for line in step if line)])


def _turns(question: str, steps: tuple[tuple[str, str], ...]) -> list[Message]:
    turns = [Message(role="user", content=question)]
    for action, observed in steps:
        turns.append(Message(role="assistant", content=action))
        if observed:
            turns.append(Message(role="user", content=observed))
    return turns
