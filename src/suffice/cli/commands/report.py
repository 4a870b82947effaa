"""``suffice report``: one self-contained HTML file."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from suffice.cli.options import (
    add_json,
    add_replay,
    add_traces,
    comparison_settings,
    names,
    open_measures,
    open_more,
    out_path,
    sampled,
)
from suffice.cli.output import fit_progress, print_json, put, say, waiting
from suffice.errors import unknown_name
from suffice.policies.method import FitRun
from suffice.replay.diagnose.question_histories import report_data
from suffice.replay.diagnose.report_parts import PARTS, PartsSettings, ReportParts, report_parts
from suffice.replay.run.compare import Comparison, compare
from suffice.replay.run.macro import cells as side_by_side
from suffice.replay.settings import FORMS, ComparisonSettings, SearchSettings
from suffice.report.page.report import render_report
from suffice.trace.durable import replace_file


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Writes one self-contained HTML file: scores against calls, stop rounds, "
        "reliability, cost, signals, calibrators, thresholds, selective prediction, guarantees, and "
        "every question with where each policy stops and why. What a trace does not allow is left out, "
        "and the report says why. Without --policy it shows fixed budgets, the oracles and, where the "
        "trace allows, TASR."
    )
    add_traces(parser, sampled=True, measured=True)
    add_replay(parser)
    parser.add_argument(
        "--macro",
        action="extend",
        nargs="+",
        default=[],
        metavar="TRACES2",
        help="show these records beside the first: scores at equal cost of each and over all, each counting "
        "the same, and margins and ratings of right answers and of wrong ones",
    )
    _add_parts(parser)
    parser.add_argument(
        "--out",
        required=True,
        type=out_path(".html", ".htm"),
        metavar="FILE.html",
        help="where to write it",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def _add_parts(parser: argparse.ArgumentParser) -> None:
    """What the report holds beside the comparison."""
    group = parser.add_argument_group("parts")
    group.add_argument(
        "--parts",
        type=_parts,
        default=PARTS,
        metavar="A,B,...",
        help=f"which parts beside the comparison: {', '.join(PARTS)}, or none (default: all that the "
        "trace allows)",
    )
    group.add_argument(
        "--search",
        type=names,
        metavar="A,B,...",
        help="search rules over these signals, as suffice search does",
    )
    group.add_argument(
        "--form", choices=FORMS, default="or", help="of the rules searched (default: or)"
    )
    group.add_argument(
        "--report-naive",
        action="store_true",
        help="also show the intervals that ignore how many rules were looked at",
    )
    group.add_argument(
        "--confidence",
        metavar="SIGNAL",
        help="the signal at the stop that is a policy's confidence (default: the policy's own)",
    )


def _parts(text: str) -> tuple[str, ...]:
    wanted = () if text == "none" else names(text)
    unknown = [part for part in wanted if part not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(unknown_name("part", unknown[0], (*PARTS, "none")))
    return wanted


def run(arguments: argparse.Namespace) -> int:
    """Replay, compute the parts and write the file."""
    measures = open_measures(arguments, say)
    settings = comparison_settings(arguments)
    measures = measures.by(settings.metric)
    with waiting("replaying"):
        comparison = compare(measures, settings, run=FitRun(progress=fit_progress()))
    with waiting("computing the report"):
        parts = report_parts(measures, comparison, _parts_settings(arguments, settings))
        others = [
            compare(sampled(open_more(path, arguments, say), arguments, say), settings)
            for path in arguments.macro
        ]
        cells = side_by_side([comparison, *others]) if others else None
        if cells is not None:
            parts = replace(parts, contents={**parts.contents, "cells": cells})
        size = write_report(comparison, Path(arguments.out), parts)
    if arguments.search and "search" in parts.left_out:
        say(f"no search: {parts.left_out['search']}")
    if arguments.json:
        result = comparison.result
        print_json(
            {
                "out": arguments.out,
                "bytes": size,
                "questions": result.questions,
                "replay": result.to_json(),
                "parts": parts.to_json(),
                **(
                    {}
                    if cells is None
                    else {"macro": cells.macro.to_json(), "cells": cells.to_json()}
                ),
            }
        )
    else:
        put(f"wrote {arguments.out} ({size / 1e6:.1f} MB)")
    return 0


def _parts_settings(arguments: argparse.Namespace, settings: ComparisonSettings) -> PartsSettings:
    wanted = None
    if arguments.search is not None:
        wanted = SearchSettings(
            signals=arguments.search,
            form=arguments.form or "or",
            cost=settings.cost,
            cost_model=settings.cost_model,
            baseline=settings.baseline,
        )
    return PartsSettings(
        parts=arguments.parts,
        search=wanted,
        naive=arguments.report_naive,
        confidence=arguments.confidence,
    )


def write_report(comparison: Comparison, out: Path, parts: ReportParts | None = None) -> int:
    """Write the comparison's report with these parts; its size in bytes."""
    text = render_report(report_data(comparison.measures, comparison.result, parts))
    content = text.encode()
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, content)
    return len(content)
