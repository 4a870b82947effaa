"""Model calls over a whole record, with saved progress and a limit of failures."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from suffice.concurrency import side_by_side, width_of
from suffice.contracts import Encoder, Entailment
from suffice.errors import BackendError, counted
from suffice.stats.units import Array, Mask
from suffice.trace.rounds.records import LoopView

if TYPE_CHECKING:
    from suffice.trace.rounds.trace_set import TraceSet

_Role = Literal["query", "passage"]
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class _Kept(Generic[_Key, _Value]):
    """Keep the values used last, at most ``most`` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[_Key, _Value] = OrderedDict()
        self._lock = threading.Lock()

    def of(
        self, keys: Sequence[_Key], compute: Callable[[Sequence[_Key]], Sequence[_Value]]
    ) -> Mapping[_Key, _Value]:
        """Return the value of every key; one call computes those not kept, without the lock held."""
        with self._lock:
            values_of = {key: self._values[key] for key in keys if key in self._values}
        new = [key for key in dict.fromkeys(keys) if key not in values_of]
        if new:
            values = compute(new)
            if len(values) != len(new):
                raise BackendError(f"asked about {len(new)} texts, got {len(values)} values")
            values_of.update(zip(new, values, strict=True))
        with self._lock:
            for key, value in values_of.items():
                self._values[key] = value
                self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return values_of


class KeptEncoder:
    """Wrap an encoder and keep the vectors used last; a :class:`suffice.contracts.Encoder`."""

    def __init__(self, encoder: Encoder, *, most: int = 4096) -> None:
        self._encoder = encoder
        self.name: str = encoder.name  # the vectors are the same
        self.concurrency: int = width_of(encoder)
        self._kept: _Kept[tuple[_Role, str], NDArray[np.float32]] = _Kept(most)

    def encode(self, texts: Sequence[str], *, role: _Role = "passage") -> NDArray[np.float32]:
        """Return a unit vector for every text, (len(texts), dimension)."""
        if not texts:
            return self._encoder.encode(texts, role=role)

        def encode(keys: Sequence[tuple[_Role, str]]) -> Sequence[NDArray[np.float32]]:
            vectors = self._encoder.encode([text for _, text in keys], role=role)
            return [vector.copy() for vector in vectors]  # a view would keep its whole batch

        vectors = self._kept.of([(role, text) for text in texts], encode)
        return np.stack([vectors[role, text] for text in texts])


class KeptEntailment:
    """Wrap an entailment model and keep the probabilities used last."""

    def __init__(self, model: Entailment, *, most: int = 4096) -> None:
        self._model = model
        self.concurrency: int = width_of(model)
        self._kept: _Kept[tuple[str, str], float] = _Kept(most)

    def entailed(self, pairs: Sequence[tuple[str, str]]) -> Array:
        """Return the entailment probability of every (premise, conclusion), (len(pairs),)."""
        probabilities = self._kept.of(list(pairs), lambda new: self._model.entailed(new).tolist())
        return np.array([probabilities[pair] for pair in pairs], np.float64)


# failures in a row after which the model is taken to be down: so many before the first answer, or so
# many for each question under way
_GIVE_UP_AFTER = 5

