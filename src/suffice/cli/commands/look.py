"""``suffice look``: the first command for somebody with logs and no labels."""

from __future__ import annotations

from typing import Annotated

from suffice.cli.output import print_json, put, waiting
from suffice.cli.parser import command
from suffice.cli.shared_options import Json
from suffice.datasets.recordings import FORMATS
from suffice.options import Option


@command()
def look(
    files: Annotated[
        tuple[str, ...],
        Option(positional=True, repeats=True, metavar="FILES", help="logs, records, or folders"),
    ],
    *,
    format: Annotated[  # noqa: A002 - the option's name
        str | None, Option(choices=tuple(FORMATS), help="format of every log (default: recognized)")
    ] = None,
    texts: Annotated[bool, Option(help="also print the calls repeated most, cut short")] = False,
    json: Json = False,
) -> None:
    """Say what logs show without labels: costs, ends, repeated calls, and what a cap would have saved.

    Uploads nothing and prints no text unless asked. Reads records, and what 'traces import' reads. Folders
    are walked, without hidden files and links to folders. Ends with what a proof still needs.
    """
    from suffice.datasets.logs import find_logs
    from suffice.evaluation.look import look_at

    with waiting(f"looking at {', '.join(files[:3])}"):
        logs, notes = find_logs(files, format)
        found = look_at(logs, notes=notes, texts=texts)
    if json:
        print_json(found)
    else:
        put(found.text())
