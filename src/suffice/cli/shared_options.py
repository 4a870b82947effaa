"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from suffice.cli.output import say, waiting
from suffice.cli.parser import only_one
from suffice.errors import counted
from suffice.evaluation.settings import ComparisonSettings, FittedElsewhere
from suffice.options import Option, as_share
from suffice.serve.service_settings import ModelSettings
from suffice.trace.durable import Shard, writable

if TYPE_CHECKING:  # help is printed without what the command runs on
    from concurrent.futures import Executor

    from suffice.contracts import ChatModel, StopPolicy
    from suffice.integrations.ray import RayExecutor
    from suffice.llm.endpoint import OpenAISettings
    from suffice.measures.measures import Measures
    from suffice.trace.rounds.trace_set import TraceSet

TRACES = "a Parquet file, a directory of them, a FILE.db of live loops, or 'example'"


def out_path(*suffixes: str, folder: bool = False) -> Callable[[str], str]:
    """Return a parser of places to write to, which refuses before the work starts."""

    def read(text: str) -> str:
        writable(text, *suffixes, folder=folder)
        return text

    return read


Abstention = Annotated[
    str | None,
    Option(metavar="FILE", help="abstention phrases, one a line, instead of the usual ones"),
]
Traces = Annotated[str, Option(positional=True, metavar="TRACES", help=TRACES)]
SeveralTraces = Annotated[
    tuple[str, ...],
    Option(positional=True, repeats=True, metavar="TRACES", help=f"{TRACES}; several are pooled"),
]
Json = Annotated[bool, Option(help="print one JSON document on stdout and nothing else")]
ReportNaive = Annotated[bool, Option(help="also show intervals that ignore the search")]
Sample = Annotated[
    int | None, Option(at_least=1, help="N random questions, by --seed; a larger N adds to them")
]
SkipInvalid = Annotated[bool, Option(help="leave out invalid parts, count them, and go on")]
Seed = Annotated[int, Option(at_least=0, help="seed of all random draws")]
Share = Annotated[float | None, Option(parse=as_share, help="a share")]
PolicyOut = Annotated[
    str | None,
    Option(
        metavar="PATH",
        parse=out_path(".json", folder=True),
        help="also write the rule as a policy file: a .json file or a directory",
    ),
]
TracesOut = Annotated[
    str,
    Option(
        metavar="TRACES2",
        parse=out_path(".parquet", folder=True),
        help="a .parquet file, or a directory",
    ),
]
ShardOption = Annotated[
    Shard | None,
    Option(
        metavar="I/N",
        parse=Shard.parse,
        help="only shard I of N of the questions, into its own files, after --limit or --sample",
    ),
]
RayOption = Annotated[
    str | None,
    Option(
        metavar="HOST:PORT",
        parse=lambda text: import_module("suffice.integrations.ray").ray_address(text),
        bare="",
        help="run on workers of a Ray cluster (default: that in RAY_ADDRESS, one here, or a new one)",
    ),
]


