"""Judges of plans against people, for each record and over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from studies.command import Found
from studies.hidden_constraints.checker import CHECKER
from studies.hidden_constraints.judge import LLMJudge, agreement
from studies.hidden_constraints.sheet import (
    NEEDED,
    Recorded,
    Run,
    drawn_runs,
    read_labels,
    read_records,
    write_sheet,
)
from suffice.cli.options import ModelOptions, Seed, out_path
from suffice.cli.output import Form, ProgressLine, print_result, say
from suffice.cli.parser import command
from suffice.concurrency import width_of
from suffice.contracts import ChatModel, Verdict
from suffice.errors import UsageError
from suffice.options import Option
from suffice.results.formats import counted
from suffice.results.table import Column, Table
from suffice.stats.intervals import percentile_interval, resampled_counts

TOGETHER = "together"
PEOPLE, JUDGE = "people", "judge"
PAIRS = ((PEOPLE, JUDGE), (PEOPLE, CHECKER), (CHECKER, JUDGE))


class Rated(NamedTuple):
    """A run and what each rater says of it; ``None``: nothing."""

    run: Run
    verdicts: Mapping[str, bool | None]
    unreadable: bool


# --- verdicts -------------------------------------------------------------------------------------
def recorded_verdicts(
    records: Sequence[Recorded], labels: Mapping[str, bool]
) -> dict[str, list[Rated]]:
    """The recorded judge's verdicts by record; where the checker was the judge, the checker's alone."""
    return {
        record.name: [
            _rated(
                run,
                labels,
                judged=None if record.judge == CHECKER else run.record.outcome.semantic,
                unreadable=run.unreadable,
            )
            for run in record.runs
        ]
        for record in records
    }


def new_verdicts(
    records: Sequence[Recorded],
    labels: Mapping[str, bool],
    model: ChatModel,
    told: Literal["token", "requirement"],
    show: Callable[[int, int], None],
) -> dict[str, list[Rated]]:
    """A model's verdicts, each plan and constraint asked about once, by the published protocol."""
    runs = [run for record in records for run in record.runs]
    requirements = {run.constraint: run.requirement for run in runs if run.requirement}
    if told == "requirement" and any(run.constraint not in requirements for run in runs):
        raise UsageError(
            "--told requirement needs records of 'python -m studies.hidden_constraints'; type --told token"
        )
    judge = LLMJudge(model, requirements=requirements if told == "requirement" else None)
    asked = list(dict.fromkeys((run.constraint, run.record.outcome.plan) for run in runs))
    said: dict[tuple[str, str], Verdict] = {}
    with ThreadPoolExecutor(width_of(model)) as pool:
        for question, verdict in zip(
            asked, pool.map(lambda pair: judge.judge(*pair), asked), strict=True
        ):
            said[question] = verdict
            show(len(said), len(asked))

    def rated(run: Run) -> Rated:
        verdict = said[run.constraint, run.record.outcome.plan]
        return _rated(run, labels, judged=verdict.ok, unreadable=verdict.parsed is None)

    return {record.name: [rated(run) for run in record.runs] for record in records}


def _rated(run: Run, labels: Mapping[str, bool], *, judged: bool | None, unreadable: bool) -> Rated:
    verdicts = {PEOPLE: labels.get(run.id), JUDGE: judged, CHECKER: run.checked}
    return Rated(run, verdicts, unreadable)


# --- agreement ------------------------------------------------------------------------------------
def judging(
    rated: Mapping[str, Sequence[Rated]],
    judges: Mapping[str, str],
    *,
    resamples: int,
    seed: int,
    notes: Sequence[str] = (),
) -> Found:
    """What raters say of every record, and of all together where there are several."""
    shown = dict(rated)
    if len(rated) > 1:
        shown[TOGETHER] = [one for of_record in rated.values() for one in of_record]
    agreements = [
        agreed
        for name, runs in shown.items()
        for pair in PAIRS
        if (agreed := agree(name, runs, pair, resamples=resamples, seed=seed)) is not None
    ]
    told = [*notes, *_notes(agreements)]
    satisfied = _satisfied(shown, judges)
    return Found(
        document={"satisfied": satisfied.data(), "agreement": agreements, "notes": told},
        shown=(satisfied, _agreements(agreements)),
        notes=told,
    )


