"""Names, order, defaults and the JSON of a comparison."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from suffice._version import VERSION
from suffice.contracts import StopPolicy
from suffice.errors import DataError, UsageError
from suffice.policies.policy_file import load_policy, save_policy
from suffice.policies.registry import fit_method
from suffice.policies.rules.policy import RulePolicy
from suffice.policies.unfitted import FixedPolicy
from suffice.replay.run.compare import compare
from suffice.replay.run.results import ReplayResult
from suffice.replay.settings import ComparisonSettings
from suffice.testing.traces import make_record, random_records, to_trace_set
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.trace_set import TraceSet
from suffice.trace.rounds.writer import write_traces

# as the contract of the command line lists them
FIELDS = {"questions", "max_rounds", "baseline", "split", "f1_kind", "seed", "version", "policies"}
POLICY_FIELDS = {
    *("name", "kind", "preset", "hash", "em", "f1", "acc", "mean_rounds", "llm_calls"),
    *("prompt_tokens", "cached_tokens", "completion_tokens", "stop_rounds", "beyond_record"),
    *("delta_f1", "retained_f1"),
}


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


def test_order_is_that_given_then_the_baseline() -> None:
    found = compared(
        split_traces("eval"), "fixed-2", "oracle-em", rules=("answer_stable", "overlap > 0")
    )
    assert names(found) == ["fixed-2", "oracle-em", "answer_stable", "overlap > 0", "fixed-3"]
    assert found.baseline == "fixed-3"
    assert found.policies[-1].delta is not None
    assert found.policies[-1].delta.estimate == 0.0


def test_a_baseline_among_them_is_not_repeated() -> None:
    found = compared(split_traces("eval"), "fixed-3", "fixed-1", baseline="fixed-1")
    assert names(found) == ["fixed-3", "fixed-1"]
    found = compared(
        split_traces("eval"), "fixed-3", rules=("answer_stable",), baseline="answer_stable"
    )
    assert names(found) == ["fixed-3", "answer_stable"]
    assert names(compared(split_traces("eval"), "oracle-f1", baseline="oracle-em")) == [
        "oracle-f1",
        "oracle-em",
    ]


def test_the_baseline_is_the_full_budget_where_shorter() -> None:
    short = to_trace_set([make_record("a", ["x", "y"], gold=["x"])])
    assert compared(short, "fixed-1").baseline == "fixed-2"


def test_repeated_names_are_numbered() -> None:
    found = compared(
        split_traces("eval"), *["fixed-1"] * 3, "oracle-em", "oracle-em", rules=("overlap > 0",) * 2
    )
    assert names(found) == [
        *("fixed-1", "fixed-1#2", "fixed-1#3", "oracle-em", "oracle-em#2"),
        *("overlap > 0", "overlap > 0#2", "fixed-3"),
    ]
    assert found.policies[3].stops.tolist() == found.policies[4].stops.tolist()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    whole = split_traces("tune", "eval")
    built: dict[str, StopPolicy] = {
        "fixed": FixedPolicy(2),
        "rule": RulePolicy(rule="answer_stable"),
        "published": fit_method("tasr", whole, "published", "tune"),
        "corrected": fit_method("tasr", whole, "corrected", "tune"),
    }
    return {name: str(save_policy(each, tmp_path / f"{name}.json")) for name, each in built.items()}


def test_file_policies_are_named_by_kind(files: dict[str, str]) -> None:
    found = compared(split_traces("eval"), *files.values(), files["published"])
    assert names(found) == ["fixed", "rule", "tasr", "tasr-corrected", "tasr#2", "fixed-3"]
    assert [each.preset for each in found.policies[:4]] == [None, None, "published", "corrected"]
    assert found.policies[2].hash == found.policies[4].hash


def test_a_file_as_baseline_is_found_among_the_policies(files: dict[str, str]) -> None:
    found = compared(
        split_traces("eval"), "fixed-1", files["published"], baseline=files["published"]
    )
    assert names(found) == ["fixed-1", "tasr"]
    assert found.baseline == "tasr"
    found = compared(split_traces("eval"), "fixed-1", baseline=files["rule"])
    assert names(found) == ["fixed-1", "rule"]


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
    assert names(found) == ["fixed-1", "fixed-3"]
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
    assert names(compare(split_traces("tune", "eval")).result) == usual
    found = compare(split_traces("eval")).result
    assert names(found) == [name for name in usual if "tasr" not in name]
    said = [note for note in found.notes if note.startswith("left out tasr, tasr-corrected: ")]
    assert len(said) == 1
    hint = "--stop-when 'answer_repeats and not abstained'"
    assert [hint in note for note in found.notes].count(True) == 1
    named = compare(split_traces("eval"), ComparisonSettings(policies=("fixed-1",))).result
    assert not any(hint in note for note in named.notes)


def test_what_python_passes_is_taken_for_what_it_is(tmp_path: Path) -> None:
    """A path is read, a policy is one, and a single text is no list of letters."""
    path = tmp_path / "t.parquet"
    write_traces(split_records("tune", "eval"), path)
    file = save_policy(RulePolicy(rule="answer_stable"), tmp_path / "p.json", max_rounds=2)
    given = (FixedPolicy(2), RulePolicy(rule="overlap > 0.5"), file, load_policy(file))
    found = compare(path, ComparisonSettings(policies=given, resamples=5)).result
    assert names(found) == ["fixed", "rule", "rule#2", "rule#3", "fixed-3"]
    assert found.policies[2].stops.tolist() == found.policies[3].stops.tolist()
    one = ComparisonSettings(policies="fixed-2", rules="answer_stable", resamples=5)  # type: ignore[arg-type]
    assert names(compare(str(path), one).result) == ["fixed-2", "answer_stable", "fixed-3"]
    with pytest.raises(UsageError, match=r"such as suffice\.FixedPolicy"):
        compare(path, ComparisonSettings(policies=(3,)))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="the path of a Parquet file or directory, found int"):
        compare(3)  # type: ignore[arg-type]


def test_a_policy_file_keeps_its_name_in_tables(tmp_path: Path) -> None:
    whole = split_traces("tune", "eval")
    tasr = fit_method("tasr", whole, "corrected", "tune")
    files = [str(save_policy(tasr, tmp_path / folder / "mine.json")) for folder in ("a", "b")]
    rule = str(save_policy(RulePolicy(rule="answer_stable"), tmp_path / "stable.json"))
    found = compared(whole, files[0], rule, rule, baseline=rule)
    assert [policy.label for policy in found.policies] == [
        "mine.json",
        "stable.json",
        "stable.json#2",
    ]
    assert names(found) == ["tasr-corrected", "rule", "rule#2"]
    shown = found.text()
    assert "Policy files: mine.json is tasr, corrected; stable.json is rule;" in shown
    assert "delta F1 is against stable.json" in " ".join(shown.split())
    both = compared(whole, *files)
    assert [policy.label for policy in both.policies[:2]] == files


@pytest.mark.parametrize(
    "name", ["fixed", "fixed-", "fixed-x", "oracle", "nothing", "answer_stable"]
)
def test_unknown_names_list_what_is_known(name: str) -> None:
    with pytest.raises(UsageError, match=r"unknown policy .*fixed-K, oracle-em, .*--stop-when"):
        compared(split_traces("eval"), name)


# --- splits -----------------------------------------------------------------------------------------


def test_a_named_split_needs_no_note() -> None:
    found = compared(split_traces("tune", "eval", "test"), "fixed-1", split="test")
    assert (found.split, found.questions) == ("test", 6)
    assert not any("replayed on" in note for note in found.notes)
    with pytest.raises(DataError, match="eval, test, tune"):
        compared(split_traces("tune", "eval", "test"), "fixed-1", split="dev")


@pytest.mark.parametrize("split", ["tune", None])
def test_scores_on_the_fitting_questions_are_called_in_sample(split: str | None) -> None:
    found = compared(split_traces("tune", None), "tasr", "fixed-1", split=split)
    assert [note for note in found.notes if "in-sample" in note] == [
        "tasr was fitted on questions it is scored on: its figures are in-sample"
    ]
    assert not any(
        "in-sample" in note for note in compared(split_traces("tune", "eval"), "tasr").notes
    )


# --- JSON -------------------------------------------------------------------------------------------
def test_json_is_strict_and_has_the_fields_of_the_contract() -> None:
    unlabelled = make_record("z", ["x"] * 4, margins=[1.0] * 4, split="eval")
    found = compared(
        to_trace_set([*split_records("tune", "eval"), unlabelled]),
        "fixed-9",
        "oracle-f1",
        "tasr",
        rules=("overlap > 0.9",),
    )
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert set(document) >= FIELDS
    assert (document["questions"], document["max_rounds"]) == (7, 4)
    assert (document["version"], document["seed"], document["split"]) == (VERSION, 42, "eval")
    for entry in document["policies"]:
        assert set(entry) >= POLICY_FIELDS
        assert "rounds" not in entry
        assert set(entry["delta_f1"]) == {"estimate", "low", "high"}
        assert sum(entry["stop_rounds"].values()) == 7
        assert 0.0 <= entry["f1"] <= 1.0
        assert len(entry["hash"]) == 12
    first = document["policies"][0]
    assert first["stop_rounds"] == {"4": 7}
    assert first["beyond_record"] == 7
    assert first["retained_f1"] == 1.0


def test_json_per_question() -> None:
    found = compared(split_traces("eval"), "fixed-2", "oracle-em")
    document = json.loads(json.dumps(found.to_json(per_question=True), allow_nan=False))
    assert document["policies"][0]["rounds"] == {f"0{n}": 2 for n in range(6)}
    assert document["policies"][1]["rounds"] == {f"0{n}": 1 if n % 2 else 2 for n in range(6)}


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
    """What policies are compared by."""

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
