"""Watched loops: what is decided, returned and recorded, and what never breaks them."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import suffice
from suffice.costs.prices import Prices
from suffice.costs.usage import CostReads, cost_matrix
from suffice.errors import DataError, SufficeWarning, UsageError
from suffice.evaluation.replay.compare import compare
from suffice.evaluation.settings import ComparisonSettings
from suffice.live.loop import Loop
from suffice.live.watch import Watch
from suffice.live.watching import Budgets
from suffice.policies.ab_rag.policy import ABRagPolicy
from suffice.policies.policy_file import policy_hash, save_policy
from suffice.policies.rules.policy import Rule
from suffice.policies.unfitted import FixedPolicy
from suffice.testing.models import ScriptedModel
from suffice.trace.engines import SQLite
from suffice.trace.rounds.derive import TraceFilter, filter_traces
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import Draft, LoopView, Passage, QuestionRecord, Usage
from suffice.trace.rounds.schema import QUESTIONS
from suffice.trace.store import Store
from suffice.trace.stored_file import schema_of

STABLE = Rule(rule="answer_stable")
NEWS = Rule(rule="new_passages < 0.5")
ANSWERS = ("Bergen", "Oslo", "Oslo", "Oslo", "Oslo")


def walk(loop: Loop, answers: tuple[str, ...] = ANSWERS) -> None:
    for answer in answers:
        if loop.done:
            return
        loop.observe(answer=answer)


def in_a_thread(task: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """The coroutine's result; where a browser was opened, this thread has a running event loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(task())).result()


def records(folder: Path) -> dict[str, QuestionRecord]:
    return {record.question.id: record for record in read_traces(folder).records()}


# --- deciding ------------------------------------------------------------------------------------


def test_shadow_says_when_it_would_stop_and_goes_on() -> None:
    with Watch(STABLE, max_rounds=5).question("Where?") as loop:
        stops = [loop.observe(answer=answer).stop for answer in ANSWERS]
        assert loop.done
    assert stops == [False, False, False, False, True]
    assert (loop.would_stop, loop.stopped_by) == (3, "budget")
    assert "the budget of 5 rounds is spent" in loop.reason


def test_the_explored_share_is_drawn_by_id_and_runs_on(tmp_path: Path) -> None:
    with Watch(STABLE, record=tmp_path, mode="live", explore=0.25, max_rounds=5) as watch:
        loops = []
        for number in range(100):
            with watch.question("Where?", question_id=f"q{number}") as loop:
                walk(loop)
            loops.append(loop)
    explored = [loop for loop in loops if loop.explored]
    assert 12 <= len(explored) <= 40
    assert {len(loop.rounds) for loop in explored} == {5}
    assert {len(loop.rounds) for loop in loops if not loop.explored} == {3}
    again = Watch(STABLE, mode="live", explore=0.25).question("Where?", question_id="q7")
    assert again.explored == loops[7].explored
    kept = records(tmp_path)
    assert {kept[loop.question_id].stopped_by for loop in explored} == {None}
    assert {record.propensity for record in kept.values()} == {0.25}
    run_on = kept[explored[0].question_id]
    assert [held.signals["policy_stop"] for held in run_on.rounds] == [0, 0, 1, 1, 1]
    assert run_on.policy_hash == policy_hash(STABLE)


def test_shadow_stops_nothing_whatever_the_file_says_and_live_keeps_its_budget(
    tmp_path: Path,
) -> None:
    file = save_policy(STABLE, tmp_path / "policy.json", max_rounds=2)
    with Watch(file, record=tmp_path / "r").question("Where?", question_id="q") as loop:
        loop.observe(answer="Bergen")
        assert not loop.observe(answer="Rome").stop
        with pytest.warns(SufficeWarning, match="max_rounds=2"):
            assert not loop.observe(answer="Oslo").stop
        assert not loop.observe(answer="Oslo").stop
    assert (len(loop.rounds), loop.would_stop, loop.stopped_by) == (4, 4, "end")
    for given in ({"mode": "live"}, {"max_rounds": 2}):  # the file live, the user's word always
        with Watch(file, **given).question("Where?") as loop:
            walk(loop, ("Bergen", "Rome", "Oslo"))
        assert (len(loop.rounds), loop.stopped_by) == (2, "budget")


def test_exploring_past_a_stop_that_is_the_full_budget_is_refused(tmp_path: Path) -> None:
    whole = save_policy(FixedPolicy(3), tmp_path / "whole.json", max_rounds=3)
    late = Rule(rule="answer_stable and round >= 3")
    for policy, rounds in ((whole, None), (FixedPolicy(4), 3), (late, 3)):
        with pytest.raises(UsageError, match="3 rounds"):
            Watch(policy, mode="live", explore=0.5, max_rounds=rounds)
    for rounds in (4, None):
        Watch(late, mode="live", explore=0.5, max_rounds=rounds)