def agree(
    record: str, runs: Sequence[Rated], pair: tuple[str, str], *, resamples: int, seed: int
) -> dict[str, Any] | None:
    """Two raters on the runs that both rated; ``None``: they share none.

    Intervals are 95%, of resampled tasks. ``undefined`` is the share of resamples without a kappa.
    """
    both = [one for one in runs if None not in (one.verdicts[pair[0]], one.verdicts[pair[1]])]
    if not both:
        return None
    first, second = (np.array([bool(one.verdicts[rater]) for one in both]) for rater in pair)
    tasks = np.unique([one.run.record.task.id for one in both], return_inverse=True)[1]
    cells = np.eye(4)[2 * first + second]  # neither, second alone, first alone, both
    drawn = np.vstack(
        [
            counts @ cells
            for counts in resampled_counts(len(both), resamples=resamples, seed=seed, units=tasks)
        ]
    )
    kappas, counts = _kappas(drawn), agreement(second.tolist(), first.tolist())
    defined = kappas[np.isfinite(kappas)]
    return {
        "record": record,
        "raters": list(pair),
        "runs": len(both),
        "tasks": int(tasks.max()) + 1,
        "both": counts["both"],
        "first_alone": counts["checker_only"],
        "second_alone": counts["judge_only"],
        "neither": counts["neither"],
        "share": percentile_interval(counts["share"], _shares(drawn)),
        "kappa": None
        if counts["kappa"] is None or not len(defined)
        else percentile_interval(counts["kappa"], defined),
        "undefined": 1.0 - len(defined) / len(kappas),
    }


