"""``suffice policies``: what there is to replay, fit and run."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from suffice.cli.commands.fit import known_methods
from suffice.cli.output import add_format, print_result
from suffice.policies.method import Method
from suffice.policies.registry import nameable_methods
from suffice.results.table import Column, Table

_REFERENCES = (
    ("fixed-K", "always K rounds", "replay, ask"),
    ("oracle-em", "the first right answer by exact match; it knows the gold answers", "replay"),
    ("oracle-f1", "the first answer of the best F1; it knows the gold answers", "replay"),
    ("closed-book", "the model's answer without passages, recorded as round 0", "replay"),
)
_NOTES = (
    "Every command takes a policy file; 'named in' says which take the name. A bare name is the published "
    "preset, fitted on the spot; NAME-corrected is the corrected one, which 'suffice fit NAME' writes unless "
    "told --preset.",
    "A rule of your own is its text, under --stop-when; 'suffice fit rule' writes it as a file. 'suffice fit "
    "NAME --help' lists the options of a method, 'suffice signals --list' the signals.",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Lists every policy by name: what it does, which commands take the name, its presets and the "
        "splits it is fitted on. 'suffice signals --list' does the same for signals."
    )
    add_format(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the list."""
    table = Table(name="policies", columns=_COLUMNS, rows=list(_rows()), notes=_NOTES)
    print_result(arguments, [table], lambda: {"policies": table.to_arrow().to_pylist()})
    return 0


_COLUMNS = (
    Column(name="policy"),
    Column(name="meaning", head="what it does"),
    Column(name="used", head="named in"),
    Column(name="presets", drop=2),
    Column(name="fitted_on", head="fitted on", drop=1),
    Column(name="source", drop=3),
)


def _rows() -> Iterator[list[Any]]:
    for name, meaning, used in _REFERENCES:
        yield [name, meaning, used, "", "", ""]
    for method in known_methods():
        presets = ", ".join(method.presets) if len(method.presets) > 1 else ""
        used = _used(method)
        yield [method.name, method.summary, used, presets, _splits(method), method.source]


def _splits(method: Method) -> str:
    if not method.fitted:
        return ""
    return " or ".join(" and ".join(sorted(splits)) for splits in method.reads)


def _used(method: Method) -> str:
    """Which commands take its bare name; all take its file."""
    replay = ["replay"] if method.name in nameable_methods() else []
    return ", ".join(["fit", *replay, *(["ask"] if method.unfitted else [])])
