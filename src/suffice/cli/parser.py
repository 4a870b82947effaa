"""The parser of a command: errors in one line, and options that are added once it is chosen."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Self

from suffice.cli.output import harmless
from suffice.errors import did_you_mean


class Parser(argparse.ArgumentParser):
    """A command's parser.

    ``prepare`` adds the options that depend on the words after the command; told those words.
    ``keeps_unread``: words that no option reads are left to the command, as ``unread``. ``helped_by`` is the
    command whose ``--help`` lists the options; empty: its own.
    """

    prepare: Callable[[Parser, Sequence[str]], None] | None = None
    keeps_unread = False
    helped_by = ""
    _words: Sequence[str] = ()

    def prepared(self, words: Sequence[str]) -> Self:
        """The same with the options that these words ask for."""
        if self.prepare is not None:
            prepare, self.prepare = self.prepare, None
            prepare(self, words)
        return self

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """What a command does not know is refused in the command's own name."""
        words = self._words = sys.argv[1:] if args is None else list(args)
        known, unknown = super(Parser, self.prepared(words)).parse_known_args(words, namespace)
        if self.keeps_unread:
            known.unread = unknown
            return known, []
        if unknown:
            near = self.meant(unknown)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return known, unknown

    def meant(self, unknown: Sequence[str]) -> str:
        """What the first unknown option may be a slip for, to end a refusal with."""
        flags = (word.partition("=")[0] for word in unknown if word.startswith("-"))
        near = (did_you_mean(flag, self._option_string_actions) for flag in flags)
        return next(filter(None, near), "")

    def _misspelt(self) -> str:
        """An option among the words that is none, where another one is missing."""
        flags = [word.partition("=")[0] for word in self._words if word.startswith("--")]
        known = self._option_string_actions
        unknown = [flag for flag in flags if not any(name.startswith(flag) for name in known)]
        return f"; found {unknown[0]}{self.meant(unknown[:1])}" if unknown else ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """A choice that is none is refused with the one that it may be a slip for."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            near = did_you_mean(str(value), map(str, action.choices or ()))
            raise argparse.ArgumentError(action, f"{error.message}{near}") from None

    def _actions_there_are(self, message: str) -> str:
        """What may stand where one of a command's actions is missing."""
        for action in self._actions:
            if isinstance(action.choices, dict) and message.endswith(f" {action.metavar}"):
                return f", one of {', '.join(action.choices)}"
        return ""

    def _print_message(self, message: str, file: Any = None) -> None:
        """All that argparse prints: words of the command line stand in it."""
        super()._print_message(harmless(message), file)

    def error(self, message: str) -> NoReturn:
        """A line of ours, and where the options are told."""
        if message.startswith("the following arguments are required"):
            message += self._actions_there_are(message) + self._misspelt()
        stop = " See" if message.endswith("?") else "; see"
        self.exit(2, f"{self.prog}: {message}{stop} '{self.helped_by or self.prog} --help'\n")
