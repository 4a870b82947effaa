"""Records side by side: their pictures hold the figures that are computed, and those are right."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.builders import written_traces
from tests.html_reader import Page

from suffice.cli.main import main
from suffice.replay.run.compare import compare
from suffice.replay.run.macro import cells
from suffice.replay.settings import ComparisonSettings
from suffice.testing.traces import make_record, random_records, to_trace_set

SETTINGS = ComparisonSettings(
    policies=("fixed-1", "fixed-2"), rules=("answer_stable",), resamples=20
)


def _record(number: int, *, right: bool, margin: float, rating: float) -> Any:
    signals = [{"verbalized_confidence": rating}] * 2
    answers = ["Oslo" if right else "Rome"] * 2
    return make_record(f"q{number}", answers, gold=["Oslo"], margins=[margin] * 2, signals=signals)


@pytest.fixture(scope="module")
def side_by_side() -> Any:
    sure = [_record(n, right=n < 6, margin=4.0 if n < 6 else 0.25, rating=5.0) for n in range(8)]
    torn = [_record(n, right=n < 4, margin=1.5, rating=5.0 if n < 4 else 1.0) for n in range(8)]
    return cells([compare(to_trace_set(records), SETTINGS) for records in (sure, torn)])


def test_margins_and_ratings_are_split_by_correctness(side_by_side: Any) -> None:
    (margin, rating), (other, other_rating) = side_by_side.signals
    assert dict(zip(margin.starts, margin.right, strict=True))[3.0] == 12
    assert dict(zip(margin.starts, margin.wrong, strict=True))[0.0] == 4
    assert (margin.mean_right, margin.mean_wrong) == pytest.approx((4.0, 0.25), abs=1e-6)
    assert sum(each.count for each in margin.buckets) == 16
    assert [each.right for each in margin.buckets] == sorted(each.right for each in margin.buckets)
    assert (sum(other.right), sum(other.wrong)) == (8, 8)
    assert rating.entropy_nats == 0.0
    assert (other_rating.right, other_rating.wrong) == ((0, 0, 0, 0, 8), (8, 0, 0, 0, 0))
    assert other_rating.entropy_nats == pytest.approx(math.log(2))


def test_the_report_of_several_records_shows_each_and_all(capsys: Any, tmp_path: Path) -> None:
    paths = []
    for seed in (1, 2, 3):
        (tmp_path / str(seed)).mkdir()
        paths.append(str(written_traces(tmp_path / str(seed), random_records(30, seed=seed))))
    out = tmp_path / "r.html"
    options = ["--out", str(out), "--bootstrap", "20", "--json", "--parts", "none"]
    assert main(["report", paths[0], "--macro", *paths[1:], *options]) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert [each["traces"] for each in document["macro"]["sets"]] == paths
    assert len(document["cells"]["signals"]) == 3
    page = out.read_text(encoding="utf-8")
    assert '<section id="cells">' in page
    tables = Page.of(page).tables
    (margins,) = (tables[name] for name in tables if name.startswith("Margin of"))
    head, *means = tables["means over sets"]
    over = head.index("over fixed-k [95%]")
    gains = [each["over_fixed"] for each in document["macro"]["policies"]]
    assert [row[over] != "-" for row in means] == [gain is not None for gain in gains]
    told = document["cells"]["signals"][0][0]
    assert margins[1][2:-1] == [str(count) for count in told["right"]]
    assert main(["report", paths[0], *options]) == 0
    assert 'id="cells"' not in out.read_text(encoding="utf-8")
