"""What a reader must know of policies fitted on other traces than they are replayed on."""

from __future__ import annotations

from collections.abc import Sequence

from suffice.policies.fitting import FIT_SPLIT
from suffice.policies.rule import RulePolicy
from suffice.replay.candidates import Candidate
from suffice.trace.table import TraceSet

__all__ = ["transfer_notes"]


def transfer_notes(
    candidates: Sequence[Candidate], fit_on: TraceSet, replayed: TraceSet
) -> list[str]:
    """Which candidates were fitted on split tune of ``fit_on``, and where that does not reach.

    Says which questions, if any, are in both, and from which round on a per-round calibration was
    never fitted.
    """
    source = fit_on.origin.source
    fitted = [each for each in candidates if _fitted_there(each, source)]
    if not fitted:
        return [f"nothing was fitted on {source}: no policy named needs fitting"]
    tune = fit_on.only_split(FIT_SPLIT)
    names = ", ".join(each.name for each in fitted)
    notes = [
        f"fitted on split {FIT_SPLIT} of {source} ({tune.n_questions} questions), as asked by fit-on: "
        f"{names}"
    ]
    shared = _keys(tune) & _keys(replayed)
    if shared:
        notes.append(
            f"{len(shared)} of the {replayed.n_questions} questions replayed are among those fitted on: "
            f"the figures of {names} are in-sample to that extent"
        )
    return notes + _rounds_notes(fitted, replayed.n_rounds)


def _fitted_there(candidate: Candidate, source: str) -> bool:
    fitted_on = getattr(candidate.policy, "fitted_on", {})
    return fitted_on.get("source") == source and fitted_on.get("split") == FIT_SPLIT


def _keys(traces: TraceSet) -> set[tuple[str, str]]:
    """Id and text: other data sets may count their questions alike."""
    return {(question.id, question.text) for question in traces.questions}


def _rounds_notes(fitted: Sequence[Candidate], n_rounds: int) -> list[str]:
    notes = []
    for each in fitted:
        if not isinstance(each.policy, RulePolicy):
            continue
        for signal, calibrator in each.policy.calibrators.items():
            last = len(calibrator.maps)
            if calibrator.beyond is None and last < n_rounds:
                absent = "undefined" if calibrator.absent is None else f"{calibrator.absent:g}"
                notes.append(
                    f"{each.name}: calibrated({signal}) was fitted to round {last} and is {absent} in "
                    f"rounds {last + 1} to {n_rounds}"
                )
    return notes
