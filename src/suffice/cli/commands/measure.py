"""``suffice measure``: measure all of a large record now, which every command does when it needs to."""

from __future__ import annotations

from suffice.cli.options import Json, Measuring, Traces
from suffice.cli.output import print_json, put, waiting
from suffice.cli.parser import command


@command()
def measure(traces: Traces, *, reading: Measuring, json: Json = False) -> int:
    """Measure every signal and score of a large record and keep the columns in RECORD.measures.

    Other commands measure what they need and keep it there too.
    """
    from suffice.errors import BackendError
    from suffice.scoring import F1_KINDS
    from suffice.signals.table import given_signals

    measures = reading.measures(traces)
    names = given_signals(measures.traces)
    with waiting("measuring"):
        for kind in F1_KINDS:
            measures.measure(names, kind)
    questions, rounds = measures.traces.n_questions, measures.traces.table.num_rows
    kept = None
    if measures.kept is not None:
        if measures.kept.place is None:
            places = " nor in ".join(map(str, measures.kept.folders))
            raise BackendError(f"measured, but nothing can be kept in {places}; make room in one")
        kept = str(measures.kept.place)
    if json:
        print_json({"questions": questions, "rounds": rounds, "signals": names, "kept": kept})
        return 0
    where = f"kept in {kept}" if kept else "a small record: nothing is kept"
    put(f"measured {questions:,} questions, {rounds:,} rounds, {len(names)} signals; {where}")
    return 0
