"""What recorded rounds cost a policy: it pays for what it reads.

One registry, :data:`COSTS`, holds every cost under a fixed name: the word of ``--cost``, a key of
``replay --json``, and what can be an axis or a constraint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from suffice.costs.energy import EnergyModel
from suffice.costs.prices import Prices
from suffice.costs.tariff import Tariff
from suffice.errors import UsageError

if TYPE_CHECKING:  # the names of costs are read without pyarrow
    from suffice.trace.rounds.table import TraceSet

_Array = NDArray[np.float64]


class UnknownCostError(UsageError):
    """A cost was asked for that the record does not hold; the message says what is missing where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReads:
    """What a policy reads beyond the answers, and so pays for.

    ``samples``: stochastic answers; ``verdicts``: those of a judge or of the agent on its own end, the
    calls in ``judge_calls``; ``reranks``: a reranker's scores.
    """

    samples: bool = False
    verdicts: bool = False
    reranks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """What turns usage into dollars (``None``: no prices were given) and joules."""

    prices: Prices | None = None
    energy: EnergyModel = field(default_factory=EnergyModel)


class _Ledger:
    """The usage of every recorded round, each column read once; (n_questions, n_rounds) throughout."""

    def __init__(self, traces: TraceSet, reads: CostReads, model: CostModel) -> None:
        self.traces = traces
        self.reads = reads
        self.model = model
        self._columns: dict[str, _Array | None] = {}
        self._costs: dict[str, _Array] = {}

    def cost(self, name: str) -> _Array:
        """A cost of each round, at least 0; NaN where no round was recorded."""
        if name not in self._costs:
            values = COSTS[name].compute(self)
            self._costs[name] = self.known(values, f"what {name!r} comes to")
        return self._costs[name]

    def column(self, name: str) -> _Array:
        """A column without holes."""
        values = self.sparse(name)
        if values is None:
            raise UnknownCostError(f"{self.traces.origin.source} has no column {name!r}")
        return self.known(values, f"column {name!r}")

    def sparse(self, name: str) -> _Array | None:
        """A column as recorded, NaN: null; ``None``: no such column."""
        if name not in self._columns:
            self._columns[name] = self.traces.column(name)
        return self._columns[name]

    def known(self, values: _Array, what: str) -> _Array:
        """The values, refused where one is null, negative or infinite."""
        exists = self.traces.exists
        wrong = exists & ~((values >= 0) & (values < np.inf))
        if wrong.any():
            question, number = np.argwhere(wrong)[0]
            found = values[question, number]
            raise UnknownCostError(
                f"{what} is {'null' if np.isnan(found) else f'no cost ({found:g})'} in "
                f"{int(wrong.sum())} of {int(exists.sum())} rounds of {self.traces.origin.source}, "
                f"first in round {number + 1} of question {self.traces.question_ids[question]!r}"
            )
        return values

    def nothing(self) -> _Array:
        """Zero for every recorded round."""
        return np.where(self.traces.exists, 0.0, np.nan)


# --- calls ----------------------------------------------------------------------------------------
def _llm_calls(ledger: _Ledger) -> _Array:
    """Answering calls; where ``sample_calls`` is null, samples are taken to be the sample calls.

    That is, if there are fewer of them than calls, since an answer was then made as well; otherwise
    every call is paid.
    """
    calls = ledger.column("llm_calls")
    if not ledger.reads.samples:
        answering = calls - _sample_calls(ledger, calls)
        calls = ledger.known(answering, "llm_calls less the calls of samples")
    return calls + ledger.cost("judge_calls")


def _sample_calls(ledger: _Ledger, calls: _Array) -> _Array:
    """Sample calls a round; 0 where nothing tells them from answering calls."""
    found = ledger.sparse("sample_calls")
    recorded = np.full_like(calls, np.nan) if found is None else found
    if ledger.traces.has("samples"):
        drawn = _lengths(ledger.traces, "samples")
        inferred = np.where(drawn < calls, drawn, 0.0)
        recorded = np.where(np.isnan(recorded), inferred, recorded)
    return np.nan_to_num(recorded)


