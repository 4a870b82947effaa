"""``suffice sweep``: one number of a rule over a grid."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from suffice.cli.options import add_policy_out, add_traces, open_measures, write_policy
from suffice.cli.output import add_format, print_result, say, waiting
from suffice.cli.settings_options import add_settings, read_settings
from suffice.replay.settings import SweepSettings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Tries a grid of numbers in place of the '?' in a rule: out of fold on tune, then on "
        "eval, with the knee of the curve and a five-fold cross-validation of the choice."
    )
    add_traces(parser, sampled=True, measured=True)
    add_settings(parser, SweepSettings)
    add_policy_out(parser, "the rule with the number chosen")
    add_format(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Sweep and print."""
    from suffice.policies.fitting import fit_rule
    from suffice.replay.choose.sweep import sweep

    measures = open_measures(arguments, say)
    settings = read_settings(arguments, SweepSettings)
    with waiting("sweeping"):
        result = sweep(measures, settings)
    written: dict[str, Any] = {}
    if arguments.out is not None:
        policy = fit_rule(
            result.chosen_rule,
            measures,
            split=settings.tune_split,
            calibrator=settings.calibrator,
            metric=settings.metric,
        )
        policy = replace(policy, answer=settings.answer)
        written = write_policy(arguments.out, policy, measures.traces)
    notes = [f"note: {note}" for note in result.notes]
    print_result(arguments, result.tables(), lambda: {**result.to_json(), **written}, notes)
    return 0
