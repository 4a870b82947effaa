"""The tree of texts, over a context that is a dictionary and a model that is a hash."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.errors import BackendError
from suffice.llm.decoding import Decoder, Order, Text
from suffice.llm.drawing import Cutoffs
from suffice.llm.llama_api import SEQUENCES

SIZE = 12
PIECES = [
    b"",
    b"a",
    b"b",
    b"c",
    b"d",
    b"e",
    b"\n",
    "é".encode()[:1],
    "é".encode()[1:],
    b"f",
    b"g",
    b"h",
]
WARM = Cutoffs(temperature=0.8, top_k=6, top_p=0.95, min_p=0.02)
GREEDY = replace(WARM, temperature=0)
PROMPT = Order(tokens=(1, 2, 3, 4), seeds=tuple(range(8)), cutoffs=WARM, max_tokens=12)


class FakeModel:
    size = SIZE

    def piece(self, token: int) -> bytes:
        return PIECES[token]

    def ends(self, token: int) -> bool:
        return token == 0


class FakeContext:
    """Holds sequences of tokens, refuses what llama.cpp would, and counts what is shared once."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.held: dict[int, list[int]] = {}
        self.asked: list[NDArray[np.float32] | None] = []
        self.seen: list[tuple[int, ...]] = []
        self.calls = 0
        self.broken = False

    def decode(self, rows: Sequence[tuple[int, int, int, bool]]) -> bool:
        if self.broken:
            raise BackendError("status -3")
        prefixes = {tuple(held[: n + 1]) for held in self.held.values() for n in range(len(held))}
        if len(prefixes) + len(rows) > self.room:
            return False
        self.calls += 1
        self.asked = []
        for token, position, sequence, wanted in rows:
            held = self.held.setdefault(sequence, [])
            assert len(held) == position, "a sequence goes on where it ended"
            held.append(token)
            if sequence < SEQUENCES - 1:  # the last evens out a batch
                self.seen.append(tuple(held))
            self.asked.append(logits_of(held) if wanted else None)
        return True

    def logits(self, row: int) -> NDArray[np.float32]:
        logits = self.asked[row]
        assert logits is not None
        return logits

    def share(self, source: int, target: int, end: int) -> None:
        assert not self.held.get(target)
        self.held[target] = self.held[source][:end]

    def forget(self, sequence: int, start: int = 0) -> None:
        self.held[sequence] = self.held.get(sequence, [])[:start]

    def close(self) -> None:
        self.held = {}


def logits_of(held: Sequence[int]) -> NDArray[np.float32]:
    rng = np.random.default_rng(zlib.crc32(bytes(held)))
    return rng.normal(scale=2, size=SIZE).astype(np.float32)


@contextmanager
def decoder(
    room: int = 10_000, prompts: int = 4, slots: int = 1
) -> Iterator[tuple[Decoder, FakeContext]]:
    context = FakeContext(room)
    opened = Decoder(
        cast("Any", FakeModel()), cast("Any", context), prompts=prompts, slots=slots, candidates=8
    )
    try:
        yield opened, context
    finally:
        opened.close()


def tokens(texts: Sequence[Text]) -> list[list[int]]:
    return [[step.token for step in text.steps] for text in texts]


def alone(order: Order) -> list[list[int]]:
    """Every text by a decoder of its own."""
    drawn = []
    for seed in order.seeds:
        with decoder() as (fresh, _):
            drawn += tokens(fresh.decode(replace(order, seeds=(seed,))).texts)
    return drawn


def waits(drawn: Sequence[Sequence[int]]) -> set[tuple[int, ...]]:
    """What was drawn before a token that was drawn, without the prompt's end: what must be evaluated."""
    return {tuple(text[:n]) for text in drawn for n in range(1, len(text))}


def test_texts_together_are_those_drawn_alone_and_evaluated_once() -> None:
    with decoder() as (opened, context):
        reply = opened.decode(PROMPT)
        texts, evaluated = reply.texts, reply.evaluated
        assert tokens(texts) == alone(PROMPT)
        assert evaluated == 4
        assert len(context.seen) == len(set(context.seen)) == 4 + len(waits(tokens(texts)))
        assert opened.work.text_tokens == len(waits(tokens(texts)))
        assert opened.work.decodes == context.calls <= 12
        assert len({tuple(text) for text in tokens(texts)}) > 1
        again = opened.decode(PROMPT)
        assert tokens(again.texts) == tokens(texts)
        assert (again.evaluated, opened.work.decodes) == (0, context.calls)


def test_samples_go_along_the_greedy_answer() -> None:
    with decoder() as (opened, context):
        (greedy,) = opened.decode(replace(PROMPT, seeds=(0,), cutoffs=GREEDY)).texts
        before = len(context.seen)
        reply = opened.decode(PROMPT)
        texts, evaluated = reply.texts, reply.evaluated
        assert evaluated == 0
        fresh = waits(tokens(texts)) - waits(tokens([greedy]))
        assert len(context.seen) - before == len(fresh) < len(waits(tokens(texts)))
        assert tokens(texts) == alone(PROMPT)


