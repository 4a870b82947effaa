"""AB-RAG on several records as one page: the figures of its paper, each with its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from studies.ab_rag.results import (
    METHOD,
    ABRagRecords,
    RecordStudy,
    beyond,
    costs_table,
    groups_table,
    long_answers_table,
    long_examples_table,
    loops_table,
    signals_table,
    static_table,
    thresholds_table,
)
from studies.ab_rag.record_results import SignalWorth
from suffice.numbers.intervals.estimate import Estimate
from suffice.report.draw.forest import Estimated, Forest, ForestRow, forest
from suffice.report.draw.lines import Line, Lines, lines
from suffice.report.draw.marks import legend
from suffice.report.draw.svg import Family
from suffice.report.page.frame import study_page
from suffice.report.page.section import Chart, folded, listed, plain, stacked
from suffice.results.formats import Measured, bracket, counted, decimal, estimated, percent, points
from suffice.results.markup import Html, element, join, visible
from suffice.results.table import Table

_PUBLISHED = {"S1": 0, "S2": 1, "S3": 2}


def ab_rag_page(study: ABRagRecords) -> str:
    """One self-contained HTML document; texts of the records are escaped."""
    charts = [chart for chart in (_static(study), _groups(study), _signals(study)) if chart]
    return study_page(
        "AB-RAG on records",
        "python -m studies.ab_rag",
        "AB-RAG: static against adaptive retrieval",
        plain(
            "For whoever weighs AB-RAG for a system of their own: what it gains over a fixed number of "
            "passages, what its confidence is worth, what it costs. Whiskers are 95% intervals over "
            "resampled questions, of groups Wilson's. Figure and table numbers are the paper's."
        ),
        listed(_findings(study)),
        main=[
            _section("Costs", costs_table(study)),
            element("section", element("h2", "Records side by side"), stacked(charts)),
            *(_thresholds(record) for record in study.records),
            _section(
                "Answers that hold the gold answer",
                long_answers_table(study),
                long_examples_table(study),
            ),
            _section("The loop on single questions", loops_table(study)),
            _numbers(study),
        ],
    )


def _section(heading: str, *tables: Table) -> Html:
    shown = [_below_heading(table) for table in tables if table.rows]
    return element("section", element("h2", heading), *shown)


def _below_heading(table: Table) -> Html:
    """A table and its notes; one of single questions as a list a record."""
    notes = [plain(note, small=True) for note in table.notes]
    if "question_id" not in [column.name for column in table.columns]:
        return element("div", replace(table, notes=()).html(), *notes)
    held = table.data()
    told = [name for name in held if name not in ("record", "question_id", "question")]
    by_record: dict[str, list[Html]] = {}
    for row in range(len(table.rows)):
        lines = [visible(str(held["question"][row]))]
        lines += [f"{name}: {visible(str(held[name][row]))}" for name in told]
        item = join([lines[0], *(part for line in lines[1:] for part in (element("br"), line))])
        by_record.setdefault(str(held["record"][row]), []).append(item)
    lists = [
        folded(f"{visible(name)}: {counted(len(items), 'question')}", listed(items))
        for name, items in by_record.items()
    ]
    return element("div", plain(table.title, small=True), *lists, *notes)


def _findings(study: ABRagRecords) -> Iterator[str]:
    for record in study.records:
        static, ours = record.policies
        gain = record.gain
        told = "" if gain is None else f", {points(gain)} points over {static.name}"
        cut = f" ({static.beyond_record} questions were cut before)" if beyond(static) else ""
        yield (
            f"{visible(record.name)}, {counted(record.questions, 'question')}: EM "
            f"{percent(record.em[METHOD].estimate)}{told}{cut}, at {decimal(ours.mean_rounds)} rounds."
        )


# --- records side by side ------------------------------------------------------------------------
def _estimated(family: Family, value: Measured | None, hint: str) -> Estimated:
    figure = None if value is None else value.estimate
    low, high = (None, None) if value is None else (value.low, value.high)
    span = None if low is None or high is None else (100 * low, 100 * high)
    return Estimated(
        family=family,
        value=None if figure is None else 100 * figure,
        interval=span,
        hint=hint,
    )


def _static(study: ABRagRecords) -> Chart:
    heading = "Figure 7: exact match, static and adaptive"
    families: tuple[Family, Family] = ("fixed", "adaptive")
    rows = [
        ForestRow(
            name=record.name,
            estimates=[
                _estimated(
                    family,
                    record.em[policy.name],
                    f"{record.name}, {policy.name}: EM {percent(record.em[policy.name].estimate)}% "
                    f"{bracket(record.em[policy.name])}",
                )
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
    table = static_table(study)
    return _forest(heading, rows, (0.0, ""), "EM, %", join([keys, caption]), table)


def _groups(study: ABRagRecords) -> Chart | None:
    heading = "Figure 8: exact match at high and low confidence"
    rows = []
    for record in study.records:
        for group in record.study.selective:
            who = record.name if group.policy == METHOD else f"{record.name}, {group.policy}"
            parts: tuple[tuple[Family, str, Estimate, int], ...] = (
                ("adaptive", "above", group.above.em, group.above.questions),
                ("fixed", "below", group.below.em, group.below.questions),
            )
            estimates = [
                _estimated(family, em, f"{who}, {side}: EM {percent(em.estimate)}% of {number}")
                for family, side, em, number in parts
            ]
            rows.append(ForestRow(name=who, estimates=estimates))
    if not rows:
        return None
    keys = legend((("adaptive", "at or above the threshold"), ("fixed", "below it")))
    caption = "Confidence at the stop. The fewer answers on one side, the wider its interval."
    table = groups_table(study)
    return _forest(heading, rows, (0.0, ""), "EM, %", join([keys, caption]), table)


def _signals(study: ABRagRecords) -> Chart | None:
    heading = "Figure 10: single signals"
    rows = []
    for record in study.records:
        for worth in _first_forms(record.study.signals):
            auroc = worth.auroc
            known = auroc.low is not None and auroc.high is not None
            mark = Estimated(
                family="adaptive",
                value=auroc.estimate,
                interval=(auroc.low or 0.0, auroc.high or 0.0) if known else None,
                hint=f"{record.name}, {worth.form.signal}: AUROC {estimated(auroc)}",
            )
            rows.append(ForestRow(name=f"{worth.form.part} {record.name}", estimates=[mark]))
    if not rows:
        return None
    rows.sort(key=lambda row: row.name[:2])
    caption = (
        "AUROC of S1 (the model's certainty), S2 (evidence consistency) and S3 (variance of the reranker's "
        "scores), as published, in round 1 against exact match there. At 0.5 a signal says nothing."
    )
    return _forest(heading, rows, (0.5, "chance"), "AUROC", caption, signals_table(study))


def _first_forms(signals: Sequence[SignalWorth]) -> list[SignalWorth]:
    """One form of each part: the first of the study's list that the record holds."""
    first: dict[str, SignalWorth] = {}
    for worth in signals:
        first.setdefault(worth.form.part, worth)
    return [first[part] for part in _PUBLISHED if part in first]


