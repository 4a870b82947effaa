"""``suffice check`` and ``suffice init``: promises in a project's own tests."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

from suffice.cli.output import Form, print_result, waiting
from suffice.cli.parser import command
from suffice.errors import UsageError
from suffice.foreign import named_place
from suffice.options import Option
from suffice.results.table import Column, Table
from suffice.trace.durable import replace_file


@command()
def check(
    file: Annotated[
        str, Option(positional=True, metavar="FILE", help="file of promises")
    ] = "suffice.toml",
    *,
    metric: Annotated[str | None, Option(help="the MODULE:FUNCTION of your own promises")] = None,
    update: Annotated[bool, Option(help="store a verdict of every promise that is proven")] = False,
    form: Form,
) -> int:
    """Test whether records still prove the promises of the policies in use.

    A promise also fails if policy, record or loop changed since its stored verdict. Exits with 0 if every
    promise holds, else with 1.
    """
    from suffice.evaluation.promise_check import Checks, check_promise, read_promises

    renew = f"suffice check {file} --update"
    with waiting("checking"):
        promises = [
            check_promise(record, policy, terms, update=update, renew=renew)
            for record, policy, stated in read_promises(Path(file))
            for terms in [replace(stated, metric=stated.metric or metric)]
        ]
    checks = Checks(promises=tuple(promises))
    print_result(form, checks.tables(), checks.to_json)
    return int(any(one.reasons for one in promises))


@command()
def init(
    folder: Annotated[
        str, Option(positional=True, metavar="DIR", help="folder of the project")
    ] = ".",
    *,
    form: Form,
) -> None:
    """Write suffice.toml, a test of its promise, and the lines that watch your loop.

    The lines are for the first agent framework that is installed, else for a plain loop. Existing files stay.
    """
    if not Path(folder).is_dir():
        raise UsageError(f"no folder {folder!r}; make it first, or name the folder of your project")
    rows = []
    for name, text in starter_files().items():
        path = Path(named_place(Path(folder, "suffice.toml"), name))
        there = path.exists()
        rows.append((str(path), "exists already, left as it is" if there else "written"))
        if not there:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, text.encode())
    check_it = f"suffice check {Path(folder) / 'suffice.toml'} --update"
    columns = (Column(name="file"), Column(name="state"))
    chosen = Path(folder) / "chosen"
    first = f"Then type: suffice choose example --out {chosen}; "
    if (chosen / "policy.json").exists():
        first = f"Name the record that chose {chosen / 'policy.json'} in both files. Then type: "
    notes = [f"{first}{check_it}; pytest"]
    table = Table(name="files", columns=columns, rows=rows, notes=notes)
    print_result(form, [table], lambda: {"files": dict(rows)})


def starter_files(package: str | None = None) -> dict[str, str]:
    """Return texts by place, for the first framework that is installed or for the named package."""
    stated: dict[str, Any] = tomllib.loads(
        Path(__file__).parents[1].joinpath("starter.toml").read_text(encoding="utf-8")
    )
    packages = filter(_installed, stated["loops"])
    parts = stated["loops"][next(packages) if package is None else package]
    return {
        name: text.replace("IMPORT", parts["import"]).replace("USE", parts["use"])
        for name, text in stated["files"].items()
    }


def _installed(package: str) -> bool:
    try:
        return not package or bool(metadata.version(package))
    except metadata.PackageNotFoundError:
        return False
