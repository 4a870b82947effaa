"""The viewer over HTTP: what it answers, that it agrees with a replay, and what it refuses."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.builders import alarming_record
from tests.ending_loops import loops

from suffice.cli.main import main
from suffice.evaluation.replay.named_policies import named_policies
from suffice.evaluation.replay.runner import replay
from suffice.evaluation.settings import ComparisonSettings
from suffice.measures.measures import Measures
from suffice.monitor.following import Following
from suffice.monitor.production import Production, ProductionSettings
from suffice.options import read_since
from suffice.policies.rules.policy import Rule
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import Gold, QuestionRecord
from suffice.trace.rounds.trace_set import TraceSet
from suffice.trace.rounds.writer import write_traces
from suffice.view import data
from suffice.view.data import RecordView, ViewSettings
from suffice.view.viewer import Shown, viewer_app, write_bundle

RULE = "answer_repeats and round >= 2"
HOSTILE = "<img src=x onerror=window.hacked=1>\u202e"
ANSWERS = (
    ("Oslo", "Oslo", "Oslo"),
    ("Bergen", "Oslo", "Oslo"),
    ("Oslo", "Bergen", "Bergen"),
    ("Rome", "Rome", "Rome"),
)


def records() -> list[QuestionRecord]:
    made = [
        make_record(
            f"q{n:02d}",
            ANSWERS[n % 4],
            gold=["Oslo"],
            margins=[0.5 + n % 4, 1.5 + n % 3, 2.5 + n % 7],
            split="tune" if n % 3 else "eval",
        )
        for n in range(24)
    ]
    question = replace(made[3].question, text=HOSTILE, type="strange")
    return [*made[:3], replace(made[3], question=question), *made[4:]]


@pytest.fixture(scope="module")
def traces() -> TraceSet:
    return to_trace_set(records())


@pytest.fixture(scope="module")
def view(traces: TraceSet) -> RecordView:
    opened = RecordView(Measures(traces), ViewSettings(policies=("tasr",), rules=(RULE,)))
    opened.work()
    assert opened.progress.ready
    assert opened.progress.trouble == ()
    return opened


@pytest.fixture(scope="module")
def client(view: RecordView) -> TestClient:
    return TestClient(viewer_app(Shown(view)), base_url="http://localhost")


def ask(client: TestClient, path: str, **query: Any) -> Any:
    reply = client.get(f"/api/{path}", params=query)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_figures_are_those_of_a_replay(client: TestClient, traces: TraceSet) -> None:
    part = Measures(traces).only_split("eval")
    policies = named_policies(traces, ["tasr", "fixed-1", "fixed-3"], [RULE])
    result = replay(part, policies, ComparisonSettings(baseline="fixed-3", cost="rounds"))
    record = ask(client, "record")
    assert record["split"] == "eval"
    told = {policy["name"]: policy for policy in record["policies"]}
    for policy in result.policies:
        shown = told[policy.name]
        assert shown["score"]["estimate"] == pytest.approx(policy.f1)
        assert shown["rounds"]["estimate"] == pytest.approx(policy.mean_rounds)
        assert policy.interval is not None
        assert shown["score"]["low"] == pytest.approx(policy.interval.low)
    tried = ask(client, "what-if", rule=RULE)
    of_rule = next(policy for policy in result.policies if policy.name == RULE)
    assert of_rule.delta is not None
    assert tried["other"]["score"] == pytest.approx(
        {name: getattr(of_rule.delta, name) for name in ("estimate", "low", "high")}
    )


@pytest.mark.parametrize("split", ["eval", "*"])
@pytest.mark.parametrize("explore", [0.3, None])
def test_figures_of_a_cut_record_are_those_that_replay_prints(
    explore: float | None, split: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Questions that were explored stand for others in scores, costs, rounds and counts of stops alike."""
    log = loops().log(150, 1, explore=explore or 0.3, labelled=(1.0, 0.8, 0.9))
    log = log.with_splits(["eval" if n % 3 else "tune" for n in range(150)])
    kept = log.records()
    if explore is None:
        kept = (replace(one, propensity=None) for one in kept if one.stopped_by != "end")
    place = tmp_path / "cut.parquet"
    write_traces(kept, place, run={"rounds": 6})
    rule, names = "answer_repeats or round >= 4", ("fixed-1", "fixed-3", "fixed-6")
    typed = ["replay", str(place), *(part for name in names for part in ("--policy", name))]
    typed += ["--stop-when", rule, "--baseline", "fixed-3", "--cost", "llm_calls"]
    typed += ["--metric", "em", "--split", "all" if split == "*" else split]
    assert main([*typed, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    settings = ViewSettings(policies=names, rules=(rule,), metric="em", cost="llm_calls")
    opened = RecordView(Measures.of(place), settings)
    opened.work()
    assert opened.progress.trouble == ()
    page = TestClient(viewer_app(Shown(opened)), base_url="http://localhost")
    told = {one["name"]: one for one in ask(page, "record", split=split)["policies"]}
    figures = {"score": "em", "rounds": "mean_rounds", "cost": "llm_calls"}
    assert len(result["policies"]) == len(names) + 1
    for policy in result["policies"]:
        shown = told[policy["name"]]
        for figure, name in figures.items():
            ranged = policy.get("range", {}).get(name)
            found = shown[figure]
            if ranged is not None:
                assert (found["estimate"], found["low"]) == (None, pytest.approx(ranged["low"]))
                high = ranged["high"]
                assert found["high"] == (high if high is None else pytest.approx(high))
            else:
                assert found["estimate"] == pytest.approx(policy[name])
        if policy["em_interval"] is not None:
            ends = [policy["em_interval"][end] for end in ("low", "high")]
            assert [shown["score"][end] for end in ("low", "high")] == pytest.approx(ends, abs=0.02)
        stops = {str(at): count for at, count in enumerate(shown["stops"]) if count}
        assert stops == pytest.approx(policy["stop_rounds"])
        pair = ask(page, "compare", a=policy["name"], b="fixed-3", split=split)
        assert [pair["a"], pair["b"]] == [shown, told["fixed-3"]]
        difference, change = pair["difference"]["score"], policy["delta_em"]
        assert (difference is None) == (change is None)
        if change is not None:
            assert difference["estimate"] == pytest.approx(change["estimate"])
            assert difference["low"] == pytest.approx(change["low"], abs=0.03)
    assert ask(page, "what-if", rule=rule, split=split)["figures"]["stops"] == told[rule]["stops"]
    cut, said = ask(page, "promises")["cut"], result["cut_records"]
    if split == "*":
        assert {name: cut[name] for name in ("explored", "stood_for")} == {
            name: said[name] for name in ("explored", "stood_for")
        }
    for row in ask(page, "questions", limit=200)["rows"]:  # of single questions what was recorded
        assert all(right in (None, 0.0, 1.0) for _, right, _, _ in row["stops"])


def test_pages_hold_every_question_once_under_any_sort(client: TestClient) -> None:
    for sort in ("id", "question", "stop", "score", "cost", "signal:answer_token_margin"):
        query: dict[str, Any] = {"sort": sort, "limit": 7, "policy": "tasr", "order": "desc"}
        page = ask(client, "questions", **query)
        seen, firsts = [row["id"] for row in page["rows"]], [page["first"]]
        while page["next"] is not None:
            page = ask(client, "questions", **query, cursor=page["next"])
            seen += [row["id"] for row in page["rows"]]
            firsts.append(page["first"])
        assert len(seen) == len(set(seen)) == page["total"] == 24
        assert firsts == [1, 8, 15, 22]
        back = ask(client, "questions", **query, cursor=page["previous"], page="back")
        assert [row["id"] for row in back["rows"]] == seen[14:21]


def test_filters_agree_with_the_rows(client: TestClient) -> None:
    every = ask(client, "questions", limit=200)
    at = every["policies"].index("tasr")
    first = every["policies"].index("fixed-1")

    def ids(**query: Any) -> set[str]:
        return {row["id"] for row in ask(client, "questions", limit=200, **query)["rows"]}

    def those(keep: Any) -> set[str]:
        return {row["id"] for row in every["rows"] if keep(row, row["stops"][at])}

    assert ids(split="eval") == those(lambda row, _: row["split"] == "eval")
    assert ids(policy="tasr", stop=2) == those(lambda _, stop: stop[0] == 2)
    assert ids(policy="tasr", outcome="right") == those(lambda _, stop: stop[1] == 1)
    assert ids(policy="tasr", differs="fixed-1") == those(
        lambda row, stop: stop[0] != row["stops"][first][0]
    )
    assert ids(policy="fixed-1", outcome="early") == those(
        lambda row, _: row["judged"][0] == 0 and 1 in row["judged"]
    )
    assert ids(text="berg") == those(lambda row, _: int(row["id"][1:]) % 4 in (1, 2))
    assert ids(text="q07 OSLO") == set()
    assert ids(text="onerror") == {"q03"}
    low = ids(signal="answer_token_margin", policy="fixed-1", low=2)
    assert low == those(lambda row, _: int(row["id"][1:]) % 4 >= 2)
    assert ids(policy="what-if", rule="round >= 2", stop=2) == {row["id"] for row in every["rows"]}


def test_a_question_says_where_and_why_each_policy_stops(client: TestClient) -> None:
    told = ask(client, "question/q03", policy="tasr", split="tune")
    assert told["question"] is None or told["question"].startswith("<img src=x")
    assert "\u202e" not in json.dumps(told, ensure_ascii=False)
    assert [round_["answer"] for round_ in told["rounds"]] == ["Rome"] * 3
    assert {stop["policy"] for stop in told["stops"]} >= {"tasr", RULE, "fixed-3"}
    assert all(stop["reason"] for stop in told["stops"])
    assert client.get("/api/question/nobody").status_code == 400


def test_errors_of_a_rule_have_their_place(client: TestClient) -> None:
    told = ask(client, "what-if", rule="answer_repeats and and")
    assert told["place"] == len("answer_repeats and ")
    assert ask(client, "what-if", rule="answer_repeats and")["error"]
    assert "nosuch" in ask(client, "what-if", rule="nosuch > 1")["error"]


def test_two_policies_are_compared_question_by_question(client: TestClient) -> None:
    told = ask(client, "compare", a="tasr", b="fixed-3", split="*")
    wanted = ask(client, "questions", policy="tasr", differs="fixed-3")["total"]
    assert told["changed"] == wanted
    stops = told["stops"]
    assert sum(map(sum, stops)) == told["questions"] == 24
    counts = ("both_right", "both_less", "gained", "lost")
    assert sum(told[name] for name in counts) == 24


def test_the_page_loads_its_own_files_alone(client: TestClient) -> None:
    page = client.get("/")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    tag = client.get("/main.js").headers["etag"]
    assert client.get("/main.js", headers={"if-none-match": tag}).status_code == 304
    assert client.get("/page.css").headers["content-type"].startswith("text/css")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/questions?sort=nothing", 400),
        ("/api/questions?cursor=-1", 400),
        ("/api/questions?low=nan&signal=overlap", 400),
        ("/api/questions?policy=nobody", 400),
        ("/api/questions?text=" + "x" * 300, 400),
        ("/..%2f..%2fetc%2fpasswd", 404),
        ("/data.py", 404),
        ("/api/nothing", 404),
    ],
)
def test_what_cannot_be_had_is_refused(client: TestClient, path: str, status: int) -> None:
    assert client.get(path).status_code == status


