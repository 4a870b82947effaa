"""``suffice monitor``: whether a policy still does in use what was promised of it."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from suffice.cli.options import natural, number, positive, share
from suffice.cli.output import INTERRUPTED, add_format, print_result, put, say
from suffice.errors import BackendError, DataError, UsageError
from suffice.monitor.coverage import (
    ALARMS,
    Arrivals,
    Promise,
    Watch,
    WatchSettings,
    promise_of,
)
from suffice.monitor.following import Folder, Following
from suffice.monitor.hook import WebHook
from suffice.monitor.production import Production, ProductionSettings
from suffice.monitor.state import read_state
from suffice.policies.file import load_policy
from suffice.results.as_json import as_json
from suffice.trace.durable import replace_file
from suffice.trace.postgres import as_place
from suffice.trace.rounds.reader import read_traces
from suffice.trace.store import store_at


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Watches a policy in production. With --policy it reads a record as it grows, by suffice.Watch or "
        "any recorder: whether signals and stops drift, confidence is kept, stopping loses more than was "
        "promised, and what it saves, all of it to be looked at as often as one likes. Without, it reads "
        "answers as JSON lines and watches the coverage that a micp policy promises: POLICY ANSWERS."
    )
    parser.add_argument(
        "places",
        metavar="TRACES",
        nargs="+",
        help="with --policy: a folder of traces, a trace file, a store, or JSON lines (.jsonl, or - for "
        "stdin); without: a policy file and JSON lines, one answer a line",
    )
    parser.add_argument("--policy", metavar="POLICY", help="the policy file that is watched")
    parser.add_argument(
        "--reference",
        metavar="TRACES",
        help="a record that stands for the past of signals and stops, such as the one it was chosen on "
        "(default: the first questions do)",
    )
    parser.add_argument(
        "--first",
        type=positive,
        default=200,
        metavar="N",
        help="how many questions stand for the past where there is no --reference (default: 200)",
    )
    parser.add_argument(
        "--metric", help="what answers are scored by (default: as certified, else f1)"
    )
    parser.add_argument(
        "--max-loss",
        type=share,
        metavar="LOSS",
        help="the loss of stopping, per question, above which there is an alarm (default: as certified)",
    )
    parser.add_argument(
        "--max-rounds",
        type=positive,
        metavar="N",
        help="the full budget (default: as the policy file or the record says)",
    )
    parser.add_argument(
        "--follow", action="store_true", help="go on with what comes, until interrupted"
    )
    parser.add_argument(
        "--every",
        type=number,
        default=2.0,
        metavar="SECONDS",
        help="how often --follow looks (default: 2)",
    )
    parser.add_argument(
        "--alarms",
        metavar="FILE",
        help="add every alarm to this file, a line of JSON each; - for stdout",
    )
    parser.add_argument(
        "--webhook",
        metavar="URL",
        help="POST every alarm as JSON there: https, or http to this machine; tried again a few times, "
        "never redirected",
    )
    parser.add_argument(
        "--level",
        type=share,
        default=0.05,
        metavar="P",
        help="the probability of a false alarm of each kind, ever (default: 0.05)",
    )
    parser.add_argument(
        "--seed", type=natural, default=42, help="of ties among numbers (default: 42)"
    )
    parser.add_argument(
        "--state",
        metavar="FILE",
        help="go on from this file where it exists, and keep there where everything stands; of JSON lines "
        "give new answers only",
    )
    parser.add_argument(
        "--skip-invalid",
        action="store_true",
        help="leave out JSON lines that are invalid, count them, and go on with the rest",
    )
    parser.add_argument(
        "--fail-on-alarm", action="store_true", help="exit 1 when there is or was an alarm"
    )
    add_format(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Watch and print."""
    places = arguments.places
    if arguments.policy is None:
        if len(places) != 2:
            raise UsageError(
                f"two places are wanted without --policy, POLICY and ANSWERS, found {len(places)}; a record "
                "is watched by: suffice monitor TRACES --policy POLICY"
            )
        return _of_lines(arguments, *places)
    if len(places) != 1:
        raise UsageError(f"one record is watched, found {len(places)}: {', '.join(places)}")
    if places[0] == "-" or places[0].endswith((".jsonl", ".ndjson")):
        return _of_lines(arguments, arguments.policy, places[0])
    return _of_record(arguments, places[0])


