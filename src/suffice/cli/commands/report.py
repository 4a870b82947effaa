"""``suffice report``: one self-contained HTML file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from suffice.cli.options import Compared, Json, Sampling, Traces, out_path
from suffice.cli.output import fit_progress, print_json, put, say, waiting
from suffice.cli.parser import command
from suffice.errors import UsageError, unknown_name
from suffice.options import Option, read_names
from suffice.policies.method import FitRun
from suffice.replay.diagnose.report_data import (
    PARTS,
    PartsSettings,
    ReportParts,
    report_data,
    report_parts,
)
from suffice.replay.run.compare import Comparison, compare
from suffice.replay.run.macro import cells as side_by_side
from suffice.replay.settings import FORMS, SearchSettings
from suffice.report.report import render_report
from suffice.trace.durable import replace_file


def _parts(text: str) -> tuple[str, ...]:
    wanted = () if text == "none" else read_names(text)
    for part in wanted:
        if part not in PARTS:
            raise UsageError(unknown_name("part", part, (*PARTS, "none")))
    return wanted


@command()
def report(
    traces: Traces,
    *,
    reading: Sampling,
    compared: Compared,
    macro: Annotated[
        tuple[str, ...],
        Option(
            metavar="TRACES2",
            repeats=True,
            several=True,
            help="show these records beside the first, each counting the same",
        ),
    ] = (),
    parts: Annotated[
        tuple[str, ...],
        Option(
            metavar="A,B,...",
            parse=_parts,
            help=f"which parts beside the comparison: {', '.join(PARTS)}, or none (default: all that the "
            "trace allows)",
        ),
    ] = PARTS,
    search: Annotated[
        tuple[str, ...] | None,
        Option(metavar="A,B,...", help="search rules over these signals, as suffice search does"),
    ] = None,
    form: Annotated[str, Option(choices=FORMS, help="of the rules searched")] = "or",
    report_naive: Annotated[
        bool, Option(help="also show intervals that ignore the search")
    ] = False,
    confidence: Annotated[
        str | None,
        Option(
            metavar="SIGNAL", help="the signal that is a policy's confidence (default: its own)"
        ),
    ] = None,
    out: Annotated[
        str, Option(metavar="FILE.html", parse=out_path(".html", ".htm"), help="where to write it")
    ],
    json: Json = False,
) -> int:
    """Write one self-contained HTML file.

    It shows scores against calls, stop rounds, reliability, cost, signals, calibrators, thresholds,
    selective prediction, guarantees, and every question with where each policy stops and why. What a trace
    does not allow is left out, and the report says why. Without --policy it shows fixed budgets, the
    oracles and, where the trace allows, TASR.
    """
    measures = reading.drawn_measures(traces)
    settings = compared.read(reading)
    measures = measures.by(settings.metric)
    searched = None
    if search is not None:
        searched = SearchSettings(
            signals=search,
            form=form,
            cost=settings.cost,
            cost_model=settings.cost_model,
            baseline=settings.baseline,
        )
    wanted = PartsSettings(parts=parts, search=searched, naive=report_naive, confidence=confidence)
    with waiting("replaying"):
        comparison = compare(measures, settings, run=FitRun(progress=fit_progress()))
    more: dict[str, Any] = {}
    with waiting("computing the report"):
        shown = report_parts(measures, comparison, wanted)
        others = [compare(reading.drawn(path), settings) for path in macro]
        if others:
            cells = side_by_side([comparison, *others])
            shown = replace(shown, contents={**shown.contents, "cells": cells})
            more = {"macro": cells.macro.to_json(), "cells": cells.to_json()}
        size = write_report(comparison, Path(out), shown)
    if search and "search" in shown.left_out:
        say(f"no search: {shown.left_out['search']}")
    if json:
        result = comparison.result
        head = {"out": out, "bytes": size, "questions": result.questions}
        print_json({**head, "replay": result.to_json(), "parts": shown.to_json(), **more})
    else:
        put(f"wrote {out} ({size / 1e6:.1f} MB)")
    return 0


def write_report(comparison: Comparison, out: Path, parts: ReportParts | None = None) -> int:
    """Write the comparison's report with these parts; its size in bytes."""
    content = render_report(report_data(comparison.measures, comparison.result, parts)).encode()
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, content)
    return len(content)
