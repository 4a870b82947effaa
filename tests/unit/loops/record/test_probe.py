"""Probing a record: which rounds are asked, what stays, how it goes on."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice.errors import DataError, UsageError
from suffice.loops.record.probe import ProbePlan, ProbeSettings, probe_agreement, probe_traces
from suffice.testing.models import Failures, ScriptedModel
from suffice.trace.recording import failures_of
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import Gold, Passage, Question, QuestionRecord, Round, Usage
from suffice.trace.rounds.writer import write_traces

RUN = {"pipeline": "mine", "derived": [{"by": "split"}]}


def reply(request: Any, index: int) -> str:
    return f"Answer: {str(request.prompt).rpartition('fact ')[2].split()[0]}"


def round_(number: int, *, answer: str | None, text: str | None = "") -> Round:
    found = Passage(id=f"p{number}", title="T", text=f"fact p{number}" if text == "" else text)
    return Round(
        answer=answer,
        passages=(found,),
        query=f"about {number}",
        usage=Usage(llm_calls=1, prompt_tokens=10),
        time=datetime(2026, 1, number, tzinfo=UTC),
        signals={"error": float(number)},
    )


def record_of(name: str, *, rounds: int = 3, **more: Any) -> QuestionRecord:
    return QuestionRecord(
        question=Question(id=name, text="Which?", split="eval"),
        gold=Gold(answers=("p1",)),
        rounds=tuple(
            round_(number, answer="own" if number == rounds else None, **more)
            for number in range(1, rounds + 1)
        ),
        closed_book=Round(answer="closed"),
        scores={1: 0.5},
        propensity=0.25,
        stopped_by="policy",
        policy_hash="abc",
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Four questions of three rounds, two to a file, with a column of the user's own."""
    folder = tmp_path / "source"
    for part, names in enumerate((("a", "b"), ("c", "d"))):
        file = tmp_path / f"{part}.parquet"
        write_traces([record_of(name) for name in names], file, run=RUN)
        table = pq.read_table(file)
        tenants = pa.array([part] * table.num_rows).dictionary_encode()
        folder.mkdir(exist_ok=True)
        pq.write_table(table.append_column("tenant", tenants), folder / file.name)
    return folder


