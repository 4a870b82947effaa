"""AB-RAG on the study's own logs: the figures its records must give (METHODS section 3)."""

from __future__ import annotations

from pathlib import Path

import pytest
from studies.ab_rag.study import ABRagStudySettings, ab_rag_study

from suffice.evaluation.replay.compare import compare
from suffice.evaluation.replay.results import PolicyResult
from suffice.evaluation.settings import ComparisonSettings
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.trace_set import TraceSet

pytestmark = pytest.mark.filterwarnings("ignore::suffice.errors.SufficeWarning")


def log(folder: Path, name: str) -> TraceSet:
    return read_traces(folder / "traces" / f"abrag_hotpotqa_{name}.parquet")


def replayed(traces: TraceSet, **options: object) -> PolicyResult:
    settings = ComparisonSettings(policies=("ab-rag",), resamples=50, **options)  # type: ignore[arg-type]
    return compare(traces, settings).result.policies[0]


WANTED = {
    "ollama": {"em": 0.450, "f1": 0.579, "plain f1": 0.583, "rounds": 1.90, "auroc": 0.644},
    "local": {"em": 0.345, "f1": 0.459, "plain f1": 0.462, "rounds": 1.09, "auroc": 0.625},
}


@pytest.mark.parametrize("name", WANTED)
def test_the_published_preset(data_folder: Path, name: str) -> None:
    traces = log(data_folder, name)
    found, plain = replayed(traces), replayed(traces, f1_kind="squad")
    figures = {
        "em": found.em,
        "f1": found.f1,
        "plain f1": plain.f1,
        "rounds": found.mean_rounds,
        "auroc": found.auroc,
    }
    assert figures == pytest.approx(WANTED[name], abs=5e-4)
    assert found.beyond_record == {"ollama": 0, "local": 15}[name]


@pytest.mark.parametrize(
    ("name", "wanted"), [("ollama", (155, 0.516, 45, 0.222)), ("local", (182, 0.357, 18, 0.222))]
)
def test_answers_above_and_below_the_threshold(
    data_folder: Path, name: str, wanted: tuple[float, ...]
) -> None:
    settings = ABRagStudySettings(comparison=ComparisonSettings(resamples=20))
    (found,) = ab_rag_study([log(data_folder, name)], settings)
    (split,) = [each for each in found.document["selective"] if each["policy"] == "ab-rag"]
    assert split["threshold"] == 0.6
    sides = [split[side] for side in ("above", "below")]
    figures = [figure for side in sides for figure in (side["questions"], side["em"].estimate)]
    assert figures == pytest.approx(wanted, abs=5e-4)


def test_thresholds_on_a_plateau_change_nothing(data_folder: Path) -> None:
    (found,) = ab_rag_study(
        [log(data_folder, "ollama")],
        ABRagStudySettings(comparison=ComparisonSettings(resamples=20), taus=(0.58, 0.6, 0.7, 0.5)),
    )
    stops = [each.stops.tolist() for each in found.swept.values()]
    assert stops[0] == stops[1] == stops[2] != stops[3]
