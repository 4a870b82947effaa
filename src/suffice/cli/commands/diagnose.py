"""``suffice diagnose``: what signals and confidences say about right and wrong answers."""

from __future__ import annotations

from suffice.cli.options import Sampling, Traces
from suffice.cli.output import Form, print_result, waiting
from suffice.cli.parser import command
from suffice.replay.settings import DiagnosisSettings


@command()
def diagnose(traces: Traces, reading: Sampling, settings: DiagnosisSettings, form: Form) -> int:
    """Look at every signal on the tune and the eval split.

    Tells right from wrong answers (Cohen's d, AUROC) with intervals and drift, collapse, correlation,
    constant and look-ahead values; policies by question type and confidence; and, where both splits hold
    token margins, which calibrator is better.
    """
    from suffice.replay.diagnose.diagnosis import diagnosis

    measures = reading.drawn_measures(traces)
    with waiting("diagnosing"):
        result = diagnosis(measures, settings)
    print_result(form, result.tables(), result.to_json, result.notes)
    return 0
