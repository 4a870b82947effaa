"""``suffice replay``, ``diagnose``, ``search`` and ``choose``: compare policies on a record."""

from __future__ import annotations

import json
import shlex
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from suffice.cli.output import Form, fit_progress, print_result, put, say, waiting
from suffice.cli.parser import command
from suffice.cli.shared_options import (
    Compared,
    Measuring,
    PolicyOut,
    ReportNaive,
    Sampling,
    SeveralTraces,
    Traces,
    out_path,
    tell_policy,
    written_policy,
)
from suffice.errors import DataError, UsageError, counted
from suffice.evaluation.settings import (
    ChoiceSettings,
    DiagnosisSettings,
    ScoredSettings,
    SearchSettings,
)
from suffice.options import Option

if TYPE_CHECKING:
    from suffice.evaluation.choose.choice import Choice
    from suffice.evaluation.promise_check import Carried
    from suffice.measures.measures import Measures


@command()
def replay(
    traces: Traces,
    *,
    reading: Sampling,
    compared: Compared,
    per_question: Annotated[
        bool, Option(help="with --json: add the stop round of every question")
    ] = False,
    write_signals: Annotated[
        str | None,
        Option(
            metavar="TRACES2",
            help="also write the record with q_stop and q_cont of the stop-rag policy",
        ),
    ] = None,
    out: PolicyOut = None,
    form: Form,
) -> None:
    """Score policies on recorded rounds: costs, scores and paired intervals."""
    from suffice.evaluation.replay.compare import compare, with_q_values
    from suffice.policies.method import FitRun
    from suffice.trace.rounds.writer import write_trace_set

    settings = compared.read(reading)
    if out is not None and len(settings.rules) != 1:
        raise UsageError(
            f"--out needs exactly one --stop-when, found {len(settings.rules)}; to write a method, type "
            "suffice fit METHOD TRACES --out policy.json"
        )
    measures = reading.measures(traces)
    with waiting("replaying"):
        comparison = compare(measures, settings, run=FitRun(progress=fit_progress()))
    result = comparison.result
    if write_signals is not None:
        say(f"wrote {write_trace_set(with_q_values(measures, comparison), write_signals)}")
    more: dict[str, Any] = {}
    if out is not None:
        (rule,) = settings.rules
        policy = {policy.name: policy.policy for policy in result.policies}.get(rule)
        if policy is None:
            raise UsageError(f"{rule!r} cannot run here: {result.left_out.get(rule)}")
        more = written_policy(out, policy, measures.traces)
    print_result(
        form,
        comparison.tables(),
        lambda: {**result.to_json(per_question=per_question), **more},
        (*result.banners, *result.notes),
    )


@command()
def diagnose(traces: Traces, reading: Sampling, settings: DiagnosisSettings, form: Form) -> None:
    """Measure how well each signal tells right from wrong answers, on the tune and the eval split.

    Prints effect sizes (Cohen's d, AUROC) with intervals, and warns of drift, constant values and look-ahead.
    Breaks policies down by question type and confidence. Compares calibrators if both splits hold token
    margins.
    """
    from suffice.evaluation.diagnose.diagnosis import diagnosis

    measures = reading.measures(traces)
    with waiting("diagnosing"):
        result = diagnosis(measures, settings)
    print_result(form, result.tables(), result.to_json, result.notes)


@command()
def search(
    traces: Traces,
    *,
    reading: Sampling,
    settings: SearchSettings,
    max_calls: Annotated[
        float | None, Option(metavar="C", help="as --max-cost, in model calls")
    ] = None,
    report_naive: ReportNaive = False,
    top: Annotated[int, Option(at_least=1, help="number of rules to print")] = 15,
    out: PolicyOut = None,
    pick: Annotated[
        int | None,
        Option(at_least=1, help="number of the listed rule that --out writes (default: 1)"),
    ] = None,
    form: Form,
) -> None:
    """Evaluate every rule of a form over a few signals.

    Chooses thresholds and order on the tune split and scores on the eval split. Intervals hold for all rules
    together. 'replay --stop-when' accepts every rule that is printed.
    """
    from suffice.evaluation.choose import search as searching
    from suffice.policies.fitting import fit_rule

    if pick is not None and out is None:
        raise UsageError("--pick chooses the rule that --out writes; add --out PATH")
    if max_calls is not None:
        if settings.max_cost is not None:
            raise UsageError("give --max-calls or --max-cost, not both")
        if settings.cost not in (None, "llm_calls", "calls", "rounds"):
            raise UsageError(f"--max-calls caps calls; for --cost {settings.cost} type --max-cost")
        settings = replace(settings, max_cost=max_calls)
    measures = reading.measures(traces)
    with waiting("searching"):
        result = searching.search(measures, settings)
    written: dict[str, Any] = {}
    if out is not None:
        rule = result.pick(pick or 1).rule
        policy = fit_rule(rule, measures, split=settings.tune_split, metric=settings.metric)
        written = written_policy(out, replace(policy, answer=settings.answer), measures.traces)
    print_result(
        form,
        result.tables(top=top, naive=report_naive),
        lambda: {**result.to_json(naive=report_naive), **written},
        [f"note: {note}" for note in result.notes],
    )


@command()
def compare_loops(
    first: Annotated[str, Option(positional=True, metavar="FIRST", help="record of one loop")],
    second: Annotated[
        str,
        Option(positional=True, metavar="SECOND", help="record of another, on the same questions"),
    ],
    *,
    reading: Measuring,
    settings: ScoredSettings,
    form: Form,
) -> None:
    """Compare two loops, paired by question, each at its last recorded round.

    Shows score and costs, and their differences with intervals. Names the settings in which the runs differ,
    such as the model, the prompt or the retriever.
    """
    from suffice.evaluation.replay.loop_comparison import compare_loops as compared

    result = compared(reading.measures(first), reading.measures(second), settings)
    print_result(form, result.tables(), result.to_json)


