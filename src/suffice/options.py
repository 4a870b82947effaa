"""How a settings field is an option of a command: described once, beside the field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What a command says of a settings field, as in ``levels: Annotated[int, Option(help="...")] = 9``.

    The field's type says how a text is read and which choices there are, its default what holds where
    the option is not given.

    Parameters
    ----------
    help
        What it means. The default is added unless the text says "default:" itself.
    metavar
        What stands for a value in the help.
    name
        The option's name where it is not the field's, without dashes.
    choices
        Allowed texts where the field's type does not list them.
    parse
        Reads a value from its text, raising ``ValueError`` or a ``UsageError``; ``None``: by the type.
    at_least
        The least whole number allowed; ``None``: any.
    repeats
        Whether a tuple is given one value at a time.
    goes_with
        A field of the same settings and the value without which this one has no meaning.
    otherwise
        Added to the refusal where several settings share options and the chosen one has not this one.
    """

    help: str
    metavar: str | None = None
    name: str | None = None
    choices: tuple[str, ...] | None = None
    parse: Callable[[str], Any] | None = None
    at_least: int | None = None
    repeats: bool = False
    goes_with: tuple[str, str] | None = None
    otherwise: str | None = None
