"""``suffice look``: the first command for somebody with logs and no labels."""

from __future__ import annotations

from typing import Annotated

from suffice.cli.output import print_json, put, waiting
from suffice.cli.parser import command
from suffice.cli.shared_options import Json
from suffice.datasets.formats import FORMATS
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
    import suffice

    with waiting(f"looking at {', '.join(files[:3])}"):
        found = suffice.look(*files, format=format, texts=texts)
    if json:
        print_json(found)
    else:
        put(found.text())