def test_questions_are_there_before_anything_is_measured(traces: TraceSet) -> None:
    view = RecordView(Measures(traces))
    client = TestClient(viewer_app(Shown(view)), base_url="http://localhost")
    assert ask(client, "questions", limit=3)["total"] == 24
    assert ask(client, "record")["policies"] == []
    assert client.get("/api/what-if", params={"rule": RULE}).status_code == 503
    assert client.get("/api/questions", params={"text": "oslo"}).status_code == 503


def test_a_record_says_how_much_of_it_was_read(traces: TraceSet) -> None:
    def opened() -> RecordView:
        shown.reading(0.34)
        reply = client.get("/api/record")
        assert reply.status_code == 503
        assert "34 %" in reply.json()["error"]["message"]
        return RecordView(Measures(traces), ViewSettings(policies=("fixed-1",)))

    shown = Shown(None, None, opened)
    client = TestClient(viewer_app(shown), base_url="http://localhost")
    assert client.get("/api/record").status_code == 503
    shown.open()
    assert ask(client, "questions")["total"] == 24


def test_a_folder_that_grows_is_opened_anew(tmp_path: Path) -> None:
    made = records()
    folder = tmp_path / "traces"
    folder.mkdir()
    write_traces(made[:10], folder / "part-0.parquet")

    def opened() -> RecordView:
        return RecordView(Measures.of(folder), ViewSettings(policies=("fixed-1",)))

    shown = Shown(None, folder, opened)
    shown.open()
    assert not shown.renew()
    write_traces(made[10:12], folder / "part-1.parquet")
    assert shown.renew()
    assert shown.view.n_questions == 12
    assert sorted(one["id"] for one in shown.arrived) == ["q10", "q11"]
    (folder / "part-2.parquet").write_bytes(b"torn")
    assert not shown.renew()
    assert "cannot be read" in shown.trouble
    assert shown.view.n_questions == 12
    deadline = time.monotonic() + 20
    while not shown.view.progress.ready and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_bundle_holds_the_page_and_says_what_it_lacks(view: RecordView, tmp_path: Path) -> None:
    written = write_bundle(view, tmp_path / "out")
    assert len(written) == 2  # all questions are in the table, with their rounds
    record = json.loads((tmp_path / "out" / "data" / "record.json").read_text())
    assert "no rule can be tried" in record["bundle"]
    rows = json.loads((tmp_path / "out" / "data" / "questions.json").read_text())["rows"]
    rounds = json.loads((tmp_path / "out" / "data" / f"rounds-{rows[0]['file']}.json").read_text())
    assert rounds["q00"]["rounds"][0]["answer"] == "Oslo"
    assert "data-bundle" in (tmp_path / "out" / "index.html").read_text()