_FILES = (
    *("policy.json", "policy.safetensors", "guess.json", "guess.safetensors"),
    *("choice.json", "index.html"),
)


@command()
def choose(
    traces: SeveralTraces,
    *,
    reading: Sampling,
    settings: ChoiceSettings,
    against: Annotated[
        str | None,
        Option(
            metavar="OLD",
            help="test whether a policy keeps its promise on TRACES, the record of a changed loop. OLD is "
            "the record that chose it. The policy is --policy, else that in --out.",
        ),
    ] = None,
    out: Annotated[
        str,
        Option(
            metavar="DIR",
            parse=out_path(folder=True),
            help="folder for policy.json, choice.json, index.html and, if there is one, guess.json",
        ),
    ] = "chosen",
    form: Form,
) -> int:
    """Choose one policy for a record, and list what you can save for each loss that you allow.

    Proves fixed paths on all labeled questions. Fits methods, rules and learned values on one part of the
    record and proves them on another. Writes all files of a run or none.
    With --against, exits with 0 if the promise holds on the new record, else with 1.
    """
    from suffice.evaluation.choose import procedure
    from suffice.trace.durable import replaced_together

    if against is not None:
        found = _against(traces, against, reading, settings, out)
        print_result(form, found.tables(), found.to_json)
        return int(found.decision != "holds")
    measures = reading.measures(*traces)
    folder = Path(out)
    if (folder / "policy.json").exists():
        _keep_own(folder / "policy.json", measures, traces)
    with waiting("choosing"):
        choice = procedure.choose(measures, settings)
    with waiting("writing the page"), replaced_together(folder, _FILES) as aside:
        choice.save(aside)
        if choice.guess is not None:
            choice.save(aside / "guess.json", guess=True)
        write_choice(choice, measures, aside)
    policy, page, guess = folder / "policy.json", folder / "index.html", folder / "guess.json"
    if form.name == "text":
        put("\n".join(choice.screen()))
        put(f"Page: {page}    Policy: {policy}")
        for what, line in [*choice.live(str(policy), str(guess))][:1]:
            put(f"Try it {what}:\n  {line}")
        more = len(choice.notes) + len(choice.left_out) + len(choice.warned)
        if more:
            say(f"{counted(more, 'note')} in the page and in {folder / 'choice.json'}")
        return 0
    written = {**tell_policy(policy, choice.policy, measures.traces), "page": str(page)}
    print_result(form, choice.tables(), lambda: {**choice.to_json(), **written}, choice.notes)
    return 0


def _keep_own(file: Path, measures: Measures, typed: tuple[str, ...]) -> None:
    """Refuse to replace a policy that was chosen on another record than this or the example, or edited."""
    from suffice.policies.policy_file import load_policy, policy_hash
    from suffice.trace.rounds.reader import read_traces
    from suffice.trace.rounds.trace_set import unit_keys
    from suffice.trace.stored_file import EXAMPLE

    sample = set[str]()
    with suppress(DataError):  # no policy file: somebody's own
        held = load_policy(file)
        if held.chosen_on.get("policy") == policy_hash(held.policy):
            sample.update(str(held.chosen_on.get("sample")).split())
    records = (measures.traces, read_traces(EXAMPLE)) if sample else ()
    if any(not sample.isdisjoint(map("{:.0f}".format, unit_keys(held))) for held in records):
        return
    raise UsageError(
        f"{file} is not from a choice on this record, so it stays; to write elsewhere, type: suffice "
        f"choose {shlex.join(typed)} --out {shlex.quote(f'{file.parent}-2')}"
    )


def _against(
    traces: tuple[str, ...], against: str, reading: Sampling, settings: ChoiceSettings, out: str
) -> Carried:
    from suffice.evaluation.promise_check import carry_promise

    told = ("policies", "max_loss", "confidence", "loss")
    kept = ChoiceSettings(**settings.scored, **{name: getattr(settings, name) for name in told})
    policies = settings.policies or (str(Path(out) / "policy.json"),)
    if kept != settings or reading.sample is not None or len(traces) > 1 or len(policies) > 1:
        raise UsageError(
            "--against tests one policy on one whole record: leave out options that choose, and --sample"
        )
    new, old = (reading.measures(place) for place in (traces[0], against))
    with waiting("testing"):
        return carry_promise((traces[0], new), (against, old), str(policies[0]), settings)


def write_choice(choice: Choice, measures: Measures, folder: Path) -> None:
    """Write ``choice.json`` and ``index.html``; ``measures`` hold the questions of the choice, or more."""
    import numpy as np

    from suffice.evaluation.diagnose.report_data import PartsSettings, report_data, report_parts
    from suffice.evaluation.replay.compare import Comparison
    from suffice.report.page import render_report

    result = choice.result
    measures = measures.by(result.metric.name)
    chosen = np.isin(measures.traces.question_ids, result.question_ids)
    comparison = Comparison(measures=measures.take(chosen), result=result)
    wanted = PartsSettings(parts=("guarantees", "costs"))
    parts = report_parts(comparison.measures, comparison, wanted)
    left_out = {**choice.left_out, **parts.left_out}
    left_out.pop("guarantees", None)  # said on the first screen
    parts = replace(parts, contents={**parts.contents, "choice": choice}, left_out=left_out)
    data = report_data(comparison.measures, result, parts)
    document = json.dumps(choice.to_json(), ensure_ascii=False, indent=1, allow_nan=False)
    (folder / "choice.json").write_bytes(document.encode())
    (folder / "index.html").write_bytes(render_report(data).encode())
