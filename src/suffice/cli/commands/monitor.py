"""``suffice monitor``: whether a promise of coverage still holds in use."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from suffice.cli.options import natural, number
from suffice.cli.output import INTERRUPTED, add_format, print_result, say
from suffice.errors import DataError
from suffice.monitor.arrivals import Arrivals
from suffice.monitor.coverage_watch import ALARMS, Promise, Watch, WatchSettings, promise_of
from suffice.policies.file import load_policy
from suffice.results.as_json import as_json
from suffice.trace.durable import replace_file


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Reads answers in order of arrival and watches the coverage that a micp policy "
        "promises. One monitor needs the right answers of a sample of them (covered, or gold_answers "
        "with answer_set) and says when too many miss; the other needs none, only the entropy at round "
        "1, and says when answers no longer look like those calibrated on."
    )
    parser.add_argument("policy", metavar="POLICY", help="a micp policy file or its folder")
    parser.add_argument(
        "answers", metavar="ANSWERS", help="JSON lines, one answer a line, or - for stdin"
    )
    parser.add_argument(
        "--level",
        type=number,
        default=0.05,
        metavar="P",
        help="the probability of a false alarm of each monitor, ever (default: 0.05)",
    )
    parser.add_argument(
        "--seed", type=natural, default=42, help="of ties among scores (default: 42)"
    )
    parser.add_argument(
        "--state",
        metavar="FILE",
        help="go on from this file where it exists, and keep there where the monitors stand; give new "
        "answers only",
    )
    parser.add_argument(
        "--skip-invalid",
        action="store_true",
        help="leave out what is invalid, count it, and go on with the rest",
    )
    parser.add_argument(
        "--fail-on-alarm", action="store_true", help="exit 1 when there is or was an alarm"
    )
    add_format(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Watch and print."""
    promise = _promise(arguments.policy)
    settings = WatchSettings(level=arguments.level, seed=arguments.seed)
    watch = Watch(promise, settings)
    if arguments.state is not None:
        watch = _resumed(watch, Path(arguments.state))
    with _stream(arguments.answers) as stream:
        arrivals = Arrivals(
            stream, arguments.answers, promise.grading, skip_invalid=arguments.skip_invalid
        )
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
    try:
        return watch.resumed(json.loads(file.read_bytes()))
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise DataError(error.message, file=str(file), column=error.column) from error
        raise DataError(f"not JSON: {error}", file=str(file)) from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", file=str(file)) from error


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
