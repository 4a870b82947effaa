"""``suffice signals``: compute signals and store them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffice.cli.options import add_model, add_traces, connect_model, open_traces, out_path
from suffice.cli.output import (
    INTERRUPTED,
    ProgressLine,
    add_format,
    print_json,
    print_result,
    put,
    say,
    waiting,
)
from suffice.cli.retrieval_options import add_clustering
from suffice.errors import UsageError
from suffice.loops.models import connect_encoder, connect_reranker
from suffice.results.table import Column, Table
from suffice.retrieval.pairs.nli import NliCrossEncoder
from suffice.signals.asking.meaning_clusters import (
    CLUSTERS,
    ClusteredTraces,
    check_clustering,
    cluster_traces,
)
from suffice.signals.asking.whole_record import Asked, Replies
from suffice.signals.registry import SIGNALS, askings
from suffice.signals.store import SignalModels, StoredSignals, with_signals
from suffice.trace.parquet import only_file
from suffice.trace.rounds.writer import write_trace_set


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Computes every signal that the record allows and stores it in the 'signals' map. "
        "With --llm a judge rates every round's answer (judge_support), with --reranker passages are "
        "scored (rerank_top_score and its kin); both count their calls. With --encoder answers are "
        "compared with the passages (evidence_consistency and its kin), with --nli a model checks "
        "whether a passage entails the answer (evidence_entailment). With --encoder and "
        "--cluster-cosine samples are clustered by meaning (the column sample_clusters; "
        "--only sample_clusters for nothing else). Stored values stay as they "
        "stand; all columns are kept. Rounds whose call failed get no value: run it again on TRACES2."
    )
    add_traces(parser)
    parser.add_argument(
        "--out",
        required=True,
        type=out_path(".parquet", folder=True),
        metavar="TRACES2",
        help="a .parquet file, or a directory that gets one",
    )
    parser.add_argument(
        "--list",
        action=_List,
        nargs=0,
        default=False,
        help="list all signals, with what each needs and charges, and end",
    )
    parser.add_argument("--only", metavar="A,B", help="just these signals")
    parser.add_argument(
        "--reranker",
        metavar="PATH",
        help="a cross-encoder, as sentence-transformers saved it or a .gguf file: scores the passages "
        "without a score",
    )
    parser.add_argument(
        "--encoder",
        metavar="NAME|PATH|URL",
        help="minilm, a sentence-transformers model, or the base URL of a server that gives embeddings",
    )
    parser.add_argument("--encoder-model", metavar="M", help="the model of --encoder's server")
    add_clustering(parser)
    parser.add_argument(
        "--recluster",
        action="store_true",
        help="with --cluster-cosine: replace the clusters that are there",
    )
    parser.add_argument(
        "--nli",
        metavar="PATH",
        help="a three-label cross-encoder that sentence-transformers saved",
    )
    add_model(parser, default=None)
    add_format(parser)
    parser.set_defaults(run=run)


class _List(argparse.Action):
    """Asks for the list, beside which nothing is required."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any
    ) -> None:
        namespace.list = True
        for action in parser._actions:  # noqa: SLF001 - argparse has no other way
            action.required = False


def _listed() -> Table:
    """Every signal with what it needs and charges."""
    columns = (
        Column(name="signal"),
        Column(name="meaning"),
        Column(name="direction", drop=1),
        Column(name="needs", drop=1),
        Column(name="charges"),
        Column(name="computed", head="computed by"),
    )
    rows = [
        (
            name,
            spec.summary,
            spec.direction,
            " ".join(spec.needs),
            " ".join(charge.calls for charge in spec.charges),
            spec.asks or ("a loop or a policy" if spec.recorded_only else "the record"),
        )
        for name, spec in SIGNALS.items()
    ]
    return Table(name="signals", columns=columns, rows=rows)


def run(arguments: argparse.Namespace) -> int:
    """Compute, write, and list what was skipped and why."""
    if arguments.list:
        table = _listed()
        print_result(arguments, [table], lambda: {"signals": table.to_arrow().to_pylist()})
        return 0
    if arguments.format not in ("text", "json"):
        raise UsageError(f"--format {arguments.format} goes with --list only; leave it out")
    _check_clustering(arguments)
    only = _only(arguments)
    traces = open_traces(arguments, say, keep_unknown=True)
    only_file(arguments.out)  # before a model is asked
    with waiting("loading models"):
        models = _models(arguments, only)
    progress = _progress()
    clustered = None
    if models.encoder is not None and arguments.cluster_cosine is not None:
        clustered = cluster_traces(
            traces,
            models.encoder,
            arguments.cluster_cosine,
            again=arguments.recluster,
            on_progress=progress,
        )
        traces = clustered.traces
        if clustered.replies.interrupted:
            models = SignalModels()
    stored = with_signals(traces, only, models=models, on_progress=progress)
    written = write_trace_set(stored.traces, arguments.out)
    told = [*_told(stored, clustered)]
    if arguments.format == "json":
        print_json(_document(stored, written, told))
    else:
        _print(stored, written, told)
    return _ended(told, written)


