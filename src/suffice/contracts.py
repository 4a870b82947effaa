"""Every contract an extension can fulfil, in one place. One method per protocol."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from suffice.errors import DataError, UsageError
from suffice.scoring import Match

if TYPE_CHECKING:
    from suffice.signals.known_signals import SignalSpec
    from suffice.stats.maps import PerRoundCalibrator
    from suffice.trace.rounds.records import LoopView, Passage, Round, Token
    from suffice.trace.rounds.trace_set import TraceSet


# --- retrieval -------------------------------------------------------------------------------
@runtime_checkable
class Retriever(Protocol):
    """Finds passages for a query."""

    def retrieve(self, query: str, k: int) -> Sequence[Passage]:
        """At most ``k`` passages, best first, each with its ``score``; fewer when there are fewer."""


@runtime_checkable
class Reranker(Protocol):
    """Orders passages again."""

    def rerank(self, query: str, passages: Sequence[Passage]) -> Sequence[Passage]:
        """The same passages, best first, each with a raw ``rerank_score``."""


@runtime_checkable
class PassageFilter(Protocol):
    """Drops passages before the answerer sees them."""

    def keep(self, passages: Sequence[Passage]) -> Sequence[Passage]:
        """Those worth showing, in the order given."""


class StatedFilter(PassageFilter, Protocol):
    """A fitted filter that a recording can state.

    It was fitted on ``values`` numbers, of the questions ``question_ids`` where it names them.
    """

    @property
    def values(self) -> int:
        """How many values it was calibrated on."""

    @property
    def question_ids(self) -> tuple[str, ...]:
        """Whose; what is fitted behind it needs others."""

    def stated(self) -> Mapping[str, Any]:
        """What a run document says of it."""


@runtime_checkable
class Encoder(Protocol):
    """Turns texts into unit vectors. Safe to call from several threads."""

    @property
    def name(self) -> str:
        """Model, weights and settings: encoders of one name give the same vectors.

        An index keeps it and refuses an encoder of another name.
        """

    def encode(
        self, texts: Sequence[str], *, role: Literal["query", "passage"] = "passage"
    ) -> NDArray[np.float32]:
        """A unit vector for every text, (len(texts), dimension).

        ``role`` is for models that read queries and passages differently. Raises
        :class:`suffice.errors.BackendError` when it cannot.
        """


@runtime_checkable
class Entailment(Protocol):
    """Judges whether a text follows from another."""

    def entailed(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """For every (premise, conclusion) the probability that it follows, (len(pairs),)."""


@runtime_checkable
class ContradictionDetector(Protocol):
    """Judges whether two statements cannot both be followed."""

    def contradictions(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """For every (plan step, candidate) how surely they conflict, in [0, 1], (len(pairs),)."""


def whole_text(text: str) -> str:
    r"""The text with U+FFFD for halves of surrogate pairs, which no file, request or terminal can hold.

    Where texts enter they go through it: replies, prompts, passages and questions.

    >>> whole_text("Os\ud800lo") == "Os\ufffdlo"
    True
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def strict_json(text: str | bytes, *, finite: bool = False) -> Any:
    """What JSON text says; a ValueError for what is none or NaN, a DataError for a name twice."""
    constant = _no_constant if finite else None
    return json.loads(text, object_pairs_hook=_once, parse_constant=constant)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise DataError(f"{twice!r:.60} stands twice in an object; each name may stand there once")
    return held


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON; undefined is null")


# --- language models -------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a chat prompt."""

    role: Literal["system", "user", "assistant"]
    content: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", whole_text(self.content))


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """What a model is asked.

    ``prompt`` is a string for a completion and a tuple of messages for a chat. ``n`` texts are drawn;
    ``top_logprobs`` alternatives a token are asked for (0: no log-probabilities at all). With a
    ``json_schema`` the server is asked to hold the reply to it, where it can.

    ``tell`` is called, from any thread, with each piece of the one text as it is generated; put together they
    are the completion's text, or a beginning of it where the model cannot tell more. A model that cannot tell
    as it goes tells nothing. It changes no reply.
    """

    prompt: str | tuple[Message, ...]
    n: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 64
    top_logprobs: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    json_schema: Mapping[str, Any] | None = None
    tell: Callable[[str], None] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.prompt, str):
            object.__setattr__(self, "prompt", whole_text(self.prompt))


