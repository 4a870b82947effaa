"""Every command that the viewer names is one that can be typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import suffice.view
from suffice.cli.main import COMMANDS, build_parser

STATIC = Path(suffice.view.__file__).with_name("static")
COMMAND = re.compile(
    rf"suffice ((?:{'|'.join(COMMANDS)}) [^;.\"`<]*(?:TRACES|--)[^;.\"`<]*(?:\.json)?)"
)
NAMED = [words for file in sorted(STATIC.iterdir()) for words in COMMAND.findall(file.read_text())]


@pytest.mark.parametrize("words", NAMED)
def test_a_command_it_names_is_understood(words: str) -> None:
    named = shlex.split(words)
    assert build_parser({named[0]}).parse_args(named).command == named[0]


def test_it_names_how_a_promise_is_had() -> None:
    assert any(words.startswith("choose ") for words in NAMED)
