"""The cost of each recorded round under a policy, as if the policy were deployed.

One registry, :data:`COSTS`, holds every cost under a fixed name. ``--cost`` takes the name,
``replay --json`` has it as a key, and a chart or a constraint may use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from suffice.costs.prices import EnergyModel, Prices, Tariff
from suffice.errors import UsageError, counted, unknown_name

if TYPE_CHECKING:  # the names of costs are read without pyarrow
    from suffice.trace.rounds.trace_set import TraceSet

_Array = NDArray[np.float64]
Charging = Literal["as-run", "published"]
_Part = Literal["all", "loop", "answer"]
# loops of records that do not tell calls that answer from others: those that send a query of each round's
# own, and those over one ranking, whose calls all answer
_CHOOSING_LOOPS = frozenset({"iterative", "chain", "react"})
_RANKED_LOOPS = frozenset({"cumulative", "budgeted"})


class UnknownCostError(UsageError):
    """The record does not hold the wanted cost; the message says what is missing and where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReads:
    """Inputs that a policy reads and pays for in every round; by default none.

    ``looks`` names the one-token looks among them, each of which costs its share of a round's looks.
    """

    answers: bool = False
    samples: bool = False
    verdicts: bool = False
    looks: frozenset[str] = frozenset()
    reranks: bool = False
    until: int | None = None
    at_end: bool = False

    @property
    def asks(self) -> bool:
        """Whether the policy reads calls beside the loop's and its answers'."""
        return self.samples or self.verdicts or bool(self.looks)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Settings of costs: the charging rule, prices (``None``: no dollars) and energy.

    ``charge``: ``as-run``, the cost if deployed; ``published``, every recorded round's answer up to the stop,
    read or not, as in the papers.
    """

    prices: Prices | None = None
    energy: EnergyModel = field(default_factory=EnergyModel)
    charge: Charging = "as-run"


_HELD_CELLS = 4_000_000  # of a column as recorded; larger ones are read again for each cost
_KEPT_CELLS = 1_000_000  # of a cost; larger ones are summed up again
_SHARED_CELLS = 500_000  # of a matrix; what larger ones are made of is made again for each cost
_UNSAID = {
    "cached_tokens": ": its server did not say how many it reused "
    "(vLLM says it with --enable-prompt-tokens-details)"
}


class RecordedUsage:
    """Usage columns of a record, read once each; (n_questions, n_rounds) throughout.

    ``lengths`` gives known lengths of a column's lists, so that the record need not be read.
    """

    def __init__(self, traces: TraceSet, lengths: Callable[[str], _Array] | None = None) -> None:
        self.traces = traces
        self.lengths: Callable[[str], _Array] = traces.lengths if lengths is None else lengths
        self._columns: dict[str, _Array | None] = {}

    @property
    def source(self) -> str:
        return self.traces.origin.source

    def column(self, name: str) -> _Array:
        """Return a column without missing values."""
        values = self.sparse(name)
        if values is None:
            raise UnknownCostError(f"{self.source} has no column {name!r}{_UNSAID.get(name, '')}")
        return self.known(values, f"column {name!r}")

    def sparse(self, name: str) -> _Array | None:
        """Return a column as recorded, NaN: null; ``None``: no such column."""
        if name in self._columns:
            return self._columns[name]
        values = self.traces.column(name)
        if self.traces.exists.size <= _HELD_CELLS:
            self._columns[name] = values
        return values

    def filled(self, name: str, otherwise: _Array) -> _Array:
        """Return a column as recorded, ``otherwise`` if it is null or absent."""
        recorded = self.sparse(name)
        return otherwise if recorded is None else np.where(np.isnan(recorded), otherwise, recorded)

    def of_answers(self, name: str, alone: _Array) -> _Array:
        """Return the answers' usage: as recorded, else ``alone`` if nothing else was asked; 0 without one."""
        inferred = np.where(self.only_answers, alone, np.nan)
        if (calls := self.sparse("answer_calls")) is not None:
            inferred = np.where(calls == 0, 0.0, inferred)
        return np.where(self.traces.answered, self.filled(name, inferred), self.nothing)

    @cached_property
    def drawn(self) -> _Array:
        """Return the number of samples per round; 0 for null."""
        if not self.traces.has("samples"):
            return self.nothing
        lengths = self.lengths("samples")
        return np.where(np.isnan(lengths) & self.traces.exists, 0.0, lengths)

    def known(self, values: _Array, what: str) -> _Array:
        """Return the values; refuse null, negative or infinite ones."""
        exists = self.traces.exists
        wrong = exists & ~((values >= 0) & (values < np.inf))
        if wrong.any():
            question, number = np.argwhere(wrong)[0]
            value = values[question, number]
            raise UnknownCostError(
                f"{what} is {'null' if np.isnan(value) else f'no cost ({value:g})'} in "
                f"{int(wrong.sum())} of {counted(int(exists.sum()), 'round')} of {self.source}, "
                f"first in round {number + 1} of question {self.traces.question_ids[question]!r}"
            )
        return values

    @cached_property
    def nothing(self) -> _Array:
        return np.where(self.traces.exists, 0.0, np.nan)

    @cached_property
    def sample_calls(self) -> _Array:
        """Return sample calls per round; 0 if nothing tells them from answering calls."""
        calls = self.sparse("llm_calls")
        if calls is None:
            return self.nothing
        # with fewer samples than calls another call made the answer, so each sample was a call
        inferred = np.where(self.drawn < calls, self.drawn, 0.0)
        return np.nan_to_num(self.filled("sample_calls", inferred))

    @cached_property
    def asked(self) -> _Array:
        """Return calls without sample calls; if nothing tells them apart, every call counts."""
        calls = self.column("llm_calls") - self.sample_calls
        return self.known(calls, "llm_calls less the calls of samples")

    @cached_property
    def answer_calls(self) -> _Array:
        """Return calls for a round's answer alone; without ``answer_calls`` the record's loop decides."""
        asked, run = self.asked, self.traces.origin.run
        if run.get("pipeline") in _CHOOSING_LOOPS:
            majority, stated = run.get("certainty") == "self_consistency", run.get("samples")
            known = majority and isinstance(stated, int | float)
            inferred = np.minimum(asked, float(stated or 1) if known else 1.0)
        elif run.get("pipeline") in _RANKED_LOOPS:
            inferred = asked
        else:
            # we assume that the one call of a round answers
            inferred = np.where(asked <= 1, asked, np.nan)
        answering = self.filled(
            "answer_calls", np.where(self.traces.answered, inferred, self.nothing)
        )
        if (np.isnan(answering) & self.traces.exists).any():
            raise UnknownCostError(
                f"{self.source} has rounds of several calls and does not say how many of them answered "
                "(column 'answer_calls')"
            )
        return answering

    @cached_property
    def only_answers(self) -> NDArray[np.bool_]:
        """Return rounds whose only calls are for the answer, or without counted calls in an unknown loop."""
        if self.sparse("llm_calls") is None and "pipeline" not in self.traces.origin.run:
            return self.traces.answered
        return np.equal(self.asked, self.answer_calls) & self.traces.answered

    @cached_property
    def samples_answer(self) -> bool:
        """Whether answers are chosen among samples, so that reading samples pays for the answers."""
        calls = self.sparse("llm_calls")
        if calls is None:
            return False
        return bool(
            ((self.drawn > 0) & (np.nan_to_num(calls) > 0) & ~(self.sample_calls > 0)).any()
        )


