"""Records side by side: their pictures hold the figures that are computed, and those are right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.builders import written_traces
from tests.html_reader import Page

from suffice.cli.main import main
from suffice.testing.traces import random_records


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
    page = out.read_text(encoding="utf-8")
    assert '<section id="cells">' in page
    tables = Page.of(page).tables
    head, *means = tables["means over sets"]
    over = head.index("over fixed-k [95%]")
    gains = [each["over_fixed"] for each in document["macro"]["policies"]]
    assert [row[over] != "-" for row in means] == [gain is not None for gain in gains]
    assert main(["report", paths[0], *options]) == 0
    assert 'id="cells"' not in out.read_text(encoding="utf-8")
