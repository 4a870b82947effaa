"""What recorded rounds cost a policy: it pays for what it reads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.trace.table import TraceSet

__all__ = ["COSTS", "round_costs"]

COSTS = ("llm_calls", "prompt_tokens", "cached_tokens", "completion_tokens")


def round_costs(
    traces: TraceSet, *, reads_samples: bool, reads_verdicts: bool = False
) -> Mapping[str, NDArray[np.float64] | None]:
    """Each cost of every recorded round, (n_questions, n_rounds); ``None``: unknown somewhere.

    Parameters
    ----------
    traces
        The record.
    reads_samples
        Whether the policy reads stochastic answers; else their calls and tokens are left out.
    reads_verdicts
        Whether it reads a judge's verdict; else the judge's calls are left out.

    Notes
    -----
    ``llm_calls`` counts samples in. Where ``sample_calls`` is null, the recorded samples are taken to
    be the sample calls if fewer than all calls; otherwise every call is paid.
    """
    calls = traces.column("llm_calls")
    if calls is not None and not reads_samples:
        calls = calls - _sample_calls(traces, calls)
    if calls is not None and reads_verdicts:
        verdicts = traces.column("judge_calls")
        calls = None if verdicts is None else calls + verdicts
    costs = {"llm_calls": calls}
    for name in COSTS[1:]:
        tokens = traces.column(name)
        if tokens is not None and reads_samples and traces.has("samples"):
            of_samples = traces.column(f"sample_{name}")
            tokens = None if of_samples is None else tokens + of_samples
        costs[name] = tokens
    return {name: _known(values, traces) for name, values in costs.items()}


def _known(values: NDArray[np.float64] | None, traces: TraceSet) -> NDArray[np.float64] | None:
    if values is None or np.isnan(values[traces.exists]).any():
        return None
    return values


def _sample_calls(traces: TraceSet, calls: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sample calls a round; 0 where nothing tells them from answering calls."""
    recorded = traces.column("sample_calls")
    if recorded is None:
        recorded = np.full_like(calls, np.nan)
    if traces.has("samples"):
        lengths = pc.list_value_length(traces.table.column("samples"))
        drawn = traces.dense(pc.fill_null(lengths, pa.scalar(0, lengths.type)))
        inferred = np.where(drawn < calls, drawn, 0.0)
        recorded = np.where(np.isnan(recorded), inferred, recorded)
    return np.nan_to_num(recorded)
