"""The frozen records of a loop: question, rounds, passages, tokens and usage."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from functools import cache, partial
from typing import Any, ClassVar, Literal, TypeVar, get_args

import numpy as np

from suffice.errors import DataError, UsageError
from suffice.trace.values import (
    Check,
    Checked,
    Range,
    by_name,
    float32,
    items,
    numbers,
    one_of,
    text,
    types_of,
)


def fitting_clusters(given: Any, samples: Sequence[str] | None) -> tuple[int, ...]:
    """Check cluster numbers against the samples: each names the first sample of its cluster."""
    column = "sample_clusters"
    clusters = numbers(given, column)
    if len(clusters) != len(samples or ()):
        raise DataError(
            f"must have one number a sample, found {len(clusters)} for {len(samples or ())} samples",
            column=column,
        )
    for position, first in enumerate(clusters):
        if type(first) is not int or not 0 <= first <= position or clusters[first] != first:
            raise DataError(
                f"must name the first sample of each one's cluster, found {clusters!r}",
                column=column,
            )
    return clusters


def _scores(given: Any, column: str) -> tuple[float, ...]:
    scores = numbers(given, column)
    return tuple(math.nan if score is None else float32(score, column) for score in scores)


def _check_logprob(value: float | None, column: str) -> float:
    if value is None:
        raise DataError("a token without a log-probability", column=column)
    rounded = float32(value, column)
    if not_a_logprob(rounded):
        raise DataError(wrong_logprob(value), column=column)
    return rounded


def not_a_logprob(value: Any) -> Any:
    """Whether a number, or each of an array, is no log-probability; rounding may leave one above 0."""
    return ~(value <= _ROUNDED_UP) if isinstance(value, np.ndarray) else not value <= _ROUNDED_UP


def wrong_logprob(value: object) -> str:
    return (
        f"a log-probability is a natural logarithm of at most 0 (or -inf), found {value!r}; of a probability "
        "write its logarithm"
    )


_ROUNDED_UP = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage(Checked):
    """A passage. ``score`` is the retriever's, ``rerank_score`` the reranker's raw score."""

    _prefix: ClassVar[str] = "passages."
    id: str
    text: str | None = None
    title: str = ""
    score: float | None = None
    rerank_score: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or "")  # null: no title
        Checked.__post_init__(self)


@dataclass(frozen=True, slots=True)
class TopToken:
    """An alternative token at one position; ``logprob`` in nats."""

    token: str
    logprob: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "token", text(self.token, "tokens.top.token"))
        object.__setattr__(self, "logprob", _check_logprob(self.logprob, "tokens.top.logprob"))


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token with its alternatives, best first; ``logprob`` in nats."""

    token: str
    logprob: float
    top: tuple[TopToken, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "token", text(self.token, "tokens.token"))
        object.__setattr__(self, "logprob", _check_logprob(self.logprob, "tokens.logprob"))
        object.__setattr__(self, "top", tuple(self.top))


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage(Checked):
    """Usage of a round. ``None`` means unknown.

    ``llm_calls`` counts the calls of the loop, the answer, the draft and the samples. Of them
    ``answer_calls`` served this round's answer alone, ``draft_calls`` a probed answer that the loop's own
    replaced, ``sample_calls`` were samples. The loop needs the rest to go on, for example for the round's
    query. The plain token counts hold the tokens of loop, answer and draft; ``answer_`` and ``draft_`` counts
    are parts of them, ``sample_``, ``judge_`` and ``look_`` counts belong to those calls. ``latency_s`` holds
    all seconds of the round, ``usd`` all it cost as billed, in US dollars; the others are parts of it. So a
    policy pays for its inputs alone.
    """

    llm_calls: int | None = None
    answer_calls: int | None = None
    draft_calls: int | None = None
    sample_calls: int | None = None
    judge_calls: int | None = None
    look_calls: int | None = None
    rerank_calls: int | None = None
    retrievals: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    answer_prompt_tokens: int | None = None
    answer_cached_tokens: int | None = None
    answer_completion_tokens: int | None = None
    draft_prompt_tokens: int | None = None
    draft_cached_tokens: int | None = None
    draft_completion_tokens: int | None = None
    sample_prompt_tokens: int | None = None
    sample_cached_tokens: int | None = None
    sample_completion_tokens: int | None = None
    judge_prompt_tokens: int | None = None
    judge_cached_tokens: int | None = None
    judge_completion_tokens: int | None = None
    look_prompt_tokens: int | None = None
    look_cached_tokens: int | None = None
    look_completion_tokens: int | None = None
    latency_s: float | None = None
    answer_latency_s: float | None = None
    draft_latency_s: float | None = None
    sample_latency_s: float | None = None
    judge_latency_s: float | None = None
    look_latency_s: float | None = None
    usd: float | None = None
    answer_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Round(Checked):
    """One step of a loop. Only ``answer`` is required.

    Parameters
    ----------
    answer
        The answer that the loop would return here; empty: the model gave none; ``None``: nobody asked for
        an answer in this round.
    passages
        Passages **added** this round, in rank order; ``None``: not recorded.
    refound
        Passages of earlier rounds that this round's query found again, with their new scores and without
        their texts, in rank order; ``None``: not recorded, or all rounds read one ranking.
    query
        The query to the retriever in this round.
    action
        The agent's raw output that chose the query: its thoughts and actions.
    response
        The raw output that the answer was parsed from.
    tokens
        Generated tokens with their alternatives; ``None`` when the server gives no log-probabilities.
    answer_starts
        Number of the answer's first token, from 0, perhaps after blanks: 0 if the tokens are the answer.
        ``None``: after ``Answer:``, or the tokens spell the answer.
    samples
        Further sampled answers in this round, parsed; ``None``: none drawn.
    sample_clusters
        For each sample the position of the first sample that means the same, from 0; ``None``: not
        clustered by meaning.
    verbalized_confidence
        The model's own rating, 1 to 5.
    intermediate_answer
        Answer to ``query`` in iterative pipelines.
    candidate_scores
        Scores of all passages that the retriever returned for this round's query, best first.
    parse_failure
        Why no answer could be parsed; ``None``: it could.
    usage
        The round's usage.
    probed
        Whether the answer is for the record only, in a loop that does not answer in this round;
        ``None``: not recorded.
    time
        Time of the round's end, in UTC.
    signals
        Values computed elsewhere, by signal name; NaN or ``None``: undefined. They take precedence over
        values computed from the round.
    """

    _checks: ClassVar[Mapping[str, Check]] = {
        "sample_clusters": numbers,
        "candidate_scores": _scores,
        "signals": by_name,
    }
    answer: str | None
    passages: tuple[Passage, ...] | None = None
    refound: tuple[Passage, ...] | None = None
    query: str | None = None
    action: str | None = None
    response: str | None = None
    tokens: tuple[Token, ...] | None = None
    answer_starts: int | None = None
    samples: tuple[str, ...] | None = None
    sample_clusters: tuple[int, ...] | None = None
    verbalized_confidence: float | None = None
    intermediate_answer: str | None = None
    candidate_scores: tuple[float, ...] | None = None
    parse_failure: str | None = None
    usage: Usage = field(default_factory=Usage)
    probed: bool | None = None
    time: datetime | None = None
    signals: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if self.sample_clusters is not None:
            clusters = fitting_clusters(self.sample_clusters, self.samples)
            object.__setattr__(self, "sample_clusters", clusters)

    @property
    def answer_text(self) -> str:
        """The answer; empty also if the round has none, and then no signal is computed."""
        return self.answer or ""