class _Ledger:
    """Payments of every recorded round, by cost; (n_questions, n_rounds) throughout."""

    def __init__(
        self, record: RecordedUsage, reads: CostReads, model: CostModel, part: _Part = "all"
    ) -> None:
        self.record = record
        self.reads = reads
        self.model = model
        self.part = part
        self._costs: dict[str, _Array] = {}

    def cost(self, name: str) -> _Array:
        """Return a cost of each round, at least 0; NaN without a recorded round."""
        if name not in self._costs:
            cost = COSTS[name]
            apart = self.part == "answer" and not cost.of_answers
            values = self.record.nothing if apart else cost.compute(self)
            self._costs[name] = self.record.known(values, f"what {name!r} comes to")
        return self._costs[name]

    @cached_property
    def looked(self) -> _Array | float:
        """Return the share of each round's looks that the policy reads."""
        looks = self.record.sparse("look_calls")
        if looks is None or not self.reads.looks:
            return 0.0
        return np.minimum(len(self.reads.looks) / np.maximum(np.nan_to_num(looks), 1.0), 1.0)

    def forget(self) -> None:
        self._costs.clear()

    def read(self, values: _Array) -> _Array:
        """Return the cost of an input that a policy reads; none in the round of its budget."""
        n_rounds = self.record.traces.n_rounds
        last = n_rounds if self.reads.until is None else self.reads.until
        if self.reads.at_end or not 1 <= last <= n_rounds:
            return values
        values = values.copy()
        values[:, last - 1] = self.record.nothing[:, last - 1]
        return values

    def divided(self, whole: _Array, answer: Callable[[], _Array], draft: str = "") -> _Array:
        """Return this ledger's part of what includes an answer's, and a draft's where there is a column."""
        if self.part != "loop":
            return answer() if self.part == "answer" else whole
        loop = whole - answer()
        # a draft that the loop's own answer replaced was asked for by whoever reads answers
        drafts = self.record.filled(draft, self.record.nothing) if draft else self.record.nothing
        return loop - np.minimum(drafts, np.maximum(loop, 0.0))


