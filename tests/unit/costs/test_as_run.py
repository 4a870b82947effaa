"""Costs as run, against ledgers of five loops written out call by call."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.builders import of_rounds

from suffice.contracts import Generation, GenerationRequest
from suffice.costs.prices import Prices
from suffice.costs.usage import CostModel, CostReads, cost_matrix, stop_costs
from suffice.datasets.known_datasets import load
from suffice.errors import UsageError
from suffice.loops import LOOPS, make_pipeline
from suffice.retrieval.retrievers import OwnParagraphs
from suffice.testing.models import ScriptedModel, made_up_reply
from suffice.trace.rounds.records import Round, Usage
from suffice.trace.rounds.trace_set import TraceSet

FIXED = CostReads()
ANSWERS = CostReads(answers=True)
SAMPLES = CostReads(samples=True)
VERDICTS = CostReads(verdicts=True)
EVERYTHING = CostReads(answers=True, samples=True, verdicts=True)

# in the order of the calls, a word a round: chooses a Query, Reads for it, Answers, Samples twice, gives a
# Verdict. The agent's word after a round is the next round's choice; only after the last it is a verdict.
LEDGERS = {
    "cumulative": ("AS", "AS", "AS"),
    "budgeted": ("AS", "AS"),  # five passages a round, and there are ten
    "iterative": ("QRASV", "QRASV", "QRASV"),
    "chain": ("QRASV", "QRASV", "QRASV"),
    "react": ("QAS", "QAS", "QASV"),
}
CALLS = {  # at stops 1, 2, 3; after round 3 nothing is decided, so its samples and verdict are not read
    "cumulative": {FIXED: [1, 1, 1], ANSWERS: [1, 2, 3], SAMPLES: [3, 5, 5], VERDICTS: [1, 1, 1]},
    "budgeted": {FIXED: [1, 1], ANSWERS: [1, 2], SAMPLES: [3, 3], VERDICTS: [1, 1]},
    "iterative": {FIXED: [3, 5, 7], ANSWERS: [3, 6, 9], SAMPLES: [5, 9, 11], VERDICTS: [4, 7, 9]},
    "chain": {FIXED: [3, 5, 7], ANSWERS: [3, 6, 9], SAMPLES: [5, 9, 11], VERDICTS: [4, 7, 9]},
    "react": {FIXED: [2, 3, 4], ANSWERS: [2, 4, 6], SAMPLES: [4, 7, 8], VERDICTS: [2, 3, 4]},
}


@dataclass(frozen=True)
class Call:
    """What was asked: its letter, how many calls, their tokens."""

    what: str
    calls: int
    prompt: int
    completion: int


class Counted(ScriptedModel):
    def __init__(self) -> None:
        super().__init__(self._searching)
        self.made: list[Generation] = []

    def generate(self, request: GenerationRequest) -> Generation:
        made = super().generate(request)
        self.made.append(made)
        return made

    @staticmethod
    def _searching(request: GenerationRequest, index: int) -> str:
        reply = made_up_reply(request, index)
        return reply.replace("Finish[", "Search[more ") if "Action" in reply else reply


def recorded(loop: str) -> tuple[TraceSet, tuple[tuple[Call, ...], ...]]:
    """The record of one question, and the ledger of every call that was made for it."""
    model, example = Counted(), load("generated", limit=1)[0]
    verdicts: dict[str, Any] = {} if loop in ("cumulative", "budgeted") else {"verdicts": True}
    pipeline = make_pipeline(model, LOOPS[loop](rounds=3, samples=2, **verdicts))
    rounds = list(pipeline.rounds(example.question, OwnParagraphs(example.passages)))
    made = iter(model.made)
    ledger = tuple(
        tuple(
            Call(letter, len(one.completions), one.prompt_tokens or 0, one.completion_tokens or 0)
            for letter, one in zip(word, made, strict=False)
        )
        for word in LEDGERS[loop]
    )
    assert next(made, None) is None
    assert all(call.calls == (2 if call.what == "S" else 1) for word in ledger for call in word)
    return of_rounds(*rounds), ledger


def paid(ledger: tuple[tuple[Call, ...], ...], stop: int, reads: CostReads) -> list[Call]:
    """The calls of the ledger that a policy pays for which stops there."""
    last = len(ledger)
    return [
        call
        for number, word in enumerate(ledger, start=1)
        for call in word
        if number <= stop
        and (
            call.what in "QR"
            or (call.what == "A" and (reads.answers or number == stop))
            or (call.what == "S" and reads.samples and number < last)
            or (call.what == "V" and reads.verdicts and number < last)
        )
    ]


@pytest.mark.parametrize("loop", LEDGERS)
def test_the_ledger_of_each_loop(loop: str) -> None:
    traces, ledger = recorded(loop)
    prices = CostModel(prices=Prices(input=2.0, cached=2.0, output=8.0, call=0.001))
    for reads in (FIXED, ANSWERS, SAMPLES, VERDICTS, EVERYTHING):
        costs = stop_costs(traces, reads=reads, model=prices)
        for stop in range(1, traces.n_rounds + 1):
            own = paid(ledger, stop, reads)
            found = {
                name: values[0, stop - 1] for name, values in costs.items() if values is not None
            }
            calls, prompt = sum(call.calls for call in own), sum(call.prompt for call in own)
            completion = sum(call.completion for call in own)
            assert found["llm_calls"] == calls, (loop, reads, stop)
            assert found["prompt_tokens"] == found["evaluated_tokens"] == prompt
            assert found["completion_tokens"] == completion
            usd = (2 * prompt + 8 * completion) * 1e-6 + 0.001 * calls
            assert found["usd"] == pytest.approx(usd)
            assert found["rounds"] == stop
    for reads, counted in CALLS[loop].items():
        calls = cost_matrix(traces, "llm_calls", reads=reads)[0]
        assert calls.tolist() == counted, (loop, reads)


def test_the_budget_that_ends_the_loop_is_the_policys_own() -> None:
    """Of two rounds at most, the second decides nothing; who makes sets of its samples reads them."""
    traces, _ = recorded("cumulative")
    for reads, calls in (
        (replace(SAMPLES, until=2), [3, 3]),
        (replace(SAMPLES, until=9), [3, 5]),
        (replace(SAMPLES, until=2, at_end=True), [3, 5]),
    ):
        assert cost_matrix(traces, "llm_calls", reads=reads)[0, :2].tolist() == calls


def test_what_round_1_reused_is_all_that_a_single_prompt_reuses() -> None:
    """The prompts of the rounds before were never sent; a loop's own calls, or samples, were."""

    def rounds(calls: int) -> TraceSet:
        known = {"answer_calls": 1, "sample_prompt_tokens": 0, "sample_cached_tokens": 0}
        made = []
        for prompt, cached in ((400, 90), (500, 380), (600, 480)):
            counts = {"prompt_tokens": prompt, "cached_tokens": cached}
            answer = {f"answer_{name}": count for name, count in counts.items()}
            usage = Usage(llm_calls=calls + 2, sample_calls=2, **known, **counts, **answer)
            made.append(Round(answer="x", samples=("x", "y"), usage=usage))
        return of_rounds(*made)

    ranked, searching = rounds(1), rounds(2)
    cached = {
        reads: cost_matrix(ranked, "cached_tokens", reads=reads)[0].tolist()
        for reads in (FIXED, ANSWERS, SAMPLES)
    }
    assert cached == {FIXED: [90, 90, 90], ANSWERS: [90, 470, 950], SAMPLES: [90, 380, 480]}
    assert cost_matrix(ranked, "evaluated_tokens")[0].tolist() == [310, 410, 510]
    assert cost_matrix(searching, "cached_tokens")[0].tolist() == [90, 380, 480]


