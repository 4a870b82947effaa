"""What is told of a foreign error, and which name a slip was meant for."""

from __future__ import annotations

import time

import pytest

from suffice.errors import BackendError, did_you_mean, first_line, keep_secret, near_misses, struck


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("cannot load\nTraceback: ...", "cannot load"),
        ("\n\n  too large \nmore", "too large"),
        ("", "KeyError"),
        (" \n\t", "KeyError"),
        ("x" * 1000, "x" * 300),
    ],
)
def test_the_first_line_with_text(message: str, told: str) -> None:
    class KeyError(Exception):  # noqa: A001 - its name is told; Python's own quotes its text
        pass

    assert first_line(KeyError(message)) == told


@pytest.mark.parametrize(
    ("word", "meant"),
    [("splt", "split"), ("Gold-Answer", "gold_answers"), ("SPLIT", "split"), ("notes", None)],
)
def test_the_name_a_slip_was_meant_for(word: str, meant: str | None) -> None:
    near = near_misses(word, ["split", "gold_answers", "query"])
    assert near[:1] == ([] if meant is None else [meant])
    assert did_you_mean(word, ["split", "gold_answers"]) == (
        "" if meant is None else f"; did you mean {meant!r}?"
    )


@pytest.mark.parametrize(
    "told",
    [
        *("Authorization: Bearer {}", '{{"authorization": "Basic {}"}}', "api_key={}&x=1"),
        *("x-api-key: {}", "https://host/v1?key={}", "http://me:{}@host/v1", "used {} there"),
    ],
)
def test_keys_are_struck_from_every_error(told: str) -> None:
    keep_secret("in-use-0815")
    for key in ("in-use-0815", "sk-proj-abcdef0123456789", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.c2ln"):
        error = BackendError(told.format(key))
        assert key not in str(error)
        assert "[struck]" in first_line(error)
        assert struck(str(error)) == str(error)


def test_words_that_are_no_keys_stay() -> None:
    text = (
        "http://127.0.0.1:8000/v1: 401: the skeleton key of hf_data is a basic password; see tokens"
    )
    assert struck(text) == text


@pytest.mark.parametrize("text", ["eyJ", "sk-", "Bearer ", "://a:", "api_key = ", "key ", "a@"])
def test_striking_is_linear_work(text: str) -> None:
    started = time.process_time()
    struck(text * (100_000 // len(text)))
    assert time.process_time() - started < 5  # quadratic work takes minutes
