"""Signals of a record as dense arrays, or of a live loop round by round, and their absences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from suffice.contracts import Action, Decision, PolicyTable, StopPolicy
from suffice.errors import UsageError
from suffice.signals import plugins
from suffice.signals.abstained import ABSTAINED, abstained_signal, stated_phrases
from suffice.signals.answer_stability import forms
from suffice.signals.columns.rounds import RoundColumns
from suffice.signals.known_signals import (
    READS,
    SIGNALS,
    UNDEFINED,
    SignalSpec,
    given_by,
    resolve,
    unanswered,
    undefined_in_words,
)
from suffice.stats.units import Array, Mask
from suffice.trace.parquet import to_cells
from suffice.trace.rounds.records import NOT_READ, LoopView, Round
from suffice.trace.rounds.schema import ROUND_COLUMNS, SCHEMA
from suffice.trace.rounds.trace_set import TraceSet, is_veiled


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Say why a record, a loop or a round (``source``) does not give a signal.

    ``columns`` are missing. ``give`` says what to type; ``None`` stands for what a record needs.
    """

    spec: SignalSpec
    columns: tuple[str, ...]
    source: str
    because: str = ""
    give: str | None = None

    @property
    def no_columns(self) -> str:
        """Name the missing columns in a sentence; empty if none is missing."""
        return f"the trace has no {' and no '.join(self.columns)}" if self.columns else ""

    @property
    def why(self) -> str:
        """Return the reason, for a list of signals left out."""
        if not self.spec.recorded_only:
            return self.no_columns or self.because
        by = f" (suffice signals {self.spec.asks})" if self.spec.asks else ""
        return f"needs a model{by}, and is not recorded"

    @property
    def needed(self) -> str:
        """Say what is needed and where it was looked for."""
        if not self.spec.recorded_only and not self.columns:
            return f"cannot be computed from {self.source}"
        what = (
            "a recorded value"
            if self.spec.recorded_only
            else f"column {' and '.join(self.columns)}"
        )
        return f"needs {what}, which {self.source} does not hold"

    @property
    def predicate(self) -> str:
        """Say what is wrong with the signal, and what to do."""
        because = f": {self.because}" if self.because else ""
        give = f"; {self.give}" if self.give else ""
        if self.give is None and self.spec.recorded_only:
            give = remedy(self.spec)
        instead = f"; use {self.spec.instead} instead" if self.spec.instead else ""
        return f"{self.needed}{because}{give}{instead}"

    def __str__(self) -> str:
        return f"signal {self.spec.name!r} {self.predicate}"


def remedy(spec: SignalSpec) -> str:
    """Say how a model gives the signal, for the end of an error message; empty if none does."""
    return f"; compute it with suffice signals {spec.asks}" if spec.asks else ""


def is_stored(spec: SignalSpec, traces: TraceSet) -> bool:
    """Say whether the record holds values of the signal as the policy means it."""
    return not spec.own_settings and spec.name in traces.signal_names


def lack(spec: SignalSpec, traces: TraceSet) -> Lack | None:
    """Return why the record gives the signal in no round; ``None`` if it is stored or can be computed."""
    if is_stored(spec, traces):
        return None
    if (of := given_by(spec)) is not spec:
        return lack(of, traces)
    columns = tuple(column for column in spec.needs if not traces.has(column))
    if columns or spec.recorded_only:
        return Lack(spec=spec, columns=columns, source=traces.origin.source)
    if is_veiled(traces.origin.run) and (spec.answers or _TEXTS & {*spec.needs, *spec.reads}):
        return Lack(
            spec=spec,
            columns=(),
            source=traces.origin.source,
            because="neither its texts nor a value of this signal were recorded",
            give="",
        )
    return None


_TEXTS = frozenset({"passages", "query", "samples", "tokens", "response", "action"})


def in_words(lacks: Iterable[Lack]) -> str:
    """Join the lacks in a sentence; those with the same text share one."""
    names: dict[str, list[str]] = {}
    for lacking in lacks:
        alike = names.setdefault(lacking.predicate, [])
        if (name := repr(lacking.spec.name)) not in alike:  # several are made of one
            alike.append(name)
    return "; also, ".join(
        f"signal {alike[0]} {predicate}"
        if len(alike) == 1
        else f"signals {' and '.join(alike)} each {predicate.replace('needs', 'need', 1)}"
        for predicate, alike in names.items()
    )


def policy_lacks(policy: StopPolicy, lacks: Iterable[Lack]) -> str:
    """Say that a policy cannot decide properly, and why."""
    return f"the {policy.kind} policy {READS}: {in_words(lacks)}"


