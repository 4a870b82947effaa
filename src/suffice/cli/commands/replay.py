"""``suffice replay``: score policies on recorded rounds."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from suffice.cli.options import (
    add_policy_out,
    add_replay,
    add_traces,
    comparison_settings,
    open_measures,
    open_more,
    sampled,
    write_policy,
)
from suffice.cli.output import add_format, fit_progress, print_result, say, waiting
from suffice.errors import UsageError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Scores policies on recorded rounds: what each would have cost and scored, with "
        "paired intervals."
    )
    add_traces(parser, sampled=True, measured=True)
    add_replay(parser)
    parser.add_argument(
        "--macro",
        action="append",
        default=[],
        metavar="TRACES2",
        help="replay these traces too and average over the sets, each counting the same; questions "
        "that stand in several sets are resampled together; may be given several times",
    )
    parser.add_argument(
        "--per-question", action="store_true", help="with --json: the stop round of every question"
    )
    parser.add_argument(
        "--write-signals",
        metavar="TRACES2",
        help="also write the traces with the values q_stop and q_cont of the one stop-rag policy replayed",
    )
    add_policy_out(parser, "the rule of the one --stop-when")
    add_format(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Replay and print."""
    from suffice.policies.method import FitRun
    from suffice.replay.run.compare import compare, with_q_values
    from suffice.replay.run.macro import macro_means
    from suffice.trace.rounds.writer import write_trace_set

    settings = comparison_settings(arguments)
    if arguments.out is not None and len(settings.rules) != 1:
        raise UsageError(
            f"--out writes the rule of one --stop-when, found {len(settings.rules)}; a method is fitted and "
            "written by: suffice fit METHOD TRACES --out policy.json"
        )
    measures = open_measures(arguments, say)
    traces = measures.traces
    watched = FitRun(progress=fit_progress())
    with waiting("replaying"):
        comparison = compare(measures, settings, run=watched)
    if arguments.write_signals is not None:
        written = write_trace_set(with_q_values(measures, comparison), arguments.write_signals)
        say(f"wrote {written}")
    kept: dict[str, Any] = {}
    if arguments.out is not None:
        (rule,) = settings.rules
        replayed = {policy.name: policy.policy for policy in comparison.result.policies}
        policy = replayed.get(rule)
        if policy is None:
            raise UsageError(f"{rule!r} cannot run here: {comparison.result.left_out.get(rule)}")
        kept = write_policy(arguments.out, policy, traces)
    more = (sampled(open_more(path, arguments, say), arguments, say) for path in arguments.macro)
    with waiting("replaying"):
        others = [compare(traces, settings, run=watched) for traces in more]
        macro = macro_means([comparison, *others]) if others else None
    comparisons = [comparison, *others]
    tables = [
        table
        if macro is None or number
        else replace(table, title="\n".join([entry.result.source, *entry.result.banners]))
        for entry in comparisons
        for number, table in enumerate(entry.tables())
    ]
    tables += () if macro is None else macro.tables()

    def document() -> Any:
        replayed = comparison.result.to_json(per_question=arguments.per_question)
        return {**replayed, **({} if macro is None else {"macro": macro.to_json()}), **kept}

    notes = (*comparison.result.banners, *comparison.result.notes)
    print_result(arguments, tables, document, notes)
    return 0