def _check_clustering(arguments: argparse.Namespace) -> None:
    """Refuse, before a file is read or a model loaded, options that do not go together."""
    if arguments.cluster_cosine is None:
        if arguments.recluster:
            raise UsageError("--recluster goes with --cluster-cosine")
    elif arguments.encoder is None:
        raise UsageError("--cluster-cosine needs an encoder; add --encoder minilm")
    else:
        check_clustering(arguments.cluster_cosine)


def _only(arguments: argparse.Namespace) -> tuple[str, ...] | None:
    """The signals chosen; ``sample_clusters`` among them is the column, which has its own option."""
    if arguments.only is None:
        return None
    names = tuple(name.strip() for name in arguments.only.split(","))
    if CLUSTERS in names and arguments.cluster_cosine is None:
        raise UsageError(f"{CLUSTERS} needs --encoder minilm --cluster-cosine")
    return tuple(name for name in names if name != CLUSTERS)


def _models(arguments: argparse.Namespace, only: tuple[str, ...] | None) -> SignalModels:
    """Connect what was named; a model that nothing chosen needs is refused."""
    encoder, nli = arguments.encoder, arguments.nli
    named = {
        "--llm": arguments.llm or arguments.model,
        "--reranker": arguments.reranker,
        "--encoder": encoder if arguments.cluster_cosine is None else None,
        "--nli": nli,
    }
    for option, value in named.items():
        needing = [name for name, spec in SIGNALS.items() if spec.asks == option]
        if value is not None and only is not None and not set(needing) & set(only):
            raise UsageError(
                f"--only leaves out all that asks {option}: {', '.join(needing)}; add one"
            )
    if arguments.encoder_model is not None and encoder is None:
        raise UsageError("--encoder-model names the model of a server; name it with --encoder URL")
    if named["--llm"] is not None:
        arguments.llm = arguments.llm or "embedded"
    return SignalModels(
        judge=None if named["--llm"] is None else connect_model(arguments),
        reranker=None if arguments.reranker is None else connect_reranker(arguments.reranker),
        encoder=None if encoder is None else connect_encoder(encoder, arguments.encoder_model),
        entailment=None if nli is None else NliCrossEncoder.load(nli),
    )


def _progress() -> Callable[[Asked], None]:
    lines: dict[str, ProgressLine] = {}

    def show(now: Asked) -> None:
        line = lines.setdefault(now.what, ProgressLine(f"{now.unit} {now.what}"))
        line.show(now.finished, now.planned, failed=now.failed)

    return show


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What a model that was asked said: under its key of the document, and as a line."""

    name: str
    who: str
    replies: Replies[Any]
    summary: Mapping[str, Any]
    line: str


def _told(stored: StoredSignals, clustered: ClusteredTraces | None) -> Iterator[_Told]:
    """Of each model that was asked, in the order of asking."""
    if clustered is not None:
        line = (
            "clustered the samples of {rounds} rounds ({before} before) by {encoder} at cosine "
            "{cosine:g}; {failed} failed"
        )
        yield _Told(
            name="clusters",
            who="encoder of the samples",
            replies=clustered.replies,
            summary=clustered.summary,
            line=line.format(**clustered.summary),
        )
    by_name = {asking.name: asking for asking in askings()}
    for name, replies in stored.asked.items():
        asking = by_name[name]
        summary = asking.summary(replies)
        line = asking.line.format(who=asking.who, **summary)
        yield _Told(name=name, who=asking.who, replies=replies, summary=summary, line=line)


def _document(stored: StoredSignals, written: Path, told: Sequence[_Told]) -> dict[str, Any]:
    return {
        "out": str(written),
        "computed": list(stored.computed),
        "skipped": dict(stored.skipped),
        **dict.fromkeys((*(asking.name for asking in askings()), "clusters")),
        **{asked.name: asked.summary for asked in told},
    }


def _print(stored: StoredSignals, written: Path, told: Sequence[_Told]) -> None:
    put(f"wrote {written}")
    put(f"  computed {', '.join(stored.computed) or 'nothing new'}")
    for asked in told:
        put(f"  {asked.line}")
    for name, reason in stored.skipped.items():
        put(f"  skipped {name}: {reason}")


def _ended(told: Sequence[_Told], written: Path) -> int:
    """Tell what a model left undone; the exit code."""
    code = 0
    for asked in told:
        replies = asked.replies
        if not (replies.failures or replies.left or replies.interrupted):
            continue
        if replies.failures:
            reason = next(iter(replies.failures.values()))
            say(f"{len(replies.failures)} calls of the {asked.who} failed, the first: {reason}")
        why = "interrupted" if replies.interrupted else f"the {asked.who} is not done"
        say(f"{why}; run the same command on {written} to ask about the rounds without a value")
        code = max(code, INTERRUPTED if replies.interrupted else 1)
    return code
