"""Asking for verdicts changes nothing else in the follow-up loops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.loops.follow_up import QUESTION, Ranks
from tests.loops.follow_up import kind as kind_of
from tests.properties import examples

from suffice.contracts import GenerationRequest
from suffice.loops import make_pipeline
from suffice.loops.follow_up import ChainSettings, IterativeSettings, parse_verdict
from suffice.signals.asking.judge_support import JUDGE_TOKENS
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import Round

ASKED = ("Who was Ada Thorn?", "who was the Ada Thorn?", "Where?", "Follow-up: When?\nDocument: x")
REPLIES = st.sampled_from(["", "\n", *ASKED])
VERDICTS = st.sampled_from(
    ["Decision: <STOP>", "so.\nDecision: <CONTINUE>", "<STOP>", "", "Decision: <STOP> <CONTINUE>"]
)


def bare(finished: Round, unread: int) -> Round:
    """The round without what a verdict adds to it; ``unread`` verdicts were counted."""
    signals = {name: value for name, value in finished.signals.items() if name != "llm_stop"}
    signals["malformed_actions"] -= unread
    none: dict[str, Any] = dict.fromkeys((*JUDGE_TOKENS, "latency_s", "judge_latency_s"))
    usage = replace(finished.usage, judge_calls=0, **none)
    return replace(finished, signals=signals, usage=usage, action=None)


@settings(max_examples=examples(60))
@given(
    kind=st.sampled_from([IterativeSettings, ChainSettings]),
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
