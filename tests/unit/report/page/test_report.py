from __future__ import annotations

import hashlib
import html
import json
import re
from base64 import b64encode
from dataclasses import replace
from typing import Any

import numpy as np
from tests.html_reader import Page
from tests.reports import build_report, oslo_records

from suffice.evaluation.diagnose.report_data import report_data, report_parts
from suffice.evaluation.replay.compare import compare
from suffice.evaluation.settings import ComparisonSettings
from suffice.report.page import render_report
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import Gold, Passage, QuestionRecord, Round, Usage

RECORDS = oslo_records()

TAGS = frozenset(
    re.findall(
        r"\w+",
        "html head meta title link style body a header div p button h1 h2 h3 dl dt dd details summary "
        "table caption thead tbody tr th td nav ul li main section span bdi br small code figure "
        "figcaption svg desc line text circle rect polygon i noscript label input select script "
        "footer",
    )
)
HOSTILE = "<script>window.hacked=1</script></script><!--<img src=x onerror=window.hacked=1>\"'&\u202e\u2028"


def hostile(record: QuestionRecord) -> QuestionRecord:
    passage = Passage(id=HOSTILE, title=HOSTILE, text=HOSTILE)
    texts: dict[str, Any] = {"answer": HOSTILE, "parse_failure": HOSTILE, "passages": (passage,)}
    name = f"{record.question.id}{HOSTILE}"
    return replace(
        record,
        question=replace(record.question, id=name, text=HOSTILE, type=HOSTILE),
        gold=Gold(answers=(HOSTILE,)),
        rounds=tuple(replace(each, signals={HOSTILE: 1.0}, **texts) for each in record.rounds),
    )


