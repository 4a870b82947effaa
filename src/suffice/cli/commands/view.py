"""``suffice view``: a record to look at in a browser."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

from suffice._optional import require
from suffice.cli.options import Measuring, Traces, out_path
from suffice.cli.output import put, say, waiting
from suffice.cli.parser import command
from suffice.concurrency import started
from suffice.options import Option
from suffice.scoring import MetricName

_TURN_S = 0.0005  # for which measuring keeps the interpreter from what answers the page


@command()
def view(
    traces: Traces,
    *,
    reading: Measuring,
    policy: Annotated[
        tuple[str, ...],
        Option(
            metavar="P",
            repeats=True,
            help="a policy to show, as of suffice replay; may be repeated",
        ),
    ] = (),
    stop_when: Annotated[
        tuple[str, ...],
        Option(metavar="RULE", repeats=True, help="a rule to show; may be given several times"),
    ] = (),
    metric: Annotated[
        MetricName | None,
        Option(help="what answers are scored by, as of suffice replay"),
    ] = None,
    cost: Annotated[
        str | None, Option(metavar="NAME", help="the cost that is shown, as of suffice replay")
    ] = None,
    fit_on: Annotated[
        str | None,
        Option(metavar="TRACES2", help="fit what must be fitted on split tune of these traces"),
    ] = None,
    port: Annotated[
        int,
        Option(metavar="N", at_least=0, help="where to listen on 127.0.0.1; 0: any that is free"),
    ] = 7577,
    no_browser: Annotated[bool, Option(help="do not open a browser")] = False,
    bundle: Annotated[
        str | None,
        Option(
            metavar="OUT",
            parse=out_path(folder=True),
            help="write the viewer with the record's data as static files into this folder",
        ),
    ] = None,
) -> int:
    """Open a record in the browser.

    Every question round by round with its evidence, signals and decisions, filters and sorting over any
    number of them, a rule tried as it is typed, two policies side by side, new questions of a folder that
    is being recorded, promises. It listens on this machine alone. Without --policy it shows fixed budgets
    and, where the trace allows, the usual methods.
    """
    for module in ("fastapi", "uvicorn"):
        require(module, purpose="suffice view", extra="view")
    from suffice.measures.measures import Measures
    from suffice.measures.shards import Workers, usable_cores
    from suffice.serve.listen import Listening, run
    from suffice.trace.postgres import as_place
    from suffice.trace.reader import parquet_files
    from suffice.view.app import Shown, viewer_app, write_bundle
    from suffice.view.data import RecordView, ViewSettings

    settings = ViewSettings(
        policies=policy, rules=stop_when, metric=metric, cost=cost, fit_on=fit_on
    )
    # measured in processes of their own, however few, so that the page is answered meanwhile
    count = reading.workers or max(1, usable_cores() - 1)
    workers = Workers(count, behind=True) if reading.ray is None else reading.executor()

    def opened() -> RecordView:
        read = reading.open(traces, progress=shown.reading)
        return RecordView(Measures(read, executor=workers), settings)

    place = as_place(traces)
    shown = Shown(None, place, opened)

    if bundle is not None:
        record = opened()
        with waiting("measuring"):
            record.work()
            written = write_bundle(record, Path(bundle))
        for line in written:
            put(line)
        return 0
    if not place.is_dir():
        parquet_files(place)  # what is not there is told before the browser opens

    def opening() -> None:
        shown.open()
        if shown.trouble:
            say(shown.trouble, lead="suffice view:")

    def up(address: str) -> None:
        say(f"showing {traces} at {address}/; end with Ctrl-C")
        started(opening, "record")
        if not no_browser:
            started(lambda: webbrowser.open(f"{address}/"), "browser")

    usual = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)
    try:  # what follows the record ends at once, what is asked for within seconds
        run(viewer_app(shown), Listening(port=port, end_s=3.0, started=up, ending=shown.end))
    finally:
        sys.setswitchinterval(usual)
    return 0
