"""Every contract that an extension can fulfill: one method per protocol."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from suffice.errors import DataError, UsageError
from suffice.reasoning import without_reasoning
from suffice.scoring import Match

if TYPE_CHECKING:
    from suffice.signals.known_signals import SignalSpec
    from suffice.stats.maps import PerRoundCalibrator
    from suffice.trace.rounds.records import LoopView, Passage, Round, Token
    from suffice.trace.rounds.trace_set import TraceSet


# --- retrieval -------------------------------------------------------------------------------
@runtime_checkable
class Retriever(Protocol):
    """A retriever: it finds passages for a query."""

    def retrieve(self, query: str, k: int) -> Sequence[Passage]:
        """Return at most ``k`` passages, best first, each with its ``score``."""


@runtime_checkable
class Reranker(Protocol):
    """A reranker: it orders passages again."""

    def rerank(self, query: str, passages: Sequence[Passage]) -> Sequence[Passage]:
        """Return the same passages, best first, each with a raw ``rerank_score``."""


@runtime_checkable
class PassageFilter(Protocol):
    """A filter that drops passages before the answering model sees them."""

    def keep(self, passages: Sequence[Passage]) -> Sequence[Passage]:
        """Return the passages worth showing, in the given order."""


class StatedFilter(PassageFilter, Protocol):
    """A fitted filter that a run document can describe.

    It was fitted on ``values`` numbers of the questions ``question_ids``, if it names them.
    """

    @property
    def values(self) -> int:
        """Number of values in its calibration."""

    @property
    def question_ids(self) -> tuple[str, ...]:
        """Questions of its calibration; fitting a later stage needs other questions."""

    def stated(self) -> Mapping[str, Any]:
        """Return its description for a run document."""


@runtime_checkable
class Encoder(Protocol):
    """An encoder: it turns texts into unit vectors. Safe to call from several threads."""

    @property
    def name(self) -> str:
        """Model, weights and settings: encoders of the same name give the same vectors.

        An index stores the name and refuses an encoder with another one.
        """

    def encode(
        self, texts: Sequence[str], *, role: Literal["query", "passage"] = "passage"
    ) -> NDArray[np.float32]:
        """Return a unit vector for every text, (len(texts), dimension).

        ``role`` is for models that read queries and passages differently. A failure raises
        :class:`suffice.errors.BackendError`.
        """


@runtime_checkable
class Entailment(Protocol):
    """An entailment model: it judges whether one text follows from another."""

    def entailed(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Return P(conclusion follows) for every (premise, conclusion), (len(pairs),)."""


