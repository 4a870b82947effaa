"""What the viewer takes over a large record: first answers, filters, orders, rules tried, a question.

python -m benchmarks.viewer RECORD [--browser]
python -m benchmarks.viewer FOLDER --make 1000000

Wall and CPU milliseconds of a request from the outermost layer in, each asked anew (nothing of it kept) and
the best of three. A rule is also worked out the other way, by 1,000 resamples of the questions in place of
sums. With ``--browser`` the page is opened in Chromium while everything is still being measured.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from starlette.testclient import TestClient

from benchmarks.scale_records import Record, written
from suffice.measures.measures import Measures
from suffice.numbers.intervals.bootstrap import resampled_counts
from suffice.trace.rounds.reader import read_traces
from suffice.view.app import Shown, viewer_app
from suffice.view.data import Progress, RecordView, ViewSettings

RULES = tuple(f"overlap > 0.{n} and answer_stable" for n in (31, 33, 37))
FILTERS = {
    "a split": "split=eval",
    "wrong at the stop": "policy=fixed-2&outcome=wrong",
    "stops before right": "policy=fixed-2&outcome=early",
    "a signal's range at the stop": "policy=fixed-3&signal=overlap&low=0.{}",
    "stops unlike a rule": "policy=fixed-3&differs=answer_repeats",
    "a word in questions and answers": "text=oslo{}",
    "sorted by score": "sort=score&order=desc",
    "sorted by question": "sort=question",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """Milliseconds of something: by the clock and of this process's CPUs."""

    wall: float
    cpu: float


def best(work: Callable[[int], object]) -> Took:
    """The least of three."""
    runs = []
    for number in range(3):
        wall, cpu = time.perf_counter(), time.process_time()
        work(number)
        runs.append((time.perf_counter() - wall, time.process_time() - cpu))
    return Took(wall=1000 * min(w for w, _ in runs), cpu=1000 * min(c for _, c in runs))


def say(what: str, took: Took) -> None:
    """A line of the table."""
    print(f"{what:44} {took.wall:8.0f} {took.cpu:8.0f}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("--make", type=int)
    parser.add_argument("--browser", action="store_true")
    arguments = parser.parse_args()
    if arguments.make:
        record = Record(questions=arguments.make, varied=True, files=20, group=2_000)
        print(written(arguments.record, record))
        return
    if arguments.browser:
        paint(arguments.record)
        return
    print(f"{'':44} {'wall ms':>8} {'CPU ms':>8}")
    began = Took(wall=time.perf_counter(), cpu=time.process_time())
    view = RecordView(
        Measures(read_traces(arguments.record)), ViewSettings(rules=("answer_repeats",))
    )
    opened = Took(
        wall=1000 * (time.perf_counter() - began.wall), cpu=1000 * (time.process_time() - began.cpu)
    )
    say(f"opening {view.n_questions:,} questions", opened)
    client = TestClient(viewer_app(Shown(view)), base_url="http://localhost")

    def ask(path: str) -> None:
        reply = client.get(f"/api/{path}")
        if reply.status_code != 200:
            raise SystemExit(f"{path}: {reply.text}")

    say("facts, nothing measured yet", best(lambda _: ask("record")))
    say("the first 50 questions, nothing measured yet", best(lambda _: ask("questions")))
    view.work(only_signals=("answer_repeats", "overlap", "answer_stable"))
    view.progress = Progress(done=1, of=1, doing="")
    say("facts with every policy's figures", best(lambda _: ask("record")))
    for name, query in FILTERS.items():

        def filtered(number: int, query: str = query) -> None:
            view.orders.clear()
            ask(f"questions?{query.format(number if '{}' in query else '')}")

        say(f"table: {name}", best(filtered))
    say("a rule tried", best(lambda number: ask(f"what-if?rule={RULES[number]}&against=fixed-3")))
    say("its three intervals by resampling instead", best(lambda _: resampled(view)))
    middle = view.question_ids[view.n_questions // 2].as_py()
    say("a question with its rounds", best(lambda _: ask(f"question/{middle}")))


def resampled(view: RecordView) -> None:
    """Intervals of a score, a cost and a difference from 1,000 resamples, in one pass."""
    one, other = view.columns.policies[0], view.full
    cost = one.stops.astype(np.float64) if one.cost is None else one.cost
    values = np.nan_to_num(np.stack([one.score, cost, one.score - other.score], axis=1))
    means = [counts @ values / len(values) for counts in resampled_counts(len(values))]
    np.percentile(np.concatenate(means), [2.5, 97.5], axis=0)


def paint(record: Path) -> None:
    """From asking for the page to its first contents and to the first rows of the table."""
    from playwright.sync_api import sync_playwright

    port = 7690
    command = [
        sys.executable,
        "-m",
        "suffice",
        "view",
        str(record),
        "--no-browser",
        "--workers",
        "1",
    ]
    serving = subprocess.Popen([*command, "--port", str(port)], stderr=subprocess.DEVNULL)
    try:
        with sync_playwright() as running:
            path = os.environ.get("CHROMIUM") or shutil.which("chromium")
            browser = running.chromium.launch(
                executable_path=path, args=["--no-sandbox", "--disable-gpu"]
            )
            began = time.perf_counter()
            page = browser.new_page()
            address = f"http://127.0.0.1:{port}/?view=questions"
            while True:
                try:
                    page.goto(address)
                    break
                except Exception as error:
                    if time.perf_counter() - began > 60:
                        raise SystemExit(str(error)) from error
                    time.sleep(0.1)
            listening = time.perf_counter() - began
            page.locator(".rows a").first.wait_for(timeout=300_000)
            rows = time.perf_counter() - began
            page.locator("#about", has_text="recorded round").wait_for(timeout=300_000)
            print(
                f"from the command until it listens {listening:.1f} s, to rows {rows:.1f} s, until the whole "
                f"record is there {time.perf_counter() - began:.1f} s"
            )
            page.close()
            for place in ("about:blank", *3 * [address]):
                fresh = browser.new_page()
                began = time.perf_counter()
                fresh.goto(place)
                if place != address:
                    print(f"an empty page: {1000 * (time.perf_counter() - began):.0f} ms")
                    continue
                fresh.locator(".rows a").first.wait_for()
                rows = 1000 * (time.perf_counter() - began)
                first = fresh.evaluate(
                    "performance.getEntriesByName('first-contentful-paint')[0].startTime"
                )
                print(f"opened: first contents {first:.0f} ms, rows {rows:.0f} ms")
                fresh.close()
            browser.close()
    finally:
        serving.terminate()
        serving.wait(120)


if __name__ == "__main__":
    main()
