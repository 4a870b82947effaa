"""Models for tests: scripted replies, or deterministic ones made from the prompt."""

from __future__ import annotations

import hashlib
import math
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from suffice.contracts import Completion, Generation, GenerationRequest
from suffice.errors import BackendError, UsageError
from suffice.trace.rounds.records import Token, TopToken

Reply = str | Completion
Replies = Sequence[Reply] | Mapping[str, Reply] | Callable[[GenerationRequest, int], Reply]

_PIECE = re.compile(r"\s*\S+|\s+\Z")
_NAME = re.compile(r"\b[A-Z][\w'-]*(?:[ ](?:of |the |de )?[A-Z][\w'-]*)*")
_NOT_NAMES = re.compile(
    "A|After|An|And|Answer|As|At|But|By|Confidence|During|Each|Evidence|For|From|He|Her|His|How|If|In|It|Its|"
    "On|Question|She|Since|That|The|Their|There|These|They|This|To|Unknown|Was|What|When|Where|Which|While|"
    "Who|Whose|Why|With"
)
_WORDS = (
    *("the", "unknown", "no", "yes", "Paris", "in"),
    *("1912", "not", "John", "river", "two", "North"),
)
_CHANCE_OF_BEST = 0.6
_CHANCE_TO_FINISH = 0.25
_SEARCHED = re.compile(r"^Action: Search\[(.*)\]$", re.MULTILINE)
_MAIN_QUESTION = re.compile(r"^Main question: (.+)$", re.MULTILINE)
_FOUND = re.compile(r"^(Document|Intermediate answer): (.+)$", re.MULTILINE)
_ASKED = re.compile(r"^(?:Follow-up: )?What is (.+)\?$", re.MULTILINE)
_ASK_NEXT = "Ask the next follow-up question."
_ASK_ANOTHER = "That was asked before. Ask another follow-up question"
_ASK_MAIN = ("Back to the main question:", "Answer the main question:")
_READ = "Answer the question from the document alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Requests that fail with a :class:`suffice.errors.BackendError`.

    ``first`` requests fail in any case; later ones when the prompt contains one of ``containing``,
    which fail ``times`` times each (``None``: always).
    """

    first: int = 0
    containing: tuple[str, ...] = ()
    times: int | None = None


class ScriptedModel:
    """A deterministic :class:`suffice.contracts.ChatModel` that needs nothing.

    Parameters
    ----------
    replies
        A sequence: the replies in order, each sample taking the next. A mapping: the reply of the
        longest key found in the prompt. A function of the request and the sample's index. ``None``:
        :func:`made_up_reply`.
    name, api
        As a model has them.
    logprobs
        Whether tokens are given when asked for.
    delay_s
        Seconds every request takes.
    failures
        Which requests fail.
    """

    endpoint = "scripted"
    concurrency = 1  # so that sequences are used up in order

    def __init__(
        self,
        replies: Replies | None = None,
        *,
        name: str = "scripted",
        api: Literal["chat", "completion"] = "completion",
        logprobs: bool = True,
        delay_s: float = 0.0,
        failures: Failures | None = None,
    ) -> None:
        self._replies = replies
        self.name = name
        self.api = api
        self._logprobs = logprobs
        self._delay_s = delay_s
        self._failures = failures or Failures()
        self._lock = threading.Lock()
        self._requests: list[GenerationRequest] = []
        self._failed: dict[str, int] = {}
        self._next = 0

    @property
    def requests(self) -> tuple[GenerationRequest, ...]:
        """All requests so far, also failed ones, in order of arrival."""
        with self._lock:
            return tuple(self._requests)

    def supports_logprobs(self) -> bool:
        """Whether it gives tokens."""
        return self._logprobs

    def generate(self, request: GenerationRequest) -> Generation:
        """Return the scripted replies; ``latency_s`` is the delay.

        Raises
        ------
        BackendError
            Where :class:`Failures` say so.
        UsageError
            When a sequence is used up or no key of a mapping is in the prompt.
        """
        prompt = _text(request)
        with self._lock:
            self._requests.append(request)
            self._fail(prompt, len(self._requests))
            start, self._next = self._next, self._next + request.n
        if self._delay_s:
            time.sleep(self._delay_s)
        completions = tuple(
            self._finish(self._reply(request, prompt, start, index), request, index)
            for index in range(request.n)
        )
        if request.tell is not None and request.n == 1:
            for piece in _pieces(completions[0].text):
                request.tell(piece)
        return Generation(
            completions=completions,
            model=self.name,
            prompt_tokens=len(_pieces(prompt)),
            cached_tokens=0,
            completion_tokens=sum(len(_pieces(completion.text)) for completion in completions),
            latency_s=self._delay_s,
        )

    def _fail(self, prompt: str, number: int) -> None:
        failures = self._failures
        if number <= failures.first:
            raise BackendError(f"scripted failure of request {number}")
        if any(part in prompt for part in failures.containing):
            self._failed[prompt] = self._failed.get(prompt, 0) + 1
            if failures.times is None or self._failed[prompt] <= failures.times:
                raise BackendError(f"scripted failure of the prompt ending in {prompt[-40:]!r}")

    def _reply(self, request: GenerationRequest, prompt: str, start: int, index: int) -> Reply:
        replies = self._replies
        if replies is None:
            return made_up_reply(request, index)
        if isinstance(replies, Mapping):
            keys = [key for key in replies if key in prompt]
            if not keys:
                raise UsageError(f"no scripted reply for the prompt ending in {prompt[-80:]!r}")
            return replies[max(keys, key=len)]
        if callable(replies):
            return replies(request, index)
        if start + index >= len(replies):
            raise UsageError(f"all {len(replies)} scripted replies are used up; add more")
        return replies[start + index]

    def _finish(self, reply: Reply, request: GenerationRequest, index: int) -> Completion:
        """Cut at ``stop`` and ``max_tokens``; give tokens where they are asked for."""
        wanted = self._logprobs and request.top_logprobs > 0
        if isinstance(reply, Completion):
            return reply if wanted else replace(reply, tokens=None)
        cuts = [at for at in (reply.find(stop) for stop in request.stop if stop) if at >= 0]
        pieces = _pieces(reply[: min(cuts)] if cuts else reply)
        kept = pieces[: request.max_tokens]
        tokens = tuple(_token(piece, kept[:at], request, index) for at, piece in enumerate(kept))
        return Completion(
            text="".join(kept),
            tokens=tokens if wanted else None,
            finish_reason="stop" if len(kept) == len(pieces) else "length",
        )


def made_up_reply(request: GenerationRequest, index: int) -> str:
    """Return an answer and a confidence made from the prompt by hashes.

    The answer is a name of the evidence: of all those seen so far the one with the lowest hash, so it changes
    often in early rounds and settles as evidence grows. Samples at a temperature above 0 take it with
    probability 0.6 and another one otherwise: sample i at seed s is sample 0 at seed s + i.
    """
    prompt = _text(request)
    for reply_to in (_agent_reply, _verdict, _rating, _follow_up_reply, _reading_reply):
        if (other := reply_to(prompt)) is not None:
            return other
    question, names = _main_question_again(prompt) or (_question(prompt), _names(prompt))
    ranked = sorted(names, key=lambda name: (_share(question, name), name)) or ["unknown"]
    rank = 0
    if request.temperature > 0:
        draw = _share(prompt, _seed(request, index))
        if draw >= _CHANCE_OF_BEST:
            rank = int((draw - _CHANCE_OF_BEST) / (1 - _CHANCE_OF_BEST) * len(ranked))
    answer = ranked[rank]
    confidence = 1 + int(5 * _share("confidence", question, answer))
    end = prompt.rstrip()
    if end.endswith("Confidence:"):
        return f" {confidence}\nAnswer: {answer}"
    marker = "" if end.endswith("Answer:") else "Answer:"
    return f"{marker} {answer}\nConfidence: {confidence}"


def _agent_reply(prompt: str) -> str | None:
    """Return the next thought and action, as far as the prompt does not hold them yet."""
    if "Search[query]" not in prompt or "Finish[answer]" not in prompt:
        return None
    question = _question(prompt)
    body = prompt[prompt.rfind("Question:") :]
    before = _SEARCHED.findall(body)
    names = _spans(re.sub(r"^(?:Thought|Action|Observation):?.*$", "", body, flags=re.MULTILINE))
    wanted = next((name for name in names if name not in before), question)
    if body.endswith("Search["):
        return f"{wanted}]"
    share = _share("finish", question, str(len(before)))
    if share < _CHANCE_TO_FINISH * len(before) and "Do not finish" not in prompt[-400:]:
        thought, action = "Everything is there.", f"Finish[{before[-1]}]"
    else:
        thought, action = f"I look for {wanted}.", f"Search[{wanted}]"
    if body.endswith("Action:"):
        return f" {action}"
    marker = "" if body.endswith("Thought:") else "Thought:"
    return f"{marker} {thought}\nAction: {action}"


def _verdict(prompt: str) -> str | None:
    if "<STOP>" not in prompt or "<CONTINUE>" not in prompt:
        return None
    return f"Decision: {'<STOP>' if _share('verdict', prompt) < 0.5 else '<CONTINUE>'}"


def _rating(prompt: str) -> str | None:
    if not prompt.rstrip().endswith("Rating:") and "Rating: <1-5>" not in prompt:
        return None
    return f" {1 + int(5 * _share('rating', prompt))}"


def _follow_up_reply(prompt: str) -> str | None:
    """Return a question about a new name; the main question if there is none."""
    last = prompt.rstrip().rpartition("\n")[2]
    if last != "Follow-up:" and not last.startswith((_ASK_NEXT, _ASK_ANOTHER)):
        return None
    question, body = _main_question(prompt)
    before = {name.removeprefix("The ") for name in _ASKED.findall(body)}
    names = _spans("\n".join([question, *(text for _, text in _FOUND.findall(body))]))
    wanted = next((name for name in names if name.removeprefix("The ") not in before), None)
    return f" {question}" if wanted is None else f" What is {wanted}?"


def _reading_reply(prompt: str) -> str | None:
    """Return the lowest name by hash in the last documents that the question does not hold."""
    if not prompt.startswith(_READ):
        return None
    body = prompt.rpartition("\n\n")[2]
    question = _question(body)
    documents = "\n".join(text for _, text in _FOUND.findall(body))
    new = [name for name in _spans(documents) if name not in question]
    return f" {min(new, key=lambda name: _share(question, name), default='unknown')}"


def _main_question_again(prompt: str) -> tuple[str, list[str]] | None:
    """Return the main question and its documents' names, if the last line asks it again."""
    last = prompt.rstrip().removesuffix("Answer:").rstrip().rpartition("\n")[2]
    if not last.startswith(_ASK_MAIN):
        return None
    question, body = _main_question(prompt)
    documents = [text for kind, text in _FOUND.findall(body) if kind == "Document"]
    return question, _spans("\n".join(documents))


