"""``suffice search``: enumerate rules exhaustively."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from suffice.cli.options import PolicyOut, Sampling, Traces, tell_policy, write_policy
from suffice.cli.output import Form, print_result, waiting
from suffice.cli.parser import command
from suffice.errors import UsageError
from suffice.options import Option
from suffice.replay.settings import SearchSettings, TunedSettings

if TYPE_CHECKING:
    from suffice.measures.measures import Measures

_CALLS = (None, "llm_calls", "calls", "rounds")


@command()
def search(
    traces: Traces,
    *,
    reading: Sampling,
    settings: SearchSettings,
    max_calls: Annotated[
        float | None, Option(metavar="C", help="the cap of --max-cost, on model calls")
    ] = None,
    report_naive: Annotated[
        bool, Option(help="also show intervals that ignore the search")
    ] = False,
    top: Annotated[int, Option(metavar="N", at_least=1, help="rules to print")] = 15,
    out: PolicyOut = None,
    pick: Annotated[
        int | None,
        Option(
            metavar="N", at_least=1, help="with --out: the rule listed as number N (default: 1)"
        ),
    ] = None,
    form: Form,
) -> int:
    """Evaluate every rule of a form over a few signals.

    Thresholds and order come from the tune split, figures from the eval split, with intervals that hold for
    all rules together. Every rule is one line that 'replay --stop-when' accepts.
    """
    from suffice.replay.choose import search as searching

    if pick is not None and out is None:
        raise UsageError("--pick chooses the rule that --out writes; give --out PATH")
    if max_calls is not None:
        if settings.max_cost is not None:
            raise UsageError("give --max-calls or --max-cost, not both")
        if settings.cost not in _CALLS:
            raise UsageError(f"--max-calls caps calls; for --cost {settings.cost} give --max-cost")
        settings = replace(settings, max_cost=max_calls)
    measures = reading.drawn_measures(traces)
    with waiting("searching"):
        result = searching.search(measures, settings)
    written: dict[str, Any] = {}
    if out is not None:
        written = written_rule(out, result.pick(pick or 1).rule, measures, settings)
    print_result(
        form,
        result.tables(top=top, naive=report_naive),
        lambda: {**result.to_json(naive=report_naive), **written},
        [f"note: {note}" for note in result.notes],
    )
    return 0


def written_rule(
    out: str, rule: str, measures: Measures, settings: TunedSettings, **fit: Any
) -> dict[str, Any]:
    """Write a rule that was chosen as a policy, fitted where it was chosen; what ``--json`` says of it."""
    from suffice.policies.fitting import fit_rule

    policy = fit_rule(rule, measures, split=settings.tune_split, metric=settings.metric, **fit)
    policy = replace(policy, answer=settings.answer)
    place = write_policy(out, policy, measures.traces)
    return tell_policy(place, policy, measures.traces)
