"""``suffice replay``: score policies on recorded rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from suffice.cli.options import (
    Compared,
    MoreTraces,
    PolicyOut,
    Sampling,
    Traces,
    tell_policy,
    write_policy,
)
from suffice.cli.output import Form, fit_progress, print_result, say, waiting
from suffice.cli.parser import command
from suffice.errors import UsageError
from suffice.options import Option


@command()
def replay(
    traces: Traces,
    *,
    reading: Sampling,
    compared: Compared,
    macro: MoreTraces = (),
    per_question: Annotated[
        bool, Option(help="with --json: the stop round of every question")
    ] = False,
    write_signals: Annotated[
        str | None,
        Option(
            metavar="TRACES2",
            help="also write the traces with q_stop and q_cont of the stop-rag policy",
        ),
    ] = None,
    out: PolicyOut = None,
    form: Form,
) -> int:
    """Score policies on recorded rounds: what each would have cost and scored, with paired intervals."""
    from suffice.policies.method import FitRun
    from suffice.replay.run.compare import compare, with_q_values
    from suffice.replay.run.macro import macro_means
    from suffice.trace.rounds.writer import write_trace_set

    settings = compared.read(reading)
    if out is not None and len(settings.rules) != 1:
        raise UsageError(
            f"--out writes the rule of one --stop-when, found {len(settings.rules)}; a method is fitted and "
            "written by: suffice fit METHOD TRACES --out policy.json"
        )
    measures = reading.drawn_measures(traces)
    watched = FitRun(progress=fit_progress())
    with waiting("replaying"):
        comparison = compare(measures, settings, run=watched)
    result = comparison.result
    if write_signals is not None:
        say(f"wrote {write_trace_set(with_q_values(measures, comparison), write_signals)}")
    kept: dict[str, Any] = {}
    if out is not None:
        (rule,) = settings.rules
        policy = {policy.name: policy.policy for policy in result.policies}.get(rule)
        if policy is None:
            raise UsageError(f"{rule!r} cannot run here: {result.left_out.get(rule)}")
        place = write_policy(out, policy, measures.traces)
        kept = tell_policy(place, policy, measures.traces)
    more = map(reading.drawn, macro)
    with waiting("replaying"):
        others = [compare(traces, settings, run=watched) for traces in more]
    mean = macro_means([comparison, *others]) if others else None
    tables = list(comparison.tables())
    if mean is not None:
        entries = [comparison, *others]
        titles = ["\n".join([entry.result.source, *entry.result.banners]) for entry in entries]
        tables = [
            table if number else replace(table, title=title)
            for entry, title in zip(entries, titles, strict=True)
            for number, table in enumerate(entry.tables())
        ]
        tables += mean.tables()

    def document() -> Any:
        means = {} if mean is None else {"macro": mean.to_json()}
        return {**result.to_json(per_question=per_question), **means, **kept}

    print_result(form, tables, document, (*result.banners, *result.notes))
    return 0
