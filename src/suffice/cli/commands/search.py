"""``suffice search``: enumerate rules exhaustively."""

from __future__ import annotations

import argparse

from suffice.cli.options import (
    add_costs,
    add_resampling,
    add_splits,
    add_traces,
    cost_model,
    names,
    number,
    open_traces,
    positive,
)
from suffice.cli.output import add_format, print_result, say
from suffice.errors import UsageError
from suffice.replay.choose.formulas import FORMS
from suffice.replay.choose.rule_scorer import OBJECTIVES
from suffice.replay.choose.search import SearchSettings, search

_CALLS = (None, "llm_calls", "calls", "rounds")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Evaluates every rule of a form over a few signals. Thresholds and order come from "
        "the tune split, figures from the eval split, with intervals that hold for all rules together. "
        "Every rule is one line that 'replay --stop-when' accepts."
    )
    add_traces(parser)
    parser.add_argument(
        "--signals",
        required=True,
        type=names,
        metavar="A,B,...",
        help="which signals, each used at most once in a rule; calibrated(NAME) is allowed",
    )
    parser.add_argument(
        "--form",
        choices=tuple(FORMS),
        default="or",
        help="or, and: of every subset; vote: k of every subset; dnf: OR of ANDs (default: or)",
    )
    add_splits(parser)
    parser.add_argument(
        "--threshold-grid",
        type=_grid,
        default=40,
        metavar="N|quantiles",
        help="N evenly spaced thresholds a signal, or quantiles of its tune values (default: 40)",
    )
    _add_choice(parser)
    parser.add_argument(
        "--report-naive",
        action="store_true",
        help="also show the intervals that ignore how many rules were looked at",
    )
    parser.add_argument(
        "--top", type=positive, default=15, metavar="N", help="rules to print (default: 15)"
    )
    parser.add_argument(
        "--baseline",
        metavar="P",
        help="what differences are taken against: fixed-K, a method or a policy file (default: fixed-3)",
    )
    add_costs(parser)
    add_resampling(parser)
    add_format(parser)
    parser.set_defaults(run=run)


def _add_choice(parser: argparse.ArgumentParser) -> None:
    """What thresholds and rules are chosen by."""
    parser.add_argument(
        "--max-calls",
        type=number,
        metavar="C",
        help="cap on the mean model calls a question on tune: thresholds above it are not taken, rules "
        "above it are listed last",
    )
    parser.add_argument(
        "--max-cost", type=number, metavar="C", help="the same cap on the cost that --cost names"
    )
    parser.add_argument(
        "--objective",
        choices=OBJECTIVES,
        default="f1",
        help="what thresholds and order are chosen by on tune (default: f1); gain-at-cost: F1 over "
        "the fixed-k frontier at equal cost",
    )


def _grid(text: str) -> int | None:
    return None if text == "quantiles" else positive(text)


def run(arguments: argparse.Namespace) -> int:
    """Search and print."""
    result = search(open_traces(arguments, say), search_settings(arguments))
    print_result(
        arguments,
        result.tables(top=arguments.top, naive=arguments.report_naive),
        lambda: result.to_json(naive=arguments.report_naive),
        [f"note: {note}" for note in result.notes],
    )
    return 0


def search_settings(arguments: argparse.Namespace) -> SearchSettings:
    """What the options ask for."""
    if arguments.max_calls is not None and arguments.max_cost is not None:
        raise UsageError("give --max-calls or --max-cost, not both")
    if arguments.max_calls is not None and arguments.cost not in _CALLS:
        raise UsageError(f"--max-calls caps calls; for --cost {arguments.cost} give --max-cost")
    return SearchSettings(
        signals=arguments.signals,
        form=arguments.form,
        tune_split=arguments.tune_split,
        eval_split=arguments.eval_split,
        grid=arguments.threshold_grid,
        max_cost=arguments.max_cost if arguments.max_calls is None else arguments.max_calls,
        objective=arguments.objective,
        cost=arguments.cost,
        cost_model=cost_model(arguments),
        baseline=arguments.baseline,
        f1_kind=arguments.f1,
        resamples=arguments.bootstrap,
        seed=arguments.seed,
    )