# --- calls ----------------------------------------------------------------------------------------
def _llm_calls(ledger: _Ledger) -> _Array:
    record = ledger.record
    calls = ledger.divided(record.asked, lambda: record.answer_calls, "draft_calls")
    if ledger.part == "answer":
        return calls
    if ledger.reads.samples:
        calls = calls + ledger.read(record.column("llm_calls") - record.asked)
    return calls + ledger.cost("judge_calls") + ledger.cost("look_calls")


def _look_calls(ledger: _Ledger) -> _Array:
    if not ledger.reads.looks:
        return ledger.record.nothing
    return ledger.read(ledger.record.column("look_calls") * ledger.looked)


def _judge_calls(ledger: _Ledger) -> _Array:
    reads = ledger.reads.verdicts
    return ledger.read(ledger.record.column("judge_calls")) if reads else ledger.record.nothing


def _rerank_calls(ledger: _Ledger) -> _Array:
    reads = ledger.reads.reranks
    return ledger.read(ledger.record.column("rerank_calls")) if reads else ledger.record.nothing


def _passages(ledger: _Ledger) -> _Array:
    record = ledger.record
    if not record.traces.has("passages"):
        raise UnknownCostError(f"{record.source} has no column 'passages'")
    return record.known(record.lengths("passages"), "column 'passages'")


# --- tokens ---------------------------------------------------------------------------------------
def _tokens(name: str) -> Callable[[_Ledger], _Array]:
    """Return tokens of the loop and its answers, plus those of samples and verdicts that are read."""

    def paid(ledger: _Ledger) -> _Array:
        record = ledger.record
        answer = partial(_answer_tokens, record, name)
        tokens = ledger.divided(record.column(name), answer, f"draft_{name}")
        if ledger.part == "answer":
            return tokens
        if ledger.reads.samples and record.traces.has("samples"):
            tokens = tokens + ledger.read(record.column(f"sample_{name}"))
        looks = _tokens_apart(ledger, f"look_{name}", "look_calls") * ledger.looked
        return tokens + _tokens_apart(ledger, f"judge_{name}", "judge_calls") + looks

    return paid


def _answer_tokens(record: RecordedUsage, name: str) -> _Array:
    """Return tokens of a round's answer alone: if nothing else was asked, all of them."""
    tokens = record.of_answers(f"answer_{name}", record.column(name))
    return record.known(tokens, f"column 'answer_{name}', the tokens of the answers alone,")


def _cached_tokens(ledger: _Ledger) -> _Array:
    """Return cached tokens as recorded; a policy without calls before its stop reuses round 1's at most."""
    cached = _tokens("cached_tokens")(ledger)
    if ledger.part != "answer" or ledger.reads.asks:
        return cached
    calls = ledger.record.sparse("llm_calls")
    silent = ~ledger.record.traces.answered & (True if calls is None else calls == 0)
    # every prompt begins with round 1, and the rounds between were never sent (METHODS, costs as run)
    unasked = np.logical_and.accumulate(ledger.record.only_answers | silent, axis=1)
    return np.where(unasked, np.minimum(cached, cached[:, :1]), cached)


def _tokens_apart(ledger: _Ledger, name: str, calls: str) -> _Array:
    """Return tokens of calls beside the loop's and its answers'; none for a round without such a call."""
    asked = ledger.cost(calls) > 0
    if not asked.any():
        return ledger.record.nothing
    recorded = ledger.record.sparse(name)
    if recorded is None:
        raise UnknownCostError(
            f"{ledger.record.source} has no column {name!r}, the tokens of its {COSTS[calls].label}"
        )
    return ledger.record.known(np.where(asked, recorded, ledger.record.nothing), f"column {name!r}")