@pytest.mark.parametrize("budget", [5, None])
def test_a_live_record_states_the_full_budget_that_no_question_ran_to(
    budget: int | None, tmp_path: Path
) -> None:
    file = save_policy(FixedPolicy(3), tmp_path / "fixed.json", max_rounds=budget)
    with Watch(file, record=tmp_path / "r", mode="live") as watch:
        for number in range(8):
            with watch.question("Where?", question_id=f"q{number}", gold_answers=["Oslo"]) as loop:
                walk(loop)
    result = compare(tmp_path / "r", ComparisonSettings(policies=("fixed-5",), resamples=20)).result
    whole = next(policy for policy in result.policies if policy.name == "fixed-5")
    said = " ".join(result.banners)
    if budget:
        assert (result.max_rounds, whole.at_stops.past.unseen) == (5, 8)  # type: ignore[union-attr]
        assert "NOT KNOWN" not in said
    else:
        assert result.max_rounds == 3
        assert "THE FULL BUDGET IS NOT KNOWN" in said


def test_a_choice_among_answers_has_every_round_asked_for_one() -> None:
    given = iter(["Oslo", "Oslo", "Bergen"])
    with Watch(FixedPolicy(3), mode="live", answer="majority").question("Where?") as loop:
        while not loop.done:
            loop.observe(passages=["text"], probe=lambda _: next(given))
    assert (loop.answer, loop.answer_round) == ("Oslo", 2)


def test_the_most_confident_answer_is_returned_and_one_without_confidence_refused() -> None:
    policy = ABRagPolicy(weights={"token_probability": 1.0}, threshold=1.0)
    with Watch(policy, answer="most-confident").question("Where?") as loop:
        for answer, logprob in (("a", -0.5), ("b", -0.1), ("c", -2.0)):
            tokens = [{"token": answer, "logprob": logprob}]
            loop.observe(answer=answer, logprobs=tokens)
    assert (loop.answer, loop.answer_round) == ("b", 2)
    with pytest.raises(UsageError, match=r"answer=.most-confident"):
        Watch(STABLE, answer="most-confident")


@pytest.mark.parametrize(
    ("budgets", "reason"),
    [
        (Budgets(tokens=250), "the budget of 250 tokens is spent"),
        (Budgets(seconds=1e-9), "seconds is spent"),
        (
            Budgets(usd=2e-4, prices=Prices(input=1, cached=1, output=1)),
            "the budget of 0.0002 USD is spent",
        ),
    ],
)
def test_budgets_end_a_loop_in_shadow_too(budgets: Budgets, reason: str, tmp_path: Path) -> None:
    with Watch(STABLE, budgets=budgets, record=tmp_path) as watch, watch.question("Where?") as loop:
        while not loop.done:
            loop.observe(answer="a", usage={"prompt_tokens": 100, "completion_tokens": 1})
    assert reason in loop.reason
    assert loop.stopped_by == "budget"
    (record,) = records(tmp_path).values()
    assert record.stopped_by == "budget"


def test_a_budget_of_tokens_nobody_counts_is_said_and_not_kept() -> None:
    with Watch(STABLE, budgets=Budgets(tokens=1)).question("Where?") as loop:
        with pytest.warns(SufficeWarning, match=r"counts no tokens.*give observe\(usage=\.\.\.\)"):
            loop.observe(answer="a")
        assert not loop.done


# --- probes --------------------------------------------------------------------------------------
def drafts(asked: list[int]) -> Callable[[LoopView], Draft]:
    def ask(view: LoopView) -> Draft:
        asked.append(len(view.rounds))
        return Draft("Oslo", usage=Usage(llm_calls=1, prompt_tokens=50, completion_tokens=2))

    return ask


@pytest.mark.parametrize(
    ("policy", "mode", "recorded", "asked"),
    [
        (NEWS, "shadow", True, [1, 2, 3]),  # an answer in every round of the record
        (NEWS, "shadow", False, [3]),  # nothing reads it: only what is returned
        (NEWS, "live", True, [3]),  # at the stop
        (STABLE, "live", False, [1, 2]),  # the policy reads it
    ],
)
def test_a_probe_is_asked_only_where_something_needs_it(
    tmp_path: Path, policy: Any, mode: Any, recorded: bool, asked: list[int]
) -> None:
    seen: list[int] = []
    folder = tmp_path if recorded else None
    with (
        Watch(policy, record=folder, mode=mode, max_rounds=3) as watch,
        watch.question("Where?") as loop,
    ):
        texts = iter(["one", "two", "two"] if policy is NEWS else ["one", "two", "three"])
        while not loop.done:
            loop.observe(passages=[next(texts)], probe=drafts(seen))
    assert seen == asked
    assert loop.answer == "Oslo"


