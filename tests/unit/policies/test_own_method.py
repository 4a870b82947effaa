"""A method of somebody else: one module and one entry point, and every command knows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.builders import written_traces
from tests.packages import install

import suffice
from suffice import Controller, load_policy
from suffice.cli.main import main
from suffice.errors import DataError, UsageError
from suffice.measures.measures import Measures
from suffice.policies import registry
from suffice.policies.policy_file import policy_hash
from suffice.testing.traces import random_records
from suffice.trace.rounds.reader import read_traces

Say = pytest.CaptureFixture[str]


@pytest.fixture
def installed(site: Path) -> None:
    install(site, "toy = toy_stopping:METHOD")


@pytest.fixture
def traces(tmp_path: Path) -> str:
    return str(written_traces(tmp_path, random_records(40, seed=3)))


def said(capsys: Say, *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out, parse_constant=pytest.fail)


@pytest.mark.usefixtures("installed")
def test_fitted_saved_loaded_replayed_reported_and_run(
    traces: str, tmp_path: Path, capsys: Say
) -> None:
    out = str(tmp_path / "toy.json")
    fitted = said(capsys, "fit", "toy", traces, "--out", out, "--quantile", "0.25", "--strict")
    policy = load_policy(out).policy
    assert (fitted["policy"]["kind"], policy.kind) == ("toy", "toy")
    assert policy_hash(policy) == fitted["hash"]
    in_python = suffice.fit("toy", read_traces(traces), quantile=0.25, strict=True)
    assert policy_hash(in_python) == fitted["hash"]

    asked = ["--policy", "toy", "--policy", out, "--policy", "fixed-2", "--bootstrap", "10"]
    found = said(capsys, "replay", traces, *asked)["policies"]
    assert [each["name"] for each in found[:2]] == ["toy", "toy#2"]
    page = tmp_path / "report.html"
    report = said(capsys, "report", traces, "--out", str(page), *asked)
    assert report["replay"]["policies"][1]["kind"] == "toy"
    assert "stop when overlap" in page.read_text(encoding="utf-8")

    record = Measures(read_traces(traces))
    stops = record.stop_rounds(policy)
    for question, views in enumerate(record.traces.views(["passages"])):
        controller = Controller.load(out).start()
        for finished in views[-1].rounds:
            decision = controller.observe(finished)
            if decision.stop:
                break
        assert "overlap is" in decision.reason
        assert len(controller.rounds) == stops[question]


@pytest.mark.usefixtures("installed")
def test_its_options_stand_in_its_help(capsys: Say) -> None:
    for words, wanted in (
        (["fit", "toy", "--help"], ("--quantile Q", "(default: 0.5)", "--strict")),
        (["fit", "--help"], ("toy Stop where the new passages say little new", "stop-rag")),
    ):
        assert main(words) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert all(part in shown for part in wanted)
        assert "--alpha" not in shown


@pytest.mark.usefixtures("installed")
def test_what_it_refuses(traces: str, tmp_path: Path, capsys: Say) -> None:
    out = tmp_path / "toy.json"
    assert main(["fit", "toy", traces, "--out", str(out), "--alpha", "0.1"]) == 2
    assert "--alpha" in capsys.readouterr().err
    assert main(["fit", "tasr", traces, "--out", str(out), "--quantile", "0.1"]) == 2
    assert "--quantile" in capsys.readouterr().err
    with pytest.raises(UsageError, match="toy has no preset 'published'; known: corrected"):
        suffice.fit("toy", read_traces(traces), preset="published")
    out.write_text(json.dumps({"suffice_policy": 1, "kind": "toy"}))
    with pytest.raises(DataError, match="least"):
        load_policy(out)


def test_a_broken_entry_point_is_named(site: Path, capsys: Say) -> None:
    install(site, "toy = toy_stopping:NOTHING")
    with pytest.raises(UsageError, match=r"'toy' that the package toy-stopping .*cannot be loaded"):
        registry.find_method("toy")
    assert registry.find_method("tasr") is not None
    assert main(["fit", "--help"]) == 0
    assert "cannot be loaded" in " ".join(
        capsys.readouterr().out.split()
    )  # the others are still listed


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("toy = toy_stopping:ToyPolicy", r"is no suffice\.policies\.method\.Method"),
        ("other = toy_stopping:METHOD", r"calls itself 'toy'"),
    ],
)
def test_a_wrong_entry_point(site: Path, entry: str, message: str) -> None:
    install(site, entry)
    with pytest.raises(UsageError, match=message):
        registry.find_method(entry.partition(" ")[0])


def test_the_names_of_its_own_methods_stay(site: Path) -> None:
    before = registry.find_method("tasr")
    install(site, "tasr = toy_stopping:METHOD")
    assert registry.find_method("tasr") is before