_Reply = TypeVar("_Reply")
_Rounds = Sequence[tuple[int, LoopView]]  # of one question, by row
_Batch = Sequence[tuple[int, _Reply | BackendError]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Report progress in rounds or questions (``unit``)."""

    what: str
    finished: int
    failed: int = 0
    planned: int
    unit: str = "rounds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies(Generic[_Reply]):
    """Hold a model's replies by row, its failures, and how many rounds are left."""

    by_row: Mapping[int, _Reply] = field(default_factory=dict)
    failures: Mapping[int, str] = field(default_factory=dict)
    left: int = 0
    interrupted: bool = False


OnProgress = Callable[[Asked], None]
Measured = Mapping[str, float]  # by the signal's name, NaN where undefined


def column_values(traces: TraceSet, name: str) -> list[Any]:
    """Return a column as a list; null in every row if the record has no such column."""
    if name not in traces.table.column_names:
        return [None] * traces.table.num_rows
    values: list[Any] = traces.table.column(name).to_pylist()
    return values


def summary_of_values(replies: Replies[Measured]) -> dict[str, Any]:
    """Count the rounds with values, the undefined ones, the failures and the rounds left."""
    undefined = sum(any(map(math.isnan, values.values())) for values in replies.by_row.values())
    return {
        "rounds": len(replies.by_row) - undefined,
        "undefined": undefined,
        "failed": len(replies.failures),
        "left": replies.left,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Describe how a model computes signals of a whole record for ``suffice signals``."""

    name: str
    option: str
    who: str
    ask: Callable[[TraceSet, Any, Mask, OnProgress], Replies[Any]]
    values: Callable[[Any], Measured] = dict
    columns: Callable[[TraceSet, Any], Mapping[str, list[Any]]] = lambda _traces, _replies: {}
    summary: Callable[[Any], dict[str, Any]] = summary_of_values
    line: str = "the {who} measured {rounds} rounds; {undefined} undefined, {failed} failed"
    inputs: Callable[[TraceSet], bool] | None = None


def asking_rounds(
    name: str,
    option: str,
    who: str,
    what: str,
    measure: Callable[[LoopView, Any], Any],
    *,
    called: Callable[[Any], bool],
    reads: tuple[str, ...] = ("passages",),
    keeping: Callable[[Any], Any] = lambda model: model,
    **told: Any,
) -> Asking:
    """Describe a model that measures one round at a time; ``told`` are fields of :class:`Asking`."""

    def ask(traces: TraceSet, model: Any, wanted: Mask, on_progress: OnProgress) -> Replies[Any]:
        kept = keeping(model)
        question = RoundQuestion(
            what=what,
            who=who,
            ask=lambda view: measure(view, kept),
            called=called,
            on_progress=on_progress,
            concurrency=width_of(kept),
            columns=reads,
        )
        return question.about(traces, wanted)

    return Asking(name=name, option=option, who=who, ask=ask, **told)


@dataclass(slots=True, kw_only=True)
class RoundQuestion(Generic[_Reply]):
    """Ask a model about rounds, one question at a time; a :class:`suffice.concurrency.Work`."""

    what: str
    who: str
    ask: Callable[[LoopView], _Reply]
    called: Callable[[_Reply], bool]
    on_progress: OnProgress
    concurrency: int = 1
    columns: tuple[str, ...] = ("passages",)
    _planned: int = 0
    _by_row: dict[int, _Reply] = field(default_factory=dict)
    _failures: dict[int, str] = field(default_factory=dict)
    _failed_in_a_row: int = 0
    _allowed: int = _GIVE_UP_AFTER
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def about(self, traces: TraceSet, wanted: Mask) -> Replies[_Reply]:
        """Ask about every row where ``wanted`` (n_rows,) is true.

        Rounds of a question are asked in order. A failed call leaves its round without a value, and a later
        run asks again. After five failures in a row (per parallel question, once a call succeeded) it stops.
        After an interrupt it stops too. In both cases it returns the replies so far.
        """
        self._planned = int(wanted.sum())
        rows = count()
        asked = (
            tuple((row, view) for view, row in zip(views, rows, strict=False) if wanted[row])
            for views in traces.views(self.columns)
        )
        questions = filter(None, asked)
        interrupted = side_by_side(self, questions, concurrency=self.concurrency)
        if interrupted:
            self.report()
        failures = dict(sorted(self._failures.items()))
        if failures and not interrupted and not any(map(self.called, self._by_row.values())):
            reason = next(iter(failures.values()))
            raise BackendError(
                f"{counted(len(failures), 'call')} of the {self.who} failed, and none succeeded, the first: "
                f"{reason}"
            )
        return Replies(
            by_row=dict(sorted(self._by_row.items())),
            failures=failures,
            left=self._planned - len(self._by_row) - len(failures),
            interrupted=interrupted,
        )

    def do(self, task: _Rounds, stop: threading.Event) -> _Batch[_Reply]:
        replies: list[tuple[int, _Reply | BackendError]] = []
        for row, view in task:
            if stop.is_set():
                break
            try:
                reply = self.ask(view)
            except BackendError as error:
                replies.append((row, error))
                with self._lock:
                    self._failed_in_a_row += 1
                    if self._failed_in_a_row >= self._allowed:
                        stop.set()
                continue
            replies.append((row, reply))
            if self.called(reply):
                with self._lock:
                    self._failed_in_a_row = 0
                    self._allowed = _GIVE_UP_AFTER * self.concurrency
        return replies

    def keep(self, results: Sequence[tuple[_Rounds, _Batch[_Reply]]], *, broken: bool) -> None:
        del broken
        for row, reply in (answered for _, batch in results for answered in batch):
            if isinstance(reply, BackendError):
                self._failures[row] = str(reply)
            else:
                self._by_row[row] = reply

    def report(self) -> None:
        self.on_progress(
            Asked(
                what=self.what,
                finished=len(self._by_row),
                failed=len(self._failures),
                planned=self._planned,
            )
        )