def test_what_a_probe_cost_stands_as_the_answers(tmp_path: Path) -> None:
    with Watch(record=tmp_path) as watch, watch.question("Where?") as loop:
        usage = {"input_tokens": 30, "output_tokens": 4}
        loop.observe(passages=["a"], query="q", usage=usage, probe=drafts([]))
        loop.observe(passages=["b"], usage=usage)
        loop.answered("Bergen", usage=Usage(llm_calls=1, prompt_tokens=7, completion_tokens=1))
    (record,) = records(tmp_path).values()
    first, last = record.rounds
    assert (first.answer, first.probed) == ("Oslo", True)
    assert (first.usage.llm_calls, first.usage.answer_calls) == (2, 1)
    assert (first.usage.prompt_tokens, first.usage.answer_prompt_tokens) == (80, 50)
    assert (last.answer, last.probed, record.stopped_by) == ("Bergen", None, "end")
    assert (last.usage.prompt_tokens, last.usage.answer_prompt_tokens) == (37, 7)
    assert loop.answer == "Bergen"


def test_a_replaced_draft_with_a_price_stays_paid_for(tmp_path: Path) -> None:
    with Watch(record=tmp_path) as watch, watch.question("Where?") as loop:
        paid = Draft("Oslo", usage=Usage(llm_calls=1, usd=0.25))
        loop.observe(passages=["a"], usage=Usage(llm_calls=1, usd=0.5), probe=lambda _: paid)
        loop.answered("Bergen", usage=Usage(llm_calls=1, usd=1.0))
        spent = loop.rounds[0].usage
    assert (spent.usd, spent.answer_usd, spent.draft_calls) == (1.75, 1.0, 1)


def test_the_loops_own_answer_takes_the_place_of_a_probed_one(tmp_path: Path) -> None:
    with Watch(record=tmp_path) as watch, watch.question("Where?") as loop:
        loop.observe(
            passages=["a"], usage={"prompt_tokens": 30, "completion_tokens": 4}, probe=drafts([])
        )
        loop.answered("Bergen", usage={"prompt_tokens": 7, "completion_tokens": 1})
    (record,) = records(tmp_path).values()
    (only,) = record.rounds
    spent = only.usage
    assert (only.answer, only.probed) == ("Bergen", False)
    assert (spent.llm_calls, spent.answer_calls, spent.draft_calls) == (3, 1, 1)
    assert (spent.prompt_tokens, spent.answer_prompt_tokens, spent.draft_prompt_tokens) == (
        87,
        7,
        50,
    )


def test_every_call_of_a_run_that_ends_by_itself_is_counted_and_charged_to_who_reads_it(
    tmp_path: Path,
) -> None:
    """What asks for an answer in each round pays for the last of them too; a fixed budget never asked."""
    served: list[int] = []

    def model(tokens: int) -> Usage:
        served.append(tokens)
        return Usage(llm_calls=1, prompt_tokens=tokens, completion_tokens=1, latency_s=0.5)

    def probe(view: LoopView) -> Draft:
        return Draft("Oslo", usage=model(50 + len(view.rounds)))

    with Watch(record=tmp_path) as watch, watch.question("Where?") as loop:
        for number in range(3):
            usage = model(30)
            loop.observe(
                passages=[str(number)], usage=[replace(usage, latency_s=None)], probe=probe
            )
        loop.answered("Bergen", usage=model(7))
    traces = suffice.read(tmp_path)
    (record,) = traces.records()
    spent = [each.usage for each in record.rounds]
    assert sum(each.llm_calls or 0 for each in spent) == len(served) == 7
    assert sum(each.prompt_tokens or 0 for each in spent) == sum(served)
    fixed, reads = CostReads(), CostReads(answers=True)
    for name, bare, all_of_it in (("llm_calls", 4, 7), ("prompt_tokens", 97, sum(served))):
        assert cost_matrix(traces, name, reads=fixed)[0, -1] == bare
        assert cost_matrix(traces, name, reads=reads)[0, -1] == all_of_it
    assert cost_matrix(traces, "llm_calls", reads=fixed)[0].tolist() == [2, 3, 4]
    seconds = [cost_matrix(traces, "seconds", reads=one)[0, -1] for one in (fixed, reads)]
    assert seconds[1] - seconds[0] == pytest.approx(1.5, abs=0.01)


