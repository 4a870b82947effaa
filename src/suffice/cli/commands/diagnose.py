"""``suffice diagnose``: what signals and confidences say about right and wrong answers."""

from __future__ import annotations

import argparse

from suffice.cli.options import add_traces, open_measures
from suffice.cli.output import add_format, print_result, say, waiting
from suffice.cli.settings_options import add_settings, read_settings
from suffice.replay.settings import DiagnosisSettings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Looks at every signal on the tune and the eval split: separation of right from "
        "wrong answers (Cohen's d, AUROC) with intervals and drift, collapse, correlation, constant "
        "and look-ahead values; at policies by question type and by their confidence; and, where both "
        "splits hold token margins, at which calibrator is better."
    )
    add_traces(parser, sampled=True, measured=True)
    add_settings(parser, DiagnosisSettings)
    add_format(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Diagnose and print."""
    from suffice.replay.diagnose.diagnosis import diagnosis

    settings = read_settings(arguments, DiagnosisSettings)
    measures = open_measures(arguments, say)
    with waiting("diagnosing"):
        result = diagnosis(measures, settings)
    print_result(arguments, result.tables(), result.to_json, result.notes)
    return 0
