"""Mean margins, raw and calibrated."""

from __future__ import annotations

import numpy as np

from suffice.evaluation.diagnose.signal_diagnostics import calibrated_margins
from suffice.measures.measures import Measures
from suffice.policies.fitting import fit_calibrator, fit_data, out_of_fold
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.trace_set import TraceSet

MARGIN = "answer_token_margin"


def recorded(n_questions: int = 24, *, splits: bool = True) -> TraceSet:
    """Answers that turn right in the second or third round, surer when they are."""
    rng = np.random.default_rng(11)
    made = []
    for number in range(n_questions):
        answers = ["Rome", "Rome" if number % 3 else "Oslo", "Oslo" if number % 2 else "Rome"]
        made.append(
            make_record(
                f"q{number:02d}",
                answers,
                gold=["Oslo"],
                margins=[float(rng.random()) + (answer == "Oslo") for answer in answers],
                split=("tune" if number % 2 else "eval") if splits else None,
            )
        )
    return to_trace_set(made)


def test_margins_are_calibrated_on_tune_and_there_out_of_fold() -> None:
    measures = Measures(recorded())
    found, why = calibrated_margins(measures, "tune")
    assert why is None
    data = fit_data(measures, (MARGIN,))
    tune = np.array([question.split == "tune" for question in measures.traces.questions])
    margins = measures.signals((MARGIN,)).signal(MARGIN)
    np.testing.assert_array_equal(found[tune], out_of_fold(data, MARGIN))
    np.testing.assert_array_equal(
        found[~tune], fit_calibrator(data, MARGIN).predict_rounds(margins[~tune])
    )