def test_all_rounds_are_asked_alike_and_the_loops_own_answers_are_kept(
    source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    model = ScriptedModel(reply)
    plans: list[ProbePlan] = []
    probe_traces(source, out, model, on_plan=plans.append)
    assert len(model.requests) == 12
    assert (plans[0].asked, plans[0].own) == (12, 4)
    table = read_traces(out, keep_unknown=True).table
    assert table.column("answer").to_pylist() == ["p1", "p2", "p3"] * 4
    assert table.column("probed").to_pylist() == [True] * 12
    assert table.column("loop_answer").to_pylist() == [None, None, "own"] * 4
    again = tmp_path / "again"
    probe_traces(out, again, ScriptedModel(lambda request, index: "Answer: other"))
    table = read_traces(again, keep_unknown=True).table
    assert table.column("answer").to_pylist() == ["other"] * 12
    assert table.column("loop_answer").to_pylist() == [None, None, "own"] * 4
    with pytest.raises(UsageError, match="missing_only was False, now True"):
        probe_traces(source, out, model, ProbeSettings(missing_only=True))


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("samples", [0, 2])
def test_what_the_loops_own_answer_cost_makes_room_where_it_is_known(
    tmp_path: Path, samples: int, *, told: bool
) -> None:
    source, out = tmp_path / "source.parquet", tmp_path / "out.parquet"
    answering = {"answer_calls": 1, "answer_prompt_tokens": 400} if told else {}
    usage = Usage(llm_calls=2, prompt_tokens=500, **answering)
    own = Round(answer="own", response="It is own.", usage=usage)
    write_traces(
        [QuestionRecord(question=Question(id="q", text="Who?"), rounds=(own,))], source, run=RUN
    )
    probe_traces(source, out, ScriptedModel(reply), ProbeSettings(samples=samples))
    (after,) = next(read_traces(out).records()).rounds
    spent = after.usage
    assert (spent.llm_calls, spent.sample_calls) == (2 + samples, samples or None)
    assert len(after.samples or ()) == samples
    if told:
        assert (spent.answer_calls, spent.prompt_tokens) == (
            1,
            100 + (spent.answer_prompt_tokens or 0),
        )
    else:
        assert (spent.answer_calls, spent.prompt_tokens) == (None, 500)
    kept = read_traces(out, keep_unknown=True).table.column("loop_response").to_pylist()
    assert kept == ["It is own."]


def test_only_rounds_without_an_answer_are_asked_where_that_is_asked_for(
    source: Path, tmp_path: Path
) -> None:
    plans: list[ProbePlan] = []
    model = ScriptedModel(reply)
    out = tmp_path / "out"
    settings = ProbeSettings(missing_only=True)
    summary = probe_traces(source, out, model, settings, on_plan=plans.append)
    assert (summary.recorded, summary.failed, len(model.requests)) == (4, 0, 8)
    (plan,) = plans
    assert (plan.questions, plan.rounds, plan.asked, plan.calls, plan.blind) == (4, 12, 8, 8, 0)
    assert plan.own == 4
    before = read_traces(source, keep_unknown=True)
    after = read_traces(out, keep_unknown=True)
    for old, new in zip(before.records(), after.records(), strict=True):
        assert [made.answer for made in new.rounds] == ["p1", "p2", "own"]
        assert [made.probed for made in new.rounds] == [True, True, None]
        usage = new.rounds[0].usage
        assert (usage.llm_calls, usage.answer_calls) == (2, 1)
        assert usage.prompt_tokens == 10 + (usage.answer_prompt_tokens or 0)
        assert new.rounds[-1] == old.rounds[-1]
        assert (new.closed_book, new.scores, new.stopped_by) == (
            old.closed_book,
            old.scores,
            "policy",
        )
    answers = {"answer", "response", "tokens", "verbalized_confidence", "parse_failure", "probed"}
    kept = [
        name
        for name in before.table.column_names
        if name not in answers and not name.endswith(("_calls", "_tokens", "latency_s"))
    ]
    assert {"tenant", "propensity", "time", "signals"} <= {*kept}
    for name in kept:
        assert after.table.column(name).to_pylist() == before.table.column(name).to_pylist(), name
    split, step = after.origin.run["derived"]
    assert (after.origin.run["pipeline"], split["by"]) == ("mine", "split")
    assert (step["by"], step["model"], step["prompt"]) == ("probe", "scripted", "answer-first")
    assert len(step["record_sha256"]) == 64


def test_a_second_run_asks_what_is_left_and_failures_again(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    some = ScriptedModel(reply, failures=Failures(containing=("fact p2",)))
    settings = ProbeSettings(limit=1, missing_only=True)
    assert probe_traces(source, out, some, settings).failed == 1
    whole = ScriptedModel(reply)
    assert probe_traces(source, out, whole, settings).recorded == 1
    assert not failures_of(out)
    again = ScriptedModel(reply)
    plans: list[ProbePlan] = []
    rest = ProbeSettings(missing_only=True)
    summary = probe_traces(source, out, again, rest, on_plan=plans.append)
    assert (summary.recorded, summary.before, len(again.requests)) == (3, 1, 6)
    assert plans[0].questions == 3
    assert read_traces(out).question_ids == ("a", "b", "c", "d")
    for changed, said in (
        (
            ProbeSettings(prompt="bare", missing_only=True),
            "derived.1.prompt was 'answer-first', now 'bare'",
        ),
        (ProbeSettings(), "derived.1.missing_only was True, now False"),
    ):
        with pytest.raises(UsageError, match=said):
            probe_traces(source, out, again, changed)
    write_traces([record_of("e")], source)
    with pytest.raises(UsageError, match=r"derived\.1\.record_sha256 was"):
        probe_traces(source, out, again, rest)


def test_the_model_is_compared_with_the_loop(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    model = ScriptedModel(lambda request, index: "Answer: The own.")
    probe_traces(source, out, model, ProbeSettings(sample=2, samples=1))
    assert len(model.requests) == 2 * 3 * 2
    assert probe_agreement(out) == (2, 2)


def test_passages_without_text_are_refused_filled_or_left_out(tmp_path: Path) -> None:
    source, out = tmp_path / "ids.parquet", tmp_path / "out"
    records = [record_of("a", text=None), record_of("b")]
    write_traces(records, source)
    with pytest.raises(DataError, match=r"1 question with passages without a text.*'a'.*--corpus"):
        probe_traces(source, out, ScriptedModel(reply))
    plans: list[ProbePlan] = []
    probe_traces(source, out, ScriptedModel(reply), skip_invalid=True, on_plan=plans.append)
    assert plans[0].left_out == {"with passages without a text": 1}
    assert read_traces(out).question_ids == ("b",)
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(f'{{"id": "p{n}", "text": "fact p{n}"}}\n' for n in (1, 2, 3)))
    filled = tmp_path / "filled"
    probe_traces(source, filled, ScriptedModel(reply), corpus=corpus)
    made = next(read_traces(filled).records())
    assert made.rounds[1].answer == "p2"
    assert made.rounds[1].passages == (Passage(id="p2", title="T", text="fact p2"),)
