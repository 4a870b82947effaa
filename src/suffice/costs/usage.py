"""What recorded rounds cost a policy as it would be run: it pays for what it reads.

One registry, :data:`COSTS`, holds every cost under a fixed name: the word of ``--cost``, a key of
``replay --json``, and what can be an axis or a constraint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from suffice.costs.energy import EnergyModel
from suffice.costs.prices import Prices
from suffice.costs.tariff import Tariff
from suffice.errors import UsageError

if TYPE_CHECKING:  # the names of costs are read without pyarrow
    from suffice.trace.rounds.table import TraceSet

_Array = NDArray[np.float64]
Charging = Literal["as-run", "published"]
_Part = Literal["all", "loop", "answer"]
# loops of records that do not tell calls that answer from others: those that send a query of each round's
# own, and those over one ranking, whose calls all answer
_CHOOSING_LOOPS = frozenset({"iterative", "chain", "react"})
_RANKED_LOOPS = frozenset({"cumulative", "budgeted"})


class UnknownCostError(UsageError):
    """A cost was asked for that the record does not hold; the message says what is missing where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReads:
    """What a policy reads before it stops, and so pays for in every round; by default nothing.

    Parameters
    ----------
    answers
        Answers, or anything made of them. A policy that reads none pays for the one at its stop.
    samples
        Stochastic answers.
    verdicts
        Those of a judge or of the agent on its own end, the calls in ``judge_calls``.
    reranks
        A reranker's scores.
    until
        The budget: at this round the loop ends whatever was read, so nothing is; ``None``: the record's
        last round.
    at_end
        Whether it reads there all the same, as answer sets are made of the last round's samples too.
    """

    answers: bool = False
    samples: bool = False
    verdicts: bool = False
    reranks: bool = False
    until: int | None = None
    at_end: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """How usage is charged, and what turns it into dollars (``None``: no prices) and joules.

    ``charge``: ``as-run``, what a policy costs where it runs; ``published``, every recorded round's answer
    up to the stop, read or not, as the papers charge.
    """

    prices: Prices | None = None
    energy: EnergyModel = field(default_factory=EnergyModel)
    charge: Charging = "as-run"


class _Ledger:
    """The usage of every recorded round, each column read once; (n_questions, n_rounds) throughout.

    Parameters
    ----------
    traces, model
        The record, and what prices it.
    reads
        What of it is paid for.
    part
        ``all`` of that, or apart what each round costs with no answer made (``loop``) and what its
        ``answer`` alone does.
    """

    def __init__(
        self, traces: TraceSet, reads: CostReads, model: CostModel, part: _Part = "all"
    ) -> None:
        self.traces = traces
        self.reads = reads
        self.model = model
        self.part = part
        self._columns: dict[str, _Array | None] = {}
        self._costs: dict[str, _Array] = {}

    def cost(self, name: str) -> _Array:
        """A cost of each round, at least 0; NaN where no round was recorded."""
        if name not in self._costs:
            cost = COSTS[name]
            apart = self.part == "answer" and not cost.of_answers
            values = self.nothing() if apart else cost.compute(self)
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
            value = values[question, number]
            raise UnknownCostError(
                f"{what} is {'null' if np.isnan(value) else f'no cost ({value:g})'} in "
                f"{int(wrong.sum())} of {int(exists.sum())} rounds of {self.traces.origin.source}, "
                f"first in round {number + 1} of question {self.traces.question_ids[question]!r}"
            )
        return values

    def nothing(self) -> _Array:
        """Zero for every recorded round."""
        return np.where(self.traces.exists, 0.0, np.nan)

    def read(self, values: _Array) -> _Array:
        """What is paid of something that a policy reads to decide: nothing where its budget ends."""
        last = self.traces.n_rounds if self.reads.until is None else self.reads.until
        if self.reads.at_end or not 1 <= last <= self.traces.n_rounds:
            return values
        values = values.copy()
        values[:, last - 1] = self.nothing()[:, last - 1]
        return values

    def divided(self, whole: _Array, answer: Callable[[], _Array]) -> _Array:
        """What this ledger's part pays of calls, tokens or seconds that hold an answer's."""
        if self.part == "all":
            return whole
        return answer() if self.part == "answer" else whole - answer()