@dataclass(frozen=True, slots=True)
class Draft(Checked):
    """An answer for a round, with its own usage.

    ``answer`` is empty if the model gave none. ``usage`` holds calls, tokens and seconds of the answer, its
    samples included, under their plain names. The other fields are those of :class:`Round`.
    """

    answer: str
    _: KW_ONLY
    response: str | None = None
    tokens: tuple[Token, ...] | None = None
    answer_starts: int | None = None
    samples: tuple[str, ...] | None = None
    sample_clusters: tuple[int, ...] | None = None
    verbalized_confidence: float | None = None
    parse_failure: str | None = None
    usage: Usage = field(default_factory=Usage)


_APART = tuple(
    column.name
    for column in fields(Usage)
    if column.name.startswith(("sample_", "judge_", "look_"))
)
SAID = tuple(part.name for part in fields(Draft) if part.name != "usage")
"""The fields of a round that an answer fills, beside its usage."""
_DRAFTED = ("prompt_tokens", "cached_tokens", "completion_tokens", "usd", "latency_s")


def with_draft(asked: Round, draft: Draft, *, probed: bool | None) -> Round:
    """Return the round with the draft as its answer; its usage is added, also to the answer's part."""
    own, spent = asked.usage, draft.usage
    if own.llm_calls == 0:
        none = {name: 0 for name in _DRAFTED[:4] if getattr(own, name) is None}
        own = replace(own, **none)
    changed: dict[str, Any] = {
        name: value for name in _APART if (value := getattr(spent, name)) is not None
    }
    for name, value in answer_part(spent).items():
        changed[name] = known_sum([getattr(own, name) if asked.answer is not None else 0, value])
    for name in ("llm_calls", *_DRAFTED):
        changed[name] = known_sum([getattr(own, name), getattr(spent, name)])
    said = {name: getattr(draft, name) for name in SAID}
    if draft.samples is None:
        said |= {"samples": asked.samples, "sample_clusters": asked.sample_clusters}
    return replace(asked, **said, probed=probed, usage=replace(own, **changed))


