"""JSON, colours and long lines of a terminal."""

from __future__ import annotations

import json
import math
import re

import pytest

from suffice.cli.output import in_form, print_json, print_lines
from suffice.results.table import Column, Table
from suffice.stats.intervals import Interval


def test_json_is_strict(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the numbers, as a record with infinite signals gives them."""
    print_json({"answer": "Århus", "f1": None})
    assert "Århus" in capsys.readouterr().out
    print_json({"d": math.inf, "r": [-math.inf, math.nan], "rows": ({"x": 1.5},)})
    read = json.loads(capsys.readouterr().out)
    assert read == {"d": "inf", "r": ["-inf", None], "rows": [{"x": 1.5}]}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both streams are a terminal of 120 columns."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("suffice.cli.output.on_terminal", lambda _: True)


GAIN = Table(
    name="gain",
    title="A title",
    columns=(
        Column(name="policy", head="p" * 70),
        Column(name="gain", kind="points", interval=True, head="g" * 40),
    ),
    rows=(("a", Interval(estimate=0.1, low=0.05, high=0.2)),),
)


@pytest.mark.usefixtures("terminal")
def test_a_terminal_gets_its_width_and_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    text = in_form([GAIN], "text")
    assert text.startswith("\x1b[1mA title\x1b[0m\n")
    assert "\x1b[32m+10.0 [5.0, 20.0]\x1b[0m" in text
    assert max(map(len, re.sub("\x1b.*?m", "", text).split("\n"))) == 112
    assert "\x1b" not in in_form([GAIN], "csv") + in_form([GAIN], "markdown")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in in_form([GAIN], "text")
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in in_form([GAIN], "text")


def test_a_sentence_stands_in_lines_that_fit_and_no_word_is_broken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = "one two-three " * 9 + "x" * 90
    print_lines(text, lead="  note   ", indent=9)
    *lines, last = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("  note   one two-three")
    assert all(line.startswith(" " * 9 + "one") or "two-three" in line for line in lines[1:])
    assert last == " " * 9 + "x" * 90
