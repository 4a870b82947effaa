"""One self-contained HTML file: nothing is loaded, everything that was recorded is escaped."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import PurePath

from suffice._version import VERSION
from suffice.replay.bootstrap import Interval
from suffice.replay.costing import CostAxis
from suffice.replay.results import ReplayResult
from suffice.replay.story import ReportData
from suffice.report.bar_charts import cost_figure, stops_figure
from suffice.report.charts import em_figure, f1_figure
from suffice.report.explorer import explorer
from suffice.report.formats import (
    UNKNOWN,
    amount,
    bracket,
    count,
    counted,
    decimal,
    percent,
    signed,
)
from suffice.report.marks import Marked, label, marked
from suffice.report.markup import Html, data_table, element, join, shorten, visible
from suffice.report.reliability_chart import reliability_figures

__all__ = ["render_report"]

_LONGEST_VALUE = 300
_COSTS = ("llm_calls", "prompt_tokens", "cached_tokens", "completion_tokens")
_IN_TABLE = frozenset({"rounds", "llm_calls", "prompt_tokens", "completion_tokens"})
_SECTIONS = (
    ("comparison", "Comparison"),
    ("charts", "Charts"),
    ("reliability", "Reliability"),
    ("questions", "Questions"),
    ("reading", "How to read it"),
)


def render_report(data: ReportData) -> str:
    """The report as one HTML document.

    It loads nothing: style, script and data stand in the file, and its own content security policy
    forbids any other. Texts of the traces are escaped; without JavaScript only the question explorer
    is missing. Five hundred questions stay below 5 MB: what is cut for that is stated in place.
    """
    policies = marked(data.result)
    style, script = _asset("page.css"), _asset("page.js")
    sections = {
        "comparison": _comparison(data.result, policies),
        "charts": _charts(data.result, policies),
        "reliability": _reliability(data, policies),
        "questions": join([_QUESTIONS_HINT, explorer(data, policies).html()]),
        "reading": _READING,
    }
    shown = [(name, heading) for name, heading in _SECTIONS if sections[name]]
    body = element(
        "body",
        element("a", "Skip to the comparison", href="#comparison", class_="skip"),
        _header(data, shown),
        element(
            "main",
            *(
                element("section", element("h2", heading), sections[name], id=name)
                for name, heading in shown
            ),
        ),
        element("footer", f"Suffice {VERSION}. This file loads nothing from anywhere."),
        element("script", script),
    )
    html = element("html", _head(data.result, style, script), body, lang="en")
    return f"<!DOCTYPE html>\n{html}\n"


def _asset(name: str) -> Html:
    return Html(files("suffice.report").joinpath(name).read_text(encoding="utf-8"))


def _hashed(content: str) -> str:
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"


def _head(result: ReplayResult, style: Html, script: Html) -> Html:
    security = (
        f"default-src 'none'; style-src {_hashed(style)}; script-src {_hashed(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=Html(security)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"Stopping policies on {PurePath(result.source).name}"),
        element("link", rel="icon", href="data:,"),
        element("style", style),
    )


# --- what was replayed -----------------------------------------------------------------------
def _header(data: ReportData, sections: Sequence[tuple[str, str]]) -> Html:
    result = data.result
    links = (element("li", element("a", heading, href=f"#{name}")) for name, heading in sections)
    policies = "1 policy" if len(result.policies) == 1 else f"{len(result.policies)} policies"
    questions = counted(result.questions, "question")
    return element(
        "header",
        element(
            "div",
            element("p", "Suffice report", class_="eyebrow"),
            element("button", "Dark theme", id="theme", type="button", hidden=True),
            class_="top",
        ),
        element("h1", f"When to stop: {policies} on {questions}"),
        _facts(data),
        _run(data.run),
        element("nav", element("ul", *links), aria_label="Sections"),
    )


def _facts(data: ReportData) -> Html:
    result = data.result
    split = "all splits" if result.split is None else f"split {result.split}"
    facts: list[tuple[str, object]] = [
        ("Traces", result.source),
        (
            "Questions",
            f"{count(result.questions)} ({split}), {count(result.labelled)} with gold answers",
        ),
        ("Rounds", f"at most {result.max_rounds}"),
        ("Model", _value(data.run["model"]) if data.run.get("model") else "not stated"),
        ("F1", f"as {result.f1_kind} scores it"),
        ("Baseline", result.baseline),
        ("Intervals", f"95%, {count(result.resamples)} paired resamples, seed {result.seed}"),
        ("Suffice", VERSION),
    ]
    pairs = (element("div", element("dt", name), element("dd", value)) for name, value in facts)
    return element("dl", *pairs, class_="facts")


def _run(run: Mapping[str, object]) -> Html:
    if not run:
        return Html()
    rows = [(name, _value(value)) for name, value in run.items()]
    table = data_table("How the traces were recorded", ("setting", "value"), rows)
    return element("details", element("summary", "How the traces were recorded"), table)


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shorten(text, _LONGEST_VALUE)


# --- the comparison --------------------------------------------------------------------------
def _comparison(result: ReplayResult, policies: Sequence[Marked]) -> Html:
    own = () if result.cost.name in _IN_TABLE else (result.cost,)
    head = (
        "Policy",
        "EM %",
        "F1 %",
        "Acc %",
        "Rounds",
        "Calls",
        *(_cost_head(each) for each in own),
        _two_lines("Prompt", "tokens"),
        _two_lines("Completion", "tokens"),
        _two_lines("F1 against", shorten(visible(result.baseline), 20)),
        _two_lines("F1", "kept %"),
        _two_lines("F1 over", "fixed-k"),
    )
    table = data_table("Policies side by side", head, [_row(each, own) for each in policies])
    notes = element("ul", *(element("li", each) for each in _notes(result)), class_="notes")
    return join(
        [
            element(
                "p",
                "Scores are means over questions with gold answers, rounds, "
                f"{''.join(f'{each.label}, ' for each in own)}calls and tokens are means per question. "
                f"F1 over fixed-k is at equal {result.cost.label}. In brackets: 95% intervals.",
                class_="plain",
            ),
            element("div", table, class_="comparison"),
            _identities(policies),
            element("h3", "Notes"),
            notes,
        ]
    )


def _two_lines(first: str, second: str) -> Html:
    return join([first, element("br"), second])


def _cost_head(cost: CostAxis) -> Html:
    label = f"{cost.label[:1].upper()}{cost.label[1:]}"
    if cost.unit:
        return _two_lines(f"{label},", cost.unit)
    first, _, last = label.rpartition(" ")
    return _two_lines(first, last) if first else join([label])


def _row(each: Marked, own: Sequence[CostAxis]) -> tuple[object, ...]:
    result, costs = each.result, each.result.costs
    return (
        label(each),
        percent(result.em),
        _with_interval(percent(result.f1), result.f1_interval),
        percent(result.acc),
        decimal(result.mean_rounds),
        decimal(costs.get("llm_calls")),
        *(amount(costs.get(one.name)) for one in own),
        count(costs.get("prompt_tokens")),
        count(costs.get("completion_tokens")),
        element("span", "baseline", class_="tag")
        if each.baseline
        else _difference(result.delta_f1),
        percent(result.retained_f1),
        _difference(result.frontier_gain),
    )


def _with_interval(shown: str, interval: Interval | None) -> Html:
    if interval is None:
        return join([shown])
    return join([shown, " ", element("small", bracket(interval))])


def _difference(interval: Interval | None) -> Html:
    return _with_interval(signed(None if interval is None else interval.estimate), interval)


def _identities(policies: Sequence[Marked]) -> Html:
    rows = [
        (
            label(each, each.result.name),
            each.result.kind,
            each.result.preset or UNKNOWN,
            element("code", each.result.hash),
            element("code", getattr(each.result.policy, "rule", UNKNOWN)),
            each.result.beyond_record,
        )
        for each in policies
    ]
    head = (
        "policy",
        "kind",
        "preset",
        "hash",
        "rule",
        _two_lines("questions that", "end before its round"),
    )
    table = data_table("What each policy is", head, rows)
    summary = element("summary", "What each policy is: names, hashes, rules")
    return element("details", summary, table, class_="identities")


def _notes(result: ReplayResult) -> list[str]:
    notes = list(result.notes)
    unlabelled = result.questions - result.labelled
    if not result.labelled:
        notes.append("No question has gold answers: scores and differences are unknown (-).")
    elif unlabelled:
        notes.append(
            f"{counted(unlabelled, 'question')} without gold answers: counted in costs, not in scores."
        )
    for name in _COSTS:
        without = [each.name for each in result.policies if each.costs.get(name) is None]
        if without:
            whom = "any policy" if len(without) == len(result.policies) else ", ".join(without)
            notes.append(f"{name} is not recorded for {whom}; unknown is shown as -.")
    if any(each.kind == "oracle" for each in result.policies):
        notes.append(
            "Oracles read the gold answers: they bound what is possible and cannot be deployed."
        )
    if result.labelled:
        notes.append(
            "Intervals come from resampling these questions. They say nothing about another data set, "
            "model, retriever or prompt, nor about what a rerun of this model would answer. With many "
            "policies, some differ from the baseline by chance."
        )
    return notes


# --- charts ----------------------------------------------------------------------------------
def _charts(result: ReplayResult, policies: Sequence[Marked]) -> Html:
    key = element(
        "ul",
        *(
            element("li", label(each), element("small", "baseline") if each.baseline else "")
            for each in policies
        ),
        class_="marks",
        aria_label="Key to the marks",
    )
    scores = [f1_figure(result, policies), em_figure(result, policies)]
    shown = [each for each in scores if each is not None]
    shown += [stops_figure(result, policies), cost_figure(result, policies)]
    shapes = element(
        "p",
        "Squares and numbers: fixed budgets. Circles and letters: policies. Diamonds: oracles.",
        class_="plain",
    )
    return join([shapes, key, element("div", *shown, class_="figures")])


def _reliability(data: ReportData, policies: Sequence[Marked]) -> Html:
    figures = reliability_figures(data.reliability, policies)
    if not figures:
        return Html()
    intro = element(
        "p",
        "Is a calibrated value what it says? Among answers with a predicted chance of 40%, "
        "40% should be right.",
        class_="plain",
    )
    return join([intro, *figures])


_QUESTIONS_HINT = element(
    "p",
    "Every question, round by round: what was retrieved and answered, and where each policy "
    "stops and why. In the list, the arrow keys move from question to question.",
    class_="plain",
)

_READING = element(
    "dl",
    *(
        element("div", element("dt", term), element("dd", meaning))
        for term, meaning in (
            (
                "Replay",
                "Every question was run once to the full budget. A policy is scored on those "
                "recorded rounds: it gets the answer of the round at which it stops and pays for the "
                "rounds up to there.",
            ),
            (
                "EM, F1, Acc",
                "EM: the normalised answer equals a gold answer. F1: overlap of their words. "
                "Acc: a gold answer stands somewhere in the answer.",
            ),
            (
                "F1 kept",
                "F1 as a share of that of the full budget. Above 100%: later rounds hurt more "
                "than they help.",
            ),
            (
                "F1 over fixed-k",
                "F1 minus that of the fixed-k frontier at the same cost. The frontier mixes "
                "fixed budgets at random, so a policy worth its name lies above zero.",
            ),
            (
                "Intervals",
                "95% percentile intervals. The same resampled questions serve all policies, so "
                "differences are paired. An interval that covers 0 shows no difference.",
            ),
            (
                "Tokens",
                "Cached: the part of the prompt the server did not evaluate again.",
            ),
        )
    ),
    class_="reading",
)
