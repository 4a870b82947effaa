"""Small plan traces: by hand, and as a Hypothesis strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from suffice.trace.plan_traces import (
    ACTIONS,
    BLOCKS,
    ENDS,
    PARSES,
    Candidate,
    ConstraintDecision,
    PlanGold,
    PlanOutcome,
    PlanRecord,
    PlanStep,
    PlanTask,
)
from suffice.trace.rounds.records import Passage, Usage


def make_plan(
    task_id: str, actions: Sequence[str] = ("RETRIEVE", "EXECUTE", "STOP"), *, seed: int = 0
) -> PlanRecord:
    """A run with these actions; each RETRIEVE finds two documents, the first of them every time.

    The task's hidden token is ``limit_001``.
    """
    steps = []
    for number, action in enumerate(actions, start=1):
        texts = (f"do part {number} of {task_id}", f"do part {number}")
        retrieves = action == "RETRIEVE"
        documents = (
            Passage(id="d1", title="Limits", text="limit_001 holds", score=2.0),
            Passage(id=f"d{number + 1}", text=f"text {number}", score=1.0),
        )
        steps.append(
            PlanStep(
                number=number,
                action=action,
                candidates=tuple(Candidate(text, f"Next: {text}") for text in texts),
                reason=f"step {number} is to {action}",
                k=2 if retrieves else 0,
                query=f"what holds for {task_id}?" if retrieves else None,
                passages=documents if retrieves else (),
                chosen=texts[0] if action in ("RETRIEVE", "EXECUTE") else None,
                usage=Usage(llm_calls=2, retrievals=int(retrieves), prompt_tokens=50 * number),
            )
        )
    return PlanRecord(
        task=PlanTask(id=task_id, goal=f"Set up {task_id}", context="a bucket", total_steps=5),
        agent="gate",
        retriever="bm25",
        seed=seed,
        steps=tuple(steps),
        outcome=_outcome(task_id, "stop" if "STOP" in actions else "complete"),
        gold=PlanGold(constraints=("limit_001",), passage_ids=("d1",)),
    )


def _outcome(task_id: str, ended: str) -> PlanOutcome:
    return PlanOutcome(
        plan=f"1) do part 1 of {task_id}",
        ended=ended,
        constraints=("limit_001",),
        decisions=(ConstraintDecision(constraint="limit_001", enforced=True, reason="it holds"),),
        response='{"constraints": ["limit_001"]}',
        parsed="json",
        usage=Usage(llm_calls=1, retrievals=0, prompt_tokens=200, completion_tokens=40),
    )


def plan_records() -> st.SearchStrategy[list[PlanRecord]]:
    """Lists of runs with distinct keys and everything a plan trace may hold.

    Runs without a step, without a retriever and without gold, empty texts, undefined values, repeated
    documents, unknown costs.
    """
    text = st.sampled_from(["", "limit_001", "encrypt the bucket", "a\nb \u00e9\u4e16"])
    maybe = st.one_of(st.none(), text)
    number = st.floats(allow_nan=False, allow_infinity=False)
    usage = st.builds(
        Usage,
        llm_calls=st.one_of(st.none(), st.integers(0, 9)),
        retrievals=st.one_of(st.none(), st.integers(0, 2)),
        prompt_tokens=st.one_of(st.none(), st.integers(0, 2**31 - 1)),
        latency_s=st.one_of(st.none(), st.floats(0, 50)),
    )
    passage = st.builds(
        Passage,
        id=st.sampled_from("abcd"),
        title=text,
        text=maybe,
        score=st.one_of(st.none(), st.floats(-5, 50)),
    )
    step = st.fixed_dictionaries(
        {
            "action": st.sampled_from(ACTIONS),
            "candidates": st.lists(st.builds(Candidate, text, maybe), max_size=3),
            "redrawn": st.lists(st.builds(Candidate, text, maybe), max_size=2),
            "reason": text,
            "values": st.dictionaries(st.sampled_from(("risk", "mine")), number, max_size=3),
            "k": st.integers(0, 6),
            "passages": st.lists(passage, max_size=3),
            "sampled_again": st.integers(0, 2),
            "blocked": st.sampled_from((None, *BLOCKS)),
            "usage": usage,
            **dict.fromkeys(("query", "chosen", "dropped", "question", "reply", "verdict"), maybe),
        }
    )
    gold = st.builds(PlanGold, constraints=st.lists(text, max_size=2), passage_ids=st.just(("a",)))
    run = st.tuples(
        st.lists(step, max_size=4),
        _outcomes(text, usage),
        st.one_of(st.none(), st.just(PlanGold()), gold),
    )
    return st.lists(run, min_size=1, max_size=5).map(_with_keys)


def _outcomes(text: Any, usage: Any) -> Any:
    maybe = st.one_of(st.none(), text)
    return st.builds(
        PlanOutcome,
        plan=text,
        ended=st.sampled_from(ENDS),
        constraints=st.lists(text, max_size=2),
        decisions=st.lists(
            st.builds(ConstraintDecision, constraint=text, enforced=st.booleans(), reason=text),
            max_size=2,
        ),
        response=maybe,
        attempts=st.integers(0, 3),
        parsed=st.sampled_from((None, *PARSES)),
        parse_failure=maybe,
        usage=usage,
        semantic=st.sampled_from([None, True, False]),
        verdict=maybe,
    )


_AGENTS = ("gate", "none")
_RETRIEVERS = (None, "bm25")


def _with_keys(
    runs: Sequence[tuple[Sequence[Mapping[str, Any]], PlanOutcome, PlanGold | None]],
) -> list[PlanRecord]:
    """In the order a plan trace is read."""
    made = []
    for position, (steps, outcome, gold) in enumerate(runs):
        task, rest = divmod(position, len(_AGENTS) * len(_RETRIEVERS))
        agent, retriever = divmod(rest, len(_RETRIEVERS))
        made.append(
            PlanRecord(
                task=PlanTask(id=f"t{task:03d}", goal="a goal", context="", total_steps=task + 1),
                agent=_AGENTS[agent],
                retriever=_RETRIEVERS[retriever],
                seed=position,
                steps=tuple(PlanStep(number=n, **step) for n, step in enumerate(steps, start=1)),
                outcome=outcome,
                gold=gold,
            )
        )
    return made