def _shares(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((counts[:, 0] + counts[:, 3]) / counts.sum(axis=1))


def _kappas(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cohen's kappa of confusion tables (n, 4), NaN where a rater says the same of all."""
    total = counts.sum(axis=1)
    first, second = (counts[:, [at, 3]].sum(axis=1) / total for at in (2, 1))
    chance = first * second + (1 - first) * (1 - second)
    varied = (first > 0) & (first < 1) & (second > 0) & (second < 1)
    kappas = np.full(len(counts), np.nan)
    kappas[varied] = (_shares(counts[varied]) - chance[varied]) / (1 - chance[varied])
    return kappas


def _notes(agreements: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for one in agreements:
        who = f"{one['record']}, {' and '.join(one['raters'])}"
        if one["kappa"] is None:
            yield f"{who}: a rater that says the same of all runs leaves kappa undefined"
        elif one["undefined"] > 0.05:
            yield (
                f"{who}: {one['undefined']:.0%} of the resamples have no kappa; its interval is of the "
                "others"
            )
        if one["share"].estimate == 1.0:
            most = 1.0 - 0.025 ** (1.0 / one["tasks"])
            yield (
                f"{who}: no resample can disagree where no run does; with {one['tasks']} tasks up to "
                f"{most:.0%} of tasks may (exact 95% bound)"
            )


# --- tables ---------------------------------------------------------------------------------------
def _satisfied(rated: Mapping[str, Sequence[Rated]], judges: Mapping[str, str]) -> Table:
    def mean(runs: Sequence[Rated], rater: str) -> float | None:
        said = [float(ok) for one in runs if (ok := one.verdicts[rater]) is not None]
        return sum(said) / len(said) if said else None

    raters = (JUDGE, CHECKER, PEOPLE)
    return Table(
        name="Satisfied",
        title="Plans that satisfy their constraint, in percent of the runs each rater judged.",
        columns=(
            Column(name="record"),
            Column(name="judge_name", head="judge"),
            Column(name="runs", kind="count"),
            Column(name="tasks", kind="count"),
            *(Column(name=rater, kind="percent", head=f"{rater} %") for rater in raters),
            Column(name="labelled", kind="count"),
            Column(name="unreadable", kind="count"),
        ),
        rows=[
            [
                *(name, judges.get(name), len(runs)),
                len({one.run.record.task.id for one in runs}),
                *(mean(runs, rater) for rater in raters),
                sum(one.verdicts[PEOPLE] is not None for one in runs),
                sum(one.unreadable for one in runs),
            ]
            for name, runs in rated.items()
        ],
    )


def _agreements(agreements: Sequence[Mapping[str, Any]]) -> Table:
    heads = {"both": "both yes", "first_alone": "first alone", "second_alone": "second alone"}
    counts = {"runs": "runs", **heads, "neither": "both no"}
    return Table(
        name="Agreement",
        title="Agreement of two raters on the runs that both judged, with 95% intervals of resampled tasks. "
        "Yes: satisfied.",
        names=3,
        columns=(
            Column(name="record", once=True),
            Column(name="first"),
            Column(name="second"),
            *(Column(name=name, kind="count", head=head) for name, head in counts.items()),
            Column(name="share", kind="percent", head="agree %", interval=True),
            Column(name="kappa", kind="number", digits=2, interval=True),
        ),
        rows=[
            [one["record"], *one["raters"], *(one[name] for name in (*counts, "share", "kappa"))]
            for one in agreements
        ],
    )


# --- the commands ---------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class NewJudge(ModelOptions):
    """A judge that is asked only where it is named."""

    llm: str | None = None  # type: ignore[assignment]  # asked only where it is named


Records = Annotated[
    tuple[str, ...],
    Option(
        positional=True,
        repeats=True,
        metavar="RECORD",
        help="a folder of 'python -m studies.hidden_constraints --out', or a plan record",
    ),
]


@command()
def sheet(
    records: Records,
    *,
    out: Annotated[
        str, Option(metavar="FILE", parse=out_path(".csv", ".jsonl"), help="the sheet to fill in")
    ],
    runs: Annotated[int, Option(metavar="N", at_least=1, help="how many")] = 20,
    all_runs: Annotated[bool, Option(name="all", help="all runs")] = False,
    seed: Seed = 42,
) -> int:
    """Write a blind sheet of plans for people to judge.

    Draws runs and writes their constraints and plans without agent, retriever and verdict. Fill in yes or
    no under satisfied; rows may stay empty.
    """
    drawn = drawn_runs(read_records(records), None if all_runs else runs, seed)
    write_sheet(drawn, Path(out))
    say(f"wrote {counted(len(drawn), 'plan')} to {out}; write yes or no under satisfied")
    return 0


@command()
def rate(
    records: Records,
    *,
    labels: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help=f"people's verdicts: a CSV, JSON or JSONL file with {', '.join(NEEDED)}, as 'sheet' "
            "writes it",
        ),
    ] = None,
    told: Annotated[
        Literal["token", "requirement"] | None,
        Option(
            help="what a new judge is told: the token (the paper's; default), or its sentence too"
        ),
    ] = None,
    bootstrap: Annotated[int, Option(metavar="N", at_least=1, help="resamples")] = 2000,
    seed: Seed = 42,
    judge: NewJudge,
    form: Form,
) -> int:
    """Show how far judge, checker and people agree on one or several records.

    Shows for every record, and for all together, how many plans satisfy their constraint. Without --llm the
    judge is the recorded one.
    """
    read = read_records(records)
    verdicts, elsewhere = ({}, 0) if labels is None else read_labels(Path(labels), read)
    if judge.llm is None:
        if told is not None or judge.model is not None:
            raise UsageError(
                "--told and --model go with --llm; without it the recorded judge is shown"
            )
        rated, judges = recorded_verdicts(read, verdicts), {one.name: one.judge for one in read}
    else:
        model = judge.connect()
        line = ProgressLine("verdicts")
        rated = new_verdicts(read, verdicts, model, told or "token", line.show)
        judges = {one.name: model.name for one in read}
    notes = [
        f"{one.name}: {counted(one.left_out, 'run')} without a hidden constraint left out"
        for one in read
        if one.left_out
    ]
    if elsewhere:
        notes.append(f"{counted(elsewhere, 'verdict')} of people are of runs in no record here")
    result = judging(rated, judges, resamples=bootstrap, seed=seed, notes=notes)
    print_result(form, result.tables(), result.to_json, result.notes)
    return 0
