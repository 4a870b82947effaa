"""Names, order, defaults and the JSON of a comparison."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.commands import run_json

from suffice.contracts import StopPolicy
from suffice.errors import DataError, UsageError
from suffice.evaluation.replay.compare import compare
from suffice.evaluation.replay.results import ReplayResult
from suffice.evaluation.settings import ComparisonSettings
from suffice.policies.policy_file import save_policy
from suffice.policies.registry import fit_method
from suffice.policies.rules.policy import Rule
from suffice.policies.unfitted import FixedPolicy
from suffice.testing.traces import make_record, random_records, to_trace_set
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.trace_set import TraceSet
from suffice.trace.rounds.writer import write_traces


def split_records(*splits: str | None) -> list[QuestionRecord]:
    made = []
    for index, split in enumerate(splits):
        for n in range(6):
            answers = ["x", "x", "y", "y"] if n % 2 else ["y", "x", "x", "x"]
            made.append(
                make_record(
                    f"{index}{n}",
                    answers,
                    gold=["x"],
                    margins=[n + 0.1, 1.0, 2.0, 3.0],
                    split=split,
                )
            )
    return made


def split_traces(*splits: str | None) -> TraceSet:
    return to_trace_set(split_records(*splits))


def compared(found: TraceSet, *policies: str, **settings: Any) -> ReplayResult:
    return compare(found, ComparisonSettings(policies=policies, resamples=50, **settings)).result


def names(result: ReplayResult) -> list[str]:
    return [each.name for each in result.policies]


@pytest.mark.parametrize(
    ("policies", "rules", "baseline", "found"),
    [
        ("fixed-2 oracle-em", ["answer_stable"], None, "fixed-2 oracle-em answer_stable fixed-4"),
        ("fixed-3 fixed-1", [], "fixed-1", "fixed-3 fixed-1"),
        ("fixed-3", ["answer_stable"], "answer_stable", "fixed-3 answer_stable"),
        ("oracle-f1", [], "oracle-em", "oracle-f1 oracle-em"),
        (
            "fixed-1 fixed-1",
            ["abstained"] * 2,
            None,
            "fixed-1 fixed-1#2 abstained abstained#2 fixed-4",
        ),
    ],
)
def test_names_stand_as_given_and_the_baseline_last_unless_it_is_among_them(
    policies: str, rules: list[str], baseline: str | None, found: str
) -> None:
    given = {} if baseline is None else {"baseline": baseline}
    result = compared(split_traces("eval"), *policies.split(), rules=tuple(rules), **given)
    assert names(result) == found.split()
    assert result.baseline == (baseline or "fixed-4"), "all rounds of the record"
    held = next(policy for policy in result.policies if policy.name == result.baseline)
    assert held.delta is not None
    assert held.delta.estimate == 0.0


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    whole = split_traces("tune", "eval")
    built: dict[str, StopPolicy] = {
        "fixed": FixedPolicy(2),
        "rule": Rule(rule="answer_stable"),
        "published": fit_method("tasr", whole, "published", "tune"),
        "corrected": fit_method("tasr", whole, "corrected", "tune"),
    }
    return {name: str(save_policy(each, tmp_path / f"{name}.json")) for name, each in built.items()}


def test_file_policies_are_named_by_kind(files: dict[str, str]) -> None:
    found = compared(split_traces("eval"), *files.values(), files["published"])
    assert names(found) == ["fixed", "rule", "tasr", "tasr-corrected", "tasr#2", "fixed-4"]
    assert [each.preset for each in found.policies[:4]] == [None, None, "published", "corrected"]
    assert [each.label for each in found.policies[:3]] == [
        "fixed.json", "rule.json", "published.json",
    ]  # fmt: skip
    assert found.policies[2].hash == found.policies[4].hash
    found = compared(split_traces("eval"), "fixed-1", files["rule"], baseline=files["rule"])
    assert (names(found), found.baseline) == (["fixed-1", "rule"], "rule")
    assert "delta F1 is against rule.json" in " ".join(found.text().split())


def test_bare_method_names_are_fitted_on_tune() -> None:
    found = compared(split_traces("tune", "eval"), "tasr", "tasr-corrected", "tasr-published")
    assert names(found)[:3] == ["tasr", "tasr-corrected", "tasr-published"]
    assert [each.preset for each in found.policies[:3]] == ["published", "corrected", "published"]
    assert found.policies[0].hash == found.policies[2].hash != found.policies[1].hash
    rule = "calibrated(answer_token_margin) >= base_rate()"
    assert compared(split_traces("tune", "eval"), rules=(rule,)).policies[0].kind == "rule"


NEEDING_TUNE = [
    ("tasr", "suffice fit tasr OTHER_TRACES --out policy.json"),
    (
        "base_rate() > 0.1",
        r"draw others with: suffice traces split TRACES --splits tune=0\.4,eval=0\.6",
    ),
]


@pytest.mark.parametrize(("name", "says"), NEEDING_TUNE)
def test_what_must_be_fitted_needs_a_tune_split(name: str, says: str) -> None:
    policies, rules = ((name,), ()) if name == "tasr" else ((), (name,))
    with pytest.raises(UsageError, match=says):
        compared(split_traces("eval"), *policies, rules=rules)
    with pytest.raises(UsageError, match=says):
        compared(split_traces("eval"), "fixed-1", *policies, rules=rules, strict=True)
    found = compared(split_traces("eval"), "fixed-1", *policies, rules=rules)
    assert names(found) == ["fixed-1", "fixed-4"]
    assert re.search(says, found.left_out[name])
    assert any(re.search(f"^left out {re.escape(name)}: .*{says}", note) for note in found.notes)
    assert found.to_json()["left_out"] == dict(found.left_out)


def test_all_that_cannot_run_is_said_at_once() -> None:
    """What is missing for the fit, for the signals and for the reference, of each policy and all of it."""
    with pytest.raises(
        UsageError, match=r"4 policies cannot run on memory: \(1\) tasr: "
    ) as raised:
        compared(
            split_traces("eval"),
            "tasr",
            "closed-book",
            rules=("llm_stop", "judge_support > 3 or q_stop"),
        )
    said = str(raised.value)
    assert "(2) closed-book: policy 'closed-book' needs round 0" in said
    assert "(3) llm_stop: signal 'llm_stop' needs a recorded value" in said
    assert "signal 'judge_support' needs a recorded value" in said
    assert "signal 'q_stop' needs a recorded value" in said


def test_nothing_named_compares_the_usual() -> None:
    usual = [
        *(f"fixed-{k}" for k in (1, 2, 3, 4)),
        "tasr",
        "tasr-corrected",
        "oracle-em",
        "oracle-f1",
    ]
    assert names(compare(split_traces("tune", "eval"), ComparisonSettings()).result) == usual
    found = compare(split_traces("eval"), ComparisonSettings()).result
    assert names(found) == [name for name in usual if "tasr" not in name]
    said = [note for note in found.notes if note.startswith("left out tasr, tasr-corrected: ")]
    assert len(said) == 1
    hint = "--stop-when 'answer_repeats and not abstained'"
    assert [hint in note for note in found.notes].count(True) == 1
    named = compare(split_traces("eval"), ComparisonSettings(policies=("fixed-1",))).result
    assert not any(hint in note for note in named.notes)


# --- splits -----------------------------------------------------------------------------------------


def test_a_named_split_needs_no_note() -> None:
    found = compared(split_traces("tune", "eval", "test"), "fixed-1", split="test")
    assert (found.split, found.questions) == ("test", 6)
    assert not any("replayed on" in note for note in found.notes)
    with pytest.raises(DataError, match="eval, test, tune"):
        compared(split_traces("tune", "eval", "test"), "fixed-1", split="dev")


# --- JSON -------------------------------------------------------------------------------------------
def test_json_per_question() -> None:
    found = compared(split_traces("eval"), "fixed-2", "oracle-em")
    document = json.loads(json.dumps(found.to_json(per_question=True), allow_nan=False))
    assert document["policies"][0]["rounds"] == {f"0{n}": 2 for n in range(6)}
    assert document["policies"][1]["rounds"] == {f"0{n}": 1 if n % 2 else 2 for n in range(6)}


def test_json_without_labels_is_null_not_nan() -> None:
    found = compared(
        to_trace_set([make_record("a", ["x", "y"])]),
        "fixed-1",
        rules=("answer_stable",),
        metric="f1",
    )
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    for entry in document["policies"]:
        nulls = ("em", "f1", "acc", "delta_f1", "retained_f1", "completion_tokens")
        assert [entry[name] for name in nulls] == [None] * 6
    assert document["frontier"] is None


def test_a_file_fitted_on_the_replayed_questions_is_said_to_be(tmp_path: Path) -> None:
    records = [
        make_record(f"q{n}", ["a", "a", "b"], gold=["a"], margins=[1.0 + n, 2.0, 3.0], split="tune")
        for n in range(6)
    ]
    write_traces(records, tmp_path / "t.parquet")
    traces = read_traces(tmp_path / "t.parquet")
    file = save_policy(fit_method("tasr", traces, "published", "tune"), tmp_path / "p.json")
    for split in ("tune", None):
        notes = compare(traces, ComparisonSettings(policies=(str(file),), split=split)).result.notes
        assert any(note.startswith("p.json ") and "in-sample" in note for note in notes)
    notes = compare(traces, ComparisonSettings(policies=("fixed-2",), split="tune")).result.notes
    assert not any("fitted" in note for note in notes)


def test_a_method_fitted_for_a_replay_is_fitted_by_the_f1_that_is_scored() -> None:
    traces = to_trace_set(random_records(30, seed=4))
    for kind in ("hotpotqa", "squad"):
        settings = ComparisonSettings(
            policies=("tasr-corrected", "fixed-1"), split="eval", f1_kind=kind, resamples=5
        )
        fitted = compare(traces, settings).result.policies[0].policy
        assert fitted is not None
        assert fitted.facts.fitted_on["f1_kind"] == kind


class TestMetric:
    def test_another_score_has_its_own_differences_and_keys(self) -> None:
        made = [
            make_record("a", ["x y", "x"], gold=["x"]),
            make_record("b", ["z", "z"], gold=["z"]),
        ]
        found = compared(to_trace_set(made), "fixed-1", metric="em")
        first = found.policies[0]
        assert first.score == first.em == 0.5
        assert first.f1 == pytest.approx(5 / 6)
        assert first.delta is not None
        assert first.delta.estimate == -0.5
        entry = found.to_json()["policies"][0]
        assert {"em", "f1", "acc", "em_interval", "delta_em", "retained_em"} <= set(entry)
        assert "delta_f1" not in entry
        assert found.to_json()["metric"] == "em"
        assert found.to_json()["frontier"]["em"] == [0.5, 1.0]
        assert "delta EM" in found.text(120)

    def test_what_needs_gold_answers_says_so(self) -> None:
        given = split_traces("tune", "eval")
        with pytest.raises(UsageError, match=r"oracle-em.* reads gold answers"):
            compared(given, "oracle-em", metric="agreement")
        with pytest.raises(UsageError, match="micp is fitted on gold answers only"):
            compared(given, "micp", metric="agreement")
        found = compared(given, "tasr", metric="agreement")
        assert found.policies[0].confidence is not None
        assert found.policies[0].auroc is None
        assert "AUROC needs gold answers: tasr" in found.notes
        assert any("fitted on agreement" in note and "tasr" in note for note in found.notes)


def test_without_a_baseline_differences_are_to_the_full_budget(tmp_path: Path) -> None:
    """Replay, search and report, whose kept shares are of the full budget too."""
    path = tmp_path / "record.parquet"
    write_traces(split_records("tune", "eval"), path)
    replayed = run_json("replay", path, "--policy", "fixed-3")
    three, full = replayed["policies"]
    assert (replayed["baseline"], full["name"]) == ("fixed-4", "fixed-4")
    assert three["delta_f1"] == three["delta_full"]
    assert (three["retained_f1"], full["retained_f1"]) == (three["f1"] / full["f1"], 1.0)
    searched = run_json("search", path, "--signals", "answer_stable,answer_token_margin")
    assert searched["baseline"] == "fixed-4"
    reported = run_json("report", path, "--out", tmp_path / "report.html", "--parts", "none")
    assert reported["replay"]["baseline"] == "fixed-4"


@pytest.mark.parametrize(
    ("path", "beside", "split"),
    [
        ("novelty", (), None),
        ("novelty", ("fixed-2",), None),
        ("novelty", ("tasr",), "eval"),
        ("learned", (), "eval"),
    ],
)
def test_what_was_proven_on_all_questions_is_replayed_on_all(
    path: str, beside: tuple[str, ...], split: str | None, tmp_path: Path
) -> None:
    """Unless another policy was fitted on some of them; a learned one was proven on a part."""
    promise = {"max_loss": 0.1, "confidence": 0.95, "fell_back": False, "path": path}
    policy = Rule(rule="answer_stable", kind="certified", guarantee=promise)
    file = str(save_policy(policy, tmp_path / "policy.json"))
    found = compared(split_traces("tune", "eval"), file, *beside)
    assert (found.split, found.questions) == (split, 6 if split else 12)
    asked = compared(split_traces("tune", "eval"), file, *beside, split="tune")
    assert asked.questions == 6