def lack_live(spec: SignalSpec, view: LoopView) -> Lack | None:
    """Return why a user's loop will hardly ever give a signal that is undefined in its last round."""
    here = view.current
    if spec.name in here.signals and not spec.own_settings:
        return None  # given as undefined
    case = next((case for case in spec.absences if case.input and case.holds(view)), None)
    given = {column for column in spec.needs if getattr(here, column, None) is not None}
    if here.response is not None:
        given.add("verbalized_confidence")  # it may be forgotten in one reply and not in the next
    columns = tuple(column for column in spec.needs if column not in given)
    if case is None and not columns:
        return None
    written, because = ", ".join(f"{column}=..." for column in columns), ""
    if case is not None and (spec.recorded_only or not columns):
        written = case.input
        because = f"it holds {', '.join(map(repr, here.signals))}" if here.signals else ""
    if case is not None and not spec.recorded_only and not columns:
        because = case.why
    return Lack(
        spec=spec,
        columns=columns,
        source=f"round {len(view.rounds)} of this loop",
        because=because,
        give=f"write suffice.Round(answer=..., {written})",
    )


def nowhere_defined(traces: TraceSet, table: PolicyTable, names: Iterable[str]) -> dict[str, str]:
    """Return those of the signals that no round defines, each with the reason at a last round."""
    empty = [declared(name, traces) for name in names if np.isnan(table.signal(name)).all()]
    *_, view = next(traces.views([*read_columns(empty), "signals"]))
    return {spec.name: f"{undefined_in_words(spec, view)} in every round" for spec in empty}


def refuse_lacking(specs: Iterable[SignalSpec], traces: TraceSet) -> None:
    """Refuse signals that the record does not give, all at once."""
    lacks = [why for spec in specs if (why := lack(spec, traces)) is not None]
    if lacks:
        raise UsageError(in_words(lacks))


def given_signals(traces: TraceSet) -> tuple[str, ...]:
    """Return the names of the signals that the record gives: fixed names first, then the user's own."""
    fixed = (name for name, spec in SIGNALS.items() if lack(spec, traces) is None)
    other = {*SIGNALS, *NOT_READ}
    return (*fixed, *(name for name in traces.signal_names if name not in other))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalTable:
    """Hold signals by name, each float64 (n_questions, n_rounds) stored round-major; NaN: undefined.

    ``exists`` (n_questions, n_rounds) marks recorded rounds. Policies that draw lots read ``question_ids``,
    which may be empty. ``loop`` holds the rounds of a one-question table and explains undefined signals.
    """

    values: Mapping[str, Array]
    exists: Mask
    question_ids: Sequence[str] = ()
    loop: LoopView | None = None

    @classmethod
    def of_loop(
        cls, loop: LoopView, values: Mapping[str, Sequence[float] | Array], question_id: str
    ) -> SignalTable:
        """Make the table of one question from the values of its rounds so far."""
        return cls(
            values={name: np.array([column], np.float64) for name, column in values.items()},
            exists=np.ones((1, len(loop.rounds)), bool),
            question_ids=(question_id,),
            loop=loop,
        )

    @classmethod
    def of_view(cls, view: LoopView, specs: Iterable[SignalSpec], question_id: str) -> SignalTable:
        """Make the table of one question from its rounds, as replay reads it."""
        specs = tuple(specs)
        columns = unchecked_columns(GrowingRecord(view, specs).rounds.traces, specs)
        named = {spec.name: column[0] for spec, column in zip(specs, columns, strict=True)}
        return cls.of_loop(view, named, question_id)

    @property
    def n_questions(self) -> int:
        return int(self.exists.shape[0])

    @property
    def n_rounds(self) -> int:
        return int(self.exists.shape[1])

    def signal(self, name: str) -> Array:
        """Return a signal's values, (n_questions, n_rounds)."""
        try:
            return self.values[name]
        except KeyError:
            raise UsageError(
                f"signal {name!r} is not in the table; it holds {', '.join(sorted(self.values))}"
            ) from None

    def undefined(self, spec: SignalSpec, question: int, round_number: int) -> str:
        """Say that a signal is undefined at a round, and why."""
        del question  # the only one
        if self.loop is None:
            return "undefined"
        return undefined_in_words(spec, replace(self.loop, rounds=self.loop.rounds[:round_number]))


def first_stops(policy: StopPolicy, table: SignalTable) -> NDArray[np.int16]:
    """Return the first round at which the policy fires, (n_questions,), from 1; ``n_rounds`` if never."""
    plugins.refuse_otherwise_live(policy, table)
    fires = plugins.mask_of(policy, table).T
    running = np.ones(table.n_questions, np.bool_)
    stops = np.ones(table.n_questions, np.int16)
    for held in fires[:-1]:
        np.greater(running, held, out=running)  # running and not held, in one pass
        np.add(stops, running, out=stops)
    facts = policy.facts
    if facts.max_rounds == facts.earliest > table.n_rounds:
        stops[:] = facts.max_rounds
    return stops


