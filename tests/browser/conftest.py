"""Chromium, and a report with hostile texts in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from tests.looked_at import make_hostile, make_records

import suffice
from suffice.cli.commands.replay import write_choice
from suffice.evaluation.choose import candidates
from suffice.evaluation.choose.procedure import choose
from suffice.evaluation.diagnose.report_data import PartsSettings, report_data, report_parts
from suffice.evaluation.replay.compare import Comparison
from suffice.evaluation.replay.named_policies import NamedPolicy, named_policies
from suffice.evaluation.replay.runner import replay
from suffice.evaluation.settings import ChoiceSettings, ComparisonSettings, SearchSettings
from suffice.measures.measures import Measures
from suffice.report.page import render_report
from suffice.testing.traces import to_trace_set

ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
LONG_RULE = "answer_stable and round >= 2 and calibrated(answer_token_margin) > 0.3 or round >= 3"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless Chromium of this machine, named by ``CHROMIUM`` or found on the path.

    Its event loop runs in the thread of the tests for as long as it is there: those of other files have
    theirs.
    """
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("no Chromium: run make browser, or set CHROMIUM to its path")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, as the package axe-playwright-python ships it."""
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five hundred questions, the first of them hostile, nine policies, every part."""
    records = make_records(500)
    traces = to_trace_set([make_hostile(records[0]), *records[1:]])
    names = ["fixed-1", "fixed-2", "fixed-3", "tasr", "tasr-corrected", "oracle-em", "oracle-f1"]
    certified = suffice.choose(
        traces, family="fixed", max_loss=0.9, confidence=0.5, resamples=2
    ).policy
    built = [
        *named_policies(traces, names, [LONG_RULE]),
        NamedPolicy(name="certified", kind="certified", preset=None, policy=certified),
    ]
    settings = ComparisonSettings(baseline="fixed-3", resamples=100)
    comparison = Comparison(
        measures=Measures(traces), result=replay(traces, built, settings, ["a note"])
    )
    search = SearchSettings(
        signals=("answer_stable", "answer_token_margin", "overlap"), form="dnf", grid=10
    )
    parts = report_parts(traces, comparison, PartsSettings(search=search))
    data = report_data(traces, comparison.result, parts)
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render_report(data), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def choice_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is chosen for 120 questions, the first of them hostile, among budgets and rules."""
    records = make_records(120)
    traces = to_trace_set([make_hostile(records[0]), *records[1:]])
    asked = ChoiceSettings(signals=("answer_token_margin",), max_signals=1, resamples=20)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(candidates, "nameable_methods", tuple)
        choice = choose(traces, asked)
    folder = tmp_path_factory.mktemp("choice")
    write_choice(choice, Measures(traces), folder)
    return folder / "index.html"
