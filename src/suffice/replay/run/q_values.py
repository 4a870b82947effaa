"""Store what a learned policy thought of every round, for rules, search and plots."""

from __future__ import annotations

from suffice.errors import UsageError
from suffice.measures.measures import Measures
from suffice.protocols import ValuePolicy
from suffice.replay.run.compare import Comparison
from suffice.signals.recorded import Q_CONT, Q_STOP
from suffice.signals.store import with_values
from suffice.trace.rounds.table import TraceSet


def with_q_values(traces: TraceSet | Measures, comparison: Comparison) -> TraceSet:
    """All the traces, with the signals ``q_stop`` and ``q_cont`` of the one stop-rag policy compared.

    Raises
    ------
    UsageError
        When no policy of that kind was compared, or several were.
    """
    measures = Measures.of(traces)
    results = comparison.result.policies
    found = {each.name: each.policy for each in results if isinstance(each.policy, ValuePolicy)}
    if len(found) != 1:
        there = ", ".join(found) or "none"
        raise UsageError(
            f"the values of exactly one stop-rag policy can be stored, found {there}; name one with --policy"
        )
    (policy,) = found.values()
    stop, cont = policy.values(measures.signals(policy.specs))
    return with_values(measures.traces, {Q_STOP.name: stop, Q_CONT.name: cont})
