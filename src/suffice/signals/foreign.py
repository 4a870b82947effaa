"""Policies and signals of other packages: their failures in a line, and whether they keep their contract.

Those of Suffice are held by its own tests and pay for no check.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import PolicyTable, StopPolicy
from suffice.errors import DataError, SufficeError, first_line
from suffice.signals.known_signals import SignalSpec, given_by
from suffice.stats.units import Array, Mask

if TYPE_CHECKING:
    from suffice.signals.columns.rounds import RoundColumns
    from suffice.signals.known_signals import Columns
    from suffice.signals.signal_table import SignalTable
    from suffice.trace.rounds.trace_set import TraceSet

ENTRY_POINTS = "suffice.methods"
_MOST_QUESTIONS = 2_000
_MOST_LOOPS = 10_000  # tables of one question, or rounds of a signal: a second or so
_SLACK = 1e-6  # of numbers: products of another shape may round differently
_MAY_READ = (
    "in a live loop; what it says of round t may read rounds 1 to t of that question: no later round, other "
    "question, chance or earlier call"
)


def is_foreign(thing: object) -> bool:
    """Say whether a function, or an object's class, is defined outside of Suffice."""
    return _top(thing) != "suffice"


def _top(thing: object) -> str:
    return str(getattr(thing, "__module__", None) or "").partition(".")[0]


def _code(spec: SignalSpec) -> object:
    of = given_by(spec)
    code = of.columns or of.compute
    return getattr(code, "function", code)


def _brought() -> dict[str, str]:
    """Return the packages that bring methods, by the first part of the module's name."""
    from importlib.metadata import entry_points

    return {
        one.value.partition(":")[0].partition(".")[0]: "" if one.dist is None else one.dist.name
        for one in entry_points(group=ENTRY_POINTS)
    }


def failure(error: BaseException, tops: Collection[str] = ()) -> str | None:
    """Describe an error by its last place in these modules, by default all that bring methods, in one line.

    ``None``: it never was there.
    """
    brought = _brought()
    for frame, line in reversed([*walk_tb(error.__traceback__)]):
        top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if top in (tops or brought):
            said = f"{type(error).__name__}: {first_line(error)}"
            return (
                f"{_whose(top)} failed: {said} ({Path(frame.f_code.co_filename).name}, line {line})"
            )
    return None


def _whose(top: str) -> str:
    name = _brought().get(top) or next(iter(_installed().get(top, [])), "")
    return f"the package {name}" if name else f"the module {top}"


@cache
def _installed() -> Mapping[str, list[str]]:
    from importlib.metadata import packages_distributions

    return packages_distributions()  # reads the metadata of all packages


@contextmanager
def answered_by(thing: object, what: str) -> Iterator[None]:
    """Raise a failure of another package's code as a DataError of one line; ``what`` was asked of it."""
    try:
        yield
    except SufficeError:
        raise
    except Exception as error:
        if not is_foreign(thing):
            raise
        said = failure(error, [_top(thing)])
        said = said or f"{_whose(_top(thing))}: {type(error).__name__}: {first_line(error)}"
        raise DataError(f"{what}: {said}") from error


# --- policies ------------------------------------------------------------------------------------
def mask_of(policy: StopPolicy, table: PolicyTable) -> Mask:
    """Return where a policy fires, (n_questions, n_rounds); refuse what is no such mask."""
    with answered_by(policy, f"the {policy.kind} policy"):
        fires = policy.fires(table)
    shape = (table.n_questions, table.n_rounds)
    # no subclass, which may hide values or slice otherwise
    if type(fires) is np.ndarray and fires.dtype == np.bool_ and fires.shape == shape:
        return fires
    found = f"{type(fires).__name__} {getattr(fires, 'dtype', '')} {getattr(fires, 'shape', '')}"
    raise DataError(
        f"the {policy.kind} policy of {_whose(_top(policy))}: fires(table) must return a NumPy array of "
        f"bool, shape {shape}, as in table.signal(NAME) >= 0.5; found {' '.join(found.split())}"
    )


