"""``suffice record`` and ``probe``: record a data set, and ask for an answer in every round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from suffice.cli.output import (
    INTERRUPTED,
    ProgressLine,
    print_json,
    put,
    question_progress,
    say,
    waiting,
)
from suffice.cli.parser import Given, command, only_one, shared_options
from suffice.cli.retrieval import (
    SEARCHED,
    ClusterCosine,
    PipelineName,
    RetrievalOptions,
    read_passages,
)
from suffice.cli.shared_options import (
    Json,
    ModelOptions,
    RayOption,
    Sample,
    Seed,
    ShardOption,
    SkipInvalid,
    Traces,
    TracesOut,
    ray_workers,
)
from suffice.concurrency import CallTally
from suffice.datasets.files import TABLE_SUFFIXES, Example, parse_column_map
from suffice.datasets.known_datasets import (
    DATASETS,
    QUESTION_ROLES,
    columns_of,
    dataset_name,
    is_question_file,
    load,
)
from suffice.errors import UsageError, counted
from suffice.live.requirements import not_recorded
from suffice.loops import LOOPS, LoopSettings
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.record.dataset_run import CorpusKind, Recording, record_examples
from suffice.loops.record.probe import ProbePlan, ProbeSettings, probe_agreement, probe_traces
from suffice.loops.record.session import RecordSummary
from suffice.options import Option
from suffice.policies.policy_file import load_filter
from suffice.trace.durable import Shard
from suffice.trace.recording import failures_of
from suffice.trace.rounds.derive import parse_splits
from suffice.trace.rounds.records import sampled_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """Options of what to record and how; ``loop`` holds the options that loops share."""

    dataset: Annotated[
        str,
        Option(
            metavar="NAME|FILE",
            parse=dataset_name,
            help=f"data set ({', '.join(DATASETS)}), or a file of your own questions that ends in "
            f"{', '.join(TABLE_SUFFIXES)}",
        ),
    ]
    data: Annotated[
        str | None,
        Option(metavar="PATH", help="file of the named data set, plain or .gz (generated: none)"),
    ] = None
    columns: Annotated[
        Mapping[str, str] | None,
        Option(
            metavar="ROLE=NAME,...",
            parse=lambda text: parse_column_map(text, tuple(QUESTION_ROLES)),
            help="columns of your file: question=..,answers=..,id=..,type=.. (default: these names)",
        ),
    ] = None
    out: TracesOut
    limit: Annotated[int | None, Option(at_least=1, help="first N questions only")] = None
    sample: Sample = None
    shard: ShardOption = None
    ray: RayOption = None
    corpus: Annotated[
        str | None,
        Option(
            metavar="own|pooled|PATH",
            help="each question's own paragraphs (default), all pooled, or a folder or file to search",
        ),
    ] = None
    splits: Annotated[str, Option(metavar="NAME=SHARE,...", help="shares of the splits")] = (
        "tune=0.4,eval=0.6"
    )
    seed: Seed = 42
    skip_invalid: SkipInvalid = False
    pipeline: PipelineName = None
    cluster_cosine: ClusterCosine = None
    filter: Annotated[
        str | None,
        Option(
            metavar="POLICY",
            help="drop passages by this micp policy's filter, and leave out its calibration questions",
        ),
    ] = None
    retrieval: RetrievalOptions
    model: ModelOptions
    loop: Mapping[str, Any] = field(default_factory=dict)

    def searched(self) -> CorpusKind:
        """Return what is searched; refuse no corpus, and two of them."""
        if self.retrieval.finds_its_own(corpus=self.corpus):
            return "retriever"
        if self.corpus not in (None, "own", "pooled"):
            return "files"
        if is_question_file(self.dataset):
            raise UsageError(
                f"{self.dataset} holds questions without passages; name a corpus: {SEARCHED}"
            )
        return "pooled" if self.corpus == "pooled" else "own"

    def stated_columns(self) -> Mapping[str, str] | None:
        """Return and print the columns of a file of questions; ``None``: a named data set."""
        if not is_question_file(self.dataset):
            return None
        held = columns_of(self.dataset, self.columns)
        missing = "" if "id" in held else "; ids come from the questions' texts"
        missing += "" if "answers" in held else "; without answers nothing can be scored"
        say(f"columns: {', '.join(f'{role}={name}' for role, name in held.items())}{missing}")
        return held

    def examples(
        self, filtered_by: frozenset[str]
    ) -> tuple[Sequence[Example], Mapping[str, int] | None]:
        """Return the questions to record without those of the filter, and a sample's entry in the run."""
        limit = None if filtered_by else self.limit
        asked: Sequence[Example] = load(
            self.dataset, self.data, limit=limit, seed=self.seed, columns=self.columns
        )
        if filtered_by:
            left = [one for one in asked if one.question.id not in filtered_by]
            if gone := len(asked) - len(left):
                say(f"left out {counted(gone, 'question')} of the passage filter's calibration")
            asked = left[: self.limit]
        if self.sample is None:
            return asked, None
        by_id = {example.question.id: example for example in asked}
        drawn = sampled_ids(by_id, self.sample, seed=self.seed)
        say(f"a sample: {len(drawn):,} of {counted(len(by_id), 'question')}, seed {self.seed}")
        stated = {"questions": len(drawn), "of": len(by_id), "seed": self.seed}
        return [by_id[name] for name in drawn], stated


