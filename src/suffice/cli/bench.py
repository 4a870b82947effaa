"""``suffice bench``: the published experiments."""

from __future__ import annotations

import argparse
from typing import Any

from suffice.bench.ab_rag import SWEPT, StudySettings, ab_rag_study
from suffice.bench.ab_rag_table import ab_rag_tables
from suffice.cli.options import (
    add_json,
    add_replay,
    add_traces,
    comparison_settings,
    grid,
    open_traces,
)
from suffice.cli.output import print_json, say

__all__ = ["add_command"]


def add_command(commands: Any) -> None:
    """Declare the command and its experiments."""
    parser = commands.add_parser(
        "bench",
        help="the published experiments",
        description="Runs a published experiment on your own data, model or record.",
    )
    experiments = parser.add_subparsers(dest="experiment", metavar="NAME", required=True)
    _add_ab_rag(experiments)


def _add_ab_rag(experiments: Any) -> None:
    parser = experiments.add_parser(
        "ab-rag",
        help="AB-RAG on a record: static against adaptive, its confidence, thresholds, signals",
        description="Evaluates AB-RAG on a record that holds its signals: static against adaptive "
        "retrieval with costs, what its confidence is worth (AUROC, answers above and below the "
        "threshold), other thresholds, and every single signal with its alternative forms.",
    )
    add_traces(parser)
    parser.add_argument(
        "--grid",
        type=grid,
        default=SWEPT,
        metavar="LOW:HIGH:STEP|A,B,...",
        help="thresholds swept (default: 0.3:0.8:0.05)",
    )
    add_replay(parser)
    add_json(parser)
    parser.set_defaults(run=_run_ab_rag)


def _run_ab_rag(arguments: argparse.Namespace) -> int:
    study = ab_rag_study(
        open_traces(arguments, say),
        StudySettings(comparison=comparison_settings(arguments), taus=arguments.grid),
    )
    if arguments.json:
        print_json(study.to_json())
        for note in study.comparison.result.notes:
            say(note)
    else:
        print(ab_rag_tables(study))
    return 0
