from __future__ import annotations

import json
import math
from typing import Any

import pytest

from suffice.contracts import MAX_REPLY_LETTERS, Completion, GenerationRequest, Message
from suffice.errors import BackendError, UsageError
from suffice.llm.replies import EventReply, joined_events, parse_completions
from suffice.llm.wire import check_request
from suffice.trace.rounds.records import Token, TopToken


def parse(choice: dict[str, Any], top: int = 5) -> Completion:
    (completion,) = parse_completions({"choices": [choice]}, top_logprobs=top, source="http://x")
    return completion


def token(text: str, logprob: float | None, **top: float | None) -> dict[str, Any]:
    others = [{"token": name, "logprob": value} for name, value in top.items()]
    return {"token": text, "logprob": logprob, "top_logprobs": others}


def test_chat_logprobs_sorted_and_cut() -> None:
    content = [token("Hi", -0.5, Ho=-2.0, Hi=-0.5, Ha=-1.0, No=None)]
    choice = {
        "message": {"content": "Hi"},
        "finish_reason": "stop",
        "logprobs": {"content": content},
    }
    assert parse(choice, top=2) == Completion(
        text="Hi",
        finish_reason="stop",
        tokens=(Token("Hi", -0.5, (TopToken("Hi", -0.5), TopToken("Ha", -1.0))),),
    )


def test_legacy_logprobs() -> None:
    logprobs = {
        "tokens": [" a", " b"],
        "token_logprobs": [-0.25, -1.5],
        "top_logprobs": [{" x": -2.0, " a": -0.25}, None],
        "text_offset": [0, 2],
    }
    assert parse({"text": " a b", "finish_reason": "length", "logprobs": logprobs}).tokens == (
        Token(" a", -0.25, (TopToken(" a", -0.25), TopToken(" x", -2.0))),
        Token(" b", -1.5),
    )


@pytest.mark.parametrize(
    "logprobs",
    [
        *(None, {}, {"content": None}, {"content": [token("a", None)]}),
        {"tokens": ["a"], "token_logprobs": [None], "top_logprobs": None},
    ],
)
def test_missing_logprobs_leave_tokens_unknown(logprobs: object) -> None:
    assert parse({"text": "a", "logprobs": logprobs}) == Completion(text="a")


@pytest.mark.parametrize("value", [math.nan, math.inf, "-1"])
@pytest.mark.parametrize("place", ["chosen", "top", "legacy"])
def test_a_logprob_that_is_none_names_server_and_token(value: Any, place: str) -> None:
    places: dict[str, dict[str, Any]] = {
        "chosen": {"content": [token("tok", value, tok=-1.0)]},
        "top": {"content": [token("tok", -1.0, tok=value)]},
        "legacy": {"tokens": ["tok"], "token_logprobs": [value], "top_logprobs": None},
    }
    with pytest.raises(BackendError, match=r"http://x .*'tok'"):
        parse({"text": "tok", "logprobs": places[place]})


def test_minus_infinity_and_what_float32_cannot_hold_mean_probability_zero() -> None:
    for value in (-math.inf, -1e300):
        found = parse({"text": "a", "logprobs": {"content": [token("a", value)]}})
        assert found.tokens == (Token("a", -math.inf),)


@pytest.mark.parametrize(
    "payload",
    [None, [], "ok", {}, {"choices": None}, {"choices": ["a"]}, {"choices": [{"text": 3}]},
     {"choices": [{"text": "a", "logprobs": {"content": ["a"]}}]},
     {"choices": [{"text": "a", "logprobs": {"content": [{"logprob": -1}]}}]},
     {"choices": [{"text": "a", "logprobs": {"tokens": ["a", "b"], "token_logprobs": [-1.0]}}]}],
)  # fmt: skip
def test_another_shape_is_a_backend_error(payload: object) -> None:
    with pytest.raises(BackendError, match="http://x"):
        parse_completions(payload, top_logprobs=1, source="http://x")


def test_choices_come_in_the_order_of_their_index() -> None:
    payload = {"choices": [{"text": "b", "index": 1}, {"text": "a", "index": 0}]}
    found = parse_completions(payload, top_logprobs=0, source="s")
    assert [completion.text for completion in found] == ["a", "b"]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (GenerationRequest(prompt=(Message(role="user", content="p"),)), 'api="chat"'),
        (GenerationRequest(prompt="p", n=0), "n must be at least 1, found 0"),
        (GenerationRequest(prompt="p", max_tokens=0), "max_tokens"),
        (GenerationRequest(prompt="p", top_logprobs=21), "between 0 and 20"),
        (GenerationRequest(prompt="p", temperature=-1), "temperature"),
        (GenerationRequest(prompt="p", temperature=math.nan), "temperature"),
        (GenerationRequest(prompt="p", top_p=1.5), "top_p"),
    ],
)
def test_requests_no_server_understands_are_refused(
    request_: GenerationRequest, words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_request(request_, "completion", "m")
    assert words in str(caught.value)


# --- replies that come as events -------------------------------------------------------------
def stream_of(*pieces: str) -> bytes:
    """Events as a server sends them, halves of surrogate pairs escaped."""
    events: list[dict[str, Any]] = [
        {"choices": [{"delta": {"content": piece}}]} for piece in pieces
    ]
    events.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    return b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        (["Sk", "ien \ud83d", "\ude00 yes"], ["Sk", "ien ", "\U0001f600 yes"]),
        (["\ud83d", "\ude00"], ["\U0001f600"]),
        (["a\ud83d", "b"], ["a", "\ufffdb"]),
        (["\ude00", "a\ud83d"], ["\ufffd", "a"]),
    ],
)
def test_an_emoji_split_over_two_pieces_is_told_whole(pieces: list[str], told: list[str]) -> None:
    heard: list[str] = []
    content = stream_of(*pieces)
    EventReply(heard.append).feed(content)
    assert heard == told
    whole = parse_completions(joined_events(content, "s"), top_logprobs=0, source="s")[0].text
    assert whole.startswith("".join(heard))


def test_a_reply_of_10_mb_is_kept_and_told_as_far_as_it_is_read() -> None:
    heard: list[str] = []
    content = stream_of("Answer: ", *["x" * 100_000] * 100)
    EventReply(heard.append).feed(content)
    (whole,) = parse_completions(joined_events(content, "s"), top_logprobs=0, source="s")
    assert len(whole.text) == MAX_REPLY_LETTERS
    assert "".join(heard) == whole.text
