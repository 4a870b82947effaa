"""Options of a command made from the fields of settings dataclasses, and the settings read back.

A field ``name: Annotated[type, Option(help=...)] = default`` is the option ``--name``. A field whose type is
another settings dataclass brings that one's options; any other field is the caller's to fill.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass
from inspect import get_annotations
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from suffice.cli.options import (
    add_prices_and_energy,
    argument_type,
    cost_model,
    names,
    number,
    numbers,
    whole,
)
from suffice.costs.usage import CostModel
from suffice.errors import UsageError
from suffice.options import Option

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldOption:
    """A field that is an option: its type without ``Annotated`` and ``None``, its default, its words."""

    field: str
    type: Any
    default: Any
    option: Option
    required: bool = False

    @property
    def dest(self) -> str:
        """Its name among parsed arguments, and in messages that name no option."""
        return (self.option.name or self.field).replace("-", "_")

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        if self.option.positional:
            return self.option.metavar or self.dest.upper()
        off = "no-" if self.default is True else ""
        return f"--{off}{self.dest.replace('_', '-')}"

    @property
    def help(self) -> str:
        """What it means, with its default."""
        said = self.option.help.replace("%", "%%")
        if "default:" in said or self.default is None or isinstance(self.default, bool):
            return said
        listed = isinstance(self.default, tuple)
        shown = ",".join(map(str, self.default)) if listed else self.default
        return said if shown == "" else f"{said} (default: {shown})"


def field_options(settings: type, *, nested: bool = True) -> Iterator[FieldOption]:
    """The options of a settings dataclass, and where ``nested`` those of the dataclasses in its fields."""
    for field, annotation in _fields(settings):
        own = _field_option(field, annotation)
        if own is not None:
            yield own
        elif nested and _is_settings(annotation):
            yield from field_options(annotation)


def add_settings(
    parser: Any,
    settings: type,
    *,
    only: Collection[str] | None = None,
    without: Collection[str] = (),
    nested: bool = True,
    positional: bool = False,
) -> None:
    """Add the options of a settings dataclass to a parser or a group of it.

    What is not given is ``None`` among the parsed arguments. An option the parser has already is left
    as it is.
    """
    for option in field_options(settings, nested=nested):
        chosen = (only is None or option.field in only) and option.field not in without
        if option.option.positional or positional:
            if chosen and option.option.positional and positional:
                told = {**_argument(option), "metavar": option.flag}
                parser.add_argument(option.dest, help=option.help, **told)
            continue
        if chosen and option.flag not in parser._option_string_actions:  # noqa: SLF001 - no other way
            told = _argument(option)
            parser.add_argument(
                option.flag, dest=option.dest, default=None, help=option.help, **told
            )
            if option.option.older is not None:
                hidden = {"default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
                parser.add_argument(f"--{option.option.older}", dest=option.dest, **told, **hidden)
    for field, annotation in _fields(settings):
        taken = field.name not in without and (only is None or field.name in only)
        taken = taken and not positional
        if annotation is CostModel and taken and "--energy" not in parser._option_string_actions:  # noqa: SLF001
            add_prices_and_energy(parser)


def given_options(arguments: argparse.Namespace, settings: type) -> dict[str, Any]:
    """The options of a settings dataclass that were given, by the name they have in messages."""
    return {
        option.dest: value
        for option in field_options(settings)
        if (value := getattr(arguments, option.dest, None)) is not None
    }


def read_settings(arguments: argparse.Namespace, settings: type[T], **stated: Any) -> T:
    """The settings that the arguments ask for; ``stated`` fills fields that are no options."""
    values: dict[str, Any] = {}
    for field, annotation in _fields(settings):
        own = _field_option(field, annotation)
        if field.name in stated:
            values[field.name] = stated[field.name]
        elif own is not None:
            value = getattr(arguments, own.dest, None)
            if value is not None:
                values[field.name] = tuple(value) if own.option.repeats else value
        elif annotation is CostModel and hasattr(arguments, "energy"):
            values[field.name] = cost_model(arguments)
        elif _is_settings(annotation):
            values[field.name] = read_settings(arguments, annotation)
    built = settings(**values)
    _refuse_alone(built, arguments)
    return built


def _refuse_alone(built: object, arguments: argparse.Namespace) -> None:
    """Refuse an option of these very settings that goes with another one's value, not asked for."""
    for field, annotation in _fields(type(built)):
        option = _field_option(field, annotation)
        if option is None or option.option.goes_with is None:
            continue
        other, value = option.option.goes_with
        if getattr(arguments, option.dest, None) is not None and getattr(built, other) != value:
            raise UsageError(f"{option.flag} goes {said_with(option)}; leave it out")


def said_with(option: FieldOption) -> str:
    """``with --family rule only``, of an option that goes with another one's value."""
    other, value = option.option.goes_with or ("", "")
    return f"with --{other.replace('_', '-')} {value} only"


# --- several settings, of which one is chosen by another option ------------------------------------
def add_shared_options(
    parser: Any, settings: Mapping[str, type], *, without: Collection[str] = ()
) -> None:
    """Add the options of several settings dataclasses, each once; the help says whose it is."""
    for having in _shared(settings).values():
        first = next(iter(having.values()))
        if first.field not in without:
            parser.add_argument(
                first.flag,
                dest=first.dest,
                default=None,
                help=_shared_help(having, len(settings)),
                **_argument(first),
            )