@pytest.mark.parametrize("policy", [STABLE, NEWS])  # in the round, and at the stop
def test_a_probed_answer_that_the_policy_asked_for_stays_paid_for(
    policy: Any, tmp_path: Path
) -> None:
    with Watch(policy, record=tmp_path, mode="live") as watch, watch.question("Where?") as loop:
        for text in ("one", "two") if policy is STABLE else ("one", "one"):
            loop.observe(passages=[text], usage={"prompt_tokens": 30}, probe=drafts([]))
        assert loop.done
        loop.answered("Bergen", usage={"prompt_tokens": 7, "completion_tokens": 1})
    (record,) = records(tmp_path).values()
    last = record.rounds[-1]
    assert (last.answer, last.probed) == ("Bergen", False)
    assert (last.usage.llm_calls, last.usage.answer_calls) == (3, 2)
    assert (last.usage.prompt_tokens, last.usage.answer_prompt_tokens) == (87, 57)


def broken(_view: LoopView) -> Draft:
    raise ConnectionError("the server is gone")


def no_draft(_view: LoopView) -> Any:
    return 7


def no_tokens(_view: LoopView) -> Draft:
    return Draft("Oslo", tokens="abc")  # type: ignore[arg-type]


def no_usage(_view: LoopView) -> Draft:
    return Draft("Oslo", usage={"prompt_tokens": 3})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("probe", "why"),
    [
        (broken, "is gone"),
        (no_draft, "7"),
        (no_tokens, r"column tokens.*'abc'"),
        (no_usage, r"must be a Usage"),
    ],
)
def test_a_failing_probe_breaks_nothing(probe: Any, why: str, tmp_path: Path) -> None:
    with Watch(record=tmp_path, max_rounds=2) as watch:
        loop = watch.question("Where?").begin()
        with pytest.warns(SufficeWarning, match=why):
            loop.observe(passages=["a"], probe=probe)
        loop.observe(passages=["a"], probe=probe)  # said once
        loop.end()
        assert watch.counts.failed_probes == 3
    assert (loop.answer, len(loop.rounds)) == (None, 2)


def test_a_coroutine_probe_needs_the_awaited_form() -> None:
    async def ask(view: LoopView) -> str:
        await asyncio.sleep(0)
        return f"round {len(view.rounds)}"

    async def run() -> Loop:
        async with Watch(STABLE, mode="live", max_rounds=3).question("Where?") as loop:
            while not loop.done:
                await loop.aobserve(passages=["a"], probe=ask)
        return loop

    assert in_a_thread(run).answer == "round 3"
    with (
        pytest.raises(UsageError, match=r"await loop\.aobserve"),
        Watch(STABLE).question("?") as loop,
    ):
        loop.observe(passages=["a"], probe=ask)


# --- endings -------------------------------------------------------------------------------------
def fail(loop: Loop, error: BaseException, **held: Any) -> None:
    with loop:
        loop.observe(**held)
        raise error


def test_a_failure_after_an_answer_returns_it(tmp_path: Path) -> None:
    watch = Watch(record=tmp_path)
    loop = watch.question("Where?")
    with pytest.warns(SufficeWarning, match=r"failed after round 1 .TimeoutError: slow"):
        fail(loop, TimeoutError("slow"), answer="Oslo")
    watch.close()
    assert (loop.answer, loop.stopped_by, loop.reason) == ("Oslo", "error", "TimeoutError: slow")
    assert isinstance(loop.error, TimeoutError)
    (record,) = records(tmp_path).values()
    assert record.stopped_by == "error"


def test_a_failure_without_an_answer_is_raised_and_its_rounds_are_kept(tmp_path: Path) -> None:
    with Watch(record=tmp_path) as watch:
        with pytest.raises(TimeoutError):
            fail(watch.question("Where?"), TimeoutError("slow"), passages=["a"])
        with pytest.raises(KeyboardInterrupt):
            fail(watch.question("Where?"), KeyboardInterrupt(), answer="Oslo")
    assert [record.stopped_by for record in records(tmp_path).values()] == ["error", "error"]


