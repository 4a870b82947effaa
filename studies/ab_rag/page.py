"""AB-RAG on records as one page: the figures of its paper, each with its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from studies.ab_rag.results import (
    METHOD,
    ABRagStudy,
    RecordStudy,
    costs_table,
    groups_table,
    long_answers_tables,
    loops_table,
    signals_table,
    static_table,
    thresholds_table,
)
from suffice.replay.diagnose.selective import SelectiveResult
from suffice.report.draw.forest import Estimated, Forest, ForestRow, forest
from suffice.report.draw.lines import Line, Lines, lines
from suffice.report.draw.marks import legend
from suffice.report.draw.svg import Family
from suffice.report.page.frame import study_page
from suffice.report.page.section import Chart, folded, listed, plain, stacked
from suffice.results.formats import Measured, counted, decimal, estimated, percent, points
from suffice.results.markup import Html, element, join, visible
from suffice.results.table import Table


def ab_rag_page(study: ABRagStudy) -> str:
    """One self-contained HTML document; texts of the record are escaped."""
    charts = [chart for chart in (_static(study), _groups(study), _signals(study)) if chart]
    findings = []
    for record in study.records:
        static, ours = record.policies
        findings.append(
            f"{visible(record.name)}, {counted(record.questions, 'question')}: EM "
            f"{percent(record.em[METHOD].estimate)}, {points(record.gain)} points over {static.name}, at "
            f"{decimal(ours.mean_rounds)} rounds."
        )
    numbers = [
        folded(f"{visible(record.name)}: {table.name}", table.html())
        for record in study.records
        for table in (*record.comparison.tables(), *SelectiveResult.side_by_side(record.selective))
    ]
    return study_page(
        "AB-RAG on records",
        "python -m studies.ab_rag",
        "AB-RAG: static against adaptive retrieval",
        plain(
            "For whoever weighs AB-RAG for a system of their own: what it gains over a fixed number of "
            "passages, what its confidence is worth, what it costs. Whiskers are 95% intervals over "
            "resampled questions, of groups Wilson's. Figure and table numbers are the paper's."
        ),
        listed(findings),
        main=[
            _section("Costs", costs_table(study)),
            element("section", element("h2", "Records side by side"), stacked(charts)),
            *(_thresholds(record) for record in study.records if record.swept),
            _section("Answers that hold the gold answer", *long_answers_tables(study)),
            _section("The loop on single questions", loops_table(study)),
            element(
                "section",
                element("h2", "Every number"),
                *numbers,
                listed(map(visible, study.notes), small=True),
                class_="more",
            ),
        ],
    )


def _section(heading: str, *tables: Table) -> Html:
    shown = [table.html() for table in tables if table.rows]
    return element("section", element("h2", heading), *shown)


# --- records side by side ------------------------------------------------------------------------
def _mark(family: Family, value: Measured, hint: str) -> Estimated:
    figure, low, high = value.estimate, value.low, value.high
    return Estimated(
        family=family,
        value=None if figure is None else 100 * figure,
        interval=None if low is None or high is None else (100 * low, 100 * high),
        hint=f"{hint}: {estimated(value)}",
    )


def _forest(
    heading: str, rows: Sequence[ForestRow], x_name: str, caption: object, table: Table
) -> Chart | None:
    if not rows:
        return None
    picture = forest(
        Forest(
            title=heading,
            description=f"{counted(len(rows), 'row')}; the numbers are in the table below.",
            rows=rows,
            none=(50.0, "chance") if x_name.startswith("AUROC") else (0.0, ""),
            x_name=x_name,
        )
    )
    return Chart(heading=heading, pictures=[picture], caption=caption, table=table.html())


def _static(study: ABRagStudy) -> Chart | None:
    families: tuple[Family, Family] = ("fixed", "adaptive")
    rows = [
        ForestRow(
            name=record.name,
            estimates=[
                _mark(family, record.em[policy.name], f"{record.name}, {policy.name}: EM %")
                for family, policy in zip(families, record.policies, strict=True)
            ],
        )
        for record in study.records
    ]
    statics = ", ".join(dict.fromkeys(record.static for record in study.records))
    keys = legend((("fixed", f"static ({statics})"), ("adaptive", METHOD)))
    caption = (
        "Static is a fixed number of passages, read once. A record of AB-RAG's own loop ends where that loop "
        "stopped: its static answer is then the last one recorded, and not what static retrieval would give."
    )
    heading = "Figure 7: exact match, static and adaptive"
    return _forest(heading, rows, "EM, %", join([keys, caption]), static_table(study))


def _groups(study: ABRagStudy) -> Chart | None:
    rows = []
    for record in study.records:
        for group in record.selective:
            who = record.name if group.policy == METHOD else f"{record.name}, {group.policy}"
            above = f"{who}, above, {group.above.questions} answers: EM %"
            below = f"{who}, below, {group.below.questions} answers: EM %"
            marks = [
                _mark("adaptive", group.above.em, above),
                _mark("fixed", group.below.em, below),
            ]
            rows.append(ForestRow(name=who, estimates=marks))
    keys = legend((("adaptive", "at or above the threshold"), ("fixed", "below it")))
    caption = "Confidence at the stop. The fewer answers on one side, the wider its interval."
    heading = "Figure 8: exact match at high and low confidence"
    return _forest(heading, rows, "EM, %", join([keys, caption]), groups_table(study))


def _signals(study: ABRagStudy) -> Chart | None:
    rows = []
    for record in study.records:
        first = {worth.form.part: worth for worth in reversed(record.signals)}
        for part, worth in first.items():
            hint = f"{record.name}, {worth.form.signal}: AUROC %"
            mark = _mark("adaptive", worth.auroc, hint)
            rows.append(ForestRow(name=f"{part} {record.name}", estimates=[mark]))
    rows.sort(key=lambda row: row.name[:2])
    caption = (
        "AUROC of S1 (the model's certainty), S2 (evidence consistency) and S3 (variance of the reranker's "
        "scores), as published, in round 1 against exact match there. At 50% a signal says nothing."
    )
    return _forest("Figure 10: single signals", rows, "AUROC, %", caption, signals_table(study))


# --- thresholds ----------------------------------------------------------------------------------
def _thresholds(record: RecordStudy) -> Html:
    swept = record.swept
    taus = [one.tau for one in swept]
    whole = [number for number, one in enumerate(swept) if not one.result.beyond_record]
    cut = [number for number, one in enumerate(swept) if one.result.beyond_record]
    if whole and cut and min(whole) < min(cut):  # the dashed line begins where the other one ends
        cut = [max(n for n in whole if n < min(cut)), *cut]
    threshold = record.comparison.result.policies[0].policy
    published = None if threshold is None else threshold.facts.threshold
    bands = [(100 * one.em.low, 100 * one.em.high) for one in swept]
    keys = legend(
        [
            *([("adaptive", "as recorded")] if whole else []),
            *([("fixed", "records end too early")] if cut else []),
        ]
    )
    table = thresholds_table(ABRagStudy(records=(record,))).html()
    charts = []
    for title, y_name, values, band, caption in (
        (
            "Exact match by threshold",
            "EM, %",
            [100 * one.em.estimate for one in swept],
            bands,
            "Band: 95% interval.",
        ),
        (
            "Rounds by threshold",
            "mean rounds",
            [one.result.mean_rounds for one in swept],
            [],
            "A round reads five passages more.",
        ),
    ):
        drawn = [
            Line(
                colour=colour,
                at=[taus[n] for n in chosen],
                values=[values[n] for n in chosen],
                band=[band[n] for n in chosen] if band else (),
            )
            for colour, chosen in (("adaptive", whole), ("fixed", cut))
            if chosen
        ]
        picture = lines(
            Lines(
                title=title,
                description="The numbers are in the table below.",
                x_name="threshold",
                y_name=y_name,
                lines=drawn,
                shares=False,
                uprights=[] if published is None else [(published, "published")],
            )
        )
        told = join([keys, caption])
        charts.append(Chart(heading=title, pictures=[picture], caption=told, table=table))
    heading = f"Figure 9: the threshold on {visible(record.name)}"
    return element("section", element("h2", heading), stacked(charts))
