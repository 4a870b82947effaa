"""Commands as functions: cyclopts parses what their signatures and settings dataclasses describe."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Group, Parameter
from cyclopts.exceptions import (
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from suffice.cli.fields import (
    FieldOption,
    Given,
    annotated_option,
    annotations_of,
    field_options,
)
from suffice.errors import UsageError, did_you_mean

Command = Callable[..., int]
_OLDER = "older_name_of_"
_DASH = "\0"  # replaces "-" (stdin or stdout), which cyclopts takes for an option
_ARGUMENTS, _OPTIONS = Group("Arguments", sort_key=0), Group("Options", sort_key=1)


class _Unframed:
    """Help without frames, to be copied."""

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        from cyclopts.help import DefaultFormatter, PanelSpec
        from rich.box import Box

        DefaultFormatter(panel_spec=PanelSpec(box=Box("    \n" * 8)))(console, options, panel)

    def render_usage(self, console: Any, _: Any, usage: Any) -> None:
        """The first line."""
        console.print("Usage:", usage)


def make_app(name: str, description: str) -> App:
    """A command with commands of its own."""
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


def command(*more: FieldOption) -> Callable[[Callable[..., int]], Command]:
    """A function as a command; its first lines are its help.

    A parameter is an option by ``Annotated[type, Option(...)]``, a settings dataclass whose fields are
    options, or :class:`Given`, all that was given. ``more``: further options, which are in ``Given`` alone.
    """

    def as_command(function: Callable[..., int]) -> Command:
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
        listed = [*ahead, *listed, *more]
        by_dest: dict[str, FieldOption] = {}
        for option in listed:
            by_dest.setdefault(option.dest, option)
        options = list(by_dest.values())
        signature = inspect.Signature(
            sorted(_parameters(options), key=lambda parameter: parameter.kind)
        )

        def run(*words: Any, **named: Any) -> int:
            given = _given(options, signature.bind_partial(*words, **named).arguments)
            values = {name: given.get(option.dest, option.default) for name, option in own.items()}
            values |= {name: given.settings(kind) for name, kind in settings.items()}
            rest = hints.keys() - values.keys() - {"return"}
            return function(**values, **dict.fromkeys(rest, given))

        run.__name__ = function.__name__
        run.__doc__ = _paragraphs(function.__doc__ or "")
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
        run.options = options  # type: ignore[attr-defined]
        return run

    return as_command


def _paragraphs(text: str) -> str:
    """A docstring without its line breaks."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _given(options: Iterable[FieldOption], arguments: dict[str, Any]) -> Given:
    """What was given by destination, read from its texts."""
    given = Given()
    for option in options:
        for name in (option.dest, _OLDER + option.dest):
            if arguments.get(name) is not None:
                given[option.dest] = _value(option, arguments[name])
    return given


def _value(option: FieldOption, said: Any) -> Any:
    """An option's value; a flag that was given is what its default is not."""
    if option.type is bool:
        return option.default is not True
    said = ["-" if one == _DASH else one for one in said] if isinstance(said, list) else said
    said = "-" if said == _DASH else said
    try:
        if option.option.repeats:
            return tuple(map(option.read, said))
        if isinstance(said, list):
            return option.read(said[-1]) if said else option.option.bare
        return option.read(said)
    except (ValueError, UsageError) as error:
        raise UsageError(f"{option.flag}: {error}") from error


def _parameters(options: Iterable[FieldOption]) -> Iterator[inspect.Parameter]:
    """The parameters that cyclopts parses."""
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
        elif told.repeats:
            kind = list[str]
            more["consume_multiple"] = told.several or False
        elif told.bare is not None:
            kind = list[str]
            more["consume_multiple"] = (0, 1)
        described = Parameter(
            name=option.flag,
            help=option.help,
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
        if told.older is not None:
            hidden = Parameter(
                name=f"--{told.older}", show=False, negative=(), required=False, **more
            )
            yield inspect.Parameter(
                _OLDER + option.dest, place, default=None, annotation=Annotated[kind | None, hidden]
            )


def _metavar(option: FieldOption) -> str:
    """The placeholder of the value in the help."""
    if option.option.metavar is not None or option.choices is None:
        return option.option.metavar or ("N" if option.type in (int, float) else "TEXT")
    return "|".join(map(str, option.choices))


def run(app: App, words: Sequence[str]) -> int:
    """Parse the words and run the command that they name; its exit code."""
    try:
        called, bound, *_ = app.parse_args(
            [_DASH if word == "-" else word for word in words],
            exit_on_error=False,
            print_error=False,
            help_on_error=False,
        )
    except CycloptsError as error:
        raise UsageError(_refusal(error, app, words)) from error
    if getattr(called, "__name__", "") == "help_print":
        asked = [word for word in words if word not in ("--help", "-h")]
        chain, apps, _ = app.parse_commands(asked)
        names = _names(apps[-1])
        if len(asked) == len(words):
            typed = " ".join([app.name[0], *chain])
            raise UsageError(f"name one of {', '.join(names)}; see '{typed} --help'")
        for name in names if chain else ():
            apps[-1][name]  # loaded, so that its line is known
    return called(*bound.args, **bound.kwargs) or 0


def _names(app: App) -> list[str]:
    return [name for name in app if not name.startswith("-")]


def _refusal(error: CycloptsError, app: App, words: Sequence[str]) -> str:
    """What was found and what is allowed, and where the options are told."""
    typed = " ".join([app.name[0], *(error.command_chain or ())])
    options: Sequence[FieldOption] = getattr(error.target, "options", ())
    flags = [option.flag for option in options if not option.option.positional]
    unknown = [w for w in words if w.startswith("--") and w.partition("=")[0] not in flags]
    match error:
        case UnknownCommandError(app=App() as asked, unused_tokens=[word, *_]):
            names = _names(asked)
            known = ", ".join(map(repr, names))
            said = f"there is no command {word!r}; known: {known}{did_you_mean(word, names)}"
        case UnknownOptionError():
            flag = (error.token.keyword or error.token.value).partition("=")[0]
            explain = getattr(error.target, "explain", None)
            said = f"unrecognized arguments: {flag}{did_you_mean(flag, flags)}"
            said = explain(flag) if explain else said
        case UnusedCliTokensError(unused_tokens=unused):
            said = f"unrecognized arguments: {' '.join(unused or ())}"
        case MissingArgumentError(argument=argument) if argument is not None:
            flag = next(iter(argument.parameter.name or ()))
            said = f"{flag} needs a value" if flag in words else f"{flag} is missing"
            if unknown and flag not in words:
                said += f"; found {unknown[0]}{did_you_mean(unknown[0], flags)}"
        case _:
            said = str(error)
    return f"{said}{' See' if said.endswith('?') else '; see'} '{typed} --help'"