@command(*shared_options(LOOPS, group="Rounds"))
def record(given: Given, options: RecordOptions, *, json: Json = False) -> int:
    """Run every question of a data set to the full budget and keep each round.

    Run the same command again to resume; it also retries failed questions.
    """
    only_one({"--limit": options.limit, "--sample": options.sample})
    name = options.pipeline or CumulativeSettings.pipeline
    options = replace(options, loop=given.chosen(LOOPS, name, by="--pipeline"))
    summary = recorded(options) if options.ray is None else _recorded_on_ray(options, options.ray)
    return show_summary(summary, options.out, json=json)


def _recorded_on_ray(options: RecordOptions, address: str) -> RecordSummary:
    """Have each worker record a shard; then try failed questions once more here."""
    if options.shard is not None:
        raise UsageError(
            "--ray already gives each worker its own shard; leave out --shard, or leave out --ray if "
            "another scheduler starts the shards"
        )
    here = replace(options, ray=None)
    line = ProgressLine("shards recorded")
    done = before = failed = 0
    with ray_workers(address) as workers:
        shards = [Shard(number, workers.count) for number in range(1, workers.count + 1)]
        shards[0].check_place(Path(options.out))
        tasks = [workers.submit(recorded, replace(here, shard=shard)) for shard in shards]
        with waiting("recording"):
            for number, task in enumerate(tasks, start=1):
                summary = task.result()
                done, before = done + summary.recorded, before + summary.before
                failed += summary.failed
                line.show(number, len(tasks))
    if not failed:
        return RecordSummary(recorded=done, before=before, failed=0)
    last = recorded(here)
    return replace(last, recorded=last.recorded + done, before=before)


def recorded(options: RecordOptions) -> RecordSummary:
    """Load the questions, connect the models, record."""
    chosen = None if options.filter is None else load_filter(options.filter)
    if chosen is not None and chosen.values and not chosen.question_ids:
        say(
            f"{options.filter} does not name the questions that calibrated its filter, so none is left "
            "out; if these are the same questions, name the original policy file"
        )
    corpus = options.searched()
    with waiting(f"reading {options.dataset}"):
        filtered = frozenset() if chosen is None else frozenset(chosen.question_ids)
        examples, sample = options.examples(filtered)
    pool = None
    if corpus == "pooled" and options.data is not None:
        # --limit and --sample choose questions, not what they are asked over
        pool = load(options.dataset, options.data, seed=options.seed)
    files = read_passages(str(options.corpus)) if corpus == "files" else None
    loop = LOOPS[options.pipeline or CumulativeSettings.pipeline]
    settings = loop(**options.loop, seed=options.seed, cluster_cosine=options.cluster_cosine)
    retrieval, encoder = options.retrieval.connect(encode=settings.compares_evidence)
    model = options.model.connect()
    with waiting(f"testing what {options.model.llm} supports"):
        settled = settings.settled(model)
    for name in settings.settles:
        say(f"{name}: {getattr(settled, name)}")
    own_file = is_question_file(options.dataset)  # which may move, so its name alone is stated
    recording = Recording(
        dataset=Path(options.dataset).name if own_file else options.dataset,
        columns=options.stated_columns(),
        settings=settings,
        retrieval=retrieval,
        encoder=encoder,
        passage_filter=chosen,
        filter_document=None if chosen is None else chosen.stated(),
        corpus=corpus,
        pool=pool,
        files=files,
        sample=sample,
        source=options.data,
        splits=parse_splits(options.splits),
        skip_invalid=options.skip_invalid,
        shard=options.shard,
        on_encoded=ProgressLine("encoded").show,
        on_start=partial(_tell_cost, settled),
    )
    with waiting("recording"):
        summary = record_examples(
            examples, model, Path(options.out), recording, question_progress("recorded")
        )
    tally: CallTally | None = getattr(model, "tally", None)
    if tally is not None and tally.failed:
        share = f"{tally.failed / tally.calls:.0%}"
        of = counted(tally.calls, "call")
        say(f"failed: {tally.failed:,} of {of} ({share}); see docs/reliability.md")
    return summary


