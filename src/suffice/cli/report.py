"""``suffice report``: one self-contained HTML file."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from suffice.cli.options import add_json, add_replay, add_traces, comparison_settings, open_traces
from suffice.cli.output import print_json, say
from suffice.policies.fitting import FIT_SPLIT
from suffice.replay.compare import Comparison, compare
from suffice.replay.story import report_data
from suffice.report.html import render_report
from suffice.trace.atomic import replace_file
from suffice.trace.table import TraceSet

__all__ = ["add_command", "usual_policies", "write_report"]


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "report",
        help="compare policies in one HTML file",
        description="Writes one self-contained HTML file: scores against calls, stop rounds, "
        "reliability, cost, and every question with where each policy stops and why. Without "
        "--policy it shows every fixed-K, the oracles and, where the trace allows, TASR.",
    )
    add_traces(parser)
    add_replay(parser)
    parser.add_argument("--out", required=True, metavar="FILE.html", help="where to write it")
    add_json(parser)
    parser.set_defaults(run=run)


def usual_policies(traces: TraceSet, fit_on: TraceSet | None = None) -> tuple[str, ...]:
    """Every fixed-K, the oracles, and TASR where it can be fitted (on ``fit_on``) and computed."""
    fixed = tuple(f"fixed-{k}" for k in range(1, traces.n_rounds + 1))
    fitting = traces if fit_on is None else fit_on
    fittable = (
        FIT_SPLIT in fitting.splits
        and any(gold.answers for gold in fitting.only_split(FIT_SPLIT).gold)
        and all(
            each.has("tokens") or "answer_token_margin" in each.signal_names
            for each in (fitting, traces)
        )
    )
    tasr = ("tasr", "tasr-corrected") if fittable else ()
    return (*fixed, *tasr, "oracle-em", "oracle-f1")


def run(arguments: argparse.Namespace) -> int:
    """Replay and write the file."""
    traces = open_traces(arguments, say)
    settings = comparison_settings(arguments)
    if not settings.policies and not settings.rules:
        settings = replace(settings, policies=usual_policies(traces, settings.fit_on))
    comparison = compare(traces, settings)
    size = write_report(comparison, Path(arguments.out))
    if arguments.json:
        print_json({"out": arguments.out, "bytes": size, "questions": comparison.result.questions})
    else:
        print(f"wrote {arguments.out} ({size / 1e6:.1f} MB)")
    return 0


def write_report(comparison: Comparison, out: Path) -> int:
    """Write the comparison's report; its size in bytes."""
    text = render_report(report_data(comparison.traces, comparison.result))
    content = text.encode()
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, content)
    return len(content)