def without_answer(answered: Round, *, paid: bool = False) -> Round:
    """Return the round without its answer and what that took; ``paid``: as a draft it stays counted."""
    usage = answered.usage
    changed: dict[str, Any] = {}
    for name in ("calls", *_DRAFTED):
        plain = "llm_calls" if name == "calls" else name
        whole, part = getattr(usage, plain), getattr(usage, f"answer_{name}")
        changed[f"answer_{name}"] = None
        if paid and name != "usd":  # of which no draft tells its own
            changed[f"draft_{name}"] = part
        elif not paid and whole is not None and part is not None:
            changed[plain] = whole - part
    return replace(answered, answer=None, usage=replace(usage, **changed))


def answer_part(spent: Usage) -> dict[str, float | None]:
    """Return the usage of an answer without samples, by the columns of a round."""
    calls, seconds = spent.llm_calls, spent.latency_s
    part: dict[str, float | None] = {
        f"answer_{name}": getattr(spent, name) for name in _DRAFTED[:4]
    }
    part["answer_calls"] = None if calls is None else calls - (spent.sample_calls or 0)
    if seconds is not None:  # which holds the samples', unlike the plain counts of tokens
        part["answer_latency_s"] = max(0.0, seconds - (spent.sample_latency_s or 0.0))
    return part


_Number = TypeVar("_Number", int, float)


def known_sum(values: Sequence[_Number | None]) -> _Number | None:
    """Return the sum of all values; ``None`` where one is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Checked):
    """A user's question. :class:`Gold` holds the gold answers apart.

    Questions of one ``group`` (a conversation, document or user) are not independent: they count as one unit.
    """

    id: str
    text: str
    type: str | None = None
    split: str | None = None
    group: str | None = None


def sampled_ids(ids: Iterable[str], count: int, *, seed: int) -> tuple[str, ...]:
    """Draw ``count`` of the question ids by the seed; return all if there are no more."""
    if count < 1:
        raise UsageError(f"a sample holds at least 1 question, found {count}")
    drawn = sorted(set(ids), key=lambda id_: hashlib.sha256(f"{seed}:{id_}".encode()).digest())
    return tuple(drawn[:count])


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold:
    """Accepted answers and supporting passages; only fitting and scoring read them.

    A single text counts as one answer; ``None`` is none.
    """

    answers: tuple[str, ...] = ()
    passage_ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("answers", "passage_ids"):
            texts: Any = () if getattr(self, name) is None else getattr(self, name)
            texts = items(str, (texts,) if isinstance(texts, str) else texts, f"gold_{name}")
            object.__setattr__(self, name, texts)


StoppedBy = Literal["policy", "budget", "end", "error", "gold", "user"]
STOPPED_BY: tuple[StoppedBy, ...] = get_args(StoppedBy)
CUTS = ("policy", "budget", "gold", "user", "error")
"""The ends that are cuts where they come before the full budget."""
POLICY_STOP = "policy_stop"
"""The name in the map ``signals`` of 1 where the running policy said stop, 0 where it went on."""
DROPPED_CALLS = "dropped_calls"
"""The name there, in a last round, of the calls of tools after the stop, which were not run."""
NOT_READ = frozenset({POLICY_STOP, DROPPED_CALLS})  # by policies


SCORE = Range(0.0, 1.0, "a number from 0 to 1 (import and label others with --score-range, as 1,5)")
# from a millionth in single precision; a question of 1/1e-38 would be all
PROPENSITY = Range(
    9.99999997e-07,
    1.0,
    "a probability from 0.000001 to 1 (null: only the full budget could end it)",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRecord(Checked):
    """A question with its rounds, to the full budget or to its stop.

    ``gold`` is a :class:`Gold`, its answers alone, or ``None``. ``rounds[t - 1]`` is round t, ``closed_book``
    is round 0. ``scores`` are the user's own, in [0, 1], by number of the round. They are apart from the
    rounds, so that no policy sees them. ``propensity`` is the probability, from 0.000001, that the question
    runs to the full budget in spite of the policy; ``None``: 1. ``policy_hash`` is that of the live policy.

    ``stopped_by`` is the cause of the end after its last round: the ``policy``, the user's ``budget``, the
    loop's own ``end``, an ``error`` or the ``user``. ``gold``: it ended because it was right; ``None``: the
    full budget.
    """

    _checks: ClassVar[Mapping[str, Check]] = {
        # the answers themselves, or none
        "gold": lambda given, _: given if isinstance(given, Gold) else Gold(answers=given),
        "scores": lambda scores, _: {number: SCORE(one, "score") for number, one in scores.items()},
        "propensity": PROPENSITY,
        "stopped_by": partial(one_of, STOPPED_BY),
    }
    question: Question
    gold: Gold = field(default_factory=Gold)
    rounds: tuple[Round, ...]
    closed_book: Round | None = None
    scores: Mapping[int, float] = field(default_factory=dict)
    propensity: float | None = None
    stopped_by: StoppedBy | None = None
    policy_hash: str | None = None

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        first, last = 1 if self.closed_book is None else 0, len(self.rounds)
        for number in self.scores:
            if not first <= number <= last:
                said = f"a score of round {number}; the record has rounds {first} to {last}"
                raise DataError(said, column="score")


@dataclass(frozen=True, slots=True)
class LoopView:
    """A view for signals and decisions: the question's text and rounds 1..t. No gold, by type."""

    question: str
    rounds: tuple[Round, ...]

    @property
    def current(self) -> Round:
        """The last finished round, round t."""
        return self.rounds[-1]

    @property
    def previous(self) -> Round | None:
        """Round t - 1, or ``None`` at t = 1."""
        return self.rounds[-2] if len(self.rounds) > 1 else None