def _lengths(traces: TraceSet, column: str, *, null: int | None = 0) -> _Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.list_value_length(traces.table.column(column))
    if null is not None:
        lengths = pc.fill_null(lengths, pa.scalar(null, lengths.type))
    return traces.dense(lengths)


def _judge_calls(ledger: _Ledger) -> _Array:
    return ledger.column("judge_calls") if ledger.reads.verdicts else ledger.nothing()


def _rerank_calls(ledger: _Ledger) -> _Array:
    return ledger.column("rerank_calls") if ledger.reads.reranks else ledger.nothing()


def _calls(ledger: _Ledger) -> _Array:
    return ledger.cost("llm_calls") + ledger.cost("rerank_calls")


def _passages(ledger: _Ledger) -> _Array:
    if not ledger.traces.has("passages"):
        raise UnknownCostError(f"{ledger.traces.origin.source} has no column 'passages'")
    return ledger.known(_lengths(ledger.traces, "passages", null=None), "column 'passages'")


# --- tokens ---------------------------------------------------------------------------------------
def _tokens(name: str) -> Callable[[_Ledger], _Array]:
    """Tokens of the answering calls, with those of samples and verdicts where they are read."""

    def paid(ledger: _Ledger) -> _Array:
        tokens = ledger.column(name) + _judge_tokens(ledger, f"judge_{name}")
        if ledger.reads.samples and ledger.traces.has("samples"):
            tokens = tokens + ledger.column(f"sample_{name}")
        return tokens

    return paid


def _judge_tokens(ledger: _Ledger, name: str) -> _Array:
    """Tokens of the judge's calls; a round without such a call has none, whatever its column holds."""
    asked = ledger.cost("judge_calls") > 0
    if not asked.any():
        return ledger.nothing()
    recorded = ledger.sparse(name)
    if recorded is None:
        raise UnknownCostError(
            f"{ledger.traces.origin.source} has no column {name!r}, the tokens of its judge calls"
        )
    return ledger.known(np.where(asked, recorded, ledger.nothing()), f"column {name!r}")


def _evaluated(ledger: _Ledger) -> _Array:
    return ledger.cost("prompt_tokens") - ledger.cost("cached_tokens")


# --- charges --------------------------------------------------------------------------------------
def _joules(ledger: _Ledger) -> _Array:
    return _charged(ledger, ledger.model.energy.tariff)


def _usd(ledger: _Ledger) -> _Array:
    """Dollars; a round's answering tokens are taken as one request, whose length prices the round.

    Its samples repeat that prompt, and its verdicts are asked over the same evidence.
    """
    prices = ledger.model.prices
    if prices is None:
        raise UnknownCostError(
            "no prices were given; type --price-model MODEL, or "
            "--prices input=0.15,output=0.60 (USD per million tokens)"
        )
    (_, base), *tiers = prices.tariffs
    paid = _charged(ledger, base)
    for above, tariff in tiers:
        long = ledger.column("prompt_tokens") > above
        if long.any():
            paid = np.where(long, _charged(ledger, tariff), paid)
    return paid


def _charged(ledger: _Ledger, tariff: Tariff) -> _Array:
    """Usage times charges. What is charged nothing, or the same, is not asked for."""
    one_price = tariff.prompt == tariff.cached
    units = {
        "prompt_tokens": tariff.prompt if one_price else 0.0,
        "evaluated_tokens": 0.0 if one_price else tariff.prompt,
        "cached_tokens": 0.0 if one_price else tariff.cached,
        "completion_tokens": tariff.completion,
        "llm_calls": tariff.call,
        "retrievals": tariff.retrieval,
        "rerank_calls": tariff.rerank,
    }
    paid = ledger.nothing()
    for name, charge in units.items():
        if charge:
            paid = paid + charge * ledger.cost(name)
    return paid


