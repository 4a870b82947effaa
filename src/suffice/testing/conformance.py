"""What every implementation of a protocol must do, as checks to call from one's own tests.

Each raises :class:`AssertionError` saying what was promised and what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from suffice.pipelines.controller import Controller
from suffice.protocols import ChatModel, GenerationRequest, Message, Retriever, StopPolicy
from suffice.signals.table import missing_inputs, signal_table
from suffice.testing.traces import to_trace_set
from suffice.trace.records import QuestionRecord

__all__ = ["check_chat_model", "check_policy", "check_retriever", "live_stop"]


def _broken(promise: str, found: object) -> NoReturn:
    raise AssertionError(f"{promise}; found {found!r}")


def check_retriever(retriever: Retriever, queries: Sequence[str], *, size: int) -> None:
    """A retriever over ``size`` passages returns at most k, best first, each once, and repeatably."""
    for query in queries:
        for k in (1, 2, size, size + 5):
            found = list(retriever.retrieve(query, k))
            if len(found) > k:
                _broken(f"at most {k} passages", len(found))
            ids = [passage.id for passage in found]
            if len(set(ids)) != len(ids):
                _broken("every passage once", ids)
            scores = [passage.score for passage in found]
            known = [score for score in scores if score is not None]
            if len(known) != len(scores):
                _broken("a score for every passage", scores)
            if known != sorted(known, reverse=True):
                _broken("best first", known)
            again = [passage.id for passage in retriever.retrieve(query, k)]
            if again != ids:
                _broken("the same passages for the same query", again)
        longest = [passage.id for passage in retriever.retrieve(query, size)]
        first = [passage.id for passage in retriever.retrieve(query, 1)]
        if first != longest[:1]:
            _broken("the best passage first whatever k", (first, longest[:1]))


def check_chat_model(model: ChatModel) -> None:
    """A model gives n completions, keeps to its limits, and reports tokens best first.

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
        if None not in (reply.prompt_tokens, reply.cached_tokens):
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
    """The round a controller stops at on recorded rounds; ``None`` when the record ends first."""
    controller = Controller(policy).start(record.question.text)
    for number, finished in enumerate(record.rounds, start=1):
        if controller.observe(finished).stop:
            return number
    return None


def check_policy(policy: StopPolicy, records: Sequence[QuestionRecord]) -> None:
    """What was replayed is what runs: ``stop_rounds`` gives the first round at which ``decide`` stops.

    Questions sorted by id. A question whose record ends before a live stop must get a later round or
    the full budget from the replay. Records that lack every input of a signal are passed over, since
    replay refuses those.
    """
    traces = to_trace_set(records)
    if any(missing_inputs(spec, traces) for spec in policy.specs):
        return
    wanted = policy.stop_rounds(signal_table(traces, policy.specs))
    if wanted.shape != (len(records),):
        _broken(f"{len(records)} stop rounds", wanted.shape)
    for index, record in enumerate(records):
        live, last, replayed = live_stop(policy, record), len(record.rounds), int(wanted[index])
        if live is None and not (replayed > last or replayed == last == traces.n_rounds):
            _broken(f"no stop within {last} rounds, as live", (record.question.id, replayed))
        if live is not None and replayed != live:
            _broken(f"a stop at round {live}, as live", (record.question.id, replayed))