@runtime_checkable
class ContradictionDetector(Protocol):
    """A detector of contradictions: it judges whether two statements exclude each other."""

    def contradictions(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Return how surely they conflict, in [0, 1], for every (plan step, candidate), (len(pairs),)."""


def whole_text(text: str) -> str:
    r"""Return the text with U+FFFD for lone surrogates, which no file, request or terminal can hold.

    Every text that enters goes through it: replies, prompts, passages and questions.

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


def strict_json(text: str | bytes) -> Any:
    """Parse JSON; raise ValueError for no JSON, and DataError for a name that an object has twice."""
    return json.loads(text, object_pairs_hook=_once)


_REPAIRED = 300_000  # letters times nesting; the time of a repair grows with both


def repaired_json(text: str) -> Any:
    """Read broken JSON, perhaps cut; raise ValueError if its repair could take longer than a second."""
    import json_repair

    depth = deepest = 0
    for sign in re.finditer(r"[{}\[\]]", text):
        depth = depth + 1 if sign[0] in "{[" else max(0, depth - 1)
        deepest = max(deepest, depth)
    if deepest * len(text) > _REPAIRED:
        raise ValueError(f"{len(text):,} letters, nested {deepest:,} deep, are too many to repair")
    return json_repair.loads(text)


def loaded(text: str) -> Any:
    """Parse a text that is JSON of an object or a list; else return the text."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return strict_json(text)
    except (ValueError, RecursionError):
        return text


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise DataError(f"an object has the name {twice!r:.60} twice; each name may appear once")
    return held


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
    """A request to a language model.

    ``prompt`` is a string for a completion and a tuple of messages for a chat. The model draws ``n`` texts,
    with ``top_logprobs`` alternatives per token (0: no log-probabilities). If the server supports it,
    ``json_schema`` constrains the reply.

    The model calls ``tell``, from any thread, with each generated piece of the one text. Joined, the pieces
    are the completion's text or its beginning. A model that does not stream never calls ``tell``. It does
    not change the reply.
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
"""Most characters of a reply that are read, stored and streamed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One generated text, cut at :data:`MAX_REPLY_LETTERS`.

    ``tokens`` is ``None`` when the server gave no log-probabilities.
    """

    text: str
    tokens: tuple[Token, ...] | None = None
    finish_reason: str | None = None

    @property
    def said(self) -> str:
        """The text without the reasoning at its beginning, which is no answer."""
        return without_reasoning(self.text)

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
    """A model's reply: ``n`` completions and their usage, as reported by the server.

    ``cached_tokens`` is the part of ``prompt_tokens`` that the server took from its cache. ``None``:
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
        """The model's name in the record."""

    @property
    def api(self) -> Literal["chat", "completion"]:
        """The form of its prompts."""

    def generate(self, request: GenerationRequest) -> Generation:
        """Draw the completions; a failure raises :class:`suffice.errors.BackendError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A judge's verdict on a plan; ``parsed`` is how it was read, ``None``: unreadable, so not ``ok``."""

    ok: bool
    reason: str = ""
    confidence: float | None = None  # in [0, 1]
    parsed: Literal["json", "object", "line", "rule"] | None = None


class Judge(Protocol):
    """A judge: it decides whether a plan satisfies a constraint."""

    def judge(self, constraint: str, plan: str) -> Verdict:
        """Return the verdict; a failure raises :class:`suffice.errors.BackendError`."""


# --- signals, scores, calibration ------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Charge:
    """Calls beyond the answer that a round pays for if a policy reads a signal, as usage columns.

    ``calls`` counts them; ``tokens`` hold their prompt and completion tokens (empty: no tokens counted).
    """

    calls: str
    tokens: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Absence:
    """A case in which a signal is undefined.

    ``why`` is the reason in words, for the list of signals, a decision's reason and a fit's warning.
    ``holds`` says whether the case holds at the last round of a view. The signal is undefined there, and no
    earlier case holds. ``remedy`` is what to type or use; may be empty. ``input`` is the missing input of a
    round, as in ``samples=...``, if the loop does not give it and so will hardly give it later; empty:
    another case. Such a case may also be checked in a view where an earlier one holds.
    """

    why: str
    holds: Callable[[LoopView], bool] = field(compare=False)
    remedy: str = ""
    input: str = ""


class Calibrator(Protocol):
    """A fitted map from a signal to P(EM = 1)."""

    def predict(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return probabilities in [0, 1] of the same shape; NaN stays NaN unless the map gives it a value."""

    def to_json(self) -> dict[str, Any]:
        """Return the map as a part of a policy file."""


# --- policies --------------------------------------------------------------------------------
class Action(StrEnum):
    """The two actions of a policy: stop or continue."""

    STOP = "stop"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A policy's decision after a round.

    ``action`` is the loop's next action, ``reason`` says why in words, and ``values`` are the numbers behind
    it (``None``: undefined). ``confidence`` is the policy's probability that the answer is right. ``None``:
    undefined, or the policy has none. ``stopped_by`` is who ends the loop; ``None``: it goes on.
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
        """Refuse: a decision would always count as true."""
        raise UsageError(
            "a Decision has no truth value; read its field stop: if controller.observe(...).stop:"
        )


Certainty = Literal["token_probability", "self_consistency"]
"""Source of an answer's certainty: log-probabilities of its tokens, or the agreement of samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clusters:
    """The clustering of a round's samples: by normalized string, or by meaning as recorded."""

    by: Literal["string", "embedding"] = "string"
    cosine: float | None = None
    encoder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopNeeds:
    """Inputs that a policy needs from a loop to decide as in replay.

    ``answers``: it reads the answers of rounds, or anything computed from them, before the loop ends.
    ``tokens``: it reads the answer's tokens with their log-probabilities. ``samples`` is the number of
    sampled answers per round (0: none), ``other_samples`` the effect of another number in words (empty: none
    worth a word), ``clusters`` the required clustering of samples by meaning (``None``: not required).

    ``judge``: it needs a judge's rating of each answer; ``verdicts``: the model's own verdict on stopping.
    ``filter`` is the filter of passages before the answering model (``None``: none). ``encoder``: it reads
    signals of an encoder; clusters need one as well. ``pipeline`` is the default loop, if the user names
    none (empty: the usual one). ``refusal`` says in words why it cannot stop a loop (empty: it can).
    ``returns`` is the returned answer of the rounds up to its stop, if the user does not choose one, in the
    words of :meth:`suffice.scoring.AnswerChoice.parse`.
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
    """A promise about how often a policy's answer sets hold the right answer.

    ``alpha`` is the greatest share of sets that may miss it, ``match`` the test of a right answer.
    ``shows_all``: each answer of a set represents equal answers only; clusters by meaning may hold others.
    """

    alpha: float
    match: Match = field(default_factory=Match)
    shows_all: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A policy's description of itself.

    ``name`` stands in results when it comes from a file (empty: its kind), ``summary`` is its decision in
    one line, ``fitted_on`` its tuning data (empty: not fitted), ``notes`` are sentences that a reader must
    know. ``promise`` is its promise in one line (empty: none), ``coverage`` the promise in numbers, if it is
    about answer sets, ``guarantee`` a proven promise, as in its file (empty: none).

    ``max_rounds`` is the budget it was fitted for (``None``: any), ``earliest`` the first round after which
    it may stop, ``threshold`` the confidence at which it stops (``None``: it does not decide by one).
    ``loop`` is that of its calibration, as in a run document; empty: its promise does not depend on one.
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
        """Return the differences between a loop and the one of its calibration, in words.

        ``loop`` has the fields of a run document; fields that either leaves out do not count.
        """
        return [
            f"{name} {known!r} there, {loop[name]!r} here"
            for name, known in self.loop.items()
            if name in loop and loop[name] != known
        ]


class PolicyTable(Protocol):
    """Signals of recorded questions, without labels; a running loop is a table of one question."""

    @property
    def n_questions(self) -> int:
        """Number of questions."""

    @property
    def n_rounds(self) -> int:
        """Number of rounds: of a record its longest question's, of a running loop those so far."""

    @property
    def question_ids(self) -> Sequence[str]:
        """Questions of the rows, (n_questions,)."""

    def signal(self, name: str) -> NDArray[np.float64]:
        """Return a signal's values (n_questions, n_rounds), NaN where undefined."""

    def undefined(self, spec: SignalSpec, question: int, round_number: int) -> str:
        """Say in words that a signal is undefined at a round of a question, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The reason why a policy stops or goes on, in words and numbers (``None``: undefined)."""

    reason: str
    values: Mapping[str, float | None]


class StopPolicy(Protocol):
    """A policy: it decides after each round whether the loop has seen enough.

    Replay calls :meth:`fires` with many finished questions, a live loop with one that is still growing.
    """

    @property
    def kind(self) -> str:
        """Its kind in a policy file."""

    @property
    def preset(self) -> str | None:
        """``published`` or ``corrected``; ``None``: neither."""

    @property
    def needs(self) -> LoopNeeds:
        """Its needed inputs from a loop; see :func:`suffice.policies.method.loop_needs`."""

    @property
    def facts(self) -> Facts:
        """Its description of itself."""

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of its signals."""

    @property
    def specs(self) -> tuple[SignalSpec, ...]:
        """Definitions of its signals, with the policy's own settings."""

    def fires(self, table: PolicyTable) -> NDArray[np.bool_]:
        """Return whether it would stop after each round, (n_questions, n_rounds).

        Column t reads rounds 1..t only: later rounds never change it.
        """

    def explain(self, table: PolicyTable, question: int, round_number: int) -> Explanation:
        """Explain why it stops a question (its row, from 0) after a round (from 1), or goes on."""


@runtime_checkable
class DelayedPolicy(StopPolicy, Protocol):
    """A policy that can be delayed."""

    def from_round(self, first: int) -> StopPolicy:
        """Return the same policy, but never stopping before round ``first``."""


@runtime_checkable
class ConfidentPolicy(StopPolicy, Protocol):
    """A policy that estimates the probability that each answer is right."""

    def confidence(self, table: PolicyTable) -> NDArray[np.float64] | None:
        """Return its confidence (n_questions, n_rounds), high for right answers, NaN where undefined.

        ``None``: this policy has no confidence.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMember:
    """An answer of a set as the model wrote it, its confidence, and the round of that confidence."""

    answer: str
    confidence: float
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSet:
    """Answers that hold the right one as often as promised, most confident first.

    ``cannot_answer``: the set also holds "Can't Answer", which is right if the model never gave the right
    answer.
    """

    answers: tuple[SetMember, ...]
    cannot_answer: bool

    @property
    def size(self) -> int:
        """Number of members, with "Can't Answer"."""
        return len(self.answers) + self.cannot_answer

    def to_json(self) -> dict[str, Any]:
        """Return strict JSON."""
        answers = [asdict(answer) for answer in self.answers]
        return {"answers": answers, "cannot_answer": self.cannot_answer}


@runtime_checkable
class SetPolicy(StopPolicy, Protocol):
    """A policy that returns a set of answers."""

    def answer_set(self, rounds: Sequence[Round], *, stopped: bool) -> AnswerSet:
        """Return the set of a loop that ended after these rounds; ``stopped``: this policy ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Effect of a passage filter on recorded passages: one stays if the best of its rounds passes.

    ``questions`` counts questions with a right passage. ``passages`` is their mean share of right passages
    kept; ``all`` is the share of them that keep every one. ``shown`` is the kept share of all passages.
    Undefined parts are ``None``.
    """

    passages: float | None
    all: float | None
    shown: float | None
    questions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSets:
    """Answer sets of recorded questions at their stop rounds, one each.

    ``covered`` says whether a set holds the right answer, and ``objective`` is that of fitting, both for
    labeled questions only (``None``: no labels). ``retention`` is the effect of the policy's passage filter
    on the recorded passages (``None``: no filter, or no replay of it); ``notes`` must be known to readers.
    """

    sets: tuple[AnswerSet, ...]
    covered: NDArray[np.bool_] | None
    objective: float | None
    retention: Retention | None
    notes: tuple[str, ...] = ()


@runtime_checkable
class CoveragePolicy(SetPolicy, Protocol):
    """A policy with a promise about its answer sets: ``facts.coverage`` is set."""

    def scores(self, table: PolicyTable) -> NDArray[np.float64]:
        """Return its agreement scores, (n_questions, n_rounds); low: samples agree, NaN: undefined."""

    def recorded_sets(
        self, traces: TraceSet, table: PolicyTable, stops: NDArray[np.int16]
    ) -> RecordedSets:
        """Return the scored answer sets of recorded questions at these stop rounds (n_questions,).

        ``table`` holds its signals on the same questions. The method reads gold answers and decides nothing.
        """


@runtime_checkable
class ValuePolicy(StopPolicy, Protocol):
    """A policy that weighs stopping against going on."""

    def values(self, table: PolicyTable) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return ``q_stop`` and ``q_cont`` of every recorded round, each (n_questions, n_rounds)."""


@runtime_checkable
class CalibratedPolicy(StopPolicy, Protocol):
    """A policy that may read calibrated signals."""

    @property
    def calibrators(self) -> Mapping[str, PerRoundCalibrator]:
        """A fitted map for every calibrated signal; may be empty."""


@runtime_checkable
class FilteringPolicy(StopPolicy, Protocol):
    """A policy that may have a passage filter, even if its loop need not apply it."""

    @property
    def filter(self) -> StatedFilter | None:
        """The filter; ``None``: it was fitted without one."""
