"""No command lets a foreign text steer the terminal, and no text ends a command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.builders import with_rounds, written_traces
from tests.commands import run
from tests.server import Server

import suffice
from suffice.cli.main import COMMANDS
from suffice.cli.output import put, say
from suffice.results.markup import visible
from suffice.testing.traces import random_records

HOSTILE = "a\x1b[31mb\x07\x9b2J\u202ec\u2066d\U000e0041e\r"
"""Colours, a bell, a C1 sequence, two changes of direction, a hidden letter, a return to the line's start."""


def _harmless(*texts: str) -> bool:
    return all(visible(text) == text for text in texts)


@pytest.mark.parametrize("command", COMMANDS)
def test_words_of_the_command_line_are_harmless_in_refusals(command: str) -> None:
    for words in (
        [command, f"--{HOSTILE}"],
        [command, HOSTILE, HOSTILE, "--policy", HOSTILE, "--llm", HOSTILE, "--corpus", HOSTILE],
        [command, f"/no/{HOSTILE}\udcff.parquet"],
    ):
        done = run(*words)
        assert done.returncode != 0
        assert _harmless(done.stdout, done.stderr), done


def test_nothing_is_printed_past_the_one_function() -> None:
    printing = re.compile(r"^ *print\(", re.MULTILINE)
    paths = Path(suffice.__file__).parent.rglob("*.py")
    found = {path.name for path in paths if printing.search(path.read_text(encoding="utf-8"))}
    assert found == {"output.py"}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record whose every text steers a terminal, in a file whose name does."""
    records = []
    for number, record in enumerate(random_records(12)):
        question = replace(
            record.question, id=f"q{number}{HOSTILE}", text=HOSTILE, type=HOSTILE, split="eval"
        )
        signals = {f"own{HOSTILE}": 1.0}
        records.append(
            replace(with_rounds(record, signals=signals, query=HOSTILE), question=question)
        )
    folder = tmp_path_factory.mktemp("hostile") / f"folder{HOSTILE}"
    folder.mkdir()
    return written_traces(folder, records)


@pytest.mark.parametrize(
    "words",
    [
        ("traces", "info"),
        ("traces", "validate"),
        ("diagnose",),
        ("replay",),
        ("replay", "--format", "csv"),
        ("replay", "--format", "markdown"),
        ("replay", "--format", "latex"),
        ("replay", "--json"),
    ],
    ids=" ".join,
)
def test_texts_of_a_record_are_harmless(words: tuple[str, ...], traces: Path) -> None:
    done = run(*words, traces)
    assert _harmless(done.stdout, done.stderr), done


def test_what_is_said_and_put_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"{HOSTILE}\nfaked line", lead=HOSTILE)
    put(HOSTILE)
    printed = capsys.readouterr()
    assert _harmless(printed.out, printed.err)
    assert len(printed.err.splitlines()) == 1


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[list[bytes]]:
    """The words of an ask of which folder, file, passage, question and reply hold such things."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/na\xff\x1b[31mme"))
    folder.mkdir()
    row = {
        "id": "p\ud800\x1b[33m",
        "title": "The Ferry\nfaked line",
        "text": "Built in \udfff 1912.",
    }
    (folder / "a\udcfe.jsonl").write_text(json.dumps(row), encoding="utf-8")
    message = {"role": "assistant", "content": f"Answer: Os\ud800lo {HOSTILE}\nConfidence: 3"}
    server = Server(lambda _: (200, {}, {"choices": [{"index": 0, "message": message}]}))
    words = [b"ask", b"When was it \xff built?", b"--corpus", os.fsencode(folder)]
    yield [*words, b"--llm", server.url.encode()]
    server.close()


def test_halves_of_pairs_end_no_command_and_are_replaced(asked: list[bytes]) -> None:
    done = run(*map(os.fsdecode, asked))
    assert done.returncode == 0, done.stderr
    assert _harmless(done.stdout, done.stderr)
    assert done.stdout.startswith("Os\ufffdlo a[U+001B]")
    assert "\nfaked line" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), (b"--json",)])
def test_what_a_small_alphabet_lacks_is_escaped(
    asked: list[bytes], words: tuple[bytes, ...]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "suffice", *asked, *words],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"Os\\ufffdlo" in done.stdout
    assert _harmless(done.stdout.decode("ascii"), done.stderr.decode("ascii"))