def test_misuse_is_said() -> None:
    watch = Watch(STABLE, mode="live", max_rounds=2)
    loop = watch.question("Where?", question_id="a")
    with pytest.raises(UsageError, match="was not entered"):
        loop.observe(answer="Oslo")
    with loop:
        with pytest.raises(UsageError, match=r"'a' is"):
            watch.question("Where?", question_id="a")
        with pytest.raises(UsageError, match=r"takes .*'anser'"):
            loop.observe(anser="Oslo")
        with pytest.raises(DataError, match="is empty"):
            loop.observe()
        with pytest.raises(DataError, match=r"suffice\.Round or named values, found str"):
            loop.observe("Oslo")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="before a round"):
            loop.answered("Oslo")
        walk(loop)
        with pytest.warns(SufficeWarning, match="told to end"):
            assert loop.observe(answer="Oslo").stop
    with pytest.raises(UsageError, match="'a' ended"):
        loop.observe(answer="Oslo")
    with pytest.raises(UsageError, match="once"), loop:
        pass


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ({"score": 2}, "column score: must be a number from 0 to 1"),
        ({"score": "good"}, "column score: .* found 'good'"),
        ({"logprobs": "abc"}, "column logprobs: .*: 'abc'"),
        ({"logprobs": object()}, "column logprobs: .*"),
        ({"logprobs": [("Oslo", -0.1)]}, "column logprobs: .*"),
        ({"signals": [3]}, r"column signals: values must be numbers by name, found \[3\]"),
        ({"query": 3}, "column query: must be text, found 3"),
    ],
)
def test_what_a_round_cannot_hold_is_named_and_leaves_the_loop_as_it_was(
    held: dict[str, Any], said: str
) -> None:
    with Watch(STABLE).question("Where?") as loop:
        with pytest.raises(DataError, match=said):
            loop.observe(answer="Oslo", **held)
        assert not loop.observe(answer="Oslo").stop
    assert len(loop.rounds) == 1


# --- recording -----------------------------------------------------------------------------------
def test_passages_found_again_are_kept_as_such(tmp_path: Path) -> None:
    with Watch(record=tmp_path) as watch, watch.question("Where?") as loop:
        loop.observe(passages=[{"id": "p1", "text": "one", "score": 2}, ("two", 1.5)])
        loop.observe(passages=[{"id": "p1", "text": "one", "score": 1}, {"id": "p3", "text": "3"}])
        loop.answered("Oslo")
    (record,) = records(tmp_path).values()
    first, second = record.rounds
    assert [(p.text, p.score) for p in first.passages or ()] == [("one", 2.0), ("two", 1.5)]
    assert [p.id for p in second.passages or ()] == ["p3"]
    assert [(p.id, p.text, p.score) for p in second.refound or ()] == [("p1", None, 1.0)]


def test_scores_are_recorded_and_never_seen(tmp_path: Path) -> None:
    with Watch(STABLE, record=tmp_path, max_rounds=3) as watch:
        asked = watch.question("Where?", gold_answers=["Oslo"], question_type="place")
        with asked as loop:
            for score in (0.0, 0.5, 1.0):
                loop.observe(answer="Oslo", score=score)
    (record,) = records(tmp_path).values()
    assert record.scores == {1: 0.0, 2: 0.5, 3: 1.0}
    assert (record.gold.answers, record.question.type) == (("Oslo",), "place")
    assert all("score" not in held.signals for held in loop.rounds)


def test_a_record_is_read_while_loops_go_on_and_after(tmp_path: Path) -> None:
    watch = Watch(record=tmp_path)
    for number in range(3):
        with watch.question("Where?", question_id=f"q{number}") as loop:
            walk(loop)
    under_way = watch.question("Where?").begin()
    under_way.observe(answer="Oslo")
    before = records(tmp_path)
    assert set(before) == {"q0", "q1", "q2"}
    copy = tmp_path / "copies" / "short.parquet"
    filter_traces(tmp_path, copy, TraceFilter(max_rounds=2))
    assert schema_of(tmp_path) is QUESTIONS
    assert [len(record.rounds) for record in records(copy).values()] == [2, 2, 2]
    under_way.end()
    watch.close()
    after = records(tmp_path)
    assert len(after) == 4
    assert {name: after[name] for name in before} == before
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["record.db"]


def test_an_id_that_is_taken_gets_a_number_when_its_question_begins(tmp_path: Path) -> None:
    told: dict[str, str] = {}
    for _ in range(2):
        with Watch(record=tmp_path) as watch:
            for _ in range(2):
                with watch.question("Where?", question_id="q") as loop:
                    name, answer = loop.question_id, f"Oslo {len(told)}"
                    loop.observe(answer=answer)
                watch.label(name, gold_answers=[answer])
                told[name] = answer
    assert sorted(told) == ["q", "q#2", "q#3", "q#4"]
    for name, record in records(tmp_path).items():  # each has its own rounds, and its own label
        assert (record.rounds[0].answer, record.gold.answers) == (told[name], (told[name],))