# --- calls ----------------------------------------------------------------------------------------
def _llm_calls(ledger: _Ledger) -> _Array:
    """Calls of the loop and its answers, with those of samples and verdicts where they are read."""
    asked = _asked(ledger)
    calls = ledger.divided(asked, lambda: _answer_calls(ledger))
    if ledger.part == "answer":
        return calls
    if ledger.reads.samples:
        calls = calls + ledger.read(ledger.column("llm_calls") - asked)
    return calls + ledger.cost("judge_calls")


def _asked(ledger: _Ledger) -> _Array:
    """Calls without those of samples; where nothing tells the two apart every call counts."""
    calls = ledger.column("llm_calls")
    return ledger.known(calls - _sample_calls(ledger, calls), "llm_calls less the calls of samples")


def _sample_calls(ledger: _Ledger, calls: _Array) -> _Array:
    """Sample calls a round; 0 where nothing tells them from answering calls.

    Where ``sample_calls`` is null, samples are taken to be the sample calls if there are fewer of them
    than calls, since an answer was then made as well.
    """
    column = ledger.sparse("sample_calls")
    recorded = np.full_like(calls, np.nan) if column is None else column
    if ledger.traces.has("samples"):
        drawn = _lengths(ledger.traces, "samples")
        inferred = np.where(drawn < calls, drawn, 0.0)
        recorded = np.where(np.isnan(recorded), inferred, recorded)
    return np.nan_to_num(recorded)


def _answer_calls(ledger: _Ledger) -> _Array:
    """Calls spent on a round's answer alone; the other calls are what its loop needs to go on.

    Records without ``answer_calls``: a loop that the record names tells it; in an unknown loop with one
    call a round, that call answers.
    """
    asked, recorded = _asked(ledger), ledger.sparse("answer_calls")
    run = ledger.traces.origin.run
    if run.get("pipeline") in _CHOOSING_LOOPS:
        majority = run.get("certainty") == "self_consistency"
        inferred = np.minimum(asked, float(run.get("samples") or 1) if majority else 1.0)
    elif run.get("pipeline") in _RANKED_LOOPS:
        inferred = asked
    else:
        inferred = np.where(asked <= 1, asked, np.nan)
    answering = inferred if recorded is None else np.where(np.isnan(recorded), inferred, recorded)
    if (np.isnan(answering) & ledger.traces.exists).any():
        raise UnknownCostError(
            f"{ledger.traces.origin.source} has rounds of several calls and does not say how many of "
            "them answered (column 'answer_calls')"
        )
    return answering


def _going_on(ledger: _Ledger) -> _Array:
    """Calls of a round that its loop needs to go on; none in an unknown loop that counts no calls."""
    if ledger.sparse("llm_calls") is None and "pipeline" not in ledger.traces.origin.run:
        return ledger.nothing()
    return _asked(ledger) - _answer_calls(ledger)


def _samples_answer(traces: TraceSet) -> bool:
    """Whether answers are chosen among samples, so that whoever reads samples pays for the answers."""
    ledger = _Ledger(traces, CostReads(), CostModel())
    calls = ledger.sparse("llm_calls")
    if calls is None or not traces.has("samples"):
        return False
    drawn, apart = _lengths(traces, "samples") > 0, _sample_calls(ledger, calls) > 0
    return bool((drawn & ~apart & (calls > 0)).any())


def _lengths(traces: TraceSet, column: str, *, null: int | None = 0) -> _Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.list_value_length(traces.table.column(column))
    if null is not None:
        lengths = pc.fill_null(lengths, pa.scalar(null, lengths.type))
    return traces.dense(lengths)


