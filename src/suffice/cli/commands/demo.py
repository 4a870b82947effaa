"""``suffice demo``: the whole story on the embedded model."""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from suffice.cli.commands import choose
from suffice.cli.commands.report import write_report
from suffice.cli.options import add_json, out_path
from suffice.cli.output import (
    INTERRUPTED,
    print_json,
    print_tables,
    put,
    question_progress,
    say,
    waiting,
)
from suffice.concurrency import room_for_a_thread
from suffice.datasets.generated import generate
from suffice.errors import UsageError
from suffice.llm.connect import connect
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.record.dataset_run import Recording, record_examples
from suffice.measures.measures import Measures
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.file import save_policy
from suffice.policies.registry import fit_method
from suffice.replay.diagnose.report_parts import report_parts
from suffice.replay.run.compare import compare
from suffice.trace.durable import replaced_together
from suffice.trace.reader import EXAMPLE
from suffice.trace.rounds.reader import read_traces

_FEWEST = 5
_QUESTIONS = 28
_ROUNDS = 5
_SAMPLES = 3
_SAMPLE_TOKENS = 16


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Chooses a policy for the record that comes with suffice, then records questions of the "
        "generated data set with the embedded model, calibrates TASR on 40% of them, replays every policy "
        "on the rest, and writes traces, policy and report."
    )
    parser.add_argument(
        "--out",
        type=out_path(folder=True),
        default="demo",
        metavar="DIR",
        help="where to (default: demo)",
    )
    parser.add_argument(
        "--questions",
        type=int,
        default=_QUESTIONS,
        metavar="N",
        help=f"how many to record, from {_FEWEST} (default: {_QUESTIONS})",
    )
    parser.add_argument("--model", metavar="M", help="a GGUF file instead of Gemma 3 270M")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Choose for the example while the model loads; record, fit, replay, report."""
    if arguments.questions < _FEWEST:
        raise UsageError(f"--questions must be at least {_FEWEST}, found {arguments.questions}")
    out = Path(arguments.out)
    started = time.monotonic()
    with ThreadPoolExecutor(1) as beside:
        with room_for_a_thread():
            loading = beside.submit(connect, "embedded", arguments.model)
        if not arguments.json:
            _choose_for_the_example(out / "chosen")
        model = loading.result()
    say(f"2/5 recording {arguments.questions} generated questions, {_ROUNDS} rounds each")
    if notice := getattr(model, "licence", ""):
        say(f"    {notice}")
    recording = Recording(
        dataset="generated",
        settings=CumulativeSettings(
            rounds=_ROUNDS, samples=_SAMPLES, max_sample_tokens=_SAMPLE_TOKENS
        ),
    )
    examples = list(generate(arguments.questions))
    summary = record_examples(
        examples, model, out / "traces", recording, question_progress("    recorded")
    )
    if summary.interrupted:
        say("interrupted; run the same command again to go on")
        return INTERRUPTED
    if summary.failed:
        say(f"    {summary.failed} questions failed and are left out; run again to retry them")
    recorded = read_traces(out / "traces")
    # an earlier run may have recorded more
    traces = recorded.only_questions(example.question.id for example in examples)
    say("3/5 calibrating TASR on the tune questions")
    policy = fit_method("tasr", traces, "corrected", FIT_SPLIT)
    say("4/5 replaying every policy on the other questions, without a model call")
    measures = Measures(traces)
    with waiting("    replaying"):
        comparison = compare(measures)
    say("5/5 writing the report")
    policy_file, report = out / "policy.json", out / "report.html"
    names = (policy_file.name, report.name)
    with waiting("    computing the report"), replaced_together(out, names) as aside:
        save_policy(policy, aside, max_rounds=traces.full_budget)
        write_report(comparison, aside / report.name, report_parts(measures, comparison))
    if arguments.json:
        print_json(
            {
                "traces": str(out / "traces"),
                "policy": str(policy_file),
                "report": str(report),
                "seconds": time.monotonic() - started,
                "replay": comparison.result.to_json(),
            }
        )
        return 0
    print_tables(comparison.tables())
    put(f"\ntraces {out / 'traces'}, policy {policy_file}, report {report}")
    put("next: open the report, or record your own loop: suffice record --help")
    return 0


def _choose_for_the_example(out: Path) -> None:
    """What ``suffice choose example`` prints and writes."""
    words = [EXAMPLE.stem, "--out", str(out)]
    say(f"1/5 while the model loads: suffice choose {' '.join(words)}")
    parser = argparse.ArgumentParser()
    choose.add_options(parser)
    choose.run(parser.parse_args(words))
    put()
