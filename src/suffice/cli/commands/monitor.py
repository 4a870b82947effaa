"""``suffice monitor``: whether a policy still does in use what was promised of it."""

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from suffice.cli.options import Seed, SkipInvalid
from suffice.cli.output import INTERRUPTED, Form, print_result, put, say
from suffice.cli.parser import command
from suffice.errors import BackendError, DataError, UsageError
from suffice.monitor.coverage import ALARMS, Arrivals, Watch, promise_of, read_state, undamaged
from suffice.monitor.following import Following, WebHook
from suffice.monitor.production import Production, ProductionSettings
from suffice.options import Option, as_share
from suffice.policies.file import load_policy
from suffice.trace.durable import replace_file
from suffice.trace.engines import as_place
from suffice.trace.rounds.reader import read_traces
from suffice.trace.store import store_at


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorOptions:
    """What is watched, how often, and who is told."""

    policy: Annotated[
        str | None, Option(metavar="POLICY", help="the policy file that is watched")
    ] = None
    reference: Annotated[
        str | None,
        Option(metavar="TRACES", help="a record that is the past (default: the first questions)"),
    ] = None
    first: Annotated[
        int, Option(at_least=1, help="so many questions are the past without --reference")
    ] = 200
    metric: Annotated[
        str | None, Option(help="what scores answers (default: as certified, else f1)")
    ] = None
    max_loss: Annotated[
        float | None,
        Option(
            metavar="LOSS",
            parse=as_share,
            help="loss a question that raises an alarm (default: as certified)",
        ),
    ] = None
    max_rounds: Annotated[
        int | None,
        Option(at_least=1, help="the full budget (default: the policy file's or the record's)"),
    ] = None
    follow: Annotated[bool, Option(help="go on with what comes, until interrupted")] = False
    every: Annotated[float, Option(metavar="SECONDS", help="how often --follow looks")] = 2.0
    alarms: Annotated[
        str | None,
        Option(
            metavar="FILE", help="add every alarm to this file, a line of JSON each; - for stdout"
        ),
    ] = None
    webhook: Annotated[
        str | None,
        Option(
            metavar="URL", help="POST every alarm as JSON there: https, or http to this machine"
        ),
    ] = None
    level: Annotated[
        float,
        Option(
            metavar="P", parse=as_share, help="the probability of a false alarm of each kind, ever"
        ),
    ] = 0.05
    seed: Seed = 42
    state: Annotated[
        str | None,
        Option(metavar="FILE", help="go on from this file, and keep there where everything stands"),
    ] = None
    skip_invalid: SkipInvalid = False
    fail_on_alarm: Annotated[bool, Option(help="exit 1 when there is or was an alarm")] = False


@command()
def monitor(
    places: Annotated[
        tuple[str, ...],
        Option(
            positional=True,
            repeats=True,
            metavar="TRACES",
            help="with --policy: a record, a folder, a store or JSON lines (- for stdin); "
            "without: a policy file and JSON lines",
        ),
    ],
    options: MonitorOptions,
    form: Form,
) -> int:
    """Watch a policy in production.

    With --policy it reads a record as it grows, by suffice.Watch or any recorder: whether signals and stops
    drift, confidence is kept, stopping loses more than was promised, and what it saves, all of it to be
    looked at as often as one likes. Without, it reads answers as JSON lines and watches the coverage that a
    micp policy promises: POLICY ANSWERS.
    """
    policy = options.policy
    if policy is None:
        if len(places) != 2:
            raise UsageError(
                f"two places are wanted without --policy, POLICY and ANSWERS, found {len(places)}; a record "
                "is watched by: suffice monitor TRACES --policy POLICY"
            )
        return _of_lines(options, form, *places)
    if len(places) != 1:
        raise UsageError(f"one record is watched, found {len(places)}: {', '.join(places)}")
    lines = places[0] == "-" or places[0].endswith((".jsonl", ".ndjson"))
    return (_of_lines if lines else _of_record)(options, form, policy, places[0])


# --- a record ------------------------------------------------------------------------------------
def _of_record(options: MonitorOptions, form: Form, policy: str, place: str) -> int:
    file = load_policy(policy)
    root = as_place(place)
    if not root.exists() and store_at(root) is None and not options.follow:
        raise DataError("no such file or directory; --follow waits for it", file=place)
    names = ("level", "seed", "first", "metric", "max_loss", "max_rounds")
    settings = ProductionSettings(**{name: getattr(options, name) for name in names})
    if settings.max_rounds is None:
        settings = replace(settings, max_rounds=file.max_rounds)
    past = None if options.reference is None else read_traces(options.reference)
    production = Production(file.policy, settings, past=past)
    hook = None if options.webhook is None else WebHook(options.webhook)
    kept = None if options.state is None else Path(options.state)
    watched = Following(root, production, file=kept)
    interrupted = False
    try:
        while True:
            watched.look()
            _tell(watched, options.alarms, hook)
            if not options.follow:
                break
            time.sleep(max(options.every, 0.05))
    except KeyboardInterrupt:
        interrupted = True
    print_result(form, production.tables(), production.to_json)
    if interrupted and not options.follow:
        return INTERRUPTED
    return int(options.fail_on_alarm and bool(production.alarms))


def _tell(watched: Following, lines: str | None, hook: WebHook | None) -> None:
    """Every alarm that was not told yet; one that a hook did not take waits for the next look."""
    for alarm in watched.untold:
        if hook is not None:
            try:
                hook.send(alarm)
            except BackendError as error:
                say(f"{error}; it is tried again")
                return
        document = json.dumps(alarm.to_json(), ensure_ascii=False, allow_nan=False)
        if lines == "-":
            put(document)
        elif lines is not None:
            with Path(lines).open("a", encoding="utf-8") as stream:
                stream.write(document + "\n")
        say(f"question {alarm.question:,}: {alarm.kind} alarm: {alarm.text}")
        watched.told()


# --- JSON lines ----------------------------------------------------------------------------------
def _of_lines(options: MonitorOptions, form: Form, policy: str, answers: str) -> int:
    loaded = load_policy(policy).policy
    with undamaged(Path(policy)):
        promise = promise_of(loaded)
    watch = Watch(promise, options.level, options.seed)
    state = None if options.state is None else Path(options.state)
    if state is not None and state.exists():
        with undamaged(state):
            watch.resume(read_state(state))
    interrupted = False
    try:
        with (
            nullcontext(sys.stdin.buffer) if answers == "-" else Path(answers).open("rb") as stream
        ):
            arrivals = Arrivals(stream, answers, promise, skip_invalid=options.skip_invalid)
            for arrived in arrivals:
                for kind in watch.take(arrived):
                    say(f"answer {watch.counts['answers']}: {kind} alarm: {ALARMS[kind]}")
    except KeyboardInterrupt:
        interrupted = True
        say("interrupted; this is what was read before")
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", file=answers) from error
    if state is not None:
        replace_file(state, json.dumps(watch.state(), allow_nan=False).encode())
    if arrivals.skipped:
        say(f"skipped {arrivals.skipped} invalid lines; the first: {arrivals.first_skipped}")
    print_result(form, watch.tables(), lambda: {**watch.to_json(), "skipped": arrivals.skipped})
    return INTERRUPTED if interrupted else int(options.fail_on_alarm and watch.alarmed)