def test_samples_that_make_the_answer_are_paid_by_who_reads_them() -> None:
    majority = of_rounds(*(Round(answer="x", samples=("x",) * 3, usage=Usage(llm_calls=3)),) * 2)
    named = replace(majority, origin=replace(majority.origin, run={"pipeline": "budgeted"}))
    assert cost_matrix(named, "llm_calls")[0].tolist() == [3, 3]
    assert cost_matrix(named, "llm_calls", reads=SAMPLES)[0].tolist() == [3, 6]


def old_record(pipeline: str | None, **usage: int) -> TraceSet:
    """Two rounds that do not tell answering calls from others."""
    traces = of_rounds(*(Round(answer="x", usage=Usage(**usage)),) * 2)
    run = {} if pipeline is None else {"pipeline": pipeline}
    return replace(traces, origin=replace(traces.origin, run=run))


def test_older_records_say_by_their_loop_which_calls_answered() -> None:
    one = {"llm_calls": 1, "prompt_tokens": 100}
    three = {"llm_calls": 3, "prompt_tokens": 100}
    for pipeline in (None, "cumulative", "budgeted"):
        costs = stop_costs(old_record(pipeline, **one))
        assert costs["llm_calls"] is not None
        assert costs["prompt_tokens"] is not None
        assert costs["llm_calls"].tolist() == [[1, 1]]
        assert costs["prompt_tokens"].tolist() == [[100, 100]]
    for pipeline in ("iterative", "chain", "react"):
        traces = old_record(pipeline, **three)
        assert cost_matrix(traces, "llm_calls").tolist() == [[3, 5]]
        with pytest.raises(UsageError, match="'answer_prompt_tokens'"):
            cost_matrix(traces, "prompt_tokens")
        assert cost_matrix(traces, "prompt_tokens", reads=ANSWERS).tolist() == [[100, 200]]
    with pytest.raises(UsageError, match="answered"):
        cost_matrix(old_record(None, **three), "llm_calls")


def test_seconds_of_samples_and_verdicts_are_paid_by_who_reads_them() -> None:
    calls: dict[str, Any] = {"llm_calls": 3, "answer_calls": 1, "sample_calls": 2, "judge_calls": 1}
    parts: dict[str, Any] = {
        "answer_latency_s": 2.0,
        "sample_latency_s": 4.0,
        "judge_latency_s": 1.0,
    }
    made = Round(answer="x", samples=("x", "y"), usage=Usage(latency_s=10.0, **calls, **parts))
    seconds = {
        FIXED: [5, 8, 11],  # 3 of the loop, 2 of the last answer
        ANSWERS: [5, 10, 15],
        SAMPLES: [9, 16, 19],
        VERDICTS: [6, 10, 13],
        EVERYTHING: [10, 20, 25],
    }
    for reads, expected in seconds.items():
        assert (
            cost_matrix(of_rounds(made, made, made), "seconds", reads=reads)[0].tolist() == expected
        )