# --- records ---------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    skip_invalid: SkipInvalid = False
    abstention: Abstention = None

    def open(self, path: str, **more: Any) -> TraceSet:
        """Read a record; print what was skipped."""
        from suffice.trace.rounds.reader import read_traces

        with waiting(f"reading {path}"):
            traces = read_traces(path, skip_invalid=self.skip_invalid, **more)
        if self.abstention is not None:
            from suffice.signals.abstained import read_phrases

            traces = traces.with_abstention(read_phrases(self.abstention))
        if skipped := traces.origin.skipped:
            say(f"skipped {len(skipped)} invalid parts; the first: {skipped[0]}")
        return traces


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring(Reading):
    workers: Annotated[
        int | None,
        Option(at_least=1, help="processes that measure a large record (default: one a core)"),
    ] = None
    ray: RayOption = None

    def executor(self) -> Executor | None:
        """Return the workers that measure shards; ``None``: this process alone."""
        from suffice.measures.shards import Workers

        only_one({"--workers": self.workers, "--ray": self.ray})
        if self.ray is not None:
            return ray_workers(self.ray)
        workers = Workers(self.workers)
        return workers if workers.count > 1 else None

    def measures(self, *paths: str) -> Measures:
        """Return the measures of pooled records."""
        from suffice.measures.measures import Measures

        workers = self.executor()  # one that cannot be had is told before the record is read
        return Measures(self.drawn(*paths), executor=workers)

    def drawn(self, *paths: str) -> TraceSet:
        traces, *more = [self.open(path) for path in paths]
        if more:
            from suffice.trace.rounds.reader import pool_traces

            traces = pool_traces([traces, *more])
            say(f"pooled {len(paths)} records of one loop: {traces.n_questions:,} questions")
        return traces


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling(Measuring):
    sample: Sample = None
    seed: Seed = 42

    def drawn(self, *paths: str) -> TraceSet:
        """Read records, pool them and draw ``--sample`` of their questions."""
        traces = super(Sampling, self).drawn(*paths)  # bare super() fails in a class with slots
        if self.sample is None:
            return traces
        drawn = traces.sample(self.sample, seed=self.seed)
        of = f"{drawn.n_questions:,} of {counted(traces.n_questions, 'question')}"
        say(f"a sample: {of}, seed {self.seed}")
        return drawn


def ray_workers(address: str) -> RayExecutor:
    from suffice.integrations.ray import RayExecutor

    with waiting(f"joining Ray {address}".rstrip()):
        return RayExecutor(address)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared(FittedElsewhere):
    settings: ComparisonSettings

    def read(self, reading: Reading) -> ComparisonSettings:
        """Return the settings, with the record of ``--fit-on``."""
        fit_on = None if self.fit_on is None else reading.open(self.fit_on)
        return replace(self.settings, fit_on=fit_on)


# --- policies --------------------------------------------------------------------------------------
def written_policy(out: str | None, policy: StopPolicy, traces: TraceSet) -> dict[str, Any]:
    """Write a policy if ``--out`` is given; return its part of the JSON document."""
    from suffice.policies.policy_file import save_policy

    if out is None:
        return {}
    return tell_policy(save_policy(policy, out, max_rounds=traces.full_budget), policy, traces)


def tell_policy(written: Path, policy: StopPolicy, traces: TraceSet) -> dict[str, Any]:
    """Print that a policy was written; return its part of the JSON document."""
    say(
        f"wrote {written}: {policy.facts.summary}; use it with: suffice replay {traces.at} --policy {written}"
    )
    return policy_entry(written, policy)


def policy_entry(written: Path, policy: StopPolicy) -> dict[str, Any]:
    from suffice.policies.policy_file import policy_document, policy_hash

    return {"out": str(written), "hash": policy_hash(policy), "policy": policy_document(policy)}


# --- models ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions(ModelSettings):
    GROUP: ClassVar = "Language model"

    timeout: float = 120.0
    concurrency: int = 8
    cache: Annotated[
        str | None,
        Option(
            metavar="FILE",
            parse=out_path(),
            help="keep replies in this SQLite file and never ask twice",
        ),
    ] = None

    @property
    def server(self) -> OpenAISettings:
        """The settings of a server."""
        from suffice.llm.endpoint import OpenAISettings

        return OpenAISettings(
            api=self.api,
            timeout_s=self.timeout,
            max_wait_s=self.max_wait,
            concurrency=self.concurrency,
        )

    def connect(self) -> ChatModel:
        """Connect the model."""
        from suffice.llm.connect import CachedModel, connect
        from suffice.testing.models import ScriptedModel

        llm = self.llm or "embedded"
        if llm == "scripted":
            scripted = ScriptedModel()
            return scripted if self.cache is None else CachedModel(scripted, self.cache)
        with waiting("loading the model" if llm == "embedded" else f"connecting to {llm}"):
            return connect(llm, self.model, server=self.server, cache=self.cache)
