"""``suffice report`` and ``demo``: write one HTML file; record, fit, replay and write one."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from suffice.cli.commands.replay import choose
from suffice.cli.output import (
    INTERRUPTED,
    fit_progress,
    print_json,
    print_tables,
    put,
    question_progress,
    say,
    waiting,
)
from suffice.cli.parser import command
from suffice.cli.shared_options import Compared, Json, Sampling, Traces, out_path
from suffice.errors import UsageError, counted, unknown_name
from suffice.evaluation.diagnose.report_data import (
    PARTS,
    PartsSettings,
    ReportParts,
    report_data,
    report_parts,
)
from suffice.evaluation.replay.compare import Comparison, compare
from suffice.evaluation.settings import FORMS, ComparisonSettings, SearchSettings
from suffice.options import Option, read_names
from suffice.policies.method import FitRun
from suffice.report.page import render_report
from suffice.results.table import Table
from suffice.trace.durable import replace_file, replaced_together
from suffice.trace.stored_file import EXAMPLE


def _parts(text: str) -> tuple[str, ...]:
    wanted = () if text == "none" else read_names(text)
    for part in wanted:
        if part not in PARTS:
            raise UsageError(unknown_name("part", part, (*PARTS, "none")))
    return wanted


@command()
def report(
    traces: Traces,
    *,
    reading: Sampling,
    compared: Compared,
    parts: Annotated[
        tuple[str, ...],
        Option(
            metavar="A,B,...",
            parse=_parts,
            help=f"parts beside the comparison: {', '.join(PARTS)}, or none (default: all that the record "
            "allows)",
        ),
    ] = PARTS,
    search: Annotated[
        tuple[str, ...] | None,
        Option(metavar="A,B,...", help="search rules over these signals, as suffice search does"),
    ] = None,
    form: Annotated[str, Option(choices=FORMS, help="form of these rules")] = "or",
    confidence: Annotated[
        str | None,
        Option(metavar="SIGNAL", help="signal to use as a policy's confidence (default: its own)"),
    ] = None,
    out: Annotated[
        str, Option(metavar="FILE.html", parse=out_path(".html", ".htm"), help="file to write")
    ],
    json: Json = False,
) -> None:
    """Write one self-contained HTML file.

    Shows scores against costs, stop rounds, promises, signals, reliability and calibrators.
    Lists every question, with the round where each policy stops and the reason.
    Leaves out what the record does not allow, and says why.
    Without --policy it shows fixed budgets, the oracles and, if the record allows, TASR.
    """
    measures = reading.measures(traces)
    settings = compared.read(reading)
    measures = measures.by(settings.metric)
    shared = {name: getattr(settings, name) for name in ("cost", "cost_model", "baseline")}
    wanted = PartsSettings(
        parts=parts,
        search=None if search is None else SearchSettings(signals=search, form=form, **shared),
        confidence=confidence,
    )
    with waiting("replaying"):
        comparison = compare(measures, settings, run=FitRun(progress=fit_progress()))
    with waiting("computing the report"):
        shown = report_parts(measures, comparison, wanted)
        size = write_report(comparison, Path(out), shown)
    if search and "search" in shown.left_out:
        say(f"no search: {shown.left_out['search']}")
    if json:
        result = comparison.result
        head = {"out": out, "bytes": size, "questions": result.questions}
        print_json({**head, "replay": result.to_json(), "parts": shown.to_json()})
    else:
        put(f"wrote {out} ({size / 1e6:.1f} MB)")


def write_report(comparison: Comparison, out: Path, parts: ReportParts | None = None) -> int:
    """Write the comparison's report with these parts; return its size in bytes."""
    content = render_report(report_data(comparison.measures, comparison.result, parts)).encode()
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, content)
    return len(content)


@command()
def demo(
    *,
    out: Annotated[
        str, Option(metavar="DIR", parse=out_path(folder=True), help="folder to write")
    ] = "demo",
    questions: Annotated[int, Option(at_least=5, help="questions to record, at least 5")] = 28,
    model: Annotated[
        str | None, Option(metavar="M", help="a GGUF file instead of Gemma 3 270M")
    ] = None,
    json: Json = False,
) -> int:
    """Choose a policy for the record that comes with suffice, then record, fit and replay.

    Records questions of the generated data set with the embedded model.
    Calibrates TASR on 40% of them and replays every policy on the rest.
    Writes the record, the policy and the report.
    """
    from suffice.datasets.generated import generate
    from suffice.llm.connect import connect
    from suffice.loops.ranked import CumulativeSettings
    from suffice.loops.record.dataset_run import Recording, record_examples
    from suffice.measures.measures import Measures
    from suffice.policies.defaults import FIT_SPLIT
    from suffice.policies.policy_file import save_policy
    from suffice.policies.registry import fit_method
    from suffice.trace.rounds.reader import read_traces

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
    loop = CumulativeSettings(rounds=5, samples=3, max_sample_tokens=16)
    say(f"2/5 recording {counted(questions, 'generated question')}, {loop.rounds} rounds each")
    if notice := getattr(loaded, "licence", ""):
        say(f"    {notice}")
    examples = [*generate(questions)]
    summary = record_examples(
        examples,
        loaded,
        folder / "traces",
        Recording(dataset="generated", settings=loop),
        question_progress("    recorded"),
    )
    if summary.interrupted:
        say("interrupted; run the same command again to go on")
        return INTERRUPTED
    if summary.failed:
        say(f"    left out: {counted(summary.failed, 'question')} that failed; run again to retry")
    traces = read_traces(folder / "traces").only_questions(  # an earlier run may have recorded more
        example.question.id for example in examples
    )
    say("3/5 calibrating TASR on the tune questions")
    policy = fit_method("tasr", traces, "corrected", FIT_SPLIT)
    say("4/5 replaying every policy on the other questions, without a model call")
    measures = Measures(traces)
    with waiting("    replaying"):
        comparison = compare(measures, ComparisonSettings())
    say("5/5 writing the report")
    policy_file, page = folder / "policy.json", folder / "report.html"
    names = (policy_file.name, page.name)
    with waiting("    computing the report"), replaced_together(folder, names) as aside:
        save_policy(policy, aside, max_rounds=traces.full_budget)
        write_report(comparison, aside / page.name, report_parts(measures, comparison))
    if json:
        print_json(
            {
                "traces": str(folder / "traces"),
                "policy": str(policy_file),
                "report": str(page),
                "seconds": time.monotonic() - started,
                "replay": comparison.result.to_json(),
            }
        )
        return 0
    print_tables([_short(comparison)])
    put(f"Traces: {folder / 'traces'}\nPolicy: {policy_file}\nReport: {page}")
    return 0


def _short(comparison: Comparison) -> Table:
    result = comparison.result
    wanted = ("policy", "f1", "mean_rounds", "llm_calls", "evaluated_tokens", "delta_f1")
    table = result.table.picked(*(c.name for c in result.table.columns if c.name in wanted))
    rows = zip(result.policies, table.rows, strict=True)
    return replace(
        table,
        title=f"{result.questions} held-out questions, change against {result.baseline_label}",
        rows=[row for policy, row in rows if policy.kind != "oracle"],
        notes=(),
    )