def refusing(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


def test_a_loop_that_goes_on_after_its_stop_is_recorded_as_it_went(tmp_path: Path) -> None:
    with Watch(STABLE, record=tmp_path, mode="live", max_rounds=5) as watch:
        loop = watch.question("Where?").begin()
        decisions = [loop.observe(answer=answer) for answer in ("Oslo", "Oslo")]
        with pytest.warns(SufficeWarning, match="went on"):
            decisions += [loop.observe(answer=answer) for answer in ("Skien", "Bergen", "Narvik")]
        loop.end()
    assert [decision.stop for decision in decisions] == [False, True, True, True, True]
    assert {decision.stopped_by for decision in decisions[1:]} == {"policy"}
    assert (loop.answer, loop.would_stop, loop.stopped_by) == ("Narvik", 2, "policy")
    (kept,) = records(tmp_path).values()
    assert [held.answer for held in kept.rounds] == ["Oslo", "Oslo", "Skien", "Bergen", "Narvik"]
    assert kept.stopped_by == "policy"
    assert watch.counts.rounds == 5


def test_what_is_unwritten_at_the_close_is_lost_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(record=tmp_path)
    with watch.question("kept?") as loop:
        walk(loop)
    with watch.question("half?") as half:
        half.observe(answer="Oslo")
        assert half.kept()
        monkeypatch.setattr(SQLite, "begin", refusing)
        with pytest.warns(SufficeWarning, match="No space left"), watch.question("lost?") as loop:
            walk(loop)
        half.observe(answer="Skien")
        with pytest.warns(SufficeWarning, match="6 rounds of 2 questions.*No space left"):
            watch.close()
    assert (watch.counts.lost_rounds, watch.counts.lost_questions) == (6, 2)
    monkeypatch.undo()
    assert [one.question.text for one in read_traces(tmp_path).records()] == ["kept?"]
    with monkeypatch.context() as patched:  # what never ended is read once its process is gone
        patched.setattr("suffice.trace.store.process_of", lambda _: "")
        kept = {one.question.text: len(one.rounds) for one in read_traces(tmp_path).records()}
    assert kept == {"kept?": 5, "half?": 1}


def test_what_there_was_no_memory_for_is_lost_and_nothing_that_was_written_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(record=tmp_path)
    with watch.question("before?") as loop:
        walk(loop)
    half = watch.question("half?").begin()
    half.observe(answer="Oslo")
    assert half.kept()
    with monkeypatch.context() as patched:
        patched.setattr("suffice.trace.loop_record._MOST_WAITING", 0)
        patched.setattr(SQLite, "begin", refusing)
        half.observe(answer="Skien")
        assert not half.kept()
    half.observe(answer="Skien")
    with pytest.warns(SufficeWarning, match="No space left"):
        half.end()
    with watch.question("after?") as loop:
        walk(loop)
    with pytest.warns(SufficeWarning, match="2 rounds of 1 question"):
        watch.close()
    kept = {one.question.text: len(one.rounds) for one in read_traces(tmp_path).records()}
    assert kept == {"before?": 5, "half?": 1, "after?": 5}


# --- labels --------------------------------------------------------------------------------------
def test_labels_come_later(tmp_path: Path) -> None:
    with Watch(record=tmp_path) as watch:
        for name in ("q1", "q2"):
            with watch.question("Where?", question_id=name) as loop:
                walk(loop)
        watch.label("q1", gold_answers=["Oslo", "Christiania"])
        watch.label("q2", score=0.5)
        with pytest.raises(UsageError, match="needs gold_answers"):
            watch.label("q3")
        with pytest.raises(DataError, match="from 0 to 1"):
            watch.label("q3", score=7)
    kept = records(tmp_path)
    assert kept["q1"].gold.answers == ("Oslo", "Christiania")
    assert kept["q2"].scores == {5: 0.5}
    with pytest.raises(UsageError, match="no record"):
        Watch().label("q1", score=1.0)


def labelled_elsewhere(folder: Path, *labels: tuple[str, str]) -> list[str]:
    """What another process says when it labels questions so; empty: it did."""
    code = """
        import json, sys
        from suffice import DataError, Watch
        for name, answer in json.loads(sys.argv[2]):
            try:
                Watch(record=sys.argv[1]).label(name, gold_answers=[answer])
                print()
            except DataError as error:
                print(error.column)
        """
    words = [sys.executable, "-c", textwrap.dedent(code), str(folder), json.dumps(labels)]
    ran = subprocess.run(words, check=True, timeout=60, capture_output=True, text=True)
    return ran.stdout.splitlines()


@pytest.mark.parametrize("over", [False, True], ids=["under way", "after a restart"])
def test_a_label_that_contradicts_another_is_refused_whoever_gives_it(
    over: bool, tmp_path: Path
) -> None:
    watch = Watch(record=tmp_path)
    loop = watch.question("Where?", question_id="q", gold_answers=["Oslo"]).begin()
    loop.observe(answer="Oslo", score=0.5)
    with watch.question("Where?", question_id="r") as other:
        other.observe(answer="Oslo")
    watch.label("r", gold_answers=["Skien", "Bergen"])
    if over:
        loop.end()
        watch.close()
        watch = Watch(record=tmp_path)
    for name, label, column in (
        ("q", {"gold_answers": ["Rome"]}, "gold_answers"),  # as the question has it
        ("q", {"score": 1.0}, "score"),
        ("r", {"gold_answers": ["Rome"]}, "gold_answers"),  # as a label says
        ("nobody", {"score": 1.0}, "question_id"),
    ):
        with pytest.raises(DataError) as refused:
            watch.label(name, **label)
        assert refused.value.column == column
    told = labelled_elsewhere(tmp_path, ("r", "Rome"), ("nobody", "Rome"), ("q", "Oslo"))
    assert told == ["gold_answers", "question_id", ""]
    watch.label("r", gold_answers=["Bergen", "Skien"])  # says nothing new
    watch.label("r", question_type="place")
    loop.end()
    watch.close()
    kept = records(tmp_path)
    assert (kept["q"].gold.answers, kept["q"].scores) == (("Oslo",), {1: 0.5})
    assert (kept["r"].gold.answers, kept["r"].question.type) == (("Skien", "Bergen"), "place")


def test_a_loop_that_answers_in_every_round_pays_for_every_round(tmp_path: Path) -> None:
    """Unless it says which part a policy that reads no answers would save."""
    spent = Usage(llm_calls=1, prompt_tokens=800, completion_tokens=50)
    for part, calls in ((None, [1.0, 2.0, 3.0]), (spent, [1.0, 1.0, 1.0])):
        watch = Watch(record=tmp_path / f"{part is None}.db", max_rounds=3)
        with watch.question("Where?") as loop:
            for _ in range(3):
                loop.observe(answer="Oslo", usage=spent, answer_usage=part)
        traces = read_traces(tmp_path / f"{part is None}.db")
        names = ("llm_calls", "prompt_tokens")
        assert [cost_matrix(traces, name).tolist() for name in names] == [
            [calls],
            [[800 * count for count in calls]],
        ]


# --- a budget of all loops in a day ----------------------------------------------------------------
DOLLAR = {"prompt_tokens": 1_000_000, "completion_tokens": 0}


def a_day(usd: float, *, hard: bool = False) -> Budgets:
    """A round with the usage of a dollar costs one."""
    return Budgets(usd_per_day=usd, hard=hard, prices=Prices(input=1, cached=1, output=1))


def spend(place: str | Path, usd: float, rounds: int = 1) -> Loop:
    with Watch(record=place, budgets=a_day(usd)) as watch, watch.question("?") as loop:
        while not loop.done and len(loop.rounds) < rounds:
            loop.observe(answer="Oslo", usage=DOLLAR)
    return loop


def _spend_all(place: str, told: Any, *, hard: bool = False) -> None:
    watch, rounds = Watch(record=place, budgets=a_day(20, hard=hard)), 0
    while True:
        with watch.question("?") as loop:
            while not loop.done and len(loop.rounds) < 3:
                loop.observe(answer="Oslo", usage=DOLLAR)
        rounds += len(loop.rounds)
        if loop.stopped_by == "budget":
            break
    told.put((rounds, loop.reason))


def test_processes_stop_together_at_the_limit_of_a_day(place: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    told = spawn.Queue()
    children = [spawn.Process(target=_spend_all, args=(place, told)) for _ in range(2)]
    for child in children:
        child.start()
    spent = [told.get(timeout=60) for _ in children]
    for child in children:
        child.join(60)
    assert 20 <= sum(rounds for rounds, _ in spent) <= 22  # each may have one under way
    assert all("20 USD in 24 hours" in reason for _, reason in spent)
    late = spend(place, 20, rounds=3)
    assert (late.stopped_by, len(late.rounds), late.answer) == ("budget", 1, "Oslo")


def test_past_a_hard_limit_of_a_day_no_process_begins_a_round(place: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    told = spawn.Queue()
    options = {"args": (place, told), "kwargs": {"hard": True}}
    children = [spawn.Process(target=_spend_all, **options) for _ in range(2)]  # type: ignore[arg-type]
    for child in children:
        child.start()
    spent = [told.get(timeout=60) for _ in children]
    for child in children:
        child.join(60)
    assert 20 <= sum(rounds for rounds, _ in spent) <= 21  # one under way in the other
    with Watch(record=place, budgets=a_day(20, hard=True)) as watch:
        for _ in range(3):
            with watch.question("late", question_id="late") as loop:
                assert (loop.done, loop.stopped_by, loop.answer) == (True, "budget", None)
        assert "20 USD in 24 hours" in loop.reason
        with (  # what was done all the same is recorded
            watch.question("all the same") as loop,
            pytest.warns(SufficeWarning, match="went on"),
        ):
            loop.observe(answer="Oslo", usage=DOLLAR)
    kept = {one.question.text: one for one in read_traces(place).records()}
    assert "late" not in kept
    assert (kept["all the same"].stopped_by, len(kept["all the same"].rounds)) == ("budget", 1)
    soft = spend(place, 20, rounds=3)
    assert len(soft.rounds) == 1


def test_a_hard_limit_of_a_day_ends_what_it_cannot_count_and_needs_the_limit(
    tmp_path: Path,
) -> None:
    watch = Watch(record=tmp_path, budgets=a_day(20, hard=True))
    with watch.question("?") as loop:
        assert loop.observe(answer="Oslo").stopped_by == "budget"
    with pytest.raises(UsageError, match="usd_per_day"):
        Budgets(hard=True)


def test_running_loops_of_others_count_as_they_go_and_once(place: str) -> None:
    first, second = (Watch(record=place, budgets=a_day(usd)) for usd in (99, 6))
    with second.question("?") as here:
        with first.question("?") as there:
            there.observe(answer="Oslo", usage=DOLLAR)
            there.observe(passages=["Skien"], usage=DOLLAR)
            assert not here.observe(answer="Oslo", usage=DOLLAR).stop
            there.answered("Skien", usage=DOLLAR)
        assert not here.observe(answer="Oslo", usage=DOLLAR).stop  # 3 there, 2 here
        assert here.observe(answer="Oslo", usage=DOLLAR).stopped_by == "budget"


@pytest.mark.parametrize(("hours", "stops"), [(-25, False), (-23, True), (9_000, True)])
def test_what_is_older_than_a_day_does_not_count(hours: float, stops: bool, tmp_path: Path) -> None:
    spend(tmp_path, 99, rounds=3)
    with Store(tmp_path / "record.db").transaction() as database:
        moment = time.time() + 3_600 * hours
        database.execute("UPDATE rounds SET time = ?", (moment,))
        database.execute("UPDATE questions SET ended = ?", (max(moment, time.time()),))
    assert (spend(tmp_path, 3).stopped_by == "budget") is stops


def test_a_clock_that_is_set_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = ahead = time.time()
    monkeypatch.setattr(time, "time", lambda: ahead)
    watch, other = (Watch(record=tmp_path, budgets=a_day(usd)) for usd in (8, 99))
    stops = []
    for hours in (0, 10_000, -5, 30):
        ahead = now + 3_600 * hours
        for one in (other, watch):
            with one.question("?") as loop:
                stops.append(loop.observe(answer="Oslo", usage=DOLLAR).stop)
                if hours == -5 and one is watch:  # all of 6 stand in the last day
                    stops.append(loop.observe(answer="Oslo", usage=DOLLAR).stop)
                    stops.append(loop.observe(answer="Oslo", usage=DOLLAR).stop)
    assert stops == [False] * 7 + [True, False, False]


@pytest.mark.parametrize("trouble", ["deleted", "full"])
def test_a_day_is_counted_on_when_the_record_fails(
    trouble: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spend(tmp_path, 99, rounds=2)
    watch = Watch(record=tmp_path, budgets=a_day(5))
    with watch.question("?") as loop:
        loop.observe(answer="Oslo", usage=DOLLAR)
    if trouble == "deleted":
        for file in tmp_path.iterdir():
            file.unlink()
    else:
        monkeypatch.setattr(SQLite, "begin", refusing)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        stops = []
        for _ in range(3):
            with watch.question("?") as loop:
                stops.append(loop.observe(answer="Oslo", usage=DOLLAR).stop)
    assert stops == [False, True, True]
    assert len([one for one in said if one.category is SufficeWarning]) == 1
    with pytest.warns(SufficeWarning, match="not in the record"):
        watch.close()


def test_a_day_that_cannot_be_counted_is_refused_or_said_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="prices"):
        Budgets(usd_per_day=1)
    for refused in (
        lambda: Watch(budgets=a_day(1)),
        lambda: suffice.ask(
            "?", [Passage(id="p", text="Skien")], ScriptedModel(["x"]), budgets=a_day(1)
        ),
    ):
        with pytest.raises(UsageError, match="record="):
            refused()
    with Watch(record=tmp_path) as watch, watch.question("?") as loop:
        loop.observe(answer="Oslo")
    watch = Watch(record=tmp_path, budgets=a_day(1))
    with pytest.warns(SufficeWarning, match="1 rounds of others"), watch.question("?") as loop:
        loop.observe(answer="Oslo", usage={"prompt_tokens": 1, "completion_tokens": 1})
    with watch.question("?") as loop, pytest.warns(SufficeWarning, match="USD in 24 hours"):
        loop.observe(answer="Oslo")
