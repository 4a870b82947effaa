"""``suffice search``: enumerate rules exhaustively."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from suffice.cli.options import (
    add_policy_out,
    add_traces,
    number,
    open_measures,
    positive,
    write_policy,
)
from suffice.cli.output import add_format, print_result, say, waiting
from suffice.cli.settings_options import add_settings, read_settings
from suffice.errors import UsageError
from suffice.replay.settings import SearchSettings

_CALLS = (None, "llm_calls", "calls", "rounds")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Evaluates every rule of a form over a few signals. Thresholds and order come from "
        "the tune split, figures from the eval split, with intervals that hold for all rules together. "
        "Every rule is one line that 'replay --stop-when' accepts."
    )
    add_traces(parser, sampled=True, measured=True)
    add_settings(parser, SearchSettings)
    parser.add_argument(
        "--max-calls", type=number, metavar="C", help="the cap of --max-cost, on model calls"
    )
    parser.add_argument(
        "--report-naive",
        action="store_true",
        help="also show the intervals that ignore how many rules were looked at",
    )
    parser.add_argument(
        "--top", type=positive, default=15, metavar="N", help="rules to print (default: 15)"
    )
    add_policy_out(parser, "the first rule")
    parser.add_argument(
        "--pick",
        type=positive,
        metavar="N",
        help="with --out: the rule listed as number N (default: 1)",
    )
    add_format(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Search and print."""
    from suffice.policies.fitting import fit_rule
    from suffice.replay.choose.search import search

    if arguments.pick is not None and arguments.out is None:
        raise UsageError("--pick chooses the rule that --out writes; give --out PATH")
    measures = open_measures(arguments, say)
    settings = _settings(arguments)
    with waiting("searching"):
        result = search(measures, settings)
    written: dict[str, Any] = {}
    if arguments.out is not None:
        rule = result.pick(arguments.pick or 1).rule
        policy = fit_rule(rule, measures, split=settings.tune_split, metric=settings.metric)
        policy = replace(policy, answer=settings.answer)
        written = write_policy(arguments.out, policy, measures.traces)
    print_result(
        arguments,
        result.tables(top=arguments.top, naive=arguments.report_naive),
        lambda: {**result.to_json(naive=arguments.report_naive), **written},
        [f"note: {note}" for note in result.notes],
    )
    return 0


def _settings(arguments: argparse.Namespace) -> SearchSettings:
    calls = arguments.max_calls
    if calls is not None and arguments.max_cost is not None:
        raise UsageError("give --max-calls or --max-cost, not both")
    if calls is not None and arguments.cost not in _CALLS:
        raise UsageError(f"--max-calls caps calls; for --cost {arguments.cost} give --max-cost")
    capped = {} if calls is None else {"max_cost": calls}
    return read_settings(arguments, SearchSettings, **capped)
