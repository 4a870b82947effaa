"""Asking for verdicts changes nothing else in the follow-up loops, and what was replayed is what runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.loops.follow_up import QUESTION, Heard, Ranks
from tests.loops.follow_up import kind as kind_of
from tests.properties import examples

from suffice.contracts import GenerationRequest, StopPolicy
from suffice.costs.usage import CostReads, cost_matrix
from suffice.datasets.known_datasets import load
from suffice.live.controller import Controller
from suffice.loops.follow_up import (
    ChainSettings,
    FollowUpSettings,
    IterativeSettings,
    parse_verdict,
)
from suffice.loops.steps import make_pipeline
from suffice.policies.rules.policy import RulePolicy
from suffice.policies.unfitted import FixedPolicy
from suffice.replay.run.runner import stop_rounds
from suffice.retrieval.retrievers import OwnParagraphs
from suffice.signals.asking.judge_support import JUDGE_TOKENS
from suffice.testing.models import ScriptedModel
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import QuestionRecord, Round

EXAMPLES = load("generated", limit=6)
KINDS: tuple[type[Any], ...] = (IterativeSettings, ChainSettings)
REPLIES = st.sampled_from(
    [
        "",
        "Who was Ada Thorn?",
        "who was the Ada Thorn?",
        "Where?",
        "\n",
        "Follow-up: When?\nDocument: x",
    ]
)
VERDICTS = st.sampled_from(
    ["Decision: <STOP>", "so.\nDecision: <CONTINUE>", "<STOP>", "", "Decision: <STOP> <CONTINUE>"]
)


def rounds_of(made: FollowUpSettings, model: ScriptedModel, number: int) -> list[Round]:
    example = EXAMPLES[number]
    pipeline = make_pipeline(model, made)
    return list(pipeline.rounds(example.question, OwnParagraphs(example.passages)))


def bare(finished: Round, unread: int) -> Round:
    """The round without what a verdict adds to it; ``unread`` verdicts were counted."""
    signals = {name: value for name, value in finished.signals.items() if name != "llm_stop"}
    signals["malformed_actions"] -= unread
    none: dict[str, Any] = dict.fromkeys((*JUDGE_TOKENS, "latency_s", "judge_latency_s"))
    usage = replace(finished.usage, judge_calls=0, **none)
    return replace(finished, signals=signals, usage=usage, action=None)


@settings(max_examples=examples(60))
@given(
    kind=st.sampled_from(KINDS),
    api=st.sampled_from(["chat", "completion"]),
    replies=st.lists(REPLIES, min_size=10, max_size=10),
    verdicts=st.lists(VERDICTS, min_size=5, max_size=5),
)
def test_verdicts_change_no_round(
    kind: type[Any], api: Any, replies: list[str], verdicts: list[str]
) -> None:
    def model() -> ScriptedModel:
        given_replies, given_verdicts = iter(replies), iter(verdicts)

        def reply(request: GenerationRequest, sample: int) -> str:
            wanted = kind_of(request)
            if wanted in ("query", "verdict"):
                return next(given_replies if wanted == "query" else given_verdicts)
            return f"Answer: {sample} {len(str(request.prompt))}\nConfidence: 4"

        return ScriptedModel(reply, api=api)

    made = kind(rounds=5, samples=2, top_logprobs=0)
    plain, asked = (
        list(make_pipeline(model(), each).rounds(QUESTION, Ranks()))
        for each in (made, replace(made, verdicts=True))
    )
    unread = 0
    for finished, without, said in zip(asked, plain, verdicts, strict=True):
        stops = parse_verdict(f"Analysis:{said}")
        unread += stops is None
        assert bare(finished, unread) == bare(without, 0)
        assert finished.signals["llm_stop"] == float(bool(stops))
        assert finished.action is not None
        label = "Analysis:" if api == "completion" else ""
        assert finished.action == f"{without.action}\n\n{label}{said}"


def test_the_live_loop_stops_where_replay_says_and_pays_what_it_says() -> None:
    stopped = set()
    policies: tuple[tuple[StopPolicy, bool], ...] = (
        (RulePolicy(rule="llm_stop"), True),
        (RulePolicy(rule="llm_stop and answer_stable"), True),
        (RulePolicy(rule="answer_stable"), False),
        (RulePolicy(rule="self_consistency > 0.7"), False),
        (FixedPolicy(3), False),
    )
    for kind in KINDS:
        made = kind(rounds=4, samples=3, verdicts=True, top_logprobs=0)
        recorded = [rounds_of(made, ScriptedModel(), n) for n in range(len(EXAMPLES))]
        traces = to_trace_set(
            [
                QuestionRecord(question=each.question, gold=each.gold, rounds=tuple(rounds))
                for each, rounds in zip(EXAMPLES, recorded, strict=True)
            ]
        )
        for policy, verdicts in policies:
            stops = stop_rounds(policy, traces)
            # these loops answer every round and draw the last one's samples, whatever is read
            reads = CostReads(answers=True, samples=True, verdicts=verdicts, at_end=True)
            paid = {
                name: cost_matrix(traces, name, reads=reads)
                for name in ("llm_calls", "prompt_tokens", "completion_tokens")
            }
            for row, before in enumerate(recorded):
                model, live = Heard(), Controller(policy, max_rounds=4)
                pipeline = make_pipeline(model, replace(made, verdicts=verdicts))
                retriever = OwnParagraphs(EXAMPLES[row].passages)
                for finished in pipeline.rounds(EXAMPLES[row].question, retriever):
                    assert bare(finished, 0) == bare(before[len(live.rounds)], 0)
                    if live.observe(finished).stop:
                        break
                assert len(live.rounds) == stops[row]
                stopped.add(int(stops[row]))
                cost = spent(model)
                np.testing.assert_array_equal(
                    [paid[name][row, stops[row] - 1] for name in paid], cost
                )
    assert stopped == {1, 2, 3, 4}


def spent(model: Heard) -> list[int]:
    """Calls, prompt tokens and generated tokens of everything that was asked for."""
    given = [
        (request.n, reply.prompt_tokens, reply.completion_tokens) for request, reply in model.given
    ]
    return [sum(each or 0 for each in column) for column in zip(*given, strict=True)]
