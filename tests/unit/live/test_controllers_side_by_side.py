"""Questions side by side: a shared controller is refused, copies and checkpoints are not."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
import warnings
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from suffice.contracts import Decision
from suffice.errors import DataError, UsageError
from suffice.live.controller import Controller
from suffice.policies.fixed import FixedPolicy
from suffice.policies.rules.policy import RulePolicy
from suffice.signals.registry import SignalSpec
from suffice.trace.rounds.records import LoopView, Passage, Round

STABLE = RulePolicy(rule="answer_stable")
ANSWERS = {"Who?": ("Ada", "Bo", "Bo"), "Where?": ("Rome", "Oslo", "Oslo")}
REFUSED = (
    r"of the question '(Who|Where)\?', and another thread or task has begun.*\.copy\(\)\.start\("
)


def run(controller: Controller, question: str) -> Iterator[Decision]:
    """A loop of one's own, round by round."""
    controller.start(question)
    for answer in ANSWERS[question]:
        yield controller.observe(Round(answer=answer))


async def in_task(controller: Controller, question: str) -> list[str]:
    """The same in a task that waits, as for a model, before every round."""
    controller.start(question)
    for answer in ANSWERS[question]:
        await asyncio.sleep(0)
        if controller.observe(Round(answer=answer)).stop:
            break
    return [finished.answer_text for finished in controller.rounds]


def _run(tasks: Coroutine[Any, Any, list[Any]]) -> list[Any]:
    """In a thread of its own: where a browser was opened, this one has a running event loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, tasks).result()


def in_threads(loops: dict[str, Controller]) -> dict[str, list[str] | UsageError]:
    """A thread a question, in step: every one begins before any observes."""
    begun = threading.Barrier(len(loops))
    ended: dict[str, list[str] | UsageError] = {}

    def work(question: str) -> None:
        controller = loops[question].start(question)
        begun.wait()
        try:
            for answer in ANSWERS[question]:
                controller.observe(Round(answer=answer))
            ended[question] = [finished.answer_text for finished in controller.rounds]
        except UsageError as error:
            ended[question] = error

    threads = [threading.Thread(target=work, args=(question,)) for question in loops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ended


def test_threads_that_share_one_are_refused_and_never_mixed() -> None:
    shared = Controller(STABLE, max_rounds=3)
    ended = in_threads(dict.fromkeys(ANSWERS, shared))
    errors = [outcome for outcome in ended.values() if isinstance(outcome, UsageError)]
    with pytest.raises(UsageError, match=REFUSED):
        raise errors[0]
    assert len(errors) == 1  # the one that began last goes on undisturbed
    for question, outcome in ended.items():
        assert isinstance(outcome, UsageError) or outcome == list(ANSWERS[question])
    own = {question: shared.copy() for question in ANSWERS}
    assert in_threads(own) == {question: list(ANSWERS[question]) for question in ANSWERS}


def test_tasks_that_share_one_are_refused_and_never_mixed() -> None:
    shared = Controller(STABLE)

    async def both(first: Controller, second: Controller) -> list[Any]:
        # an earlier question in the task that makes the others changes nothing
        list(run(shared, "Who?"))
        loops = (in_task(first, "Who?"), in_task(second, "Where?"))
        return list(await asyncio.gather(*loops, return_exceptions=True))

    refused, told = _run(both(shared, shared))
    with pytest.raises(UsageError, match=REFUSED):
        raise refused
    assert told == ["Rome", "Oslo", "Oslo"]
    copies = _run(both(shared.copy(), shared.copy()))
    assert copies == [["Ada", "Bo", "Bo"], ["Rome", "Oslo", "Oslo"]]


def test_two_in_observe_at_once_are_refused() -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(_: LoopView) -> float:
        entered.set()
        return float(leave.wait(10))

    class Slow(FixedPolicy):
        __slots__ = ()
        specs = (SignalSpec(name="slow", summary="", compute=slow),)

    controller = Controller(Slow(9))
    other = threading.Thread(target=controller.observe, args=(Round(answer="a"),))
    other.start()
    assert entered.wait(10)
    with pytest.raises(UsageError, match=r"two threads are in observe\(\) at once.*\.copy\(\)"):
        controller.observe(Round(answer="b"))
    leave.set()
    other.join()
    assert [finished.answer_text for finished in controller.rounds] == ["a"]


@pytest.mark.parametrize("kept", [True, False])
def test_one_question_may_go_from_thread_to_thread(kept: bool) -> None:
    """As frameworks run the steps of a graph: with the caller's context, or without."""
    controller = Controller(STABLE, max_rounds=3)

    def step(answer: str) -> Decision:
        return controller.observe(Round(answer=answer))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for question, answers in ANSWERS.items():
            controller.start(question)
            for answer in answers:
                with ThreadPoolExecutor(1) as pool:
                    context = contextvars.copy_context() if kept else contextvars.Context()
                    decision = pool.submit(context.run, step, answer).result()
            assert decision.stop


# --- checkpoints --------------------------------------------------------------------------------
def test_a_checkpoint_holds_all_that_the_loop_needs() -> None:
    controller = Controller(STABLE, max_rounds=2).start("Who?", question_id="q1")
    first = Round(
        answer="Ada",
        passages=(Passage(id="p", text="Ada wrote it.", score=0.1),),
        samples=("Ada", "Bo"),
        signals={"own": float("nan")},
    )
    controller.observe(first)
    document = json.loads(json.dumps(controller.to_dict(), allow_nan=False))
    assert document["policy"]["rule"] == "answer_stable"
    resumed = Controller.from_dict(document)
    assert repr(resumed.rounds) == repr((first,))
    assert (resumed.max_rounds, resumed.to_dict()) == (2, controller.to_dict())
    last = resumed.observe(Round(answer="Bo"))
    assert last.stopped_by == "budget"
    again = Controller.from_dict(json.loads(json.dumps(resumed.to_dict())))
    assert again.observe(Round(answer="Bo")) == last
    assert len(controller.rounds) == 1


def test_the_policy_may_be_kept_out_of_a_checkpoint() -> None:
    controller = Controller(STABLE)
    list(run(controller, "Who?"))
    document = controller.to_dict(policy=False)
    assert document["policy"] is None
    resumed = Controller.from_dict(document, policy=controller.policy)
    assert resumed.rounds == controller.rounds
    with pytest.raises(UsageError, match=r"from_dict\(document, policy="):
        Controller.from_dict(document)
    with pytest.raises(UsageError, match="made under another policy"):
        Controller.from_dict(document, policy=FixedPolicy(2))


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        ("suffice_controller", 2, "controller version 2 is newer than 1"),
        ("suffice_controller", None, "must be a version number, found None"),
        ("rounds", [{"answr": "Ada"}], "not a round.*answr"),
        ("rounds", ["Ada"], "not a round"),
        ("policy", {"suffice_policy": 1, "kind": "rule"}, "column rule"),
        ("question", None, "column question: is missing"),
    ],
)
def test_what_is_no_checkpoint_is_refused(part: str, value: object, said: str) -> None:
    controller = Controller(STABLE)
    controller.observe(Round(answer="Ada"))
    with pytest.raises(DataError, match=said):
        Controller.from_dict({**controller.to_dict(), part: value})
