"""One policy has one score and one saving, wherever ``suffice choose`` shows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.commands import run, run_json
from tests.html_reader import Page

import suffice
from suffice.measures.measures import Measures
from suffice.view.data import RecordView, ViewSettings
from suffice.view.viewer import Shown, viewer_app


class Chosen:
    def __init__(self, folder: Path, record: str, *options: str) -> None:
        done = run("choose", record, "--out", folder, *options)
        assert done.returncode == 0, done.stderr
        self.screen = done.stdout
        self.policy = str(folder / "policy.json")
        self.said = json.loads((folder / "choice.json").read_text())
        self.page = Page.of((folder / "index.html").read_text())
        self.listed: dict[str, Any] = json.loads(self.page.raw["application/json"])


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Chosen:
    return Chosen(tmp_path_factory.mktemp("example"), "example")


def test_the_questions_that_prove_it_carry_every_figure(example: Chosen) -> None:
    """The first screen, the comparison below it and a replay of the written policy."""
    measured = example.said["measured"]
    (row,) = [row for row in example.page.tables["Policies side by side"] if row[0][0] == "A"]
    assert f"{100 * measured['score']:.1f} " in f"{row[2]} "
    replayed = run_json("replay", "example", "--policy", example.policy)
    assert replayed["questions"] == example.said["questions"]["all"] == 250
    again = replayed["policies"][0]
    for name in ("score", "delta_full", "mean_rounds", "evaluated_tokens"):
        assert again[name] == measured[name], name


def test_early_stops_of_a_graded_score_are_lower_or_higher(example: Chosen) -> None:
    """Counted one by one: a stop at 0.8 of 1 is none at a full score, and loses all the same."""
    replayed = run_json("replay", "example", "--policy", example.policy, "--per-question")
    stops = replayed["policies"][0]["rounds"]
    scores = {one.question.id: one.scores for one in suffice.read("example").records()}
    last = {name: max(of) for name, of in scores.items()}
    gains = {
        name: scores[name][stop] - scores[name][last[name]]
        for name, stop in stops.items()
        if stop < last[name]
    }
    told = example.said["early_stops"]
    assert told["all"]["count"] == len(gains)
    for which, found in (
        ("lower", [name for name, gain in gains.items() if gain < 0]),
        ("higher", [name for name, gain in gains.items() if gain > 0]),
    ):
        assert told[which]["count"] == len(found) > 0
        assert sorted(told[which]["questions"]) == sorted(found)
        assert any(of.get("data-outcome") == which for _, of in example.page.tags)
    line = f"{len(gains)} of 250 questions stop early"
    assert line in example.screen
    assert line in example.page.text


def test_early_stops_of_a_coin_are_those_of_the_file(tmp_path: Path) -> None:
    """Where both sides of a coin stop early, the counts are as the live policy decides."""
    example = Chosen(tmp_path, "example", "--max-loss", "0.05")
    told = {"all": 0, "lower": 0, "higher": 0}
    for one in suffice.read("example").records():
        controller = suffice.Controller.load(example.policy)
        controller.start(one.question.text, question_id=one.question.id)
        stops = (n for n, held in enumerate(one.rounds, 1) if controller.observe(held).stop)
        stop = next(stops, len(one.rounds))
        gain = one.scores[stop] - one.scores[max(one.scores)]
        told["all"] += stop < len(one.rounds)
        told["lower"] += gain < 0
        told["higher"] += gain > 0
    assert {name: of["count"] for name, of in example.said["early_stops"].items()} == told


def test_the_list_of_questions_has_the_score_that_chose(example: Chosen) -> None:
    listed = example.listed
    assert (listed["scale"], listed["scores"], listed["compared"]) == ("graded", ["score"], 0)
    assert len(listed["questions"]) == 250
    scores = {one.question.id: one.scores for one in suffice.read("example").records()}
    for name, _, _, _, rounds, _ in listed["questions"]:
        told = {number: one[1][0] for number, one in enumerate(rounds, start=1)}
        assert told == pytest.approx(scores[name], rel=1e-5)


def test_a_promise_says_what_was_tested_with_it_and_what_failed(tmp_path: Path) -> None:
    """In the file and in the viewer, which opens on the questions that prove it; a loss is negative."""
    example = Chosen(tmp_path, "example", "--confidence", "0.9999")
    stated = json.loads(Path(example.policy).read_text())["guarantee"]
    failed = [row["max_loss"] for row in example.said["table"] if not row["proven"]]
    assert stated["not_proven"] == failed == [0.01]
    opened = RecordView(Measures.of("example"), ViewSettings(policies=(example.policy,)))
    opened.work()
    page = TestClient(viewer_app(Shown(opened)), base_url="http://localhost")
    (made,) = page.get("/api/promises").json()["promises"]
    assert "at most 2" in made["promise"]
    terms = dict(made["terms"])
    assert terms["Tested together with"] == "1, 3, 5, 10 points; not proven: 1"
    assert (
        terms["Measured mean change"]
        == f"{round(-100 * stated['measured_loss'], 1) + 0.0:+.1f} points"
    )
    record = page.get("/api/record").json()
    assert record["split"] == record["scored_split"] == ""
    (shown,) = [one for one in record["policies"] if one["kind"] == "certified"]
    assert shown["score"]["estimate"] == example.said["measured"]["score"]