_GOES_ON = Decision(action=Action.CONTINUE, reason="", values={})
_STOPS = Decision(action=Action.STOP, reason="", values={}, stopped_by="policy")


def decisions(policy: StopPolicy, table: SignalTable, first: int = 0) -> list[Decision]:
    """Return the policy's decisions on one question from a round on, from 0; only the last has a reason."""
    fires = zip(
        plugins.mask_of(policy, table)[0][first:], confidences(policy, table)[first:], strict=True
    )
    with plugins.answered_by(policy, f"the {policy.kind} policy"):
        said = policy.explain(table, 0, table.n_rounds)
    told = [replace(_STOPS if stops else _GOES_ON, confidence=sure) for stops, sure in fires]
    return [*told[:-1], replace(told[-1], reason=said.reason, values=said.values)]


def decide(policy: StopPolicy, table: SignalTable) -> Decision:
    """Return the policy's decision after the last round of one question."""
    return decisions(policy, table, table.n_rounds - 1)[0]


def confidences(policy: StopPolicy, table: SignalTable) -> list[float | None]:
    """Return a policy's confidence after each round of one question; ``None`` if it is undefined."""
    sure = getattr(policy, "confidence", lambda _: None)(table)  # isinstance would take long
    if sure is None:
        return [None] * table.n_rounds
    return [None if math.isnan(value) else value for value in sure[0].tolist()]


class GrowingRecord:
    """Keep a running question as a record that grows by one round at a time.

    Its signals are columns of that record, read at the last round.
    """

    def __init__(self, view: LoopView, specs: Iterable[SignalSpec]) -> None:
        self.view: LoopView = view
        self.specs: tuple[SignalSpec, ...] = tuple(specs)
        wanted = {"answer", "signals", *read_columns(self.specs)}
        self._columns = [column for column in ROUND_COLUMNS if column.name in wanted]
        names = ("question_id", "question", "round", *(column.name for column in self._columns))
        self._schema = pa.schema([SCHEMA.field(name) for name in names])
        self._tables: list[pa.Table] = []  # one, once it was read
        self._states: dict[str, tuple[int, float, Callable[[Round], float]]] = {}
        self._read: RoundColumns | None = None

    def observe(self, finished: Round) -> dict[str, float]:
        """Add a round and return the signals there by name; NaN if undefined."""
        self.see(LoopView(self.view.question, (*self.view.rounds, finished)))
        return {spec.name: self.value(spec) for spec in self.specs}

    def see(self, view: LoopView) -> None:
        """Replace the rounds; keep what was read of the first rounds if they are the same."""
        same = min(len(self.view.rounds), len(view.rounds))
        while same and self.view.rounds[same - 1] is not view.rounds[same - 1]:
            same -= 1
        self.view, self._read = view, None
        self._tables = [table.slice(0, same) for table in self._tables]
        self._states = {name: one for name, one in self._states.items() if one[0] <= same}

    def value(self, spec: SignalSpec) -> float:
        """Return a signal at the last round: recorded if there is a value, else computed."""
        recorded = None if spec.own_settings else self.view.current.signals.get(spec.name)
        return self.computed(spec) if recorded is None else float(recorded)

    def computed(self, spec: SignalSpec) -> float:
        """Compute a signal at the last round; NaN if it needs an answer that was not asked for."""
        if unanswered(spec, self.view):
            return UNDEFINED
        if spec.columns is None:
            return spec(self.view)
        if spec.running is not None:
            return self._followed(spec.name, spec.running)
        return float(spec.columns(self.rounds)[-1])

    def _followed(self, name: str, running: Callable[[], Callable[[Round], float]]) -> float:
        read, value, follow = self._states.get(name) or (0, UNDEFINED, running())
        for held in self.view.rounds[read:]:
            value = follow(held)
        self._states[name] = len(self.view.rounds), value, follow
        return value

    @property
    def rounds(self) -> RoundColumns:
        if self._read is None:
            read = sum(table.num_rows for table in self._tables)
            rows = [self._row(index) for index in range(read, len(self.view.rounds))]
            added = [*self._tables, pa.Table.from_pylist(rows, self._schema)]
            table = pa.concat_tables(added).combine_chunks()  # a column of many chunks reads slowly
            grown = TraceSet(table, table.slice(0, 0))
            self._read, self._tables = RoundColumns(grown, read_from=table.num_rows - 1), [table]
        return self._read

    def _row(self, index: int) -> dict[str, Any]:
        named = {"question_id": "", "question": self.view.question, "round": index + 1}
        return named | to_cells(self.view.rounds[index], self._columns)