def _main_question(prompt: str) -> tuple[str, str]:
    """Return the last main question and the text after it."""
    asked = list(_MAIN_QUESTION.finditer(prompt))
    return (asked[-1].group(1), prompt[asked[-1].end() :]) if asked else ("", "")


def _text(request: GenerationRequest) -> str:
    if isinstance(request.prompt, str):
        return request.prompt
    return "\n\n".join(message.content for message in request.prompt)


def _seed(request: GenerationRequest, index: int) -> str:
    return str((request.seed or 0) + index)


def _pieces(text: str) -> list[str]:
    return _PIECE.findall(text)


def _share(*parts: str) -> float:
    """Return a number in [0, 1) that depends on the parts alone."""
    digest = hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def _question(prompt: str) -> str:
    asked = re.findall(r"Question:[ \t]*(.+)", prompt)
    return asked[-1].strip() if asked else ""


def _names(prompt: str) -> list[str]:
    """Return runs of capitalized words after the last worked example, else of the whole prompt."""
    end = prompt.rstrip()
    body = end.removesuffix("Answer:").removesuffix("Confidence:")
    last = max(body.rfind("\nAnswer:"), body.rfind("\nConfidence:"))
    tail = body[last + 1 :].partition("\n")[2] if last >= 0 else body
    evidence = re.sub(r"Question:.*", "", tail)
    return _spans(evidence) or _spans(body)


def _spans(text: str) -> list[str]:
    names = dict.fromkeys(match.group() for match in _NAME.finditer(text))
    return [name for name in names if not _NOT_NAMES.fullmatch(name)]


def _token(piece: str, before: list[str], request: GenerationRequest, index: int) -> Token:
    """Return a token whose log-probabilities come from a hash of the text before it."""
    context = f"{_text(request)}{''.join(before)}"
    others = sorted(
        (word for word in _WORDS if word != piece.strip()), key=lambda word: _share(context, word)
    )
    count = min(request.top_logprobs, len(others) + 1)
    lead = 0.4 + 0.59 * _share("lead", context)
    masses = [lead]
    for _ in others:
        masses.append((1 - sum(masses)) * 0.6)
    leads = (
        request.temperature == 0
        or _share("leads", context, _seed(request, index)) < _CHANCE_OF_BEST
    )
    tokens = [f" {word}" for word in others]
    tokens.insert(0 if leads else 1, piece)
    ranked = [TopToken(token, math.log(mass)) for token, mass in zip(tokens, masses, strict=True)]
    chosen = ranked[0 if leads else 1]
    return Token(piece, chosen.logprob, tuple(ranked[:count]))