def test_a_policy_that_ran_is_watched_as_monitor_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        data, "ProductionSettings", partial(ProductionSettings, max_loss=0.1, first=3)
    )
    policy, folder = Rule(rule="round >= 2"), tmp_path / "live"
    file = alarming_record(folder, policy)

    def shown() -> dict[str, Any]:
        settings = ViewSettings(policies=(str(file), "fixed-1"))
        view = RecordView(Measures.of(folder), settings)
        client = TestClient(viewer_app(Shown(view)), base_url="http://localhost")
        assert ask(client, "promises")["promises"] == []
        view.work()
        assert view.progress.trouble == ()
        (made,) = ask(client, "promises")["promises"]
        watched: dict[str, Any] = made["watched"]
        return watched

    told = shown()
    since = read_since("7d")
    settings = ProductionSettings(max_loss=0.1, first=3, max_rounds=3, since=since)
    production = Production(policy, settings)
    Following(folder, production).look()
    tables = production.tables()[1:]
    assert [one["rows"] for one in told["tables"]] == [table.shown() for table in tables]
    assert [table.name for table in tables] == ["period", "tests"]
    assert (told["decision"], told["headline"][:5]) == ("alarm", "Alarm")
    assert production.counts["labelled"] > 0
    (alarm,) = told["alarms"]
    assert alarm.startswith("ALARM, loss at question")
    assert "promised at most 10" in alarm
    monkeypatch.setattr(data, "MOST_WATCHED", 23)
    assert "suffice monitor" in shown()["note"]


