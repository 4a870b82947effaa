"""Signals that need a model, an encoder or a planner: read from the record, where ``asks`` put them."""

from __future__ import annotations

from suffice.signals.spec import VERDICTS, SignalSpec


def _share(name: str, summary: str, asks: str) -> SignalSpec:
    needs = ("passages",)
    return SignalSpec(name=name, summary=summary, low=0.0, high=1.0, asks=asks, needs=needs)


JUDGE_SUPPORT = SignalSpec(
    name="judge_support",
    summary="a judge's rating of the evidence for the answer, 1-5 (paper 0)",
    low=1.0,
    high=5.0,
    charges=(VERDICTS,),
    asks="--llm",
    needs=("passages",),
)
EVIDENCE_CONSISTENCY = _share(
    "evidence_consistency", "(cosine of answer and mean passage + 1) / 2 (paper 2, S2)", "--encoder"
)
EVIDENCE_CONSISTENCY_MAX = _share(
    "evidence_consistency_max", "the same with the passage nearest to the answer", "--encoder"
)
EVIDENCE_CONSISTENCY_TOP1 = _share(
    "evidence_consistency_top1", "the same with the passage ranked first", "--encoder"
)
EVIDENCE_ENTAILMENT = _share(
    "evidence_entailment", "highest probability that a passage entails the answer", "--nli"
)
LLM_STOP = SignalSpec(
    name="llm_stop",
    summary="1 when the model, asked, wants to stop (paper 1)",
    answers=False,
    charges=(VERDICTS,),
    low=0.0,
    high=1.0,
    binary=True,
)
MALFORMED_ACTIONS = SignalSpec(
    name="malformed_actions",
    summary="replies so far that could not be read: actions (asked twice), follow-up questions, verdicts",
    answers=False,
    low=0.0,
    direction="low",
)
Q_STOP = SignalSpec(name="q_stop", summary="learned value of stopping here (paper 1)")
Q_CONT = SignalSpec(name="q_cont", summary="learned value of going on (paper 1)")
REMAINING_SHARE = SignalSpec(
    name="remaining_share",
    summary="share of the steps still to come (paper 4, DR)",
    answers=False,
    low=0.0,
    high=1.0,
)