# --- seconds --------------------------------------------------------------------------------------
def _seconds(ledger: _Ledger) -> _Array:
    """Return wall seconds; those of samples and verdicts apart if recorded apart."""
    record = ledger.record
    seconds = record.column("latency_s")
    reads = ledger.reads
    shares = {"sample": float(reads.samples), "judge": float(reads.verdicts)}
    for kind, share in {**shares, "look": ledger.looked}.items():
        apart = record.sparse(f"{kind}_latency_s")
        if apart is not None:
            spent = np.where(record.traces.exists, np.nan_to_num(apart), np.nan)
            seconds = seconds - (spent - ledger.read(spent * share))
    seconds = np.maximum(seconds, 0.0)  # clocks of single precision
    return ledger.divided(seconds, lambda: _answer_seconds(ledger, seconds), "draft_latency_s")


def _answer_seconds(ledger: _Ledger, whole: _Array) -> _Array:
    """Return seconds of a round's answer alone; without a record all seconds, if nothing else was asked."""
    record = ledger.record
    # a policy that reads samples, verdicts or looks pays every round's seconds anyway
    alone = record.nothing if ledger.reads.asks else whole
    seconds = record.of_answers("answer_latency_s", alone)
    return record.known(
        np.minimum(seconds, whole), "column 'answer_latency_s' (seconds of the answers alone)"
    )


# --- charges --------------------------------------------------------------------------------------
def _usd(ledger: _Ledger) -> _Array:
    """Return dollars as billed, else at prices, by which samples and verdicts share a round's request."""
    record, prices = ledger.record, ledger.model.prices
    billed = record.sparse("usd")
    if billed is not None:
        paid = ledger.divided(billed, lambda: record.of_answers("answer_usd", billed))
        unbilled = np.isnan(billed)
        settled = np.where(unbilled & record.traces.exists, 0.0, paid)
        record.known(settled, "column 'answer_usd', what the answers alone cost,")
        return np.where(unbilled, np.nan if prices is None else _priced(ledger, prices), paid)
    if prices is None:
        raise UnknownCostError(
            f"{record.source} has no column 'usd', and no prices were given; type --price-model MODEL, or "
            "--prices input=0.15,output=0.60 (USD per million tokens), in Python "
            "cost_model=suffice.CostModel(prices=suffice.costs.prices.prices_of(MODEL))"
        )
    return _priced(ledger, prices)


def _priced(ledger: _Ledger, prices: Prices) -> _Array:
    (_, base), *tiers = prices.tariffs
    paid = _charged(ledger, base)
    for above, tariff in tiers:
        long = ledger.record.column("prompt_tokens") > above
        if long.any():
            paid = np.where(long, _charged(ledger, tariff), paid)
    return paid


def _charged(ledger: _Ledger, tariff: Tariff) -> _Array:
    """Multiply usage by charges; usage with a zero or equal charge is not read."""
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
    paid = ledger.record.nothing
    for name, charge in units.items():
        if charge:
            paid = paid + charge * ledger.cost(name)
    return paid


def _evaluated_tokens(ledger: _Ledger) -> _Array:
    return ledger.cost("prompt_tokens") - ledger.cost("cached_tokens")


def _all_calls(ledger: _Ledger) -> _Array:
    return ledger.cost("llm_calls") + ledger.cost("rerank_calls")


def _retrievals(ledger: _Ledger) -> _Array:
    return ledger.record.column("retrievals")


def _joules(ledger: _Ledger) -> _Array:
    return _charged(ledger, ledger.model.energy)


# --- the registry ---------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Cost:
    """A cost with a fixed name.

    ``label`` and ``unit`` name it on axes and in tables (no unit: a count); ``compute`` returns it for each
    recorded round. ``of_answers``: whether answers have a part in it; otherwise it is the loop's alone.
    """

    name: str
    label: str
    summary: str
    compute: Callable[[_Ledger], _Array]
    unit: str = ""
    of_answers: bool = True