def test_a_folder_that_may_not_be_read_is_told_on_the_page(tmp_path: Path) -> None:
    def forbidden() -> Any:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    shown = Shown(None, tmp_path, forbidden)
    shown.open()
    client = TestClient(viewer_app(shown), base_url="http://localhost")
    reply = client.get("/api/record")
    assert reply.status_code == 400
    assert "Permission denied" in reply.text


def test_an_unknown_score_is_a_range_and_no_other_policy_loses_its_own() -> None:
    first, *others = records()
    asked, *later = first.rounds
    made = replace(first, rounds=(replace(asked, answer=None, tokens=None, response=None), *later))
    opened = RecordView(Measures(to_trace_set([made, *others])), ViewSettings())
    opened.work()
    page = TestClient(viewer_app(Shown(opened)), base_url="http://localhost")
    replayed = ask(page, "record")["policies"]
    assert page.get("/").status_code == 200
    unknown, known = (
        next(one["score"] for one in replayed if one["name"] == f"fixed-{k}") for k in (1, 2)
    )
    assert unknown["estimate"] is None
    assert 0.0 <= unknown["low"] < unknown["high"] <= 1.0
    assert known["low"] <= known["estimate"] <= known["high"]


def own(*scores: float) -> list[QuestionRecord]:
    """By turns falling and rising scores of their own, without gold answers."""
    turned = (scores, scores[::-1])
    return [
        replace(one, gold=Gold(), scores=dict(enumerate(turned[n % 2], start=1)))
        for n, one in enumerate(records())
    ]


