"""``suffice sweep``: one number of a rule over a grid."""

from __future__ import annotations

import argparse

from suffice.cli.options import (
    add_calibrator,
    add_json,
    add_resampling,
    add_splits,
    add_traces,
    grid,
    open_traces,
)
from suffice.cli.output import print_json, say
from suffice.policies.thresholds import TEMPLATE
from suffice.replay.choose.sweep import SweepSettings, sweep
from suffice.report.tables.sweep import sweep_table


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Tries a grid of numbers in place of the '?' in a rule: out of fold on tune, then on "
        "eval, with the knee of the curve and a five-fold cross-validation of the choice."
    )
    add_traces(parser)
    parser.add_argument(
        "--rule",
        default=TEMPLATE,
        metavar="RULE",
        help=f"a rule with one '?' (default: {TEMPLATE})",
    )
    parser.add_argument(
        "--grid",
        type=grid,
        metavar="LOW:HIGH:STEP|A,B,...",
        help="thresholds; write --grid=-1:1:0.5 where the first is negative (default: 0.20:0.35:0.01 for "
        "a calibrated value, else quantiles on tune)",
    )
    add_splits(parser)
    add_calibrator(parser)
    add_resampling(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Sweep and print."""
    settings = SweepSettings(
        rule=arguments.rule,
        thresholds=arguments.grid,
        tune_split=arguments.tune_split,
        eval_split=arguments.eval_split,
        calibrator=arguments.calibrator,
        f1_kind=arguments.f1,
        resamples=arguments.bootstrap,
        seed=arguments.seed,
    )
    result = sweep(open_traces(arguments, say), settings)
    if arguments.json:
        print_json(result.to_json())
        for note in result.notes:
            say(f"note: {note}")
    else:
        print(sweep_table(result))
    return 0
