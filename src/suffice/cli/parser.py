"""Commands as functions: cyclopts parses what their signatures and settings dataclasses describe.

A field ``name: Annotated[type, Option(help=...)] = default`` is the option ``--name``. A field whose type is
another settings dataclass brings that one's options; any other field is the caller's to fill.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from cyclopts import App, CycloptsError, Group, Parameter

from suffice.costs.usage import Charging, CostModel
from suffice.errors import UsageError, did_you_mean
from suffice.options import Option, finite, read_names
from suffice.serve.service_settings import PriceSettings

if TYPE_CHECKING:
    from suffice.costs.prices import Prices


Command = Callable[..., int | None]
_DASH = "\0"  # replaces "-" (stdin or stdout), which cyclopts takes for an option
_ARGUMENTS, _OPTIONS = Group("Arguments", sort_key=0), Group("Options", sort_key=1)


class _Unframed:
    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        from cyclopts.help import DefaultFormatter, PanelSpec
        from rich.box import Box

        DefaultFormatter(panel_spec=PanelSpec(box=Box("    \n" * 8)))(console, options, panel)

    def render_usage(self, console: Any, _: Any, usage: Any) -> None:
        console.print("Usage:", usage)


def make_app(name: str, description: str) -> App:
    return App(
        name=name,
        help=description,
        help_format="plaintext",
        help_formatter=_Unframed(),
        version_flags=(),
        result_action="return_value",
        group_arguments=_ARGUMENTS,
        group_parameters=_OPTIONS,
        group_commands=Group("Commands"),
    )


def command(*more: FieldOption) -> Callable[[Command], Command]:
    """Make a function a command; its docstring is the help.

    A parameter is an option by ``Annotated[type, Option(...)]``, a settings dataclass whose fields are
    options, or :class:`Given`, all that was given. ``more``: further options, which are in ``Given`` alone.
    """

    def as_command(function: Command) -> Command:
        hints = annotations_of(function)
        own: dict[str, FieldOption] = {}
        settings: dict[str, type] = {}
        listed: list[FieldOption] = []
        for name, parameter in inspect.signature(function).parameters.items():
            default = MISSING if parameter.default is parameter.empty else parameter.default
            option = annotated_option(name, hints[name], default)
            if option is not None:
                own[name] = option
                listed.append(option)
            elif hints[name] is not Given:
                settings[name] = hints[name]
                listed += field_options(hints[name])
        ahead = [option for option in more if option.option.positional]
        by_dest: dict[str, FieldOption] = {}
        for option in (*ahead, *listed, *more):
            by_dest.setdefault(option.dest, option)
        options = list(by_dest.values())
        signature = inspect.Signature(
            sorted(_parameters(options), key=lambda parameter: parameter.kind)
        )

        def run(*words: Any, **named: Any) -> int | None:
            said = signature.bind_partial(*words, **named).arguments
            given = Given(
                {
                    option.dest: _value(option, said[option.dest])
                    for option in options
                    if said.get(option.dest) is not None
                }
            )
            values = {name: given.get(option.dest, option.default) for name, option in own.items()}
            values |= {name: given.settings(kind) for name, kind in settings.items()}
            rest = hints.keys() - values.keys() - {"return"}
            return function(**values, **dict.fromkeys(rest, given))

        run.__name__ = function.__name__
        paragraphs = (function.__doc__ or "").split("\n\n")
        run.__doc__ = "\n\n".join(" ".join(text.split()) for text in paragraphs)
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
        run.options = options  # type: ignore[attr-defined]
        return run

    return as_command


def _value(option: FieldOption, said: Any) -> Any:
    if option.type is bool:
        return option.default is not True
    several = said if isinstance(said, list | tuple) else [said]
    texts = ["-" if one == _DASH else one for one in several]
    try:
        if option.option.repeats:
            return tuple(map(option.read, texts))
        return option.read(texts[-1]) if texts else option.option.bare
    except (ValueError, UsageError) as error:
        raise UsageError(f"{option.flag}: {error}") from error


def _parameters(options: Iterable[FieldOption]) -> Iterator[inspect.Parameter]:
    groups: dict[str, Group] = {}
    for option in options:
        told = option.option
        group = _ARGUMENTS if told.positional else _OPTIONS
        if option.group:
            group = groups.setdefault(option.group, Group(option.group, sort_key=len(groups) + 2))
        kind: Any = str
        more: dict[str, Any] = {}
        if option.type is bool:
            kind = bool
        elif told.repeats or told.bare is not None:
            kind = list[str]
            more["consume_multiple"] = None if told.repeats else (0, 1)
        described = Parameter(
            name=option.flag,
            help=f"{option.option.help}{option.shown_default({})}",
            metavar=_metavar(option),
            group=group,
            negative=(),
            show_default=False,
            required=option.required,
            allow_repeating=None if told.repeats else True,
            **more,
        )
        default = inspect.Parameter.empty if option.required else None
        place = (
            inspect.Parameter.POSITIONAL_ONLY if told.positional else inspect.Parameter.KEYWORD_ONLY
        )
        yield inspect.Parameter(
            option.dest, place, default=default, annotation=Annotated[kind | None, described]
        )


def _metavar(option: FieldOption) -> str:
    if option.option.metavar is not None or option.choices is None:
        return option.option.metavar or ("N" if option.type in (int, float) else "TEXT")
    return "|".join(map(str, option.choices))


def run(app: App, words: Sequence[str]) -> int:
    """Parse the words and run the command that they name; return its exit code."""
    try:
        called, bound, *_ = app.parse_args(
            [_DASH if word == "-" else word for word in words],
            exit_on_error=False,
            print_error=False,
            help_on_error=False,
        )
    except CycloptsError as error:
        raise UsageError(_refusal(error, app)) from error
    if getattr(called, "__name__", "") == "help_print":
        asked = [word for word in words if word not in ("--help", "-h")]
        chain, apps, _ = app.parse_commands(asked)
        names = [name for name in apps[-1] if not name.startswith("-")]
        if len(asked) == len(words):
            typed = " ".join([app.name[0], *chain])
            raise UsageError(f"name one of {', '.join(names)}; see '{typed} --help'")
        for name in names if chain else ():
            apps[-1][name]  # loaded, so that its line is known
    return called(*bound.args, **bound.kwargs) or 0


def _refusal(error: CycloptsError, app: App) -> str:
    error.verbose = False  # else it names the function in the source
    said = str(error).strip()
    typed = " ".join([app.name[0], *(error.command_chain or ())])
    return f"{said}{'' if said.endswith(('.', '?')) else '.'} See '{typed} --help'"


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FieldOption:
    """A settings field as an option; ``type`` is without ``Annotated`` and ``None``."""

    field: str
    type: Any
    default: Any
    option: Option
    required: bool = False
    group: str = ""

    @property
    def dest(self) -> str:
        """Its key in :class:`Given`."""
        return (self.option.name or self.field).replace("-", "_")

    @property
    def flag(self) -> str:
        if self.option.positional:
            return self.option.metavar or self.dest.upper()
        off = "no-" if self.default is True else ""
        return f"--{off}{self.dest.replace('_', '-')}"

    def shown_default(self, others: Mapping[str, FieldOption]) -> str:
        """Return ``(default: 5; react 3)``, with the defaults of ``others`` that differ."""
        default = self.default
        if "default:" in self.option.help or default in (None, "", ()) or isinstance(default, bool):
            return ""
        shown = (
            ",".join(map(str, default))
            if isinstance(default, tuple)
            else f"{default:g}"
            if isinstance(default, float)
            else default
        )
        differing: dict[Any, list[str]] = {}
        for name, option in others.items():
            if option.default != default:
                differing.setdefault(option.default, []).append(name)
        told = ", ".join(f"{listed(names, 'and')} {value}" for value, names in differing.items())
        return f" (default: {shown}{'; ' if told else ''}{told})"

    @property
    def choices(self) -> tuple[Any, ...] | None:
        """The allowed values; ``None``: they cannot be listed."""
        kind = self._kind
        return get_args(kind) if get_origin(kind) is Literal else self.option.choices

    @property
    def _kind(self) -> Any:
        return get_args(self.type)[0] if self.option.repeats else self.type

    def read(self, text: str) -> Any:
        """Read a value; a ``ValueError`` or ``UsageError`` says what is allowed."""
        if self.option.parse is not None:
            return self.option.parse(text)
        if (choices := self.choices) is not None:
            by_text = {str(choice): choice for choice in choices}
            if text not in by_text:
                near = did_you_mean(text, by_text)
                allowed = listed(map(repr, by_text), "or")
                raise ValueError(f"must be {allowed}, found {text!r}{near}")
            return by_text[text]
        if self._kind is int:
            return whole(text, self.option.at_least)
        if self._kind not in _READ:
            raise TypeError(f"{self.flag}: no way to read {self._kind!r} from a text; give parse=")
        return _READ[self._kind](text)


class Given(dict[str, Any]):
    """The options that were typed, by :attr:`FieldOption.dest`."""

    def settings(self, kind: type[T]) -> T:
        """Return settings with the typed options."""
        values: dict[str, Any] = {}
        for name, annotation, own in _fields(kind):
            if own is not None and own.dest in self:
                values[name] = self[own.dest]
            elif annotation is CostModel:
                values[name] = self.settings(Charged).cost_model()
            elif _is_settings(annotation):
                values[name] = self.settings(annotation)
        return kind(**values)

    def of(self, kind: type) -> dict[str, Any]:
        """Return the typed options of a settings dataclass."""
        dests = (option.dest for option in field_options(kind))
        return {dest: self[dest] for dest in dests if dest in self}

    def chosen(self, settings: Mapping[str, type], name: str, *, by: str) -> dict[str, Any]:
        """Return the typed options of the named settings, by field; refuse options of others."""
        values: dict[str, Any] = {}
        for dest, having in _shared(settings).items():
            first = next(iter(having.values()))
            if dest in self and name not in having:
                raise UsageError(f"{first.flag} is for {by} {listed(having, 'or')}")
            if dest in self:
                values[first.field] = self[dest]
        return values


def field_options(settings: type, *, group: str = "") -> Iterator[FieldOption]:
    group = getattr(settings, "GROUP", group)
    for _, annotation, own in _fields(settings, group):
        if own is not None:
            yield own
        elif _is_settings(annotation):
            inner = Charged if annotation is CostModel else annotation
            yield from field_options(inner, group=group)


# --- several settings, of which one is chosen by another option ------------------------------------
def shared_options(
    settings: Mapping[str, type], *, group: str, without: Collection[str] = ()
) -> Iterator[FieldOption]:
    """Yield the options of several settings dataclasses, each once, with their names in the help."""
    for having in _shared(settings).values():
        first = next(iter(having.values()))
        if first.field not in without:
            said = _shared_help(having, len(settings))
            option = dataclasses.replace(first.option, help=said)
            off = first.default if isinstance(first.default, bool) else None
            yield dataclasses.replace(first, option=option, default=off, group=group)


def _shared(settings: Mapping[str, type]) -> dict[str, dict[str, FieldOption]]:
    shared: dict[str, dict[str, FieldOption]] = {}
    for name, kind in settings.items():
        for option in field_options(kind):
            shared.setdefault(option.dest, {})[name] = option
    return shared


def _shared_help(having: Mapping[str, FieldOption], settings: int) -> str:
    """Return ``budgeted: TEXT (default: 5); chain and react: TEXT (default: 3)``."""
    parts = []
    for text in dict.fromkeys(option.option.help for option in having.values()):
        saying = {name: option for name, option in having.items() if option.option.help == text}
        whose = "" if len(saying) == settings else f"{listed(saying, 'and')}: "
        first = next(iter(saying.values()))
        parts.append(f"{whose}{text}{first.shown_default(saying)}")
    return "; ".join(parts)


def listed(names: Iterable[str], last: str) -> str:
    """Return ``a, b or c``.

    >>> listed(["a", "b", "c"], "or")
    'a, b or c'
    """
    *others, end = names
    return f"{', '.join(others)} {last} {end}" if others else end


# --- what a field's annotation says --------------------------------------------------------------
def annotated_option(
    name: str, annotation: Any, default: Any = MISSING, group: str = ""
) -> FieldOption | None:
    """Return the option of an annotation; ``None``: it describes no option."""
    if get_origin(annotation) in (Union, UnionType):  # of an option that may be left out
        parts = (part for part in get_args(annotation) if get_origin(part) is Annotated)
        annotation = next(parts, annotation)
    if get_origin(annotation) is not Annotated:
        return None
    kind, *extras = get_args(annotation)
    option = next((extra for extra in extras if isinstance(extra, Option)), None)
    if option is None:
        return None
    if get_origin(kind) in (Union, UnionType):
        kept = [member for member in get_args(kind) if member is not NoneType]
        kind = kept[0] if len(kept) == 1 else kind
    required = default is MISSING
    shown = None if required else default
    return FieldOption(name, kind, shown, option, required=required, group=group)


def _fields(settings: type, group: str = "") -> Iterator[tuple[str, Any, FieldOption | None]]:
    annotations = annotations_of(settings)
    for base in settings.__mro__[1:-1]:
        # a subclass that only states another default keeps the option
        for name, annotation in annotations_of(base).items():
            if annotated_option(name, annotation) and not annotated_option(name, annotations[name]):
                annotations[name] = annotation
    for field in dataclasses.fields(settings):
        if field.init:
            name, annotation = field.name, annotations[field.name]
            made = MISSING if field.default_factory is MISSING else field.default_factory()
            default = made if field.default is MISSING else field.default
            yield name, annotation, annotated_option(name, annotation, default, group)


def annotations_of(settings: Any) -> dict[str, Any]:
    """Return type hints by name; names imported for the type checker alone count as ``object``."""
    absent: dict[str, Any] = {}
    while True:
        try:
            return get_type_hints(settings, localns=absent, include_extras=True)
        except NameError as error:
            absent[str(error.name)] = object


def _is_settings(annotation: Any) -> bool:
    return isinstance(annotation, type) and dataclasses.is_dataclass(annotation)


# --- values from texts -----------------------------------------------------------------------------
def whole(text: str, least: int | None = None) -> int:
    """Read a whole number of at least ``least``."""
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"must be a whole number, found {text!r}") from None
    if least is not None and value < least:
        raise ValueError(f"must be at least {least}, found {value}")
    return value


_READ: dict[Any, Callable[[str], Any]] = {
    float: finite,
    str: str,
    tuple[float, ...]: lambda text: tuple(map(finite, text.split(","))),
    tuple[str, ...]: read_names,
}


# --- prices ------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Charged(PriceSettings):
    """Options of costs: the charging rule, prices and energy."""

    charge: Annotated[
        Charging,
        Option(help="as-run: cost if deployed. published: counts every answer up to the stop."),
    ] = "as-run"
    energy: Annotated[
        str | None,
        Option(
            metavar="RATES",
            help="joules a token, as in prompt=0.03,cached=0,completion=0.35; also retrieval=, rerank=",
        ),
    ] = None

    def cost_model(self) -> CostModel:
        """Return the cost model of these options."""
        from suffice.costs.prices import EnergyModel, parse_energy

        energy = EnergyModel() if self.energy is None else parse_energy(self.energy)
        return CostModel(prices=listed_prices(self), energy=energy, charge=self.charge)


def listed_prices(settings: PriceSettings) -> Prices | None:
    """Return the prices of these options; ``None``: no prices."""
    from suffice.costs.prices import parse_prices, prices_of

    only_one({"--price-model": settings.price_model, "--prices": settings.prices})
    if settings.price_model is not None:
        return prices_of(settings.price_model)
    return None if settings.prices is None else parse_prices(settings.prices)


def only_one(options: Mapping[str, Any]) -> None:
    given = [flag for flag, value in options.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{given[1]} is not allowed with {given[0]}; leave one out")