def test_what_will_be_asked_next_is_drawn_beside() -> None:
    one = replace(PROMPT, seeds=(0,), cutoffs=GREEDY)
    with decoder() as (opened, context):
        first = opened.decode(replace(one, soon=PROMPT))
        assert tokens(first.texts) == alone(one)
        steps, calls = len(first.texts[0].steps), context.calls
        assert calls == steps  # the prompt, and as many batches as the answer alone takes
        texts = opened.decode(PROMPT).texts
        assert tokens(texts) == alone(PROMPT)
        assert context.calls - calls <= max(map(len, tokens(texts))) - steps
        assert len(context.seen) == len(set(context.seen))


def test_prompts_share_what_they_begin_with() -> None:
    with decoder(prompts=2) as (opened, context):
        one = replace(PROMPT, tokens=(1, 2, 3, 4, 5, 6, 7, 8), seeds=(0,))
        assert opened.decode(one).evaluated == 8
        grown = replace(one, tokens=(1, 2, 3, 4, 5, 6, 7, 9, 10))
        assert opened.decode(grown).evaluated == 2  # in its place
        other = replace(one, tokens=(1, 2, 3, 11, 11))
        assert opened.decode(other).evaluated == 2  # in a place of its own
        assert opened.decode(grown).evaluated == 0
        (text,) = opened.decode(one).texts
        drawn = tuple(tokens([text])[0])
        went_on = replace(one, tokens=(*one.tokens, *drawn, 5))
        assert opened.decode(went_on).evaluated <= 2  # the answer became part of the prompt
        assert tokens(opened.decode(went_on).texts) == alone(went_on)
        longest = max(context.held.values(), key=len)
        assert tuple(longest[: len(went_on.tokens)]) == went_on.tokens
        assert opened.lacks(went_on.tokens) == 0
        assert opened.lacks((*went_on.tokens, 3)) == 1
        assert opened.lacks((9, 9)) == 2


def test_many_texts_need_no_more_sequences_than_there_are() -> None:
    many = replace(PROMPT, seeds=tuple(range(150)), cutoffs=replace(WARM, temperature=3.0, top_p=1))
    with decoder() as (opened, context):
        texts = opened.decode(many).texts
        assert len(texts) == 150
        assert max(context.held) < SEQUENCES
        assert tokens(texts[::50]) == alone(replace(many, seeds=many.seeds[::50]))


def test_where_room_is_short_fewer_at_a_time_and_the_oldest_prompt_goes() -> None:
    with decoder(room=30) as (opened, _):
        opened.decode(replace(PROMPT, tokens=tuple(range(1, 12))))
        reply = opened.decode(PROMPT)
        texts, evaluated = reply.texts, reply.evaluated
        assert tokens(texts) == alone(PROMPT)
        assert evaluated == 1  # the other's tokens are its own, but for what follows them
    with decoder(room=8) as (opened, _):
        texts = opened.decode(PROMPT).texts
        for ours, whole in zip(tokens(texts), alone(PROMPT), strict=True):
            assert ours == whole[: len(ours)]
            assert len(ours) >= min(5, len(whole))
    with decoder(room=3) as (opened, _), pytest.raises(BackendError, match="4 tokens does not fit"):
        opened.decode(PROMPT)


@pytest.mark.parametrize("room", [10_000, 40])
def test_orders_side_by_side(room: int) -> None:
    orders = [
        replace(PROMPT, tokens=(1, 2, 3, number, number + 1), seeds=(number, number + 7))
        for number in range(8)
    ]
    expected = [alone(order) for order in orders]
    with decoder(room=room, slots=3) as (opened, context), ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(opened.decode, orders))
        assert [tokens(reply.texts) for reply in replies] == expected
        if room > 40:
            assert context.calls < sum(max(map(len, texts)) for texts in expected)


def test_texts_end_before_a_stop_and_at_whole_characters() -> None:
    order = replace(PROMPT, seeds=tuple(range(60)), stops=(b"\n", b"ab"))
    with decoder() as (opened, _):
        texts = opened.decode(order).texts
    reasons = set()
    for text in texts:
        raw = b"".join(PIECES[step.token] for step in text.steps)
        cuts = [raw.find(stop) for stop in order.stops if stop in raw]
        assert text.size == (min(cuts) if cuts else len(raw))
        broken = raw[: text.size].decode(errors="replace")
        assert text.content in (broken, broken.removesuffix("�"))
        assert "\n" not in text.content
        ended = bool(cuts) or text.steps[-1].token == 0
        assert text.finish == ("stop" if ended else "length")
        assert ended or len(text.steps) == 12
        reasons.add(text.finish)
    assert reasons == {"stop", "length"}


def test_failures_reach_whoever_waits_and_leave_nothing_behind() -> None:
    with decoder() as (opened, context):
        context.broken = True
        with pytest.raises(BackendError, match="status -3"):
            opened.decode(PROMPT)
        context.broken = False
        reply = opened.decode(PROMPT)
        texts, evaluated = reply.texts, reply.evaluated
        assert (tokens(texts), evaluated) == (alone(PROMPT), 4)
    with pytest.raises(BackendError, match="closed"):
        opened.decode(PROMPT)
    assert not [thread for thread in threading.enumerate() if thread.name == "suffice-decoder"]
