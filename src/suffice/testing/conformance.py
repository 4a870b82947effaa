"""Checks that every implementation of a protocol must pass, for use in your own tests.

Each raises an :class:`AssertionError` that names the promise and the finding; of a policy or signal that
looks ahead a :class:`suffice.errors.DataError`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal, NoReturn

import numpy as np

from suffice.contracts import (
    ChatModel,
    Encoder,
    GenerationRequest,
    Message,
    Reranker,
    Retriever,
    StopPolicy,
)
from suffice.errors import SufficeWarning
from suffice.live.loop import Loop
from suffice.signals.known_signals import NOT_GIVEN, SignalSpec
from suffice.signals.signal_table import first_stops, lack, signal_columns, signal_table
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import Passage, QuestionRecord


def _broken(promise: str, value: object) -> NoReturn:
    raise AssertionError(f"{promise}; found {value!r}")


def check_retriever(retriever: Retriever, queries: Sequence[str], *, size: int) -> None:
    """Check that a retriever over ``size`` passages returns at most k, best first, each once.

    Best first by ``rerank_score`` where every passage has one, NaN last, else by ``score``.
    """
    for query in queries:
        for k in (1, 2, size, size + 5):
            passages = list(retriever.retrieve(query, k))
            if len(passages) > k:
                _broken(f"at most {k} passages", len(passages))
            ids = [passage.id for passage in passages]
            if len(set(ids)) != len(ids):
                _broken("every passage once", ids)
            scores = [passage.score for passage in passages]
            known = [score for score in scores if score is not None]
            if len(known) != len(scores):
                _broken("a score for every passage", scores)
            raw = [passage.rerank_score for passage in passages]
            order = [score for score in raw if score is not None]
            _check_falling(order if order and len(order) == len(raw) else known)
            again = [passage.id for passage in retriever.retrieve(query, k)]
            if again != ids:
                _broken("the same passages for the same query", again)
        longest = [passage.id for passage in retriever.retrieve(query, size)]
        first = [passage.id for passage in retriever.retrieve(query, 1)]
        if first != longest[:1]:
            _broken("the best passage first whatever k", (first, longest[:1]))


def _check_falling(scores: Sequence[float]) -> None:
    if list(scores) != sorted(scores, key=lambda score: (math.isnan(score), -score)):
        _broken("best first", list(scores))


def check_reranker(reranker: Reranker, query: str, passages: Sequence[Passage]) -> None:
    """Check that a reranker returns the same passages, each once, best first by raw score.

    Give at least two passages, with a retriever's ``score`` on some. What it gives beside the order is
    a ``rerank_score``, which may depend on nothing but the query and the passage: alone and in another
    order a passage scores the same, to 0.001 of the spread of scores.
    """
    reranked = list(reranker.rerank(query, passages))
    by_id = {passage.id: passage for passage in passages}
    if sorted(passage.id for passage in reranked) != sorted(by_id):
        _broken(
            f"the same passages {sorted(by_id)}, each once", [passage.id for passage in reranked]
        )
    for passage in reranked:
        if replace(passage, rerank_score=by_id[passage.id].rerank_score) != by_id[passage.id]:
            _broken("passages as they were given, but for rerank_score", passage)
    scores = [passage.rerank_score for passage in reranked if passage.rerank_score is not None]
    if len(scores) < len(reranked):
        _broken("a rerank_score for every passage", [passage.rerank_score for passage in reranked])
    _check_falling(scores)
    known = dict(zip([passage.id for passage in reranked], scores, strict=True))
    finite = [score for score in scores if math.isfinite(score)]
    slack = 1e-6 + 1e-3 * (max(finite) - min(finite)) if finite else 0.0
    for subset in (passages[::-1], passages[:1]):
        for passage in reranker.rerank(query, subset):
            score, wanted = passage.rerank_score, known[passage.id]
            same = score is not None and (abs(score - wanted) <= slack or str(score) == str(wanted))
            if not same:
                _broken(f"a score of {wanted} for {passage.id!r} in any company", score)
    again = [passage.id for passage in reranker.rerank(query, passages)]
    if again != list(known):
        _broken("the same passages for the same query", again)
    if list(reranker.rerank(query, [])):
        _broken("nothing for nothing", list(reranker.rerank(query, [])))


def check_encoder(encoder: Encoder, texts: Sequence[str], *, tolerance: float = 1e-5) -> None:
    """Check that an encoder returns a float32 unit vector for every text, in order.

    Texts should be several and differ; they are asked for about ``2 len(texts)`` times. ``tolerance``
    bounds how far any number of a vector may move with the texts it is encoded with. No texts give no
    vectors of the same dimension, and an empty text has a vector.
    """
    roles: tuple[Literal["query", "passage"], ...] = ("passage", "query")
    for role in roles:
        whole = encoder.encode(texts, role=role)
        if whole.dtype != np.float32:
            _broken("float32 vectors", whole.dtype)
        if whole.ndim != 2 or len(whole) != len(texts) or not whole.shape[1]:
            _broken(f"an array ({len(texts)}, dimension)", whole.shape)
        lengths = np.linalg.norm(whole.astype(np.float64), axis=1)
        if not (abs(lengths - 1) < 1e-4).all():
            _broken("vectors of length 1", lengths.tolist())
        none = encoder.encode([], role=role)
        if none.shape != (0, whole.shape[1]):
            _broken(f"an array (0, {whole.shape[1]}) for no texts", none.shape)
        if not np.isfinite(encoder.encode([""], role=role)).all():
            _broken("a vector for an empty text", "NaN")
        variants = {
            "the same vectors again": encoder.encode(texts, role=role),
            "vectors in the order of the texts": encoder.encode(texts[::-1], role=role)[::-1],
            "the same vectors for texts one by one": np.concatenate(
                [encoder.encode([text], role=role) for text in texts]
            ),
        }
        for promise, vectors in variants.items():
            apart = float(abs(vectors - whole).max(initial=0.0))
            if not apart <= tolerance:
                _broken(f"{promise}, to {tolerance:g}", apart)


def check_chat_model(model: ChatModel) -> None:
    """Check that a model gives n completions, keeps to its limits, and reports tokens best first.

    Asks it five short times. Log-probabilities may be missing; where they are given they must be whole.
    """
    prompt: str | tuple[Message, ...] = "Count: one, two,"
    if model.api == "chat":
        prompt = (Message(role="user", content="Count from one to five."),)
    for n in (1, 3):
        reply = model.generate(
            GenerationRequest(
                prompt=prompt, n=n, temperature=0.8 if n > 1 else 0.0, seed=1, max_tokens=8
            )
        )
        if len(reply.completions) != n:
            _broken(f"{n} completions", len(reply.completions))
        if reply.completion_tokens is not None and reply.completion_tokens > 8 * n:
            _broken("at most max_tokens a completion", reply.completion_tokens)
        cached, sent = reply.cached_tokens, reply.prompt_tokens
        if cached is not None and sent is not None and not 0 <= cached <= sent:
            _broken("cached tokens are part of the prompt's", (cached, sent))
    plain = model.generate(GenerationRequest(prompt=prompt, max_tokens=4))
    if plain.completions[0].tokens is not None:
        _broken("no tokens unless asked for", len(plain.completions[0].tokens))
    text = plain.completions[0].text
    stop = text.strip()[:1]
    if stop:
        cut = model.generate(GenerationRequest(prompt=prompt, max_tokens=4, stop=(stop,)))
        if stop in cut.completions[0].text:
            _broken(f"nothing from the stop text {stop!r} on", cut.completions[0].text)
    _check_tokens(model, prompt)


def _check_tokens(model: ChatModel, prompt: str | tuple[Message, ...]) -> None:
    reply = model.generate(GenerationRequest(prompt=prompt, max_tokens=4, top_logprobs=3))
    tokens = reply.completions[0].tokens
    for token in tokens or ():
        logprobs = [alternative.logprob for alternative in token.top]
        if logprobs != sorted(logprobs, reverse=True):
            _broken("alternatives best first", logprobs)
        if len(logprobs) > 3:
            _broken("no more alternatives than asked for", len(logprobs))


def live_stop(policy: StopPolicy, record: QuestionRecord) -> int | None:
    """Return the round where a loop stops on recorded rounds; ``None``: the record ends first."""
    loop = Loop.alone(policy, question=record.question)
    with incomplete_rounds():
        rounds = enumerate(record.rounds, start=1)
        return next((number for number, held in rounds if loop.observe(held).stop), None)


@contextmanager
def incomplete_rounds() -> Iterator[None]:
    """Ignore the warning that a question's first round lacks an input of later rounds."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", NOT_GIVEN, SufficeWarning)
        yield


def check_signal(spec: SignalSpec, records: Sequence[QuestionRecord]) -> None:
    """Check that a signal does not look ahead: later rounds never change earlier values.

    Questions sorted by id. Records that lack what it needs are passed over.
    """
    traces = to_trace_set(records)
    if lack(spec, traces):
        return
    signal_columns(traces, [spec])


def check_policy(policy: StopPolicy, records: Sequence[QuestionRecord]) -> None:
    """Check that a policy stops live where replay says, and that later rounds change nothing.

    Questions sorted by id. A question whose record ends before a live stop must get a later round or
    the full budget from the replay. Records that lack every input of a signal are passed over, since
    replay refuses those.
    """
    traces = to_trace_set(records)
    if any(lack(spec, traces) for spec in policy.specs):
        return
    table = signal_table(traces, policy.specs)
    wanted = first_stops(policy, table)
    for index, record in enumerate(records):
        live, last, replayed = live_stop(policy, record), len(record.rounds), int(wanted[index])
        if live is None and not (replayed > last or replayed == last == traces.n_rounds):
            _broken(f"no stop within {last} rounds, as live", (record.question.id, replayed))
        if live is not None and replayed != live:
            _broken(f"a stop at round {live}, as live", (record.question.id, replayed))