# --- the registry ---------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A cost with a fixed name.

    ``label`` and ``unit`` name it on axes and in tables (no unit: a count); ``compute`` gives it for
    each recorded round.
    """

    name: str
    label: str
    unit: str = ""
    summary: str
    compute: Callable[[_Ledger], _Array]


_ALL = (
    Cost(
        name="llm_calls",
        label="model calls",
        summary="calls to the model: answers, samples and verdicts that the policy reads",
        compute=_llm_calls,
    ),
    Cost(
        name="prompt_tokens",
        label="prompt tokens",
        summary="prompt tokens, evaluated and cached together",
        compute=_tokens("prompt_tokens"),
    ),
    Cost(
        name="cached_tokens",
        label="cached tokens",
        summary="prompt tokens that the server reused",
        compute=_tokens("cached_tokens"),
    ),
    Cost(
        name="completion_tokens",
        label="completion tokens",
        summary="generated tokens",
        compute=_tokens("completion_tokens"),
    ),
    Cost(
        name="evaluated_tokens",
        label="evaluated tokens",
        summary="prompt tokens that the server had to evaluate",
        compute=_evaluated,
    ),
    Cost(
        name="calls",
        label="all calls",
        summary="model calls and reranker calls that the policy reads",
        compute=_calls,
    ),
    Cost(
        name="judge_calls",
        label="judge calls",
        summary="calls to a judge; 0 for a policy that reads no verdict",
        compute=_judge_calls,
    ),
    Cost(
        name="rerank_calls",
        label="reranker calls",
        summary="calls to a reranker; 0 for a policy that reads no reranker score",
        compute=_rerank_calls,
    ),
    Cost(
        name="retrievals",
        label="retrievals",
        summary="queries sent to the retriever",
        compute=lambda ledger: ledger.column("retrievals"),
    ),
    Cost(
        name="passages",
        label="passages",
        summary="passages added to the prompt",
        compute=_passages,
    ),
    Cost(
        name="seconds",
        label="time",
        unit="s",
        summary="wall seconds of the rounds as they were recorded",
        compute=lambda ledger: ledger.column("latency_s"),
    ),
    Cost(name="usd", label="price", unit="USD", summary="US dollars at given prices", compute=_usd),
    Cost(
        name="joules",
        label="energy",
        unit="J",
        summary="energy by stated constants",
        compute=_joules,
    ),
    Cost(
        name="rounds",
        label="rounds",
        summary="rounds",
        compute=lambda ledger: ledger.nothing() + 1.0,
    ),
)
COSTS: Mapping[str, Cost] = MappingProxyType({cost.name: cost for cost in _ALL})


def find_cost(name: str) -> Cost:
    """The cost of that name.

    Raises
    ------
    UsageError
        For an unknown name, listing the known ones.
    """
    if name not in COSTS:
        raise UsageError(f"unknown cost {name!r}; known: {', '.join(COSTS)}")
    return COSTS[name]


def round_costs(
    traces: TraceSet, *, reads: CostReads | None = None, model: CostModel | None = None
) -> Mapping[str, _Array | None]:
    """Each cost of every recorded round, (n_questions, n_rounds); ``None``: unknown somewhere.

    Parameters
    ----------
    traces
        The record.
    reads
        What the policy reads (default: answers only); the rest it does not pay for.
    model
        Prices and energy constants (default: no prices, the default constants).
    """
    ledger = _Ledger(traces, reads or CostReads(), model or CostModel())
    return {name: _or_none(ledger, name) for name in COSTS}


def _or_none(ledger: _Ledger, name: str) -> _Array | None:
    try:
        return ledger.cost(name)
    except UnknownCostError:
        return None


def cost_matrix(
    traces: TraceSet, name: str, *, reads: CostReads | None = None, model: CostModel | None = None
) -> _Array:
    """What stopping after each round costs: rounds 1..t summed, (n_questions, n_rounds), never falling.

    NaN past a question's last recorded round. Parameters as of :func:`round_costs`.

    Raises
    ------
    UsageError
        For an unknown name, and where the record does not hold the cost, with what is missing where.
    """
    find_cost(name)
    ledger = _Ledger(traces, reads or CostReads(), model or CostModel())
    try:
        return np.cumsum(ledger.cost(name), axis=1)
    except UnknownCostError as error:
        raise UnknownCostError(f"cost {name!r} is unknown: {error}") from error
