"""Progress lines and JSON on their right streams."""

from __future__ import annotations

import math

import pytest

from suffice.cli.output import ProgressLine, print_json


def test_no_estimate_from_the_first_question(capsys: pytest.CaptureFixture[str]) -> None:
    line = ProgressLine("recorded", every_s=0.0)
    for finished in (1, 2, 3, 9, 10):
        line.show(finished, 10)
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert lines[:2] == ["recorded 1/10", "recorded 2/10"]
    assert all("left" in each for each in lines[2:])


def test_failures_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    ProgressLine("recorded", every_s=0.0).show(1, 4, failed=2)
    assert "recorded 1/4, 2 failed" in capsys.readouterr().err


def test_json_is_strict(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"answer": "Århus", "f1": None})
    assert "Århus" in capsys.readouterr().out
    with pytest.raises(ValueError, match="not JSON compliant"):
        print_json({"f1": math.nan})
