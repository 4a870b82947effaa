"""Policy files: what is written is read back, what is broken is named by file and field."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest

from suffice.errors import DataError
from suffice.policies.policy_file import load_policy, policy_document, policy_hash, save_policy
from suffice.policies.rules.policy import Rule
from suffice.policies.unfitted import FixedPolicy
from suffice.stats.maps import IsotonicMap, PerRoundCalibrator

MAP = IsotonicMap(x=(0.1, 1 / 3), y=(0.2, 0.7), undefined=0.5)
FULL = Rule(
    rule="answer_stable and not abstained and calibrated(overlap) > base_rate() or mine > 2",
    calibrators={"overlap": PerRoundCalibrator(maps=(MAP, MAP), absent=0.5)},
    base_rates=(0.1, math.nan, 1 / 3),
    kind="tasr",
    preset="corrected",
    own_signals=("mine",),
    abstention=("no idea",),
    fitted_on={"source": "x.parquet", "questions": 7},
)


AT_THE_END = Rule(
    rule="calibrated(overlap, end) > 0.1",
    calibrators={"overlap, end": PerRoundCalibrator(maps=(MAP,), beyond=MAP, falls=True)},
)


@pytest.mark.parametrize("policy", [FixedPolicy(3), Rule(rule="overlap > 0.1"), FULL, AT_THE_END])
@pytest.mark.parametrize("name", ["policy.json", "folder"])
def test_a_policy_comes_back(tmp_path: Path, policy: FixedPolicy | Rule, name: str) -> None:
    written = save_policy(policy, tmp_path / "new" / name, max_rounds=5)
    assert written.name == "policy.json"
    assert [each.name for each in written.parent.iterdir()] == ["policy.json"]
    loaded = load_policy(tmp_path / "new" / name)
    assert loaded.max_rounds == 5
    assert policy_document(loaded.policy) == policy_document(policy)
    assert policy_hash(loaded.policy) == policy_hash(policy)
    assert "NaN" not in written.read_text()


def test_a_file_with_isotonic_maps_is_what_it_always_was(tmp_path: Path) -> None:
    policy = Rule(
        rule="calibrated(overlap) > 0.1", calibrators={"overlap": PerRoundCalibrator(maps=(MAP,))}
    )
    document = json.loads(save_policy(policy, tmp_path / "p.json").read_text())
    assert document["calibrators"] == {
        "overlap": {
            "absent": None,
            "rounds": [{"x": [0.1, 1 / 3], "y": [0.2, 0.7], "undefined": 0.5}],
        }
    }


# --- hashes -------------------------------------------------------------------------------------
def test_the_hash_is_stable_between_versions() -> None:
    """A changed hash orphans every figure that names it."""
    fixed = b'{"kind":"fixed","rounds":3,"suffice_policy":1}'
    rule = b'{"kind":"rule","rule":"answer_stable","suffice_policy":1}'
    assert policy_hash(FixedPolicy(3)) == hashlib.sha256(fixed).hexdigest()[:12] == "f76a6badbab6"
    assert policy_hash(Rule(rule="answer_stable")) == hashlib.sha256(rule).hexdigest()[:12]


def test_the_hash_sees_what_decides_and_nothing_else() -> None:
    def with_changes(**changes: Any) -> str:
        return policy_hash(dataclasses.replace(FULL, **changes))

    own = with_changes()
    assert with_changes(fitted_on={}) == own
    assert with_changes(guarantee={"max_loss": 0.1}) == own
    other_map = IsotonicMap(x=(0.1, 1 / 3), y=(0.2, 0.7), undefined=None)
    changes: list[dict[str, Any]] = [
        {"rule": FULL.rule.replace("2", "3")},
        {"calibrators": {"overlap": PerRoundCalibrator(maps=(MAP, other_map), absent=0.5)}},
        {"calibrators": {"overlap": PerRoundCalibrator(maps=(MAP, MAP), absent=None)}},
        {"base_rates": (0.1, 0.2, 1 / 3)},
        {"abstention": None},
    ]
    hashes = [with_changes(**each) for each in changes]
    assert len({own, *hashes}) == len(changes) + 1


# --- broken files ---------------------------------------------------------------------------------
def refused(tmp_path: Path, content: str | bytes) -> DataError:
    file = tmp_path / "broken.json"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError) as caught:
        load_policy(file)
    assert caught.value.file == str(file)
    assert str(file) in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"a":' * 50_000, "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        ('{"suffice_policy": ' + "9" * 5000 + "}", "not JSON"),
        ("3", "not a policy file"),
        ("{}", "not a policy file"),
        ('{"kind": "fixed", "rounds": 3}', "not a policy file"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, content: str | bytes, says: str) -> None:
    assert says in refused(tmp_path, content).message


GOOD: dict[str, Any] = json.loads(json.dumps(policy_document(FULL)))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"suffice_policy": 2}, "suffice_policy"),
        ({"suffice_policy": True}, "suffice_policy"),
        ({"kind": "tarot"}, "kind"),
        ({"kind": ["rule"]}, "kind"),
        ({"max_rounds": 0}, "max_rounds"),
        ({"max_rounds": True}, "max_rounds"),
        ({"rule": None}, "rule"),
        ({"rule": "answer_stable and"}, "rule"),
        ({"rule": "no_such_signal"}, "rule"),
        ({"rule": "overlap > 1"}, "rule"),
        ({"rule": "calibrated(margin_min) > 0.1"}, "rule"),
        ({"base_rates": []}, "rule"),
        ({"base_rates": 0.5}, "base_rates"),
        ({"base_rates": [math.nan]}, "base_rates"),
        ({"preset": 1}, "preset"),
        ({"own_signals": "mine"}, "own_signals"),
        ({"own_signals": [1]}, "own_signals"),
        ({"abstention": {"a": 1}}, "abstention"),
        ({"abstention": ["No."]}, "abstention"),
        ({"fitted_on": []}, "fitted_on"),
        ({"calibrators": []}, "calibrators"),
        ({"calibrators": {"overlap": {"rounds": {}}}}, "calibrators.overlap"),
        ({"calibrators": {"overlap": {"rounds": [3]}}}, "calibrators.overlap.rounds[0]"),
        (
            {"calibrators": {"overlap": {"rounds": [MAP.to_json(), {**MAP.to_json(), "z": 1}]}}},
            "calibrators.overlap.rounds[1].z",
        ),
    ],
)
def test_a_broken_field_is_named(tmp_path: Path, changes: dict[str, Any], field: str) -> None:
    assert refused(tmp_path, json.dumps({**GOOD, **changes})).column == field


MICP: dict[str, Any] = {
    "suffice_policy": 1,
    "kind": "micp",
    "alpha": 0.1,
    "rounds": 2,
    "samples": 5,
    "stops": [{"value": 0.2, "tied_share": 0.0}],
    "answer_set": {"confidence": 0.2},
}
FILTER = {"threshold": 1.0, "relevance": "score", "alpha": 0.1, "preset": "corrected", "values": 9}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"alpha": "much"}, "alpha"),
        ({"rounds": None}, "rounds"),
        ({"rounds": True}, "rounds"),
        ({"samples": None}, "samples"),
        ({"stops": None}, "stops"),
        ({"answer_set": None}, "answer_set"),
        ({"stops": []}, "stops"),
        ({"stops": [{"tied_share": 0.1}]}, "stops"),
        ({"stops": [{"value": math.inf}]}, "value"),
        ({"answer_set": {"confidence": "x"}}, "confidence"),
        ({"match": {"score": "f1"}}, "match"),
        ({"filter": {**FILTER, "relevance": "taste"}}, "relevance"),
        ({"clusters": {"by": ["string"]}}, "clusters.by"),
        ({"clusters": {"by": "embedding", "cosine": "0.9"}}, "clusters.cosine"),
        ({"clusters": {"by": "embedding", "encoder": 3}}, "clusters.encoder"),
        ({"budget": {"weight": None}}, "budget.weight"),
        ({"budget": {"weight": math.nan}}, "budget.weight"),
        ({"fitted_on": {"loop": []}}, "fitted_on.loop"),
        ({"filter": {**FILTER, "values": math.inf}}, "values"),
        ({"filter": {**FILTER, "values": 1.5}}, "values"),
        ({"filter": {**FILTER, "threshold": math.inf}}, "threshold"),
        ({"filter": {**FILTER, "alpha": math.nan}}, "alpha"),
    ],
)
def test_a_broken_field_of_micp_is_named(
    tmp_path: Path, changes: dict[str, Any], field: str
) -> None:
    path = tmp_path / "good.json"
    path.write_text(json.dumps({**MICP, "filter": FILTER}), encoding="utf-8")
    assert load_policy(path).policy.kind == "micp"
    assert refused(tmp_path, json.dumps({**MICP, **changes})).column == field


@pytest.mark.parametrize("rounds", [0, -1, 40_000, 10**400, 2.0, "3", True, None])
def test_fixed_rounds_are_checked(tmp_path: Path, rounds: object) -> None:
    document = {"suffice_policy": 1, "kind": "fixed", "rounds": rounds}
    assert refused(tmp_path, json.dumps(document)).column == "rounds"


def test_places_without_a_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no.json", tmp_path / "nothing"):
        with pytest.raises(DataError, match="no such policy file; write one with 'suffice fit'"):
            load_policy(path)
    (tmp_path / "file.json").write_text("{}")
    with pytest.raises(DataError, match="cannot be read"):
        load_policy(tmp_path / "file.json" / "policy.json")


def test_what_was_noted_of_a_fit_may_be_infinite_or_undefined(tmp_path: Path) -> None:
    """Strict JSON in every reader: an infinity is a text that is read as the number, NaN is null."""
    noted = {"widest": math.inf, "least": -math.inf, "knee": math.nan}
    policy = Rule(rule="answer_stable", guarantee={"reason": "x"}, fitted_on=noted)
    file = save_policy(policy, tmp_path / "policy.json")

    def constant(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    document = json.loads(file.read_text(), parse_constant=constant)
    assert document["fitted_on"] == {"widest": "inf", "least": "-inf", "knee": None}
    assert load_policy(file).policy == dataclasses.replace(policy, fitted_on=document["fitted_on"])
