"""Signals derived from another signal's values so far, as ``since_lowest(error)``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from suffice.contracts import Absence
from suffice.errors import UsageError, unknown_name
from suffice.signals.columns.rounds import RoundColumns
from suffice.signals.known_signals import Direction, SignalSpec, WithSettings, resolve
from suffice.stats import series


@dataclass(frozen=True, slots=True)
class Derivation:
    """Describe a way to derive a signal from another one, for all questions at once."""

    compute: Callable[..., series.Values]
    summary: str
    windowed: bool = False
    low: float = 0.0
    high: float = math.inf
    direction: Direction = "high"


_DERIVATIONS = (
    Derivation(series.since_highest, "rounds since the first round with the highest value so far"),
    Derivation(series.since_lowest, "rounds since the first round with the lowest value so far"),
    Derivation(series.rounds_with, "consecutive rounds with a value other than 0"),
    Derivation(series.rounds_without, "consecutive rounds with the value 0"),
    Derivation(
        series.change, "the value minus the previous round's", low=-math.inf, direction="low"
    ),
    Derivation(
        series.mean_of,
        "mean of the value over the last N rounds, as mean_of(NAME, N)",
        windowed=True,
        low=-math.inf,
    ),
    Derivation(
        series.gain,
        "factor by which a round changes an error, smoothed; below 1 it falls (LoopGain)",
    ),
    Derivation(
        series.stalling,
        "consecutive rounds in which an error does not converge, diverge or oscillate (LoopGain)",
    ),
    Derivation(
        series.oscillating, "1 if an error oscillates around one level (LoopGain)", high=1.0
    ),
    Derivation(series.diverging, "1 if an error rises (LoopGain)", high=1.0),
)
DERIVATIONS: Mapping[str, Derivation] = {how.compute.__name__: how for how in _DERIVATIONS}
"""By the word that stands before the brackets."""

_FORM = re.compile(
    r"\s*(?P<how>[A-Za-z_]\w*)\s*\(\s*(?:(?P<top>\d+\.?\d*|\.\d+)\s*-\s*)?(?P<of>[A-Za-z_]\w*)"
    r"\s*(?:,\s*(?P<window>\d{1,5})\s*)?\)\s*"
)


@dataclass(frozen=True, slots=True)
class DerivedName:
    """Hold the parts of a derived signal's name; ``top`` is the number that the signal is subtracted from."""

    how: str
    of: str
    top: float | None = None
    window: int | None = None

    @classmethod
    def parse(cls, text: str) -> DerivedName | None:
        """Parse a name with brackets; return ``None`` for a name without."""
        if "(" not in text:
            return None
        match = _FORM.fullmatch(text)
        if match is None:
            raise UsageError(
                f"no signal: {text!r}; one made of another is written since_lowest(NAME) or, of a score of "
                "at most 1, gain(1 - NAME)"
            )
        if match["how"] not in DERIVATIONS:
            raise UsageError(unknown_name("signal of another", match["how"], DERIVATIONS))
        top, window = match["top"], match["window"]
        rounds = [] if window is None else [int(window)]
        return cls.of_rule(match["how"], match["of"], None if top is None else float(top), rounds)

    @classmethod
    def of_rule(cls, how: str, of: str, top: float | None, window: Sequence[int]) -> DerivedName:
        """From its parts; refused where rounds are missing, or are not read."""
        if len(window) != DERIVATIONS[how].windowed or 0 in window:
            form = (
                f"{how}(NAME, 3), with the rounds," if DERIVATIONS[how].windowed else f"{how}(NAME)"
            )
            raise UsageError(
                f"{how} is written {form} found {how}({', '.join([of, *map(str, window)])})"
            )
        return cls(how, of, top, *window)

    def __str__(self) -> str:
        less = "" if self.top is None else f"{self.top:g} - "
        window = "" if self.window is None else f", {self.window}"
        return f"{self.how}({less}{self.of}{window})"

    def apply(self, values: series.Values) -> series.Values:
        """Return the derived values of a signal's values, (n_questions, n_rounds) each."""
        series_of = values if self.top is None else self.top - values
        window = () if self.window is None else (self.window,)
        return DERIVATIONS[self.how].compute(series_of, *window)


def _derived(rounds: RoundColumns, name: DerivedName, made_of: SignalSpec | None) -> series.Values:
    """Compute a derived signal, (n_rows,), also of a signal with a policy's own settings."""
    from suffice.signals.signal_table import (  # which resolves names, these too
        declared,
        unchecked_columns,
    )

    spec = declared(name.of, rounds.traces, also=(name.of,)) if made_of is None else made_of
    (values,) = unchecked_columns(rounds.traces, [spec])
    return name.apply(values)[rounds.traces.exists]


_FIRST = Absence("there is no earlier round", lambda view: view.previous is None)


def derived_signal(
    name: DerivedName, also: Iterable[str] = (), *, made_of: SignalSpec | None = None
) -> SignalSpec:
    """Declare a derived signal; it needs and charges the same as the signal it is made of."""
    of = resolve(name.of, also=also) if made_of is None else made_of
    how = DERIVATIONS[name.how]
    earlier = f"an earlier round has no {of.name}, or one that is no error"
    return SignalSpec(
        name=str(name),
        summary=f"of {of.name}: {how.summary}",
        needs=of.needs,
        reads=of.reads,
        answers=of.answers,
        charges=of.charges,
        low=how.low,
        high=how.high,
        direction=how.direction,
        columns=WithSettings(_derived, (name, made_of)),
        binary=how.high == 1.0,
        instead=of.instead,
        asking=of.asking,
        undefined=(*of.absences, _FIRST, Absence(earlier, lambda _: True)),
        own_settings=of.own_settings,
        of=of,
    )


def with_meaning(spec: SignalSpec, own: SignalSpec) -> SignalSpec:
    """Replace a signal, or the signal it is derived from, by ``own`` if it has that name."""
    if spec.name == own.name:
        return own
    name = None if spec.of is None or spec.of.name != own.name else DerivedName.parse(spec.name)
    return spec if name is None else derived_signal(name, made_of=own)