_PROMPT = "prompt tokens, cached and uncached together"
_UNCACHED = "prompt tokens not served from cache"
_CALLS = (
    "calls to the model: the loop's own, and answers, samples and verdicts that the policy reads"
)
_JUDGED = "calls to a judge; 0 for a policy that reads no verdict"
_LOOKED = "one-token looks; 0 for a policy that reads none"
_RERANKED = "calls to a reranker; 0 for a policy that reads no reranker score"
_ALL = (
    Cost("llm_calls", "model calls", _CALLS, _llm_calls),
    Cost("prompt_tokens", "prompt tokens", _PROMPT, _tokens("prompt_tokens")),
    Cost("cached_tokens", "cached tokens", "prompt tokens served from cache", _cached_tokens),
    Cost(
        "completion_tokens", "completion tokens", "generated tokens", _tokens("completion_tokens")
    ),
    Cost("evaluated_tokens", "uncached prompt tokens", _UNCACHED, _evaluated_tokens),
    Cost("calls", "all calls", "model calls and reranker calls that the policy reads", _all_calls),
    Cost("judge_calls", "judge calls", _JUDGED, _judge_calls, of_answers=False),
    Cost("look_calls", "looks", _LOOKED, _look_calls, of_answers=False),
    Cost("rerank_calls", "reranker calls", _RERANKED, _rerank_calls, of_answers=False),
    Cost(
        "retrievals", "retrievals", "queries sent to the retriever", _retrievals, of_answers=False
    ),
    Cost("passages", "passages", "passages added to the prompt", _passages, of_answers=False),
    Cost("seconds", "time", "wall seconds of the rounds as they were recorded", _seconds, "s"),
    Cost("usd", "price", "US dollars as billed, else at given prices", _usd, "USD"),
    Cost("joules", "energy", "energy by stated constants", _joules, "J"),
    Cost(
        "rounds", "rounds", "rounds", lambda ledger: ledger.record.nothing + 1.0, of_answers=False
    ),
)
COSTS: Mapping[str, Cost] = MappingProxyType({cost.name: cost for cost in _ALL})
TOKENS = ("evaluated_tokens", "prompt_tokens")
"""The cost "tokens": uncached prompt tokens if the record tells them, else all prompt tokens."""
USUAL_COSTS = ("usd", *TOKENS, "llm_calls", "rounds")
"""What policies are compared at unless a cost is named: the first that is known and that fixed budgets
differ in. Over a fixed ranking every fixed-k is one call, and a frontier at calls would say nothing."""


def find_cost(name: str) -> Cost:
    if name not in COSTS:
        raise UsageError(unknown_name("cost", name, COSTS))
    return COSTS[name]


class StopCosts(Mapping[str, "_Array | None"]):
    """Costs of stopping after each round, by name, computed on first use."""

    def __init__(self, ledgers: tuple[_Ledger, ...]) -> None:
        self._ledgers = ledgers
        self._costs: dict[str, _Array | None] = {}

    def __getitem__(self, name: str) -> _Array | None:
        if name not in self._costs:
            try:
                known = self.known(name)
            except UnknownCostError:
                known = None
            if known is not None and known.size > _KEPT_CELLS:
                return known
            self._costs[name] = known
        return self._costs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COSTS)

    def __len__(self) -> int:
        return len(COSTS)

    def known(self, name: str) -> _Array:
        """Return each round's own costs summed up to the stop, plus the answer of the stop."""
        loop, *answers = self._ledgers
        summed = np.cumsum(loop.cost(name), axis=1)
        if answers:
            summed = summed + answers[0].cost(name)
        if summed.size > _SHARED_CELLS:
            for ledger in self._ledgers:
                ledger.forget()
        return summed


def stop_costs(
    traces: TraceSet | RecordedUsage,
    *,
    reads: CostReads | None = None,
    model: CostModel | None = None,
    answered: bool = True,
) -> StopCosts:
    """Return the costs of stopping after each round, (n_questions, n_rounds); ``None``: partly unknown.

    A policy pays for the loop itself and for the samples, verdicts and reranker scores that it reads. It
    pays for every answer up to its stop if it reads answers, else for the one at its stop (METHODS, costs as
    run). So a cost may fall from one round to the next: fixed-k pays for the answer of round k alone. NaN
    past a question's last recorded round. Not ``answered``: the least cost of any later stop.
    """
    record = traces if isinstance(traces, RecordedUsage) else RecordedUsage(traces)
    reads, model = reads or CostReads(), model or CostModel()
    if model.charge == "published":
        reads = replace(reads, answers=True, at_end=True)
    if reads.answers or (reads.samples and record.samples_answer):
        return StopCosts((_Ledger(record, reads, model),))
    apart = tuple(_Ledger(record, reads, model, part) for part in ("loop", "answer"))
    return StopCosts(apart if answered else apart[:1])


def cost_matrix(
    traces: TraceSet | RecordedUsage,
    name: str,
    *,
    reads: CostReads | None = None,
    model: CostModel | None = None,
) -> _Array:
    """Return one cost of :func:`stop_costs`, (n_questions, n_rounds)."""
    find_cost(name)
    try:
        return stop_costs(traces, reads=reads, model=model).known(name)
    except UnknownCostError as error:
        raise UnknownCostError(f"cost {name!r} is unknown: {error}") from error
