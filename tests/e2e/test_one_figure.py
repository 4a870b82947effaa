"""One policy, one record, one number: every command and page tells the same figures of a policy."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.commands import run
from tests.html_reader import Page

from suffice.measures.measures import Measures
from suffice.trace.rounds.reader import read_traces
from suffice.view.data import RecordView, ViewSettings
from suffice.view.viewer import Shown, viewer_app

COSTS = "What a question costs, all 5 rounds and with this policy"


def told(*words: str) -> Any:
    done = run(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("most", ["0.02", "0.05", "0.1"])
def test_every_command_tells_the_same(
    most: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ("--signals", "overlap", "--max-signals", "1", "--workers", "1")
    screen = run("choose", "example", "--max-loss", most, "--out", "chosen", *few).stdout
    policy, place = json.loads(Path("chosen/choice.json").read_text()), "chosen/policy.json"
    score, change = policy["measured"]["score"], policy["measured"]["delta_full"]
    rounds, tokens = policy["costs"]["rounds"], policy["costs"]["tokens"]
    (line,) = policy["table"]
    assert line["saved"] == pytest.approx(-tokens["change"])
    assert policy["promise"]["measured_loss"] == pytest.approx(-change["estimate"], abs=1e-9)

    replayed = told("replay", "example", "--policy", place)
    assert replayed["questions"] == 250
    found = replayed["policies"][0]
    assert found["score"] == pytest.approx(score)
    assert found["mean_rounds"] == pytest.approx(rounds["after"])
    assert found["evaluated_tokens"] == pytest.approx(tokens["after"])
    assert found["delta_full"] == pytest.approx(change)
    assert found["delta_score"] == pytest.approx(change)  # all rounds are the baseline

    Path("suffice.toml").write_text(
        f'[[promise]]\nrecord = "example"\npolicy = "{place}"\nmax_loss = {most}\n'
    )
    (checked,) = told("check", "--update")["promises"]
    assert checked["saved"] == pytest.approx(-tokens["change"])
    ends = (checked["loss"]["estimate"], checked["loss"]["low"], checked["loss"]["high"])
    assert ends == pytest.approx((-change["estimate"], -change["high"], -change["low"]), abs=1e-9)
    carried = told("choose", "example", "--against", "example", "--max-loss", most)
    assert carried["new"]["loss"]["estimate"] == pytest.approx(-change["estimate"], abs=1e-9)
    assert carried["new"]["saved"] == pytest.approx(-tokens["change"])

    watched = told("monitor", "example", "--policy", place)
    assert watched["loss"]["estimate"] == pytest.approx(-change["estimate"], abs=1e-6)
    saved = {one["name"]: one["estimate"] for one in watched["saved"]}
    assert saved["rounds"] == pytest.approx(-rounds["change"], abs=1e-6)

    view = RecordView(Measures(read_traces("example")), ViewSettings(policies=(place,)))
    view.work()
    client = TestClient(viewer_app(Shown(view)), base_url="http://localhost")
    shown = next(
        one for one in client.get("/api/record").json()["policies"] if one["label"] == "policy.json"
    )
    assert shown["score"]["estimate"] == pytest.approx(score)
    assert shown["rounds"]["estimate"] == pytest.approx(rounds["after"])
    against = client.get("/api/compare", params={"a": shown["name"], "b": "fixed-5"}).json()
    assert against["difference"]["score"]["estimate"] == pytest.approx(change["estimate"])

    assert run("report", "example", "--policy", place, "--out", "report.html").returncode == 0
    printed = f"{100 * score:.1f}", f"{rounds['after']:.2f}", f"{100 * change['estimate']:+.1f}"
    report = Page.of(Path("report.html").read_text()).tables["Policies side by side"]
    row = next(row for row in report if row[0].endswith("policy.json"))
    page = Page.of(Path("chosen/index.html").read_text())
    costs = {row[0]: row for row in page.tables[COSTS]}
    assert row[2].startswith(printed[0])
    assert costs["score"][2] == printed[0]
    assert row[4] == costs["rounds"][2] == printed[1]
    assert _zero(costs["score"][3]).startswith(_zero(printed[2]))
    assert any(_zero(cell).startswith(_zero(printed[2])) for cell in row)
    assert re.search(rf"Saves {-100 * tokens['change']:.1f}%", " ".join(screen.split()))
    assert re.search(rf"rounds +5\.00 +{printed[1]}", screen)


def _zero(text: str) -> str:
    return text.replace("-0.0", "+0.0")
