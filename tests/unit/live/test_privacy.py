"""A record without its texts: names in their place, signals and scores as they were, nothing else left."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import suffice
from suffice.errors import UsageError
from suffice.live.privacy import Texts, redact_traces
from suffice.live.watch import Watch
from suffice.measures.measures import Measures
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.rules.policy import Rule
from suffice.signals.abstained import abstained_signal
from suffice.signals.known_signals import SIGNALS
from suffice.signals.signal_table import given_signals, signal_table
from suffice.stats.conformal import NEVER
from suffice.testing.traces import make_record, sampled_records
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import Passage, QuestionRecord, Round
from suffice.trace.rounds.trace_set import TraceSet
from suffice.trace.rounds.writer import write_traces

SECRETS = ("Sonja", "Skien", "Ibsen", "salary", "hr/", "Henrik")
STABLE = Rule(rule="answer_stable")


def loops(count: int = 6) -> list[QuestionRecord]:
    """Questions whose texts are to stay where they are."""
    rng = random.Random(7)
    answers = ["Skien", "the Skien.", "Henrik Ibsen", "unknown", ""]
    seen = [Passage(id=f"hr/{n}.md", text=f"Sonja's salary {n}", title="Ibsen") for n in range(6)]
    return [
        replace(
            record,
            rounds=tuple(
                replace(
                    round_,
                    query=rng.choice(["Henrik?", "Henrik Ibsen?"]),
                    action="search[Ibsen]",
                    intermediate_answer="Skien",
                    parse_failure="Sonja",
                    usage=replace(round_.usage, latency_s=1.0),
                    candidate_scores=(3.0, 2.0, rng.random()),
                    refound=(replace(seen[0], text=None),),
                )
                for round_ in record.rounds
            ),
        )
        for record in (
            make_record(
                f"q{number}",
                [rng.choice(answers) for _ in range(4)],
                gold=["Skien"],
                gold_passages=["hr/2.md"],
                margins=[rng.random() for _ in range(4)],
                samples=[rng.choices(answers[:3], k=3) for _ in range(4)],
                passages=[[seen[n], seen[5 - n]] for n in range(2)] * 2,
            )
            for number in range(count)
        )
    ]


def watched(folder: Path, texts: Texts, records: Sequence[QuestionRecord]) -> TraceSet:
    with Watch(STABLE, record=folder, max_rounds=4, texts=texts) as watch:
        for record in records:
            asked = watch.question(
                f"Where is Sonja's salary? {record.question.id}",
                question_id=record.question.id,
                gold_answers=record.gold.answers,
                gold_passage_ids=record.gold.passage_ids,
            )
            with asked as loop:
                for number, round_ in enumerate(record.rounds):
                    loop.observe(round_, score=number / 4)
    return read_traces(folder)


def test_names_stand_in_place_of_texts_and_signals_are_as_they_were(tmp_path: Path) -> None:
    records = loops()
    open_ = watched(tmp_path / "all", "all", records)
    veiled = watched(tmp_path / "no-texts", "no-texts", records)
    content = b"".join(file.read_bytes() for file in (tmp_path / "no-texts").rglob("*.*"))
    assert not [secret for secret in SECRETS if secret.encode() in content]
    table = veiled.table.to_pylist()
    assert not [secret for secret in SECRETS if secret in str(table)]
    names = given_signals(open_)
    assert {"answer_stable", "abstained", "answer_in_evidence", "margin_min", "overlap"} <= {*names}
    before, after = signal_table(open_, names), signal_table(veiled, names)
    for name in names:
        np.testing.assert_array_equal(after.signal(name), before.signal(name), err_msg=name)
    rounds = zip(open_.records(), veiled.records(), strict=True)
    for was, now in ((w, n) for a, b in rounds for w, n in zip(a.rounds, b.rounds, strict=True)):
        assert now.usage == was.usage
        assert now.candidate_scores == was.candidate_scores
        assert (now.answer == "") == (was.answer == "")
    assert [record.scores for record in veiled.records()] == [r.scores for r in open_.records()]


def test_an_answer_at_the_end_is_veiled_too(tmp_path: Path) -> None:
    with Watch(record=tmp_path / "r", texts="no-texts") as watch, watch.question("Sonja?") as loop:
        loop.observe(passages=["Sonja's salary"])
        loop.answered("unknown")
    (record,) = read_traces(tmp_path / "r").records()
    assert (record.rounds[-1].answer, record.rounds[-1].signals["abstained"]) == ("answer1", 1.0)


def test_labels_need_what_they_are_compared_with(tmp_path: Path) -> None:
    with Watch(record=tmp_path / "r", texts="no-texts") as watch:
        with watch.question("?", question_id="q") as loop:
            loop.observe(Round(answer="Skien"))
        with pytest.raises(UsageError, match="label it with a score"):
            watch.label("q", gold_answers=["Skien"])
        watch.label("q", score=1.0)
    (record,) = read_traces(tmp_path / "r").records()
    assert record.scores == {1: 1.0}


def test_what_would_have_to_be_computed_from_texts_is_refused(tmp_path: Path) -> None:
    traces = watched(tmp_path / "r", "no-texts", loops(2))
    with pytest.raises(UsageError, match="texts"):
        signal_table(traces, [abstained_signal(("no idea",))])


@pytest.mark.parametrize("ended", [True, False])
def test_a_record_has_one_setting(tmp_path: Path, ended: bool) -> None:
    for folder, before, after in (("a", "all", "no-texts"), ("n", "no-texts", "all")):
        watch = Watch(record=tmp_path / folder, texts=before)  # type: ignore[arg-type]
        with watch.question("Sonja?") as loop:
            loop.observe(answer="Oslo")
        if ended:
            watch.close()
        Watch(record=tmp_path / folder, texts=before).close()  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=f"was recorded with texts='{before}'"):
            Watch(record=tmp_path / folder, texts=after)  # type: ignore[arg-type]
        watch.close()


RECORD = Path(__file__).parents[3] / "examples" / "traces" / "generated.parquet"


@pytest.mark.parametrize("texts", ["hashes", "no-texts"])
def test_policies_do_on_it_what_they_do_on_the_record(tmp_path: Path, texts: str) -> None:
    written = redact_traces(RECORD, tmp_path / "redacted", texts=texts)  # type: ignore[arg-type]
    whole, redacted = suffice.read(RECORD), suffice.read(written.out)
    names = [
        name
        for name, spec in SIGNALS.items()
        if not spec.recorded_only and set(spec.needs) <= set(whole.table.column_names)
    ]
    ours, theirs = signal_table(redacted, names), signal_table(whole, names)
    for name in names:
        assert ours.signal(name) == pytest.approx(theirs.signal(name), nan_ok=True), name

    policies = ("tasr", "tasr-corrected", "fixed-2")
    assert (
        replayed(redacted, "score", *policies)
        == replayed(redacted, None, *policies)
        == replayed(whole, "f1", *policies)
    )


def test_exact_match_its_oracle_and_answer_sets_are_those_of_the_record(tmp_path: Path) -> None:
    record = tmp_path / "sampled.parquet"
    write_traces(sampled_records(150), record)
    whole = suffice.read(record)
    redacted = suffice.read(redact_traces(record, tmp_path / "redacted").out)
    policies = ("fixed-1", "oracle-em")
    assert replayed(redacted, "em", *policies) == replayed(whole, "em", *policies)
    ours, theirs = (
        suffice.fit("micp", Measures.of(traces).by("em"), weight=1.0)
        for traces in (redacted, whole)
    )
    assert isinstance(ours, MiCPPolicy)
    assert isinstance(theirs, MiCPPolicy)
    assert (ours.stops, ours.final) == (theirs.stops, theirs.final)
    assert set(ours.stops) != {NEVER}


def replayed(
    traces: suffice.TraceSet, metric: Literal["f1", "em", "score"] | None, *policies: str
) -> list[object]:
    told = suffice.replay(traces, policies, split="eval", metric=metric).to_json()
    by = told["metric"]
    return [(one["name"], one["mean_rounds"], round(one[by], 6)) for one in told["policies"]]


TOLD = {
    "base_url": "https://ann:hunter22@models.example/v1?api_key=k1abcdef&sig=s1abcdef#frag",
    "model": "openai:gpt at http://bob:pw@host.example/v1?token=t1abcdef",
    "corpus": "/home/ann/secret corpus/notes.jsonl",
    "index": "see C:\\Users\\ann\\index.bin and ~/ann/private.db",
    "files": ["data/ann/private.parquet", "../ann/private.txt", "file:///home/ann/x"],
    "command": "record --api-key k2abcdef --corpus /srv/ann/docs --token=t2abcdef",
    "error": {"message": "401: password: hunter33 at '/etc/ann/key.pem'"},
    "api_key": "plainword",
    "https://ann:hunter44@host.example": 1,
}
TELLING = ("hunter", "ann", "k1abc", "s1abc", "t1abc", "k2abc", "t2abc", "plainword", "bob", "frag")


def test_no_key_password_or_path_is_left_of_the_run(tmp_path: Path) -> None:
    kept = {"model_name": "Qwen/Qwen2.5-1.5B", "max_tokens": 48, "dataset": "hotpotqa"}
    records = sampled_records(3)
    write_traces(records, tmp_path / "r.parquet", run={**TOLD, **kept})
    redact_traces(tmp_path / "r.parquet", tmp_path / "out.parquet")
    run = suffice.read(tmp_path / "out.parquet").origin.run
    assert not [word for word in TELLING if word in json.dumps(run)], run
    assert {name: run[name] for name in kept} == kept
    assert "models.example/v1" in run["base_url"]


def test_nor_in_a_watched_record(tmp_path: Path) -> None:
    watch = suffice.Watch(record=tmp_path / "rec", texts="no-texts", run=TOLD)
    with watch, watch.question("Who?") as loop:
        loop.observe(answer="Oslo")
    for file in (tmp_path / "rec").iterdir():
        content = file.read_bytes().decode("utf-8", "replace")
        assert not [word for word in TELLING if word in content], file
