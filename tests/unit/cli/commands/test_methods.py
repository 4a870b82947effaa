"""``suffice fit METHOD`` and its replay, alike for every method: file, bare name and wrong use."""

from __future__ import annotations

from pathlib import Path

import pytest
from studies.tests.ab_rag import study_traces
from tests.builders import written_traces
from tests.commands import run_json
from tests.gates import informative

from suffice.testing.traces import sampled_records


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A record that each method can be fitted on."""
    made = {
        "ab-rag": study_traces().records(),
        "gate": informative().records(),
        "micp": sampled_records(300),
    }
    folder = tmp_path_factory.mktemp("records")
    for name in made:
        (folder / name).mkdir()
    return {name: str(written_traces(folder / name, held)) for name, held in made.items()}


@pytest.mark.parametrize("name", ["ab-rag", "gate", "micp"])
def test_the_file_and_the_name_are_one_policy(
    name: str, records: dict[str, str], tmp_path: Path
) -> None:
    out = str(tmp_path / "policy.json")
    fitted = run_json("fit", name, records[name], "--out", out)
    assert (fitted["policy"]["kind"], fitted["policy"]["preset"]) == (name, "corrected")
    asked = ("--policy", out, "--policy", f"{name}-corrected", "--policy", name)
    given, corrected, published = run_json("replay", records[name], *asked)["policies"][:3]
    assert given["hash"] == corrected["hash"] == fitted["hash"] != published["hash"]
    assert given["stop_rounds"] == corrected["stop_rounds"]


def test_a_promise_of_coverage_stands_beside_the_scores(
    records: dict[str, str], tmp_path: Path
) -> None:
    out = str(tmp_path / "policy.json")
    fitted = run_json("fit", "micp", records["micp"], "--out", out, "--alpha", "0.2")
    assert (fitted["policy"]["alpha"], fitted["policy"]["rounds"]) == (0.2, 3)
    found = run_json("replay", records["micp"], "--policy", out, "--per-question")["policies"][0]
    assert found["coverage"] >= 0.75
    assert set(found["sets"]) == set(found["rounds"])
    early = sum(count for stop, count in found["stop_rounds"].items() if stop != "3")
    assert found["answer_rate"] == pytest.approx(early / 100)
