"""``suffice sweep``: one number of a rule over a grid."""

from __future__ import annotations

from typing import Any

from suffice.cli.commands.search import written_rule
from suffice.cli.options import PolicyOut, Sampling, Traces
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
    from suffice.replay.choose import sweep as sweeping

    measures = reading.drawn_measures(traces)
    with waiting("sweeping"):
        result = sweeping.sweep(measures, settings)
    written: dict[str, Any] = {}
    if out is not None:
        fit = {"calibrator": settings.calibrator}
        written = written_rule(out, result.chosen_rule, measures, settings, **fit)
    notes = [f"note: {note}" for note in result.notes]
    print_result(form, result.tables(), lambda: {**result.to_json(), **written}, notes)
    return 0