# --- a record ------------------------------------------------------------------------------------
def _of_record(arguments: argparse.Namespace, place: str) -> int:
    """Watch a record, once or as it grows."""
    file = load_policy(arguments.policy)
    given, root = arguments.max_rounds, as_place(place)
    if not root.exists() and store_at(root) is None and not arguments.follow:
        raise DataError("no such file or directory; --follow waits for it", file=place)
    production = Production(
        file.policy,
        ProductionSettings(
            level=arguments.level,
            seed=arguments.seed,
            first=arguments.first,
            metric=arguments.metric,
            max_loss=arguments.max_loss,
            max_rounds=file.max_rounds if given is None else given,
        ),
        past=None if arguments.reference is None else read_traces(arguments.reference),
    )
    hook = None if arguments.webhook is None else WebHook(arguments.webhook)
    kept = None if arguments.state is None else Path(arguments.state)
    watched = Following(Folder(root, production.reading), production, file=kept)
    watched.go_on()
    interrupted = False
    try:
        while True:
            found = watched.look()
            if found.damaged:
                say(f"{found.damaged:,} damaged lines left out")
            _tell(watched, arguments.alarms, hook)
            if not arguments.follow:
                break
            time.sleep(max(arguments.every, 0.05))
    except KeyboardInterrupt:
        interrupted = True
    result = production.result()
    print_result(arguments, result.tables(), result.to_json)
    if interrupted and not arguments.follow:
        return INTERRUPTED
    return 1 if arguments.fail_on_alarm and result.alarmed else 0


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
def _of_lines(arguments: argparse.Namespace, policy: str, answers: str) -> int:
    """Watch the coverage that a policy promises."""
    promise = _promise(policy)
    settings = WatchSettings(level=arguments.level, seed=arguments.seed)
    watch = Watch(promise, settings)
    if arguments.state is not None:
        watch = _resumed(watch, Path(arguments.state))
    with _stream(answers) as stream:
        arrivals = Arrivals(stream, answers, promise.grading, skip_invalid=arguments.skip_invalid)
        interrupted = _watch(watch, arrivals)
    if arguments.state is not None:
        text = json.dumps(as_json(watch.to_json()), allow_nan=False)
        replace_file(Path(arguments.state), text.encode())
    result = watch.result()
    if arrivals.skipped:
        say(f"skipped {arrivals.skipped} invalid lines; the first: {arrivals.first_skipped}")
    print_result(
        arguments, result.tables(), lambda: {**result.to_json(), "skipped": arrivals.skipped}
    )
    if interrupted:
        return INTERRUPTED
    return 1 if arguments.fail_on_alarm and result.alarmed else 0


def _watch(watch: Watch, arrivals: Arrivals) -> bool:
    """Take every answer in; whether an interrupt ended it. What was taken in stays whole."""
    try:
        for arrived in arrivals:
            with _uninterrupted():
                for kind in watch.take(arrived):
                    say(f"answer {watch.answers}: {kind} alarm: {ALARMS[kind]}")
    except KeyboardInterrupt:
        say("interrupted; this is what was read before")
        return True
    return False


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """An interrupt waits until the block is done, where the system can hold it."""
    hold = getattr(signal, "pthread_sigmask", None)
    if hold is None:
        yield
        return
    before = hold(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        hold(signal.SIG_SETMASK, before)


def _promise(path: str) -> Promise:
    policy = load_policy(path).policy
    try:
        return promise_of(policy)
    except DataError as error:
        raise DataError(error.message, file=path, column=error.column) from error


def _resumed(watch: Watch, file: Path) -> Watch:
    """Where the state file left off; the watch itself where there is none yet."""
    if not file.exists():
        return watch
    state = read_state(file)
    try:
        return watch.resumed(state)
    except DataError as error:
        raise DataError(error.message, file=str(file), column=error.column) from error


@contextmanager
def _stream(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as stream:
            yield stream
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", file=name) from error