def _judge_calls(ledger: _Ledger) -> _Array:
    reads = ledger.reads.verdicts
    return ledger.read(ledger.column("judge_calls")) if reads else ledger.nothing()


def _rerank_calls(ledger: _Ledger) -> _Array:
    reads = ledger.reads.reranks
    return ledger.read(ledger.column("rerank_calls")) if reads else ledger.nothing()


def _calls(ledger: _Ledger) -> _Array:
    return ledger.cost("llm_calls") + ledger.cost("rerank_calls")


def _passages(ledger: _Ledger) -> _Array:
    if not ledger.traces.has("passages"):
        raise UnknownCostError(f"{ledger.traces.origin.source} has no column 'passages'")
    return ledger.known(_lengths(ledger.traces, "passages", null=None), "column 'passages'")


# --- tokens ---------------------------------------------------------------------------------------
def _tokens(name: str) -> Callable[[_Ledger], _Array]:
    """Tokens of the loop and its answers, with those of samples and verdicts where they are read."""

    def paid(ledger: _Ledger) -> _Array:
        tokens = ledger.divided(ledger.column(name), lambda: _answer_tokens(ledger, name))
        if ledger.part == "answer":
            return tokens
        if ledger.reads.samples and ledger.traces.has("samples"):
            tokens = tokens + ledger.read(ledger.column(f"sample_{name}"))
        return tokens + _judge_tokens(ledger, f"judge_{name}")

    return paid


def _answer_tokens(ledger: _Ledger, name: str) -> _Array:
    """Tokens of a round's answer alone: where nothing else was asked, all of them."""
    whole, recorded = ledger.column(name), ledger.sparse(f"answer_{name}")
    tokens = np.full_like(whole, np.nan) if recorded is None else recorded
    tokens = np.where(np.isnan(tokens) & (_going_on(ledger) == 0), whole, tokens)
    return ledger.known(tokens, f"column 'answer_{name}', the tokens of the answers alone,")


def _cached_tokens(ledger: _Ledger) -> _Array:
    """As recorded; where a policy asked nothing before its stop, what round 1 reused at most.

    That is what every prompt begins with: the rounds before were never sent (METHODS, costs as run).
    """
    cached = _tokens("cached_tokens")(ledger)
    if ledger.part != "answer":
        return cached
    before = _going_on(ledger)
    if ledger.reads.samples or ledger.reads.verdicts:
        loop = _Ledger(ledger.traces, ledger.reads, ledger.model, "loop")
        before = before + loop.cost("llm_calls")
    unasked = np.cumsum(before, axis=1) == 0
    return np.where(unasked, np.minimum(cached, cached[:, :1]), cached)


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


# --- seconds --------------------------------------------------------------------------------------
def _seconds(ledger: _Ledger) -> _Array:
    """Wall seconds; those of samples and verdicts apart where they were recorded apart."""
    seconds = ledger.column("latency_s")
    for kind, reads in (("sample", ledger.reads.samples), ("judge", ledger.reads.verdicts)):
        apart = ledger.sparse(f"{kind}_latency_s")
        if apart is not None:
            spent = np.where(ledger.traces.exists, np.nan_to_num(apart), np.nan)
            seconds = seconds - (spent - ledger.read(spent) if reads else spent)
    seconds = np.maximum(seconds, 0.0)  # clocks of single precision
    return ledger.divided(seconds, lambda: _answer_seconds(ledger, seconds))


