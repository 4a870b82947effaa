"""Settings fields as options of commands, described beside the field."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from suffice.errors import UsageError

Settings = TypeVar("Settings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A settings field as an option of a command: ``levels: Annotated[int, Option(help="...")] = 9``.

    The field's type says how a text is read and which choices there are. The field's default holds if the
    option is not given; the help shows it, unless ``help`` says "default:".
    """

    help: str
    metavar: str | None = None
    name: str | None = None  # without dashes; None: the field's name
    choices: tuple[str, ...] | None = None  # allowed texts; None: those that the type lists
    # may raise ValueError or UsageError; None: by the type
    parse: Callable[[str], Any] | None = None
    at_least: int | None = None
    repeats: bool = False  # a tuple is given one value at a time
    bare: Any = None  # the value if none follows; None: a value must follow
    positional: bool = False  # a word without a name before it


_MOST_THRESHOLDS = 10_000


def as_tuple(given: Any) -> tuple[Any, ...]:
    """Return several values as a tuple; a single text, path or object is one value.

    >>> as_tuple("tasr"), as_tuple(["tasr", "fixed-2"])
    (('tasr',), ('tasr', 'fixed-2'))
    """
    several = isinstance(given, Iterable) and not isinstance(given, str | os.PathLike)
    return tuple(given) if several else (given,)


def settings_of(kind: type[Settings], given: Settings | None) -> Settings:
    """Return the settings, or the defaults for ``None``; refuse other types."""
    if given is not None and not isinstance(given, kind):
        found = f"{type(given).__name__}: {given!r:.60}"
        raise UsageError(f"settings are a {kind.__module__}.{kind.__name__}(...), found {found}")
    return kind() if given is None else given


def settle(settings: Any, **fields: Any) -> None:
    """Set fields of frozen settings, while they are built."""
    for name, value in fields.items():
        object.__setattr__(settings, name, value)


def read_names(text: str) -> tuple[str, ...]:
    """Read names separated by commas.

    >>> read_names("a, b")
    ('a', 'b')
    """
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError(f"must be names separated by commas, found {text!r}")
    return names


def as_share(given: float | str, what: str = "a share") -> float:
    """Read a share in [0, 1], which may be a text or in percent.

    >>> as_share("2%"), as_share(0.02)
    (0.02, 0.02)
    """
    try:
        text = str(given).strip()
        value = finite(text.removesuffix("%"))
        value = round(value / 100.0, 12) if text.endswith("%") else value
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0:
        points = 1.0 < value <= 100.0
        meant = f"; did you mean {value / 100:g}, which is {value:g}%?" if points else ""
        raise UsageError(f"{what} is a number from 0 to 1, or in percent, found {given}{meant}")
    return value


def read_since(text: str) -> datetime:
    """Read a past moment in UTC: ``12h``, ``7d`` or ``2w`` ago, or an ISO date or time."""
    now, number, hours = datetime.now(UTC), text[:-1], {"h": 1, "d": 24, "w": 168}.get(text[-1:])
    with suppress(ValueError, OverflowError):
        if hours and number.isdecimal():
            moment = now - timedelta(hours=hours * int(number))
        else:
            stated = datetime.fromisoformat(text)
            moment = stated.replace(tzinfo=stated.tzinfo or UTC).astimezone(UTC)
        if moment < now:
            return moment
    allowed = "12h, 7d, 2w, 2026-01-31 or 2026-01-31T08:00 (UTC)"
    raise UsageError(f"must be a past time, as {allowed}; found {text!r:.60}")


def read_grid(text: str) -> tuple[float, ...]:
    """Read numbers separated by commas, or ``LOW:HIGH:STEP`` with both ends.

    >>> read_grid("0:1:0.5")
    (0.0, 0.5, 1.0)
    """
    if ":" not in text:
        return tuple(finite(part) for part in text.split(","))
    parts = [finite(part) for part in text.split(":")]
    if len(parts) != 3 or parts[2] <= 0 or parts[1] < parts[0]:
        raise ValueError(f"must be LOW:HIGH:STEP with LOW <= HIGH and STEP > 0, found {text!r}")
    low, high, step = parts
    count = int((high - low) / step + 1e-9) + 1
    if count > _MOST_THRESHOLDS:
        raise ValueError(f"at most {_MOST_THRESHOLDS} thresholds, found {count} in {text!r}")
    return tuple(round(low + step * index, 12) for index in range(count))


def read_range(text: str) -> tuple[float, ...]:
    """Read two numbers as ``LOW,HIGH``."""
    if text.count(",") != 1:
        raise ValueError(f"must be LOW,HIGH as in 1,5, found {text!r:.60}")
    return tuple(map(finite, text.split(",")))


def finite(text: str) -> float:
    """Read a finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"must be a finite number, found {text!r}")
    return value
