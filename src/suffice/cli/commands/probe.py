"""``suffice probe``: ask for an answer in every round."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from suffice.cli.commands.record import show_summary
from suffice.cli.options import (
    Json,
    ModelOptions,
    Seed,
    ShardOption,
    SkipInvalid,
    Traces,
    TracesOut,
)
from suffice.cli.output import question_progress, say, waiting
from suffice.cli.parser import command
from suffice.loops.record.probe import ProbePlan, ProbeSettings, probe_agreement, probe_traces
from suffice.options import Option


@command()
def probe(
    traces: Traces,
    *,
    out: TracesOut,
    settings: ProbeSettings,
    shard: ShardOption = None,
    seed: Seed = 42,
    corpus: Annotated[
        str | None,
        Option(
            metavar="PATH", help="a folder or file with the texts of passages recorded by ids alone"
        ),
    ] = None,
    skip_invalid: SkipInvalid = False,
    model: ModelOptions,
    json: Json = False,
) -> int:
    """Ask a model for an answer in every round, from the evidence as recorded and by one prompt.

    Writes the record again with these answers, marked probed, and what they cost. The loop's own answers
    are kept in columns such as loop_answer; all other columns stay. Resumable: run the same command again
    and it goes on where it stopped.
    """
    settings = replace(settings, seed=seed)
    with waiting(f"probing {traces}"):
        summary = probe_traces(
            traces,
            out,
            model.connect,
            settings,
            corpus=corpus,
            skip_invalid=skip_invalid,
            shard=shard,
            on_plan=lambda plan: _tell(plan, missing_only=settings.missing_only),
            on_progress=question_progress("probed"),
        )
    more: dict[str, Any] = {}
    if not settings.missing_only and summary.recorded + summary.before:
        agreeing, compared = probe_agreement(out)
        more["agreement"] = {"rounds": compared, "agreeing": agreeing}
        if compared:
            say(
                f"the model gives the loop's own answer in {agreeing:,} of {compared:,} rounds that have one"
            )
    return show_summary(summary, out, json=json, done="probed", **more)


def _tell(plan: ProbePlan, *, missing_only: bool) -> None:
    """Say, before it starts, what will be asked, from what, and what is left out."""
    for why, questions in plan.left_out.items():
        say(f"{questions:,} questions are left out, since they {why}")
    if plan.asked:
        say(
            f"{plan.calls:,} model calls: {plan.asked:,} of {plan.rounds:,} rounds of {plan.questions:,} "
            "questions"
        )
    if plan.own and missing_only:
        say(
            f"two prompts mix in this record: {plan.own:,} answers are the loop's, {plan.asked:,} will be "
            "this prompt's; without --missing-only all rounds are asked by one prompt"
        )
    elif plan.own:
        say(
            f"{plan.own:,} of these rounds have an answer by the loop's own prompt, kept in loop_answer "
            "(to ask only where none is: --missing-only)"
        )
    if plan.blind:
        say(
            f"up to {plan.blind:,} of these rounds nothing was found, so they are asked from the question "
            "alone"
        )