def _answer_seconds(ledger: _Ledger, whole: _Array) -> _Array:
    """Seconds of a round's answer alone.

    Where they were not recorded and nothing else was asked, all of them; none for a policy that reads
    samples or verdicts, which then pays every round's seconds.
    """
    recorded = ledger.sparse("answer_latency_s")
    seconds = np.full_like(whole, np.nan) if recorded is None else recorded
    alone = ledger.nothing() if ledger.reads.samples or ledger.reads.verdicts else whole
    seconds = np.where(np.isnan(seconds) & (_going_on(ledger) == 0), alone, seconds)
    return ledger.known(
        np.minimum(seconds, whole), "column 'answer_latency_s', the seconds of the answers alone,"
    )


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
    each recorded round. ``of_answers``: whether an answer costs any of it; what does not is the loop's.
    """

    name: str
    label: str
    unit: str = ""
    summary: str
    compute: Callable[[_Ledger], _Array]
    of_answers: bool = True


_ALL = (
    Cost(
        name="llm_calls",
        label="model calls",
        summary="calls to the model: the loop's own, and answers, samples and verdicts that the policy reads",
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
        compute=_cached_tokens,
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
        of_answers=False,
    ),
    Cost(
        name="rerank_calls",
        label="reranker calls",
        summary="calls to a reranker; 0 for a policy that reads no reranker score",
        compute=_rerank_calls,
        of_answers=False,
    ),
    Cost(
        name="retrievals",
        label="retrievals",
        summary="queries sent to the retriever",
        compute=lambda ledger: ledger.column("retrievals"),
        of_answers=False,
    ),
    Cost(
        name="passages",
        label="passages",
        summary="passages added to the prompt",
        compute=_passages,
        of_answers=False,
    ),
    Cost(
        name="seconds",
        label="time",
        unit="s",
        summary="wall seconds of the rounds as they were recorded",
        compute=_seconds,
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
        of_answers=False,
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


def stop_costs(
    traces: TraceSet, *, reads: CostReads | None = None, model: CostModel | None = None
) -> Mapping[str, _Array | None]:
    """What stopping after each round costs, (n_questions, n_rounds); ``None``: unknown somewhere.

    A policy pays what the loop needs to go on, the samples, verdicts and reranker scores that it reads,
    and every answer up to its stop if it reads answers, else the one at its stop (METHODS, costs as
    run). So a cost may fall from one round to the next: the answers of fixed-k are those of round k alone.
    NaN past a question's last recorded round.

    Parameters
    ----------
    traces
        The record.
    reads
        What the policy reads (default: nothing, as a fixed budget).
    model
        Prices, energy constants and what is charged (default: no prices, the default constants, as run).
    """
    ledgers = _ledgers(traces, reads, model)
    costs: dict[str, _Array | None] = {}
    for name in COSTS:
        try:
            costs[name] = _at_stops(ledgers, name)
        except UnknownCostError:
            costs[name] = None
    return costs


def cost_matrix(
    traces: TraceSet, name: str, *, reads: CostReads | None = None, model: CostModel | None = None
) -> _Array:
    """One cost of :func:`stop_costs`, (n_questions, n_rounds).

    Raises
    ------
    UsageError
        For an unknown name, and where the record does not hold the cost, with what is missing where.
    """
    find_cost(name)
    try:
        return _at_stops(_ledgers(traces, reads, model), name)
    except UnknownCostError as error:
        raise UnknownCostError(f"cost {name!r} is unknown: {error}") from error


def _ledgers(
    traces: TraceSet, reads: CostReads | None, model: CostModel | None
) -> tuple[_Ledger, ...]:
    """One for everything that is paid round by round, or the loop's and the answers' apart."""
    reads, model = reads or CostReads(), model or CostModel()
    if model.charge == "published":
        reads = replace(reads, answers=True, at_end=True)
    if reads.answers or (reads.samples and _samples_answer(traces)):
        return (_Ledger(traces, reads, model),)
    return tuple(_Ledger(traces, reads, model, part) for part in ("loop", "answer"))


def _at_stops(ledgers: tuple[_Ledger, ...], name: str) -> _Array:
    """Each round's own costs summed up to the stop, and the answer of the stop."""
    summed = np.cumsum(ledgers[0].cost(name), axis=1)
    return summed if len(ledgers) == 1 else summed + ledgers[1].cost(name)