MAX_REPLY_LETTERS = 100_000
"""Letters of a reply that are read, kept and told; whatever parses a reply reads no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One generated text, as far as it is read.

    ``tokens`` is ``None`` when the server gave no log-probabilities.
    """

    text: str
    tokens: tuple[Token, ...] | None = None
    finish_reason: str | None = None

    def __post_init__(self) -> None:
        text = whole_text(self.text)
        object.__setattr__(self, "text", text[:MAX_REPLY_LETTERS])
        if len(text) > MAX_REPLY_LETTERS and self.tokens is not None:
            ends = accumulate(len(token.token) for token in self.tokens)
            kept = zip(self.tokens, ends, strict=True)
            tokens = tuple(token for token, end in kept if end <= MAX_REPLY_LETTERS)
            object.__setattr__(self, "tokens", tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A model's reply: ``n`` completions and what they cost, as the server reports it.

    ``cached_tokens`` is the part of ``prompt_tokens`` the server did not evaluate again. ``None``:
    not reported.
    """

    completions: tuple[Completion, ...]
    model: str
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    latency_s: float | None = None


@runtime_checkable
class ChatModel(Protocol):
    """A language model. Safe to call from several threads."""

    @property
    def name(self) -> str:
        """The model's name, as recorded."""

    @property
    def api(self) -> Literal["chat", "completion"]:
        """Which form of prompt it wants."""

    def generate(self, request: GenerationRequest) -> Generation:
        """Draw the completions; raises :class:`suffice.errors.BackendError` when it cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A judge's word on a plan; ``parsed`` is how it was read, ``None`` when it could not be (not ``ok``)."""

    ok: bool
    reason: str = ""
    confidence: float | None = None  # in [0, 1]
    parsed: Literal["json", "object", "line", "rule"] | None = None


class Judge(Protocol):
    """Decides whether a plan satisfies a constraint."""

    def judge(self, constraint: str, plan: str) -> Verdict:
        """The verdict; raises :class:`suffice.errors.BackendError` when there is none to be had."""


# --- signals, scores, calibration ------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Charge:
    """Calls beyond the answer that a round pays for where a signal is read, by the columns of its usage.

    ``calls`` counts them, ``tokens`` hold what they read and wrote (none: not counted in tokens).
    """

    calls: str
    tokens: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Absence:
    """A case in which a signal is undefined.

    Parameters
    ----------
    why
        In words, for the list of signals, a decision's reason and the warning of a fit.
    holds
        Whether it is the case at the last round of a view where the signal is undefined and no case
        before this one holds.
    remedy
        What to type or use; may be empty.
    input
        What a round would have to be given, as in ``samples=...``, where the case is that a loop does not
        give it, and so hardly will in later rounds; such a case may be asked of a view where an earlier one
        holds. Empty: another case.
    """

    why: str
    holds: Callable[[LoopView], bool] = field(compare=False)
    remedy: str = ""
    input: str = ""


class Calibrator(Protocol):
    """A fitted map from a signal to P(EM = 1)."""

    def predict(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities in [0, 1] of the shape given; NaN stays NaN unless the map gives it a value."""

    def to_json(self) -> dict[str, Any]:
        """Its part of a policy file."""


# --- policies --------------------------------------------------------------------------------
class Action(StrEnum):
    """What a policy wants next."""

    STOP = "stop"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A policy's verdict after a round.

    Parameters
    ----------
    action
        What the loop is to do.
    reason
        What it rests on, in words.
    values
        The numbers it used; ``None``: undefined.
    confidence
        The policy's estimate that the answer is right, for policies that have one; ``None``: undefined.
    stopped_by
        What ends the loop; ``None``: it goes on.
    """

    action: Action
    reason: str
    values: Mapping[str, float | None]
    confidence: float | None = None
    stopped_by: Literal["policy", "budget"] | None = None

    @property
    def stop(self) -> bool:
        """Whether the loop should end here."""
        return self.action is Action.STOP

    def __bool__(self) -> NoReturn:
        """Refused: whatever it says, a decision would count as true."""
        raise UsageError(
            "a Decision has no truth value; ask whether it says stop: if controller.observe(...).stop:"
        )


Certainty = Literal["token_probability", "self_consistency"]
"""What a model gives to tell how sure an answer is: its tokens' log-probabilities, or samples that agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clusters:
    """How a round's samples are clustered: by normalised string, or by meaning as recorded."""

    by: Literal["string", "embedding"] = "string"
    cosine: float | None = None
    encoder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopNeeds:
    """What a loop must give a policy so that it decides as it was replayed.

    Parameters
    ----------
    answers
        Whether it reads the answers of rounds, or anything made of them, before the loop ends.
    tokens
        Whether it reads the answer's tokens with their log-probabilities.
    samples
        Sampled answers a round; 0: none.
    other_samples
        What becomes of it on another number of samples, in words; empty: nothing to speak of.
    clusters
        How samples must be clustered by meaning; ``None``: they need not be.
    judge, verdicts
        Whether a judge rates each answer, and whether the model is asked if it would stop.
    filter
        What drops passages before the answerer sees them; ``None``: nothing does.
    encoder
        Whether it reads signals that an encoder measures; clusters need one as well.
    pipeline
        The loop it is made for, where the user names none; empty: the usual one.
    refusal
        Why it can stop no loop, in words; empty: it can.
    returns
        Which of the answers up to its stop it returns, where the user does not choose one; as
        :meth:`suffice.scoring.AnswerChoice.parse` reads it.
    """

    answers: bool = False
    tokens: bool = False
    samples: int = 0
    other_samples: str = ""
    clusters: Clusters | None = None
    judge: bool = False
    verdicts: bool = False
    filter: PassageFilter | None = None
    encoder: bool = False
    pipeline: str = ""
    refusal: str = ""
    returns: str = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveragePromise:
    """How often a policy's answer sets hold the right answer, and by what that is checked.

    Parameters
    ----------
    alpha
        At most this share of sets may miss.
    match
        When an answer is right.
    shows_all
        Whether each answer of a set stands for equal ones only; clusters by meaning may hold others.
    """

    alpha: float
    match: Match = field(default_factory=Match)
    shows_all: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a policy says of itself.

    Parameters
    ----------
    name
        What results call it when it comes from a file; empty: its kind.
    summary
        How it decides, in one line.
    fitted_on
        What it was fitted on; empty: nothing.
    notes
        Sentences a reader must know.
    promise
        What is promised of it, in one line; empty: nothing.
    coverage
        The same in numbers, where it is about answer sets; ``None``: it is not.
    guarantee
        A certified promise as its file states it; empty: none.
    max_rounds
        The budget it was fitted for; ``None``: any.
    earliest
        The first round after which it may stop.
    threshold
        The confidence it stops at; ``None``: it goes by something else.
    loop
        The loop its promise was calibrated on, as a run document says it; empty: it promises nothing
        about loops.
    """

    name: str = ""
    summary: str = ""
    fitted_on: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    promise: str = ""
    coverage: CoveragePromise | None = None
    guarantee: Mapping[str, Any] = field(default_factory=dict)
    max_rounds: int | None = None
    earliest: float = 1
    threshold: float | None = None
    loop: Mapping[str, Any] = field(default_factory=dict)

    def differences(self, loop: Mapping[str, Any]) -> list[str]:
        """Where a loop, or a record's, is not the one it was fitted for, each in words.

        ``loop`` says of it what a run document says; what either does not state is passed over.
        """
        return [
            f"{name} {known!r} there, {loop[name]!r} here"
            for name, known in self.loop.items()
            if name in loop and loop[name] != known
        ]


class PolicyTable(Protocol):
    """Signals of recorded questions, label-free; a loop under way is a table of one question."""

    @property
    def n_questions(self) -> int:
        """How many questions there are."""

    @property
    def n_rounds(self) -> int:
        """The full budget."""

    @property
    def question_ids(self) -> Sequence[str]:
        """Whose rows these are, (n_questions,)."""

    def signal(self, name: str) -> NDArray[np.float64]:
        """A signal's values (n_questions, n_rounds), NaN where undefined."""

    def undefined(self, spec: SignalSpec, question: int, round_number: int) -> str:
        """That a signal is undefined at a round of a question, and why, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a policy stops or goes on: in words, and by which numbers (``None``: undefined)."""

    reason: str
    values: Mapping[str, float | None]


class StopPolicy(Protocol):
    """Decides after each round whether the loop has seen enough.

    Replay asks :meth:`fires` of many finished questions, a live loop of one that is still growing.
    """

    @property
    def kind(self) -> str:
        """What its policy file calls it."""

    @property
    def preset(self) -> str | None:
        """As published, or corrected; ``None``: neither."""

    @property
    def needs(self) -> LoopNeeds:
        """What a loop must give it; see :func:`suffice.policies.method.loop_needs`."""

    @property
    def facts(self) -> Facts:
        """What it says of itself."""

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals it reads."""

    @property
    def specs(self) -> tuple[SignalSpec, ...]:
        """Those signals, with the policy's own settings."""

    def fires(self, table: PolicyTable) -> NDArray[np.bool_]:
        """Whether it would stop after each round, (n_questions, n_rounds).

        Column t reads rounds 1..t only: what comes later never changes what was said of a round.
        """

    def explain(self, table: PolicyTable, question: int, round_number: int) -> Explanation:
        """Why it would stop a question (its row, from 0) after a round (from 1), or not."""


@runtime_checkable
class DelayedPolicy(StopPolicy, Protocol):
    """A policy that can be held back."""

    def from_round(self, first: int) -> StopPolicy:
        """The same, which stops no question before round ``first``."""


@runtime_checkable
class ConfidentPolicy(StopPolicy, Protocol):
    """A policy that estimates how likely each answer is right."""

    def confidence(self, table: PolicyTable) -> NDArray[np.float64] | None:
        """Its confidence (n_questions, n_rounds), high for right, NaN where undefined.

        ``None`` when this one has none.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMember:
    """An answer of a set: as the model wrote it, how confident, and the round it was best in."""

    answer: str
    confidence: float
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSet:
    """Answers among which the right one is promised, most confident first.

    ``cannot_answer``: the set also holds "Can't Answer", which is right where the model never gave
    the right answer.
    """

    answers: tuple[SetMember, ...]
    cannot_answer: bool

    @property
    def size(self) -> int:
        """Its members, "Can't Answer" among them."""
        return len(self.answers) + self.cannot_answer

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "answers": [
                {"answer": answer.answer, "confidence": answer.confidence, "round": answer.round}
                for answer in self.answers
            ],
            "cannot_answer": self.cannot_answer,
        }


@runtime_checkable
class SetPolicy(StopPolicy, Protocol):
    """A policy that gives a set of answers."""

    def answer_set(self, rounds: Sequence[Round], *, stopped: bool) -> AnswerSet:
        """The set of a loop that ended after these rounds; ``stopped``: because this policy said so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What a passage filter does to recorded passages: one stays if the best of its rounds passes.

    ``passages`` is the mean share of right passages kept, over questions that retrieved one; ``all``
    the share of those questions that keep every one; ``shown`` the share of all passages kept.
    ``questions`` counts those questions. Undefined parts are ``None``.
    """

    passages: float | None
    all: float | None
    shown: float | None
    questions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSets:
    """The answer sets of recorded questions at their stop rounds, and whether they held.

    Parameters
    ----------
    sets
        One a question.
    covered
        Whether the set holds the right answer, of labelled questions only; ``None``: none is labelled.
    objective
        What fitting made small, over those; ``None``: none is labelled.
    retention
        What the policy's passage filter would do to the recorded passages; ``None``: it has none, or
        that cannot be replayed.
    notes
        What a reader must know.
    """

    sets: tuple[AnswerSet, ...]
    covered: NDArray[np.bool_] | None
    objective: float | None
    retention: Retention | None
    notes: tuple[str, ...] = ()


@runtime_checkable
class CoveragePolicy(SetPolicy, Protocol):
    """A policy whose answer sets are promised to hold the right answer: ``facts.coverage`` is set."""

    def scores(self, table: PolicyTable) -> NDArray[np.float64]:
        """What tells when its samples agree, (n_questions, n_rounds); low: they do, NaN: undefined."""

    def recorded_sets(
        self, traces: TraceSet, table: PolicyTable, stops: NDArray[np.int16]
    ) -> RecordedSets:
        """The sets of recorded questions at these stop rounds (n_questions,), scored.

        ``table`` holds its signals on the same questions. It reads gold answers, and decides nothing.
        """


@runtime_checkable
class ValuePolicy(StopPolicy, Protocol):
    """A policy that weighs stopping against going on."""

    def values(self, table: PolicyTable) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """``q_stop`` and ``q_cont`` of every recorded round, each (n_questions, n_rounds)."""


@runtime_checkable
class CalibratedPolicy(StopPolicy, Protocol):
    """A policy that may read calibrated signals."""

    @property
    def calibrators(self) -> Mapping[str, PerRoundCalibrator]:
        """A fitted map for every signal it reads calibrated; may be empty."""


@runtime_checkable
class FilteringPolicy(StopPolicy, Protocol):
    """A policy that may have a passage filter, whether or not its loop must apply it."""

    @property
    def filter(self) -> StatedFilter | None:
        """The filter; ``None``: it was fitted without one."""