@pytest.mark.parametrize(
    ("made", "metric", "scale"),
    [
        (records(), "f1", "gold"),
        (records(), "agreement", "agreement"),
        (own(0.0, 1.0, 1.0), "score", "scores"),
        (own(0.25, 0.5, 0.75), "score", "graded"),
    ],
)
def test_a_round_is_judged_by_what_compares_policies(
    made: list[QuestionRecord], metric: str, scale: str
) -> None:
    """Every filter and count of outcomes goes by it, and a graded score is never right or wrong."""
    opened = RecordView(Measures(to_trace_set(made)), ViewSettings(metric=metric, rules=(RULE,)))
    opened.work()
    page = TestClient(viewer_app(Shown(opened)), base_url="http://localhost")
    told = ask(page, "record")
    assert (told["scale"], told["ready"]) == (scale, True)
    rows = ask(page, "questions", policy=RULE, limit=200)["rows"]
    place = ask(page, "questions")["policies"].index
    judged = {row["id"]: [of[1] for of in row["stops"]] for row in rows}
    if scale == "graded":
        assert {value for row in rows for value in row["judged"]} == {0.25, 0.5, 0.75}
    against = {"policy": "fixed-1", "differs": "fixed-3"}
    one, other = place("fixed-1"), place("fixed-3")
    counts = ask(page, "compare", a="fixed-1", b="fixed-3", split="*")
    for outcome, wins in (("gained", 1), ("lost", -1)):
        expected = {n for n, of in judged.items() if wins * of[one] > wins * of[other]}
        found = ask(page, "questions", outcome=outcome, limit=200, **against)["rows"]
        assert {row["id"] for row in found} == expected
        assert counts[outcome] == len(expected)
    later = ask(page, "questions", policy="fixed-1", outcome="early", limit=200)["rows"]
    assert {row["id"] for row in later} == {
        row["id"] for row in rows if max(row["judged"][1:]) > row["judged"][0]
    }