def _forest(
    heading: str,
    rows: Sequence[ForestRow],
    none: tuple[float, str],
    x_name: str,
    caption: object,
    table: Table,
) -> Chart:
    picture = forest(
        Forest(
            title=heading,
            description=f"{counted(len(rows), 'row')}; the numbers are in the table below.",
            rows=rows,
            none=none,
            x_name=x_name,
        )
    )
    return Chart(heading=heading, pictures=[picture], caption=caption, table=table.html())


# --- thresholds ----------------------------------------------------------------------------------
def _thresholds(record: RecordStudy) -> Html:
    swept = record.study.swept
    heading = f"Figure 9: the threshold on {visible(record.name)}"
    if not swept:
        return Html()
    taus = [one.tau for one in swept]
    whole = [number for number, one in enumerate(swept) if not one.result.beyond_record]
    cut = [number for number, one in enumerate(swept) if one.result.beyond_record]
    if whole and cut:  # the dashed line begins where the other one ends
        cut = [max(n for n in whole if n < min(cut)), *cut] if min(whole) < min(cut) else cut
    threshold = record.study.comparison.result.policies[0].policy
    published = None if threshold is None else threshold.facts.threshold
    rounds = [one.result.mean_rounds for one in swept]
    em = [100 * one.estimate for one in record.swept_em]
    bands = [(100 * one.low, 100 * one.high) for one in record.swept_em]

    def drawn(values: Sequence[float], band: Sequence[tuple[float, float]] = ()) -> list[Line]:
        return [
            Line(
                colour=colour,
                at=[taus[n] for n in chosen],
                values=[values[n] for n in chosen],
                band=[band[n] for n in chosen] if band else (),
            )
            for colour, chosen in (("adaptive", whole), ("fixed", cut))
            if chosen
        ]

    table = thresholds_table(ABRagRecords(records=(record,)))
    keys = legend(
        [
            *([("adaptive", "as recorded")] if whole else []),
            *([("fixed", "records end too early")] if cut else []),
        ]
    )
    charts = [
        Chart(
            heading=title,
            pictures=[
                lines(
                    Lines(
                        title=title,
                        description="The numbers are in the table below.",
                        x_name="threshold",
                        y_name=y_name,
                        lines=drawn(values, band),
                        shares=False,
                        uprights=[] if published is None else [(published, "published")],
                    )
                )
            ],
            caption=join([keys, caption]),
            table=table.html(),
        )
        for title, y_name, values, band, caption in (
            ("Exact match by threshold", "EM, %", em, bands, "Band: 95% interval."),
            ("Rounds by threshold", "mean rounds", rounds, (), "A round reads five passages more."),
        )
    ]
    return element("section", element("h2", heading), stacked(charts))


# --- every number --------------------------------------------------------------------------------
def _numbers(study: ABRagRecords) -> Html:
    tables = [
        folded(f"{visible(record.name)}: {table.name}", table.html())
        for record in study.records
        for table in record.study.tables()
    ]
    notes = listed(map(visible, study.notes), small=True)
    return element("section", element("h2", "Every number"), *tables, notes, class_="more")
