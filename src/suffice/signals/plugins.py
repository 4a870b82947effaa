"""Policies and signals of other packages: failures in a line, and whether live loops decide as replay does.

Those of Suffice are held by its own tests and pay for no check.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import PolicyTable, StopPolicy
from suffice.errors import DataError, SufficeError, first_line
from suffice.signals.known_signals import SignalSpec, given_by
from suffice.stats.units import Array, Mask

if TYPE_CHECKING:
    from suffice.signals.signal_table import SignalTable
    from suffice.trace.rounds.trace_set import TraceSet

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


def _whose(thing: object) -> str:
    return f"the package {_packages().get(_top(thing), [_top(thing)])[0]}"


@cache
def _packages() -> Mapping[str, list[str]]:
    from importlib.metadata import packages_distributions

    return packages_distributions()  # reads the metadata of all packages


@contextmanager
def answered_by(thing: object, what: str) -> Iterator[None]:
    """Raise a failure of another package's code as a DataError of one line; ``what`` was asked of it."""
    try:
        yield
    except (SufficeError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # such as SystemExit
        if not is_foreign(thing):
            raise
        *_, (frame, line) = walk_tb(error.__traceback__)
        raise DataError(
            f"{what} of {_whose(thing)} failed: {type(error).__name__}: {first_line(error)} "
            f"({Path(frame.f_code.co_filename).name}, line {line})"
        ) from error


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
        f"the {policy.kind} policy of {_whose(policy)}: fires(table) must return a NumPy array of bool, "
        f"shape {shape}, as in table.signal(NAME) >= 0.5; found {' '.join(found.split())}"
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
        before, now = whole[:, some, :rounds], _said(policy, part)
        same = np.isclose(before, now, _SLACK, _SLACK, equal_nan=True)
        for name, row, at in np.argwhere(~same & part.exists)[:1]:
            raise DataError(
                f"the {policy.kind} policy of {_whose(policy)}: its {('stop', 'confidence')[name]} after "
                f"round {at + 1} of question {part.question_ids[row]!r} is {before[name, row, at]:g} in the "
                f"whole record and {now[name, row, at]:g} {how}, as {_MAY_READ}"
            )


def _said(policy: StopPolicy, table: SignalTable) -> Array:
    """Return its stops and its confidence, (2, n_questions, n_rounds)."""
    with answered_by(policy, f"the confidence of the {policy.kind} policy"):
        sure = getattr(policy, "confidence", lambda _: None)(table)
        sure = np.asarray(math.nan if sure is None else sure, np.float64)
        sure = np.broadcast_to(sure, table.exists.shape)
    return np.stack([mask_of(policy, table), sure])


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
    return replace(
        table,
        values={name: of[rows, :rounds] for name, of in table.values.items()},
        exists=table.exists[rows, :rounds],
        question_ids=[table.question_ids[row] for row in rows],
    )


# --- signals -------------------------------------------------------------------------------------
def code_of(spec: SignalSpec) -> object:
    """Return the function that computes a signal, or the one it is made of; one of ours if it is recorded."""
    of = given_by(spec)
    code = of.columns or of.compute or given_by
    return getattr(code, "function", code)


def refuse_unlike_live(
    traces: TraceSet, specs: Sequence[SignalSpec], values: Sequence[Array]
) -> None:
    """Refuse other packages' signals if live loops give others than these, (n_questions, n_rounds).

    Questions are asked again from the last back, whole and cut.
    """
    from suffice.signals.signal_table import SignalTable, read_columns

    pairs = [pair for pair in zip(specs, values, strict=True) if is_foreign(code_of(pair[0]))]
    if not (theirs := [spec for spec, _ in pairs]):
        return
    rows = _some(traces.n_questions, min(_MOST_QUESTIONS, 1 + _MOST_LOOPS // traces.n_rounds))
    chosen = np.bincount(rows, minlength=traces.n_questions) > 0
    views = traces.take(chosen).views([*read_columns(theirs), "signals"])
    for question, of_question in reversed([*zip(rows.tolist(), views, strict=True)]):
        for view in (of_question[-1], of_question[question % len(of_question)]):
            live = SignalTable.of_view(view, theirs, "")
            for spec, of in pairs:
                before, now = of[question, : len(view.rounds)], live.signal(spec.name)[0]
                same = np.isclose(before, now, _SLACK, _SLACK, equal_nan=True)
                for at in np.flatnonzero(~same)[:1]:
                    raise DataError(
                        f"signal {spec.name!r} after round {at + 1} of question "
                        f"{traces.question_ids[question]!r} is {before[at]:g} in the whole record and "
                        f"{now[at]:g} of rounds 1 to {len(now)}, as {_MAY_READ}"
                    )
