"""What is found against signals, and what cannot be found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from suffice.errors import UsageError
from suffice.evaluation.diagnose.signal_checks import Flag, refuse_unusable, signal_flags
from suffice.signals.stored_signals import with_signals
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.trace_set import TraceSet

Value = Callable[[QuestionRecord, int], float]


def drawn_in_halves(n_questions: int = 30, n_rounds: int = 4) -> list[QuestionRecord]:
    rng = np.random.default_rng(0)
    return [
        make_record(
            f"q{number:02d}",
            [str(rng.choice(["Oslo", "Rome", "unknown"])) for _ in range(n_rounds)],
            gold=["Oslo"],
            margins=[round(float(each), 3) for each in rng.random(n_rounds) * 5],
            split="tune" if number < n_questions // 2 else "eval",
        )
        for number in range(n_questions)
    ]


def stored(values: dict[str, Value], made: list[QuestionRecord] | None = None) -> TraceSet:
    """Records whose round t stores ``values[name](record, t)``, t from 0."""
    changed = [
        replace(
            record,
            rounds=tuple(
                replace(each, signals={name: of(record, t) for name, of in values.items()})
                for t, each in enumerate(record.rounds)
            ),
        )
        for record in made or drawn_in_halves()
    ]
    return to_trace_set(changed)


def kinds(found: tuple[Flag, ...]) -> list[str]:
    return [each.kind for each in found]


def margin(record: QuestionRecord, t: int) -> float:
    tokens = record.rounds[t].tokens or ()
    top = tokens[-1].top
    return top[0].logprob - top[1].logprob


def test_honest_signals_have_no_flag() -> None:
    traces = to_trace_set(drawn_in_halves())
    names = ["answer_token_margin", "answer_stable", "abstained"]
    assert signal_flags(traces, names) == dict.fromkeys(names, ())
    refuse_unusable(traces, names)
    kept = with_signals(traces).traces
    assert "answer_token_margin" in kept.signal_names
    assert signal_flags(kept, names) == dict.fromkeys(names, ())


def test_constant_and_undefined_on_tune_are_refused_though_eval_varies() -> None:
    def on_eval(record: QuestionRecord, t: int) -> float:
        return float(t) if record.question.split == "eval" else 2.0

    def only_eval(record: QuestionRecord, t: int) -> float:
        return float(t) if record.question.split == "eval" else float("nan")

    traces = stored({"mine": on_eval, "other": only_eval})
    found = signal_flags(traces, ["mine", "other"])
    assert kinds(found["mine"])[0] == "constant"
    assert kinds(found["other"])[0] == "undefined"
    with pytest.raises(UsageError) as caught:
        refuse_unusable(traces, ["mine", "other", "answer_token_margin"])
    message = str(caught.value)
    assert "'mine'" in message
    assert "'other'" in message
    assert "leave it out" in message
    assert "answer_token_margin" not in message
    refuse_unusable(traces, ["answer_token_margin"])
    # another tune split, other facts
    refuse_unusable(traces, ["mine", "other"], tune_split="eval")


def test_a_recorded_value_that_looks_ahead_is_refused() -> None:
    def ahead(record: QuestionRecord, t: int) -> float:
        return margin(record, min(t + 1, len(record.rounds) - 1))

    traces = stored({"answer_token_margin": ahead})
    (flag,) = signal_flags(traces, ["answer_token_margin"])["answer_token_margin"]
    assert flag.kind == "look_ahead"
    assert "in 90 of 120 rounds" in flag.message
    assert "question 'q00', round 1" in flag.message
    assert "90 of them equal its value of a later round" in flag.message
    with pytest.raises(UsageError, match="leave"):
        refuse_unusable(traces, ["answer_token_margin"])


def test_one_differing_round_is_enough_and_undefined_ones_do_not_count() -> None:
    def once(record: QuestionRecord, t: int) -> float:
        return 9.5 if (record.question.id, t) == ("q07", 2) else margin(record, t)

    def partly(record: QuestionRecord, t: int) -> float:
        return float("nan") if t == 1 else margin(record, t)

    (flag,) = signal_flags(stored({"answer_token_margin": once}), ["answer_token_margin"])[
        "answer_token_margin"
    ]
    assert "'q07'" in flag.message
    assert ". 0 of them equal" in flag.message
    found = signal_flags(stored({"answer_token_margin": partly}), ["answer_token_margin"])
    assert found["answer_token_margin"] == ()


@pytest.mark.parametrize(
    ("ahead", "said"),
    [
        (lambda r, t: margin(r, -1), "answer_token_margin"),
        (
            lambda r, t: margin(r, t + 1) if t + 1 < len(r.rounds) else float("nan"),
            "answer_token_margin",
        ),
        (lambda r, t: max(margin(r, s) for s in range(len(r.rounds))), "answer_token_margin"),
        (lambda r, t: min(margin(r, s) for s in range(len(r.rounds))), "answer_token_margin"),
        (
            lambda r, t: float(np.mean([margin(r, s) for s in range(len(r.rounds))])),
            "answer_token_margin",
        ),
    ],
)
def test_a_users_signal_over_later_rounds_is_found(ahead: Value, said: str) -> None:
    traces = stored({"mine": ahead})
    found = [each for each in signal_flags(traces, ["mine"])["mine"] if each.kind == "look_ahead"]
    assert len(found) == 1
    assert said in found[0].message
    with pytest.raises(UsageError, match="cannot run live"):
        refuse_unusable(traces, ["mine"])


@pytest.mark.parametrize(
    "honest",
    [
        lambda r, t: max(margin(r, s) for s in range(t + 1)),
        margin,
        lambda r, t: float(t),
        lambda r, t: margin(r, -1) + 0.001 * t,  # looks ahead, and leaves no trace of it
    ],
)
def test_what_is_not_found_is_called_unchecked(honest: Value) -> None:
    traces = stored({"mine": honest})
    assert kinds(signal_flags(traces, ["mine"])["mine"]) == ["look_ahead_unchecked"]
    refuse_unusable(traces, ["mine"])


def test_a_signal_that_equals_exact_match_is_told() -> None:
    def gold(record: QuestionRecord, t: int) -> float:
        return float(record.rounds[t].answer == "Oslo")

    assert "equals_exact_match" in kinds(signal_flags(stored({"mine": gold}), ["mine"])["mine"])