def test_every_figure_of_the_comparison_is_the_results() -> None:
    data = build_report(RECORDS, ["fixed-1", "fixed-3", "tasr", "oracle-f1"], cost="llm_calls")
    rows = Page.of(render_report(data)).tables["Policies side by side"]
    assert [len(row) for row in rows] == [11] * 5
    assert rows[1][8] == "baseline"
    for each, row in zip(data.result.policies[1:], rows[2:], strict=True):
        shown = json.loads(json.dumps(each.to_json()))
        numbers = [
            [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", cell.replace(",", ""))]
            for cell in (*row[1:7], *row[8:])
        ]
        # the comma inside an interval went with the thousands separators
        f1, delta, gain = (shown[key] for key in ("f1_interval", "delta_f1", "frontier_gain"))
        expected = [
            [100 * shown["em"]],
            [100 * value for value in f1.values()],
            [100 * shown["acc"]],
            [shown["mean_rounds"]],
            [shown["llm_calls"]],
            [shown["prompt_tokens"]],
            [100 * value for value in delta.values()],
            [100 * shown["retained_f1"]],
            [100 * value for value in gain.values()],
        ]
        for index, (have, want) in enumerate(zip(numbers, expected, strict=True)):
            tolerance = 0.5 if index == 5 else 0.0501
            np.testing.assert_allclose(have, want, atol=tolerance)
        assert row[7] == "-"


def test_charts_have_names_and_their_numbers_in_tables() -> None:
    data = build_report(RECORDS, ["fixed-1", "fixed-2", "tasr"])
    page = Page.of(render_report(data))
    pictures = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(pictures) == 3 + len(data.reliability["tasr"])
    assert all(each["role"] == "img" and each["aria-label"] for each in pictures)
    stops = page.tables["Questions that stop at each round"]
    for each, row in zip(data.result.policies, stops[1:], strict=True):
        counts = [int((each.stops == number).sum()) for number in (1, 2, 3)]
        assert [int(cell) for cell in row[1:4]] == counts
    frontier = data.result.frontier
    assert frontier is not None
    drawn = page.tables["F1 and cost of every policy"][-3:]
    assert [row[2] for row in drawn] == [f"{100 * value:.1f}" for _, _, value in frontier.known]
    calibrated = page.tables["Reliability of calibrated(answer_token_margin)"][1:]
    buckets = [bucket for each in data.reliability["tasr"] for bucket in each.buckets]
    assert [row[1:3] + row[4:] for row in calibrated] == [
        [f"{100 * each.predicted:.1f}", f"{100 * each.right:.1f}", str(each.count)]
        for each in buckets
    ]


def test_hostile_texts_stay_texts() -> None:
    data = build_report([hostile(RECORDS[0]), *RECORDS[1:]], notes=[HOSTILE])
    named = replace(data.result.policies[0], name=HOSTILE, label=HOSTILE)
    policies = (named, *data.result.policies[1:])
    texts: dict[str, Any] = dict.fromkeys(("source", "split", "baseline"), HOSTILE)
    result = replace(data.result, policies=policies, **texts)
    text = render_report(replace(data, result=result, run={HOSTILE: HOSTILE, "model": HOSTILE}))
    page = Page.of(text)
    assert {tag for tag, _ in page.tags} <= TAGS
    assert sum(tag == "script" for tag, _ in page.tags) == 2
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert "<!--" not in text
    assert "\u202e" not in text
    document = json.loads(page.raw["application/json"])
    assert document["policies"][0][2].startswith("<script>")


def test_nothing_is_loaded_and_the_policy_admits_only_our_own() -> None:
    text = render_report(build_report(RECORDS))
    page = Page.of(text)
    for loading in ("http:", "https:", "url(", "@import"):
        assert loading not in text
    for tag, attributes in page.tags:
        assert not {"src", "style"} & attributes.keys()
        href = attributes.get("href")
        assert href is None or href.startswith("#") or (tag, href) == ("link", "data:,")
    (policy,) = (
        attributes["content"] or ""
        for _, attributes in page.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for kind, directive in (("style", "style-src"), ("script", "script-src")):
        digest = b64encode(hashlib.sha256(page.raw[kind].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy


def test_ids_are_unique_and_links_lead_somewhere() -> None:
    page = Page.of(render_report(build_report(RECORDS, ["fixed-1", "tasr"])))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {href[1:] for _, a in page.tags if (href := a.get("href")) and href.startswith("#")}
    assert links <= set(ids)
    assert "reliability" in links
    labels = {attributes["for"] for tag, attributes in page.tags if tag == "label"}
    assert labels <= set(ids)


def test_unknown_costs_and_missing_gold_are_stated() -> None:
    bare = [
        replace(each, gold=Gold(), rounds=tuple(replace(r, usage=Usage()) for r in each.rounds))
        for each in RECORDS
    ]
    text = render_report(build_report(bare, ["fixed-1", "fixed-2"]))
    page = Page.of(text)
    row = page.tables["Policies side by side"][2]
    assert row == ["2fixed-2", "-", "-", "-", "2.00", "-", "-", "-", "-", "-", "-"]
    assert "No question has gold answers" in text
    assert "llm_calls" in text
    assert text.count("not recorded</text>") == 4
    assert "F1 and cost of every policy" not in page.tables
    assert sum(tag == "svg" for tag, _ in page.tags) == 2


def test_five_hundred_questions_stay_below_five_megabytes() -> None:
    generator = np.random.default_rng(7)
    words = np.array([f"word{n:04d}" for n in range(4000)])

    def a_round(name: str) -> Round:
        text = " ".join(generator.choice(words, 100).tolist())
        signals = {f"signal_{s}": float(generator.random()) for s in range(15)}
        passage = Passage(id=name, title=f"Title {name}", text=text)
        return replace(RECORDS[0].rounds[0], tokens=None, passages=(passage,), signals=signals)

    many = [
        replace(
            RECORDS[0],
            question=replace(RECORDS[0].question, id=f"q{n:03d}", type="bridge"),
            rounds=tuple(a_round(f"{n}-{t}") for t in range(5)),
        )
        for n in range(500)
    ]
    names = [f"fixed-{k}" for k in range(1, 6)]
    text = render_report(build_report(many, [*names, "oracle-f1"], ["signal_3 > 0.8"]))
    assert 2_000_000 < len(text.encode()) < 5_000_000
    document = json.loads(Page.of(text).raw["application/json"])
    assert (len(document["questions"]), len(document["passages"])) == (500, 2_500)
    assert not any(text.endswith("…") for _, text in document["passages"])


def test_agreement_is_said_on_the_first_screen_and_stands_for_no_gold_answer() -> None:
    settings = ComparisonSettings(
        policies=("fixed-1",), rules=("answer_stable",), metric="agreement", resamples=20
    )
    comparison = compare(to_trace_set(RECORDS), settings)
    parts = report_parts(comparison.traces, comparison)
    data = report_data(comparison.measures, comparison.result, parts)
    text = render_report(data)
    said = " ".join(html.unescape(text).split())
    assert comparison.result.metric.legend in said
    assert "Not known without gold answers." in said
    assert "agr. F1 and cost of every policy" in Page.of(text).tables
    assert data.scale == "agreement"
    for part in ("diagnostics", "calibrators", "selective", "question types"):
        assert parts.left_out[part].startswith("it needs gold answers")