# --- as JSON -------------------------------------------------------------------------------------
def as_document(value: Any) -> Any:
    """Return a record as strict JSON: without fields at their default, NaN and infinities as text.

    >>> as_document(Round(answer="Oslo", tokens=(Token("Oslo", -math.inf),), signals={"own": 0.5}))
    {'answer': 'Oslo', 'tokens': [{'token': 'Oslo', 'logprob': '-inf'}], 'signals': {'own': 0.5}}
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if kind is tuple:
        return [as_document(inner) for inner in value]
    if is_dataclass(value):
        return {
            name: as_document(held)
            for name, default in _defaults(kind)  # type: ignore[arg-type]
            if (held := getattr(value, name)) != default
        }
    if isinstance(value, Mapping):
        return {name: as_document(inner) for name, inner in value.items()}
    return value.isoformat() if isinstance(value, datetime) else value


_Record = TypeVar("_Record")
_ATOMS = frozenset({str, int, bool, type(None)})


@cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (part.name, part.default if part.default_factory is MISSING else part.default_factory())
        for part in fields(kind)
    )


def round_of_document(document: Any) -> Round:
    """Return the round of a document of :func:`as_document`, bit for bit."""
    return record_of_document(Round, document, column="rounds")


def record_of_document(kind: type[_Record], document: Any, *, column: str) -> _Record:
    """Return the record of this kind from a document of :func:`as_document`."""
    try:
        record: _Record = of_document(kind, document)
    except DataError:
        raise
    except (TypeError, ValueError, AttributeError) as error:
        raise DataError(f"not a {kind.__name__.lower()}: {error}", column=column) from error
    return record


def of_document(record: Any, document: Any) -> Any:
    """Do the same with Python's own errors; a null counts as left out, if the field may not be null."""
    types = types_of(record)
    parts = {}
    for name, held in document.items():
        kind, may_be_none = types.get(name, (None, True))
        if held is not None or may_be_none:
            parts[name] = _of_json(kind, held)
    return record(**parts)


def _of_json(kind: Any, value: Any) -> Any:
    if isinstance(value, list):
        (item,) = get_args(kind)[:1] or (None,)
        return tuple(_of_json(item, held) for held in value)
    if kind is float and value in ("nan", "inf", "-inf"):
        return float(value)
    if kind is datetime and isinstance(value, str):
        return datetime.fromisoformat(value)
    return of_document(kind, value) if is_dataclass(kind) and value is not None else value


def best_reranked(passages: Sequence[Passage], scores: Iterable[float]) -> tuple[Passage, ...]:
    """Return the passages with their raw reranker scores, best first; NaN last, ties keep order."""
    held = [float(score) for score in scores]
    best = np.argsort(-np.array(held, np.float32), kind="stable")
    return tuple(replace(passages[place], rerank_score=held[place]) for place in best.tolist())


# --- words of a passage ---------------------------------------------------------------------------
_WORD = re.compile(r"\w+")


def tokenize(text: str) -> list[str]:
    """Return lower-case words, split at every non-word character."""
    return _WORD.findall(text.lower())


def passage_text(passage: Passage) -> str:
    """Return title and text joined by a blank; a passage without text gives its title."""
    return f"{passage.title} {passage.text or ''}"


def passage_tokens(passage: Passage) -> list[str]:
    """Return the tokens of title and text, in order."""
    return tokenize(passage_text(passage))
