"""``suffice sweep``: one number of a rule over a grid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from suffice.cli.options import PolicyOut, Sampling, Traces, tell_policy, write_policy
from suffice.cli.output import Form, print_result, waiting
from suffice.cli.parser import command
from suffice.replay.settings import SweepSettings


@command()
def sweep(
    traces: Traces,
    *,
    reading: Sampling,
    settings: SweepSettings,
    out: PolicyOut = None,
    form: Form,
) -> int:
    """Try a grid of numbers in place of the '?' in a rule.

    It is tried out of fold on tune, then on eval, with the knee of the curve and a five-fold
    cross-validation of the choice.
    """
    from suffice.policies.fitting import fit_rule
    from suffice.replay.choose import sweep as sweeping

    measures = reading.drawn_measures(traces)
    with waiting("sweeping"):
        result = sweeping.sweep(measures, settings)
    written: dict[str, Any] = {}
    if out is not None:
        policy = fit_rule(
            result.chosen_rule,
            measures,
            split=settings.tune_split,
            calibrator=settings.calibrator,
            metric=settings.metric,
        )
        policy = replace(policy, answer=settings.answer)
        place = write_policy(out, policy, measures.traces)
        written = tell_policy(place, policy, measures.traces)
    notes = [f"note: {note}" for note in result.notes]
    print_result(form, result.tables(), lambda: {**result.to_json(), **written}, notes)
    return 0