def refuse_otherwise_live(policy: StopPolicy, table: SignalTable) -> None:
    """Refuse another package's policy that decides after round t by more than rounds 1 to t of a question.

    Asked about are all questions, or 2,000 of more: cut after every round, and as loops of one question.
    """
    if not is_foreign(policy):
        return
    rows = _some(table.n_questions, _MOST_QUESTIONS)
    whole = _said(policy, _part(table, rows, table.n_rounds))
    for how, some, rounds in _loops(len(rows), table.n_rounds):
        part = _part(table, rows[some], rounds)
        for name, now in _said(policy, part).items():
            before = whole[name][some, :rounds]
            for row, at in np.argwhere(_differ(before, now) & part.exists)[:1]:
                raise DataError(
                    f"the {policy.kind} policy of {_whose(_top(policy))}: its {name} after round {at + 1} of "
                    f"question {part.question_ids[row]!r} is {before[row, at]} in the whole record and "
                    f"{now[row, at]} {how}, as {_MAY_READ}"
                )


def _said(policy: StopPolicy, table: SignalTable) -> dict[str, NDArray[Any]]:
    said: dict[str, NDArray[Any]] = {"stop": mask_of(policy, table)}
    with answered_by(policy, f"the confidence of the {policy.kind} policy"):
        sure = getattr(policy, "confidence", lambda _: None)(table)
        if sure is not None:
            said["confidence"] = np.broadcast_to(np.asarray(sure, np.float64), table.exists.shape)
    return said


def _differ(before: NDArray[Any], now: NDArray[Any]) -> Mask:
    if now.dtype == np.bool_:
        return np.asarray(before != now)
    return np.asarray(~np.isclose(before, now, rtol=_SLACK, atol=_SLACK, equal_nan=True))


def _some(count: int, most: int) -> NDArray[np.intp]:
    return np.linspace(0, count - 1, min(count, most)).astype(np.intp)


def _loops(questions: int, rounds: int) -> Iterator[tuple[str, slice, int]]:
    """Yield how to ask again, of which questions and of how many of their rounds."""
    yield "when asked again", slice(None), rounds
    for number in range(rounds - 1, 0, -1):
        yield f"without the rounds after {number}", slice(None), number
    pairs = questions * rounds
    drawn = np.random.default_rng(0).choice(pairs, min(pairs, _MOST_LOOPS), replace=False)
    for question, last in zip(*np.divmod(drawn, rounds), strict=True):
        yield f"of rounds 1 to {last + 1} alone", slice(question, question + 1), last + 1


def _part(table: SignalTable, rows: NDArray[np.intp], rounds: int) -> SignalTable:
    ids = table.question_ids
    return replace(
        table,
        values={name: of[rows, :rounds] for name, of in table.values.items()},
        exists=table.exists[rows, :rounds],
        question_ids=[ids[row] for row in rows] if ids else [""] * len(rows),
    )


# --- signals -------------------------------------------------------------------------------------
def column_of(spec: SignalSpec, columns: Columns, rounds: RoundColumns) -> Array:
    """Return the ``columns`` of a signal, (n_rows,); refuse what is no such column."""
    with answered_by(_code(spec), f"signal {spec.name!r}"):
        values = np.asarray(columns(rounds), np.float64)
    if values.shape != (rounds.n_rows,):
        raise DataError(
            f"signal {spec.name!r} must give a number a round, shape ({rounds.n_rows},), found {values.shape}"
        )
    return values


def refuse_unlike_live(
    traces: TraceSet, specs: Sequence[SignalSpec], values: Sequence[Array], *, ours: bool = False
) -> None:
    """Refuse other packages' signals, and ``ours``, whose values are not those of live loops.

    They are (n_questions, n_rounds). The loops run from the last question back.
    """
    from suffice.signals.signal_table import GrowingRecord, read_columns

    theirs = [spec for spec in specs if (code := _code(spec)) and (ours or is_foreign(code))]
    most = min(_MOST_QUESTIONS, 1 + _MOST_LOOPS // traces.n_rounds) if theirs else 0
    rows = _some(traces.n_questions, most)
    chosen = np.bincount(rows, minlength=traces.n_questions) > 0
    named = dict(zip(specs, values, strict=True))
    views = [last for *_, last in traces.take(chosen).views([*read_columns(theirs), "signals"])]
    for question, view in reversed([*zip(rows.tolist(), views, strict=True)]):
        growing = GrowingRecord(replace(view, rounds=()), theirs)
        for number, held in enumerate(view.rounds):
            live = growing.observe(held)
            for spec in theirs:
                before, now = named[spec][question, number], np.asarray(live[spec.name])
                if _differ(before, now):
                    raise DataError(
                        f"signal {spec.name!r} after round {number + 1} of question "
                        f"{traces.question_ids[question]!r} is {before:g} in the whole record and {now:g} "
                        f"{_MAY_READ}"
                    )
