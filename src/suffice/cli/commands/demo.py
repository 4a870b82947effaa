"""``suffice demo``: the whole story on the embedded model."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

from suffice.cli.commands.choose import choose
from suffice.cli.commands.report import write_report
from suffice.cli.options import Json, out_path
from suffice.cli.output import (
    INTERRUPTED,
    print_json,
    print_tables,
    put,
    question_progress,
    say,
    waiting,
)
from suffice.cli.parser import command
from suffice.datasets.generated import generate
from suffice.errors import UsageError
from suffice.llm.connect import connect
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.record.dataset_run import Recording, record_examples
from suffice.measures.measures import Measures
from suffice.options import Option
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.file import save_policy
from suffice.policies.registry import fit_method
from suffice.replay.diagnose.report_data import report_parts
from suffice.replay.run.compare import compare
from suffice.trace.durable import replaced_together
from suffice.trace.reader import EXAMPLE
from suffice.trace.rounds.reader import read_traces

_FEWEST = 5
_LOOP = CumulativeSettings(rounds=5, samples=3, max_sample_tokens=16)


@command()
def demo(
    *,
    out: Annotated[
        str, Option(metavar="DIR", parse=out_path(folder=True), help="where to")
    ] = "demo",
    questions: Annotated[int, Option(metavar="N", help=f"how many to record, from {_FEWEST}")] = 28,
    model: Annotated[
        str | None, Option(metavar="M", help="a GGUF file instead of Gemma 3 270M")
    ] = None,
    json: Json = False,
) -> int:
    """Choose a policy for the record that comes with suffice, then record, fit and replay.

    Questions of the generated data set are recorded with the embedded model, TASR is calibrated on 40% of
    them, every policy is replayed on the rest. Writes traces, policy and report.
    """
    if questions < _FEWEST:
        raise UsageError(f"--questions must be at least {_FEWEST}, found {questions}")
    folder = Path(out)
    started = time.monotonic()
    with ThreadPoolExecutor(1) as beside:
        loading = beside.submit(connect, "embedded", model)
        if not json:
            chosen = str(folder / "chosen")
            say(f"1/5 while the model loads: suffice choose {EXAMPLE.stem} --out {chosen}")
            choose((EXAMPLE.stem,), out=chosen)
            put()
        loaded = loading.result()
    say(f"2/5 recording {questions} generated questions, {_LOOP.rounds} rounds each")
    if notice := getattr(loaded, "licence", ""):
        say(f"    {notice}")
    examples = list(generate(questions))
    summary = record_examples(
        examples,
        loaded,
        folder / "traces",
        Recording(dataset="generated", settings=_LOOP),
        question_progress("    recorded"),
    )
    if summary.interrupted:
        say("interrupted; run the same command again to go on")
        return INTERRUPTED
    if summary.failed:
        say(f"    {summary.failed} questions failed and are left out; run again to retry them")
    # an earlier run may have recorded more
    ids = (example.question.id for example in examples)
    traces = read_traces(folder / "traces").only_questions(ids)
    say("3/5 calibrating TASR on the tune questions")
    policy = fit_method("tasr", traces, "corrected", FIT_SPLIT)
    say("4/5 replaying every policy on the other questions, without a model call")
    measures = Measures(traces)
    with waiting("    replaying"):
        comparison = compare(measures)
    say("5/5 writing the report")
    policy_file, report = folder / "policy.json", folder / "report.html"
    names = (policy_file.name, report.name)
    with waiting("    computing the report"), replaced_together(folder, names) as aside:
        save_policy(policy, aside, max_rounds=traces.full_budget)
        write_report(comparison, aside / report.name, report_parts(measures, comparison))
    if json:
        print_json(
            {
                "traces": str(folder / "traces"),
                "policy": str(policy_file),
                "report": str(report),
                "seconds": time.monotonic() - started,
                "replay": comparison.result.to_json(),
            }
        )
        return 0
    print_tables(comparison.tables())
    put(f"\ntraces {folder / 'traces'}, policy {policy_file}, report {report}")
    put("next: open the report, or record your own loop: suffice record --help")
    return 0
