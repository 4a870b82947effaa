"""``suffice record``: record full-budget rounds of a data set."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from suffice.cli.options import (
    add_json,
    add_model,
    add_ray,
    add_shard,
    argument_type,
    connect_model,
    natural,
    out_path,
    positive,
    ray_workers,
)
from suffice.cli.output import (
    INTERRUPTED,
    ProgressLine,
    print_json,
    put,
    question_progress,
    say,
    waiting,
)
from suffice.cli.retrieval_options import (
    SEARCHED,
    add_clustering,
    add_pipeline,
    add_retrieval,
    check_finds_its_own,
    connect_retrieval,
    finds_its_own,
    read_passages,
)
from suffice.cli.settings_options import add_shared_options, chosen_options
from suffice.concurrency import added, tallies_of
from suffice.datasets.example import Example
from suffice.datasets.files import TABLE_SUFFIXES
from suffice.datasets.question_files import Columns, columns_of
from suffice.datasets.registry import (
    DATASETS,
    WITH_PASSAGES,
    dataset_name,
    is_question_file,
    load,
)
from suffice.errors import UsageError
from suffice.live.requirements import not_recorded
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.record.dataset_run import CorpusKind, Recording, record_examples
from suffice.loops.record.session import RecordSummary
from suffice.loops.registry import LOOPS
from suffice.loops.settings import LoopSettings
from suffice.policies.file import load_filter
from suffice.trace.durable import Shard
from suffice.trace.recording import failures_of
from suffice.trace.rounds.derive import parse_splits
from suffice.trace.rounds.records import sampled_ids


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Runs every question of a data set to the full budget and keeps each round. Resumable: the same "
        "command goes on where it stopped, and tries failed questions anew."
    )
    parser.add_argument(
        "--dataset",
        required=True,
        type=argument_type(dataset_name),
        metavar="NAME|FILE",
        help=f"a data set ({', '.join(DATASETS)}), or a file of your own questions, which ends in "
        f"{', '.join(TABLE_SUFFIXES)}",
    )
    parser.add_argument(
        "--data", metavar="PATH", help="the named data set's file, plain or .gz (generated: none)"
    )
    parser.add_argument(
        "--columns",
        metavar="ROLE=NAME,...",
        help="which columns of your file hold what: question=..,answers=..,id=..,type=.. (default: those "
        "with such names; all but the question may be missing)",
    )
    parser.add_argument(
        "--out",
        required=True,
        type=out_path(".parquet", folder=True),
        metavar="TRACES",
        help="a directory, or a .parquet file",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--limit", type=positive, metavar="N", help="only the first N questions")
    which.add_argument(
        "--sample",
        type=positive,
        metavar="N",
        help="only N questions, drawn by --seed; a larger N later adds to them",
    )
    add_shard(parser, "--limit or --sample")
    add_ray(parser, "the shards are recorded by the workers of a Ray cluster, one each")
    parser.add_argument(
        "--corpus",
        metavar="own|pooled|PATH",
        help="what is searched: each question's own paragraphs (the default where it brings some), all "
        "paragraphs of the data set, or a folder or file of txt, md and jsonl of yours",
    )
    parser.add_argument(
        "--splits",
        default="tune=0.4,eval=0.6",
        metavar="NAME=SHARE,...",
        help="how questions are split (tune=0.4,eval=0.6)",
    )
    parser.add_argument("--seed", type=natural, default=42, help="of data, splits and samples (42)")
    parser.add_argument(
        "--skip-invalid", action="store_true", help="leave out questions without passages"
    )
    _add_rounds(parser)
    add_retrieval(parser)
    add_model(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def _add_rounds(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("rounds")
    add_pipeline(group, "cumulative")
    add_shared_options(group, LOOPS)
    add_clustering(group)
    group.add_argument(
        "--filter",
        metavar="POLICY",
        help="drop passages by the filter of this micp policy file before the answerer sees them; the "
        "questions it was calibrated on are left out",
    )


def run(arguments: argparse.Namespace) -> int:
    """Record here or on a cluster, and summarise."""
    summary = _recorded(arguments) if arguments.ray is None else _recorded_on_ray(arguments)
    return show_summary(summary, arguments)


def _recorded_on_ray(arguments: argparse.Namespace) -> RecordSummary:
    """Each worker records a shard; what failed there is tried here once more, and told in one file."""
    if arguments.shard is not None:
        raise UsageError(
            "--ray gives each worker a shard of its own; leave --shard away, or --ray where another "
            "scheduler starts the shards"
        )
    here = {**vars(arguments), "ray": None}
    line = ProgressLine("shards recorded")
    summaries: list[RecordSummary] = []
    with ray_workers(arguments.ray) as workers:
        shards = [Shard(number, workers.count) for number in range(1, workers.count + 1)]
        shards[0].check_place(Path(arguments.out))
        tasks = [
            workers.submit(_recorded, argparse.Namespace(**{**here, "shard": shard}))
            for shard in shards
        ]
        with waiting("recording"):
            for task in tasks:
                summaries.append(task.result())
                line.show(len(summaries), len(tasks))
    recorded = sum(summary.recorded for summary in summaries)
    before = sum(summary.before for summary in summaries)
    if not any(summary.failed for summary in summaries):
        return RecordSummary(recorded=recorded, before=before, failed=0)
    last = _recorded(argparse.Namespace(**here))
    return replace(last, recorded=last.recorded + recorded, before=before)


def _recorded(arguments: argparse.Namespace) -> RecordSummary:
    """Load, connect, record."""
    chosen = None if arguments.filter is None else load_filter(arguments.filter)
    if chosen is not None and chosen.values and not chosen.question_ids:
        say(
            f"{arguments.filter} does not name the questions its filter was calibrated on, so none is left "
            "out; name the policy file that the filter was fitted for, unless these are other questions"
        )
    columns = None if arguments.columns is None else Columns.parse(arguments.columns)
    corpus = _corpus(arguments)
    with waiting(f"reading {arguments.dataset}"):
        examples, sample = _sampled(
            _examples(arguments, columns, frozenset() if chosen is None else chosen.question_ids),
            arguments,
        )
    pool = None
    if corpus == "pooled" and arguments.data is not None:
        # --limit and --sample choose questions, not what they are asked over
        pool = load(arguments.dataset, arguments.data, seed=arguments.seed)
    files = read_passages(arguments.corpus) if corpus == "files" else None
    settings = _settings(arguments)
    retrieval, encoder = connect_retrieval(arguments, encode=settings.compares_evidence)
    model = connect_model(arguments)
    with waiting(f"asking {arguments.llm} what it gives"):
        settled, reasons = settings.settled(model)
    for name, why in reasons.items():
        say(f"{name}: {getattr(settled, name)} ({why})")
    recording = Recording(
        dataset=_stated_name(arguments),
        columns=_stated_columns(arguments, columns),
        settings=settings,
        retrieval=retrieval,
        encoder=encoder,
        passage_filter=chosen,
        filter_document=None if chosen is None else chosen.stated(),
        corpus=corpus,
        pool=pool,
        files=files,
        sample=sample,
        source=arguments.data,
        splits=parse_splits(arguments.splits),
        skip_invalid=arguments.skip_invalid,
        shard=arguments.shard,
        on_encoded=ProgressLine("encoded").show,
        on_start=partial(_tell_cost, settled),
    )
    with waiting("recording"):
        summary = record_examples(
            examples, model, Path(arguments.out), recording, question_progress("recorded")
        )
    calls = added(tally.total for tally in tallies_of(model))
    if calls.failed:
        say(
            f"{calls.failed:,} of {calls.calls:,} calls failed ({calls.share:.0%}); see docs/reliability.md"
        )
    return summary


def _stated_name(arguments: argparse.Namespace) -> str:
    """What a run document calls the data set: a file may move."""
    name = str(arguments.dataset)
    return Path(name).name if is_question_file(name) else name


def _stated_columns(
    arguments: argparse.Namespace, columns: Columns | None
) -> Mapping[str, str] | None:
    """The columns that a file of questions was read by, said; ``None`` for a named data set."""
    if not is_question_file(arguments.dataset):
        return None
    held = columns_of(arguments.dataset, columns).named
    missing = "" if "id" in held else "; ids are made of the questions' texts"
    missing += "" if "answers" in held else "; without answers nothing can be scored"
    say(f"columns: {', '.join(f'{role}={name}' for role, name in held.items())}{missing}")
    return held


def _corpus(arguments: argparse.Namespace) -> CorpusKind:
    """What is searched, refused where there is nothing or it is said twice."""
    wanted, dataset = arguments.corpus, arguments.dataset
    if finds_its_own(arguments):
        check_finds_its_own(arguments, ("corpus",))
        return "retriever"
    if wanted not in (None, "own", "pooled"):
        return "files"
    if dataset not in WITH_PASSAGES:
        raise UsageError(
            f"{dataset} holds questions without passages; what is searched? Type {SEARCHED}"
        )
    return "pooled" if wanted == "pooled" else "own"


def _examples(
    arguments: argparse.Namespace, columns: Columns | None, filtered_by: Collection[str]
) -> Sequence[Example]:
    """The questions to record; those that set the filter are not among them."""
    if not filtered_by:
        return load(
            arguments.dataset,
            arguments.data,
            limit=arguments.limit,
            seed=arguments.seed,
            columns=columns,
        )
    fresh = list(load(arguments.dataset, arguments.data, seed=arguments.seed, columns=columns))
    left = [example for example in fresh if example.question.id not in frozenset(filtered_by)]
    if len(left) < len(fresh):
        say(
            f"{len(fresh) - len(left)} questions on which the passage filter was calibrated are left out"
        )
    return left[: arguments.limit]


def _sampled(
    examples: Sequence[Example], arguments: argparse.Namespace
) -> tuple[Sequence[Example], Mapping[str, int] | None]:
    """The questions that ``--sample`` draws, in the order drawn, and what a run document says of them."""
    if arguments.sample is None:
        return examples, None
    by_id = {example.question.id: example for example in examples}
    drawn = sampled_ids(by_id, arguments.sample, seed=arguments.seed)
    say(f"a sample: {len(drawn):,} of {len(by_id):,} questions, seed {arguments.seed}")
    stated = {"questions": len(drawn), "of": len(by_id), "seed": arguments.seed}
    return [by_id[name] for name in drawn], stated


def _settings(arguments: argparse.Namespace) -> LoopSettings:
    """The loop's settings; what was not given is the loop's own default."""
    name = arguments.pipeline or CumulativeSettings.pipeline
    options = chosen_options(arguments, LOOPS, name, by="--pipeline")
    return LOOPS[name](**options, seed=arguments.seed, cluster_cosine=arguments.cluster_cosine)


def _tell_cost(settings: LoopSettings, questions: int) -> None:
    """Say, before it starts, what a recording will take for so many questions, and what it will lack."""
    if not questions:
        return
    if lacking := not_recorded(settings):
        say(lacking)
    rounds = questions * settings.rounds
    calls = rounds * settings.calls + questions * settings.closed_book
    sampled = f", {rounds * settings.samples:,} of them samples" if settings.samples else ""
    more = ", and once each without passages" if settings.closed_book else ""
    more += ", and more where one has to be repeated" if settings.own_calls else ""
    say(
        f"up to {calls:,} model calls{sampled}: {questions:,} questions x {settings.rounds} rounds x "
        f"{settings.calls}{more}"
    )


def show_summary(
    summary: RecordSummary, arguments: argparse.Namespace, *, done: str = "recorded", **more: Any
) -> int:
    """Print what a recording did, and for JSON what ``more`` there is; the exit code."""
    if arguments.json:
        print_json(
            {
                "out": arguments.out,
                "recorded": summary.recorded,
                "before": summary.before,
                "failed": summary.failed,
                "questions": summary.recorded + summary.before,
                "interrupted": summary.interrupted,
                **more,
            }
        )
    else:
        put(f"{arguments.out}: {summary.recorded + summary.before} questions", end="")
        put(f" ({summary.recorded} {done} now, {summary.before} before)")
    if summary.failed:
        why = [f"{n}: {said}" for n, (said, _) in failures_of(Path(arguments.out)).items()]
        say(f"{summary.failed} questions failed ({'; '.join(why[:3])}); run again to retry them")
    if summary.interrupted:
        say("interrupted; run the same command again to go on")
        return INTERRUPTED
    return 1 if summary.failed else 0
