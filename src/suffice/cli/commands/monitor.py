"""``suffice monitor``: test in production whether a policy keeps its promise."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from suffice.cli.output import Form, print_result, put, say
from suffice.cli.parser import command
from suffice.errors import BackendError, DataError
from suffice.live.requirements import choose_policy
from suffice.monitor.following import AlarmLog, Following, WebHook
from suffice.monitor.production import Production, ProductionSettings
from suffice.options import Option
from suffice.trace.engines import as_place
from suffice.trace.rounds.reader import read_traces
from suffice.trace.store import store_at
from suffice.trace.stored_file import EXAMPLE


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorOptions(ProductionSettings):
    reference: Annotated[
        str | None,
        Option(metavar="TRACES", help="record to compare with (default: the first questions)"),
    ] = None
    follow: Annotated[bool, Option(help="keep watching until interrupted")] = False
    every: Annotated[float, Option(metavar="SECONDS", help="how often --follow looks")] = 2.0
    alarms: Annotated[
        str | None,
        Option(metavar="FILE", help="append each new alarm to this file as JSON; - for stdout"),
    ] = None
    webhook: Annotated[
        str | None,
        Option(metavar="URL", help="POST each alarm as JSON: https, or http to this machine"),
    ] = None
    fail_on_alarm: Annotated[bool, Option(help="exit 1 if there is or was an alarm")] = False


@command()
def monitor(
    traces: Annotated[
        str,
        Option(
            positional=True,
            metavar="TRACES",
            help="a Parquet file, a directory of them, or a FILE.db of live loops",
        ),
    ],
    *,
    policy: Annotated[str, Option(metavar="P", help="policy file, fixed-K or rule to watch")],
    options: MonitorOptions,
    form: Form,
) -> int:
    """Watch a policy in production and raise alarms.

    Reads a record while suffice.Watch or another recorder writes it. Tests for drift of signals and stops,
    poor confidence, losses above the promise, and too few correct answer sets. Also measures what stopping
    saves. Look as often as you like: the false-alarm chance holds over all looks.
    """
    named, root = choose_policy(policy), as_place(traces)
    if traces == EXAMPLE.stem and not root.exists():
        root = EXAMPLE
    if not root.exists() and store_at(root) is None and not options.follow:
        raise DataError("no such file or directory; --follow waits for it", file=traces)
    past = None if options.reference is None else read_traces(options.reference)
    settings = replace(options, max_rounds=options.max_rounds or named.max_rounds)
    production = Production(named.policy, settings, past=past)
    hook = None if options.webhook is None else WebHook(options.webhook)
    lines = None if options.alarms is None or options.alarms == "-" else Path(options.alarms)
    watched, log = Following(root, production), AlarmLog(lines, hook)
    try:
        while True:
            watched.look()
            _tell(production, log, printed=options.alarms == "-")
            if not options.follow:
                break
            time.sleep(max(options.every, 0.05))
    except KeyboardInterrupt:
        if not options.follow:  # what was read so far would pass for the whole record
            raise
    print_result(form, production.tables(), production.to_json)
    return int(options.fail_on_alarm and bool(production.alarms))


def _tell(production: Production, log: AlarmLog, *, printed: bool) -> None:
    for alarm in log.untold(production.alarms):
        try:
            log.tell(alarm)
        except BackendError as error:
            say(f"{error}; trying again")
            return
        if printed:
            put(json.dumps(alarm.to_json(), ensure_ascii=False, allow_nan=False))
        say(f"question {alarm.question:,}: {alarm.kind} alarm: {alarm.text}")
