"""``suffice diagnose``: what signals and confidences say about right and wrong answers."""

from __future__ import annotations

import argparse
from typing import Any

from suffice.cli.options import add_json, add_traces, natural, open_traces, positive
from suffice.cli.output import print_json, say
from suffice.policies.fitting import FIT_SPLIT
from suffice.replay.diagnosis import DiagnosisSettings, diagnosis
from suffice.replay.diagnostics import EVAL_SPLIT, DiagnosticsSettings
from suffice.report.diagnostics_table import diagnosis_tables
from suffice.scoring import F1_KINDS

__all__ = ["add_command"]


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "diagnose",
        help="what signals say about right and wrong answers",
        description="Looks at every signal on the tune and the eval split: separation of right from "
        "wrong answers (Cohen's d, AUROC) with intervals and drift, collapse, correlation, constant "
        "and look-ahead values; at policies by question type and by their confidence; and, where both "
        "splits hold token margins, at which calibrator is better.",
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
        type=float,
        metavar="X",
        help="where the confidence is split into above and below (default: its median)",
    )
    parser.add_argument("--tune-split", default=FIT_SPLIT, metavar="S", help="default: tune")
    parser.add_argument("--eval-split", default=EVAL_SPLIT, metavar="S", help="default: eval")
    parser.add_argument(
        "--bootstrap", type=positive, default=1000, metavar="N", help="resamples (default: 1000)"
    )
    parser.add_argument("--seed", type=natural, default=42, help="of the resampling (default: 42)")
    parser.add_argument(
        "--f1", choices=F1_KINDS, default="hotpotqa", help="which F1 (default: hotpotqa)"
    )
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
