"""The parser of a command: errors in one line, and options that are added once it is chosen."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Self


class Parser(argparse.ArgumentParser):
    """A command's parser.

    Attributes
    ----------
    prepare
        Adds the options that depend on the words after the command; told those words.
    keeps_unread
        Whether words that no option reads are left to the command, as ``unread``.
    helped_by
        The command whose ``--help`` lists the options; empty: its own.
    """

    prepare: Callable[[Parser, Sequence[str]], None] | None = None
    keeps_unread = False
    helped_by = ""

    def prepared(self, words: Sequence[str]) -> Self:
        """The same with the options that these words ask for."""
        if self.prepare is not None:
            prepare, self.prepare = self.prepare, None
            prepare(self, words)
        return self

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """What a command does not know is refused in the command's own name."""
        words = sys.argv[1:] if args is None else list(args)
        known, unknown = super(Parser, self.prepared(words)).parse_known_args(words, namespace)
        if self.keeps_unread:
            known.unread = unknown
            return known, []
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown

    def error(self, message: str) -> NoReturn:
        """A line of ours, and where the options are told."""
        self.exit(2, f"{self.prog}: {message}; see '{self.helped_by or self.prog} --help'\n")