def signal_table(
    traces: TraceSet,
    signals: Iterable[str | SignalSpec],
    columns_of: Callable[[Sequence[SignalSpec]], Sequence[Array]] | None = None,
) -> SignalTable:
    """Return these signals of a record, stored ones as they are; ``columns_of`` measures them."""
    specs = specs_for(traces, signals)
    columns = signal_columns(traces, specs) if columns_of is None else columns_of(specs)
    return SignalTable(
        values={spec.name: values for spec, values in zip(specs, columns, strict=True)},
        exists=traces.exists,
        question_ids=traces.question_ids,
    )


def specs_for(traces: TraceSet, signals: Iterable[str | SignalSpec]) -> tuple[SignalSpec, ...]:
    """Return the signals' declarations, the last one of each name."""
    resolved = (
        declared(signal, traces) if isinstance(signal, str) else signal for signal in signals
    )
    specs = tuple({spec.name: spec for spec in resolved}.values())
    refuse_lacking(specs, traces)
    return specs


def declared(name: str, traces: TraceSet, *, also: Iterable[str] = ()) -> SignalSpec:
    """Return a signal by name; ``abstained`` uses the phrases that the record states."""
    stated = stated_phrases(traces.origin.run)
    if name == ABSTAINED.name and stated is not None:
        return abstained_signal(stated)
    return resolve(name, also=(*traces.signal_names, *also))


def signal_columns(traces: TraceSet, specs: Sequence[SignalSpec]) -> list[Array]:
    """Return each signal in every recorded round, stored or computed, (n_questions, n_rounds)."""
    values = unchecked_columns(traces, specs)
    plugins.refuse_unlike_live(traces, specs, values)
    return values


def unchecked_columns(traces: TraceSet, specs: Sequence[SignalSpec]) -> list[Array]:
    """Return the same without asking somebody else's signals twice, for loops that grow."""
    rounds = RoundColumns(traces)
    unknown = np.full((traces.n_rounds, traces.n_questions), math.nan).T
    nowhere = np.zeros((traces.n_questions, traces.n_rounds), bool)
    read = [
        traces.stored_signal(spec.name) if is_stored(spec, traces) else (unknown, nowhere)
        for spec in specs
    ]
    absent = [traces.exists & ~stored for _, stored in read]
    values = [recorded for recorded, _ in read]
    computed: dict[int, Array] = {}
    by_round = []
    for number, spec in enumerate(specs):
        if spec.recorded_only or not absent[number].any():
            continue
        if spec.columns is None:
            by_round.append(number)
            continue
        with plugins.answered_by(plugins.code_of(spec), f"signal {spec.name!r}"):
            column = np.asarray(spec.columns(rounds), np.float64).reshape(rounds.n_rows)
        if spec.answers and given_by(spec) is spec:
            column = np.where(rounds.answered, column, math.nan)
        computed[number] = traces.dense(column)
    computed |= zip(by_round, _round_by_round(traces, [specs[i] for i in by_round]), strict=True)
    for number, column in computed.items():
        values[number] = np.where(absent[number].T, column.T, values[number].T).T
    return values


def answer_votes(traces: TraceSet) -> Array:
    """Count the rounds so far with each round's answer, (n_questions, n_rounds); NaN: it abstains."""
    from suffice.stats.series import occurrences

    spec = declared(ABSTAINED.name, traces)
    refuse_lacking([spec], traces)
    (abstained,) = signal_columns(traces, [spec])
    codes = traces.dense(RoundColumns(traces).once(forms).codes.astype(np.float64))
    return occurrences(np.where(abstained == 0.0, codes, np.nan))


def read_columns(specs: Iterable[SignalSpec]) -> list[str]:
    """Return the columns that these signals are computed of, optional ones included."""
    read = {column for spec in specs for column in (*spec.needs, *spec.reads)}
    return sorted(read | {"passages"})


def _round_by_round(traces: TraceSet, specs: Sequence[SignalSpec]) -> list[Array]:
    """Compute a user's own signals, which are asked about every prefix of every question."""
    if not specs:
        return []
    rounds_first = np.full((len(specs), traces.n_rounds, traces.n_questions), math.nan)
    for question, views in enumerate(traces.views(read_columns(specs))):
        for number, view in enumerate(views):
            for index, spec in enumerate(specs):
                if not unanswered(spec, view):
                    rounds_first[index, number, question] = spec(view)
    return [values.T for values in rounds_first]