def _tell_cost(settings: LoopSettings, questions: int) -> None:
    if not questions:
        return
    if lacking := not_recorded(settings):
        say(lacking)
    rounds = questions * settings.rounds
    calls = rounds * settings.calls + questions * settings.closed_book
    samples = f", {rounds * settings.samples:,} of them samples" if settings.samples else ""
    more = ", and once each without passages" if settings.closed_book else ""
    more += ", and more if a call is repeated" if settings.own_calls else ""
    say(
        f"up to {counted(calls, 'model call')}{samples}: {counted(questions, 'question')} x "
        f"{counted(settings.rounds, 'round')} x {settings.calls}{more}"
    )


def show_summary(
    summary: RecordSummary, out: str, *, json: bool, done: str = "recorded", **more: Any
) -> int:
    """Print the summary of a recording, in JSON with ``more``; return the exit code."""
    questions = summary.recorded + summary.before
    if json:
        print_json({"out": out, **asdict(summary), "questions": questions, **more})
    else:
        said = f"{summary.recorded} {done} now, {summary.before} before"
        put(f"{out}: {counted(questions, 'question')} ({said})")
    if summary.failed:
        why = [f"{n}: {said}" for n, (said, _) in failures_of(Path(out)).items()]
        say(f"{counted(summary.failed, 'question')} failed ({'; '.join(why[:3])}); run it again")
    if summary.interrupted:
        say("interrupted; run the same command again to go on")
        return INTERRUPTED
    return 1 if summary.failed else 0


@command()
def probe(
    traces: Traces,
    *,
    out: TracesOut,
    settings: ProbeSettings,
    shard: ShardOption = None,
    seed: Seed = 42,
    corpus: Annotated[
        str | None,
        Option(
            metavar="PATH", help="a folder or file with the texts of passages recorded by ids alone"
        ),
    ] = None,
    skip_invalid: SkipInvalid = False,
    model: ModelOptions,
    json: Json = False,
) -> int:
    """Ask a model for an answer in every round, by one prompt and from the recorded evidence.

    Writes a new record with these answers, marked probed, and their cost. Keeps the loop's own answers in
    columns such as loop_answer, and all other columns. Run the same command again to resume.
    """
    settings = replace(settings, seed=seed)
    with waiting(f"probing {traces}"):
        summary = probe_traces(
            traces,
            out,
            model.connect,
            settings,
            corpus=corpus,
            skip_invalid=skip_invalid,
            shard=shard,
            on_plan=lambda plan: _tell(plan, missing_only=settings.missing_only),
            on_progress=question_progress("probed"),
        )
    more: dict[str, Any] = {}
    if not settings.missing_only and summary.recorded + summary.before:
        agreeing, compared = probe_agreement(out)
        more["agreement"] = {"rounds": compared, "agreeing": agreeing}
        if compared:
            say(f"model and loop answer alike in {agreeing:,} of {counted(compared, 'round')}")
    return show_summary(summary, out, json=json, done="probed", **more)


def _tell(plan: ProbePlan, *, missing_only: bool) -> None:
    for why, questions in plan.left_out.items():
        say(f"left out {counted(questions, 'question')} {why}")
    if plan.asked:
        say(
            f"{counted(plan.calls, 'model call')}: {plan.asked:,} of {counted(plan.rounds, 'round')} of "
            f"{counted(plan.questions, 'question')}; up to {counted(plan.blind, 'round')} without a passage"
        )
    if plan.own:
        mixed = "and stay beside this prompt's answers" if missing_only else "kept in loop_answer"
        say(f"{plan.own:,} of these rounds have an answer by the loop's own prompt, {mixed}")