def chosen_options(
    arguments: argparse.Namespace, settings: Mapping[str, type], chosen: str, *, by: str
) -> dict[str, Any]:
    """The options of the chosen settings that were given, by field."""
    values: dict[str, Any] = {}
    for dest, having in _shared(settings).items():
        value = getattr(arguments, dest, None)
        if value is None:
            continue
        first = next(iter(having.values()))
        if chosen not in having:
            why = first.option.otherwise
            raise UsageError(
                f"{first.flag} is for {by} {listed(having, 'or')}{'' if why is None else f': {why}'}"
            )
        values[first.field] = value
    return values


def _shared(settings: Mapping[str, type]) -> dict[str, dict[str, FieldOption]]:
    """By destination and name of the settings."""
    shared: dict[str, dict[str, FieldOption]] = {}
    for name, kind in settings.items():
        for option in field_options(kind):
            shared.setdefault(option.dest, {})[name] = option
    return shared


def _shared_help(having: Mapping[str, FieldOption], settings: int) -> str:
    """``budgeted: TEXT (default: 5); chain, react: TEXT (default: 3)``, of an option of some."""
    parts = []
    for text in dict.fromkeys(option.option.help for option in having.values()):
        saying = {name: option for name, option in having.items() if option.option.help == text}
        whose = "" if len(saying) == settings else f"{listed(saying, 'and')}: "
        parts.append(f"{whose}{text.replace('%', '%%')}{_shared_default(saying)}")
    return "; ".join(parts)


def _shared_default(having: Mapping[str, FieldOption]) -> str:
    first, *_ = having.values()
    if "default:" in first.option.help or first.default is None or isinstance(first.default, bool):
        return ""
    others: dict[Any, list[str]] = {}
    for name, option in having.items():
        if option.default != first.default:
            others.setdefault(option.default, []).append(name)
    told = ", ".join(f"{listed(names, 'and')} {default}" for default, names in others.items())
    return f" (default: {first.default}{'; ' if told else ''}{told})"


def listed(names: Iterable[str], last: str) -> str:
    """``a, b or c``.

    >>> listed(["a", "b", "c"], "or")
    'a, b or c'
    """
    *others, end = names
    return f"{', '.join(others)} {last} {end}" if others else end


# --- what a field's annotation says --------------------------------------------------------------
def _fields(settings: type) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    annotations = _annotations(settings)
    for base in settings.__mro__[1:-1]:
        # a subclass that only states another default keeps the option
        for name, annotation in _annotations(base).items():
            if _option_of(annotation) is not None and _option_of(annotations[name]) is None:
                annotations[name] = annotation
    shared = [base for base in settings.__mro__ if "LISTED_LAST" in vars(base)]
    last = {name for base in shared for name in get_annotations(base)}
    for field in sorted(dataclasses.fields(settings), key=lambda one: one.name in last):
        if field.init:
            yield field, annotations[field.name]


def _field_option(field: dataclasses.Field[Any], annotation: Any) -> FieldOption | None:
    option = _option_of(annotation)
    if option is None:
        return None
    return FieldOption(
        field=field.name,
        type=_bare(annotation),
        default=_default(field),
        option=option,
        required=field.default is MISSING and field.default_factory is MISSING,
    )


def _annotations(settings: type) -> dict[str, Any]:
    """Those of every field; a name imported for the type checker alone stands for no option."""
    absent: dict[str, Any] = {}
    while True:
        try:
            return get_type_hints(settings, localns=absent, include_extras=True)
        except NameError as error:
            absent[str(error.name)] = object


def _option_of(annotation: Any) -> Option | None:
    if get_origin(annotation) is not Annotated:
        return None
    return next((extra for extra in get_args(annotation)[1:] if isinstance(extra, Option)), None)


def _bare(annotation: Any) -> Any:
    """The type without ``Annotated`` and without ``None``."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        kept = [member for member in get_args(annotation) if member is not NoneType]
        annotation = kept[0] if len(kept) == 1 else annotation
    return annotation


def _is_settings(annotation: Any) -> bool:
    return (
        isinstance(annotation, type)
        and dataclasses.is_dataclass(annotation)
        and annotation is not CostModel
    )


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    return None if field.default_factory is MISSING else field.default_factory()


_READ: dict[Any, Callable[[str], Any]] = {
    float: number,
    str: str,
    tuple[float, ...]: numbers,
    tuple[str, ...]: names,
}


def _argument(field: FieldOption) -> dict[str, Any]:
    """What ``add_argument`` is told beyond name and help."""
    if field.type is bool:
        return {"action": "store_false" if field.default is True else "store_true"}
    option = field.option
    kind = get_args(field.type)[0] if option.repeats else field.type
    told: dict[str, Any] = {"action": "append"} if option.repeats else {}
    if field.required and not option.positional:
        told["required"] = True
    choices = get_args(kind) if get_origin(kind) is Literal else option.choices
    if choices is not None:
        told["choices"] = choices
        kind = type(choices[0])
    if option.metavar is not None:
        told["metavar"] = option.metavar
    return {**told, "type": _reader(field, kind)}


def _reader(field: FieldOption, kind: Any) -> Callable[[str], Any]:
    if field.option.parse is not None:
        return argument_type(field.option.parse)
    if kind is int:
        return whole(field.option.at_least)
    if kind not in _READ:
        raise TypeError(f"{field.flag}: no way to read {kind!r} from a text; give parse=")
    return _READ[kind]
