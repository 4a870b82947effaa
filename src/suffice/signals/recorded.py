"""Signals that a loop or a policy records, and nothing here computes."""

from __future__ import annotations

from suffice.signals.spec import VERDICTS, SignalSpec

LLM_STOP = SignalSpec(
    name="llm_stop",
    summary="1 when the model, asked, wants to stop",
    answers=False,
    charges=(VERDICTS,),
    low=0.0,
    high=1.0,
    binary=True,
)
MALFORMED_ACTIONS = SignalSpec(
    name="malformed_actions",
    summary="replies so far that could not be read: actions, follow-up questions, verdicts",
    answers=False,
    low=0.0,
    direction="low",
)
Q_STOP = SignalSpec(name="q_stop", summary="learned value of stopping here")
Q_CONT = SignalSpec(name="q_cont", summary="learned value of going on")
REMAINING_SHARE = SignalSpec(
    name="remaining_share",
    summary="share of the steps still to come",
    answers=False,
    low=0.0,
    high=1.0,
)
