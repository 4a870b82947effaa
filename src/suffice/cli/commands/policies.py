"""``suffice policies``: what there is to replay, fit and run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from suffice.cli.commands.fit import known_methods
from suffice.cli.output import Form, print_result
from suffice.cli.parser import command
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
_COLUMNS = (
    Column(name="policy"),
    Column(name="meaning", head="what it does"),
    Column(name="used", head="named in"),
    Column(name="presets", drop=2),
    Column(name="fitted_on", head="fitted on", drop=1),
    Column(name="source", drop=3),
)


@command()
def policies(form: Form) -> int:
    """List every policy: what it does, which commands take its name, its presets, its splits."""
    table = Table(name="policies", columns=_COLUMNS, rows=list(_rows()), notes=_NOTES)
    print_result(form, [table], lambda: {"policies": table.to_arrow().to_pylist()})
    return 0


def _rows() -> Iterator[list[Any]]:
    for name, meaning, used in _REFERENCES:
        yield [name, meaning, used, "", "", ""]
    for method in known_methods():
        named = ["replay"] if method.name in nameable_methods() else []
        used = ", ".join(["fit", *named, *(["ask"] if method.unfitted else [])])
        presets = ", ".join(method.presets) if len(method.presets) > 1 else ""
        splits = " or ".join(" and ".join(sorted(splits)) for splits in method.reads)
        fitted = splits if method.fitted else ""
        yield [method.name, method.summary, used, presets, fitted, method.source]
