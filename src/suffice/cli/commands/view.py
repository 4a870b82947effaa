"""``suffice view``: a record to look at in a browser."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from functools import partial
from pathlib import Path

from suffice._optional import require
from suffice.cli.options import add_traces, natural, open_traces, out_path, workers_of
from suffice.cli.output import put, say, waiting
from suffice.concurrency import started
from suffice.scoring import METRICS

_PORT = 7577
_TURN_S = 0.0005  # for which measuring keeps the interpreter from what answers the page


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Opens a record in the browser: every question round by round with its evidence, signals and "
        "decisions, filters and sorting over any number of them, a rule tried as it is typed, two policies "
        "side by side, new questions of a folder that is being recorded, promises. It listens on this "
        "machine alone. Without --policy it shows fixed budgets and, where the trace allows, the usual "
        "methods."
    )
    add_traces(parser, measured=True)
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        metavar="P",
        help="a policy to show, as of suffice replay; may be given several times",
    )
    parser.add_argument(
        "--stop-when",
        action="append",
        default=[],
        metavar="RULE",
        help="a rule to show; may be given several times",
    )
    parser.add_argument(
        "--metric", choices=tuple(METRICS), help="what answers are scored by, as of suffice replay"
    )
    parser.add_argument(
        "--cost", metavar="NAME", help="the cost that is shown, as of suffice replay"
    )
    parser.add_argument(
        "--fit-on", metavar="TRACES2", help="fit what must be fitted on split tune of these traces"
    )
    parser.add_argument(
        "--port",
        type=natural,
        default=_PORT,
        metavar="N",
        help=f"where to listen on 127.0.0.1; 0: any that is free (default: {_PORT})",
    )
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    parser.add_argument(
        "--bundle",
        type=out_path(folder=True),
        metavar="OUT",
        help="write the viewer with the record's data as static files into this folder, for any web server, "
        "and listen to nothing",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show the record until an interrupt, or write it as files."""
    purpose = "suffice view"
    require("fastapi", purpose=purpose, extra="view")
    require("uvicorn", purpose=purpose, extra="view")
    from suffice.measures.measures import Measures
    from suffice.measures.shards import Workers, usable_cores
    from suffice.serve.listen import Hooks, Listening
    from suffice.serve.listen import run as listen
    from suffice.trace.postgres import as_place
    from suffice.trace.reader import parquet_files
    from suffice.view.app import Shown, viewer_app
    from suffice.view.bundle import write_bundle
    from suffice.view.data import RecordView, ViewSettings
    from suffice.view.first import first_questions

    settings = ViewSettings(
        policies=tuple(arguments.policy),
        rules=tuple(arguments.stop_when),
        metric=arguments.metric,
        cost=arguments.cost,
        fit_on=arguments.fit_on,
    )
    # measured in processes of their own, however few, so that the page is answered meanwhile
    count = arguments.workers or max(1, usable_cores() - 1)
    workers = Workers(count, behind=True) if arguments.ray is None else workers_of(arguments)

    def opened() -> RecordView:
        traces = open_traces(arguments, say, progress=shown.reading)
        return RecordView(Measures(traces, executor=workers), settings)

    place = as_place(arguments.traces)
    shown = Shown(None, place, opened, partial(first_questions, place))

    if arguments.bundle is not None:
        view = opened()
        with waiting("measuring"):
            view.work()
            written = write_bundle(view, Path(arguments.bundle))
        for line in written.lines():
            put(line)
        return 0
    if not place.is_dir():
        parquet_files(place)  # what is not there is told before the browser opens

    def opening() -> None:
        shown.open()
        if shown.trouble:
            say(shown.trouble, lead="suffice view:")

    def up(address: str) -> None:
        say(f"showing {arguments.traces} at {address}/; end with Ctrl-C")
        started(opening, "record")
        if not arguments.no_browser:
            started(partial(webbrowser.open, f"{address}/"), "browser")

    usual = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)
    try:  # what follows the record ends at once, what is asked for within seconds
        listen(
            viewer_app(shown),
            Listening(port=arguments.port, end_s=3.0),
            Hooks(started=up, ending=shown.end),
        )
    finally:
        sys.setswitchinterval(usual)
    return 0
