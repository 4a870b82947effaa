"""``suffice diagnose``: what signals and confidences say about right and wrong answers."""

from __future__ import annotations

import argparse

from suffice.cli.options import (
    add_json,
    add_resampling,
    add_splits,
    add_traces,
    number,
    open_traces,
)
from suffice.cli.output import print_json, say
from suffice.replay.diagnose.diagnosis import DiagnosisSettings, diagnosis
from suffice.replay.diagnose.signal_diagnostics import DiagnosticsSettings
from suffice.report.tables.diagnosis import diagnosis_tables


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Looks at every signal on the tune and the eval split: separation of right from "
        "wrong answers (Cohen's d, AUROC) with intervals and drift, collapse, correlation, constant "
        "and look-ahead values; at policies by question type and by their confidence; and, where both "
        "splits hold token margins, at which calibrator is better."
    )
    add_traces(parser)
    parser.add_argument(
        "--signals", metavar="A,B", help="only these signals (default: every one that has a value)"
    )
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        metavar="P",
        help="a policy to break down by type and confidence, as for replay (default: every fixed-K); "
        "may be given several times",
    )
    parser.add_argument(
        "--stop-when",
        action="append",
        default=[],
        metavar="RULE",
        help="a rule's text; may be given several times",
    )
    parser.add_argument(
        "--confidence",
        metavar="SIGNAL",
        help="the signal at the stop that is a policy's confidence (default: the policy's own, the "
        "smallest of its calibrated values)",
    )
    parser.add_argument(
        "--threshold",
        type=number,
        metavar="X",
        help="where the confidence is split into above and below (default: its median)",
    )
    add_splits(parser)
    add_resampling(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Diagnose and print."""
    found = diagnosis(open_traces(arguments, say), _settings(arguments))
    if arguments.json:
        print_json(found.to_json())
        for note in found.notes:
            say(note)
    else:
        print(diagnosis_tables(found))
    return 0


def _settings(arguments: argparse.Namespace) -> DiagnosisSettings:
    signals = None
    if arguments.signals is not None:
        signals = tuple(part for name in arguments.signals.split(",") if (part := name.strip()))
    return DiagnosisSettings(
        signals=DiagnosticsSettings(
            signals=signals,
            tune_split=arguments.tune_split,
            eval_split=arguments.eval_split,
            resamples=arguments.bootstrap,
            seed=arguments.seed,
        ),
        policies=tuple(arguments.policy),
        rules=tuple(arguments.stop_when),
        confidence=arguments.confidence,
        threshold=arguments.threshold,
        f1_kind=arguments.f1,
    )
