"""``suffice signals``: compute signals and store them."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from suffice.cli.options import add_json, add_model, add_traces, connect_model, open_traces
from suffice.cli.output import INTERRUPTED, ProgressLine, print_json, say
from suffice.cli.retrieval_options import add_clustering
from suffice.errors import UsageError
from suffice.pipelines.loops.sources import connect_encoder, connect_reranker
from suffice.retrieval.pairs.nli import NliCrossEncoder
from suffice.retrieval.pairs.training_record import trained_on
from suffice.signals.asking.evidence_models import Measured
from suffice.signals.asking.judge_support import Judging
from suffice.signals.asking.meaning_clusters import (
    CLUSTERS,
    ClusteredTraces,
    check_clustering,
    cluster_traces,
)
from suffice.signals.asking.reranking import Reranking
from suffice.signals.asking.whole_record import Asked, Replies
from suffice.signals.store import SignalModels, StoredSignals, asking_for, with_signals
from suffice.trace.rounds.table import TraceSet
from suffice.trace.rounds.writer import write_trace_set

_Model = TypeVar("_Model")


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
        metavar="TRACES2",
        help="a .parquet file, or a directory that gets one",
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
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compute, write, and list what was skipped and why."""
    _check_clustering(arguments)
    only = _only(arguments)
    traces = open_traces(arguments, say, keep_unknown=True)
    _check_out(arguments.out)
    models = _models(arguments, only)
    _warn_of_training(arguments.reranker, traces)
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
    if arguments.json:
        print_json(_document(stored, written, clustered))
    else:
        _print(stored, written, clustered)
    return _ended(stored, written, clustered)


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


def _check_out(out: str) -> None:
    """Refuse before a model is asked what the writer would refuse after."""
    if not out.endswith(".parquet") and any(Path(out).glob("*.parquet")):
        raise UsageError(f"{out} holds trace files already; choose another --out")


def _models(arguments: argparse.Namespace, only: tuple[str, ...] | None) -> SignalModels:
    """Connect what was named; a model that nothing chosen needs is refused."""
    named = {
        "--llm": arguments.llm or arguments.model,
        "--reranker": arguments.reranker,
        "--encoder": arguments.encoder if arguments.cluster_cosine is None else None,
        "--nli": arguments.nli,
    }
    for option, value in named.items():
        needing = asking_for(option)
        if value is not None and only is not None and not set(needing) & set(only):
            raise UsageError(
                f"--only leaves out all that asks {option}: {', '.join(needing)}; add one"
            )
    if arguments.encoder_model is not None and arguments.encoder is None:
        raise UsageError("--encoder-model names the model of a server; name it with --encoder URL")
    if named["--llm"] is not None:
        arguments.llm = arguments.llm or "embedded"
    return SignalModels(
        judge=connect_model(arguments) if named["--llm"] is not None else None,
        reranker=_opened(arguments.reranker, connect_reranker),
        encoder=_opened(
            arguments.encoder, lambda name: connect_encoder(name, arguments.encoder_model)
        ),
        entailment=_opened(arguments.nli, NliCrossEncoder.load),
    )


def _warn_of_training(reranker: str | None, traces: TraceSet) -> None:
    """Say how many of the questions the reranker knows from its training."""
    known = len(trained_on(reranker) & set(traces.question_ids))
    if known:
        say(
            f"the reranker was trained on {known} of these {traces.n_questions} questions: their scores "
            "look better than those of questions it never saw, so leave them out of what you measure; "
            "suffice record --reranker does"
        )


def _opened(name: str | None, connect: Callable[[str], _Model]) -> _Model | None:
    return None if name is None else connect(name)


def _progress() -> Callable[[Asked], None]:
    lines: dict[str, ProgressLine] = {}

    def show(now: Asked) -> None:
        unit = "questions" if now.what == "reranked" else "rounds"
        line = lines.setdefault(now.what, ProgressLine(f"{unit} {now.what}"))
        line.show(now.finished, now.planned, failed=now.failed)

    return show


def _document(
    stored: StoredSignals, written: Path, clustered: ClusteredTraces | None
) -> dict[str, Any]:
    return {
        "out": str(written),
        "computed": list(stored.computed),
        "skipped": dict(stored.skipped),
        "judge": _judge_document(stored.judging),
        "rerank": _rerank_document(stored.reranking),
        "encoder": _measured_document(stored.encoding),
        "nli": _measured_document(stored.entailing),
        "clusters": _clusters_document(clustered),
    }


def _judge_document(judging: Judging | None) -> dict[str, Any] | None:
    if judging is None:
        return None
    return {
        "calls": sum(judging.calls.values()),
        "rated": len(judging.found) - judging.undefined,
        "undefined": judging.undefined,
        "failed": len(judging.failures),
        "left": judging.left,
        "prompt_tokens": judging.tokens("prompt_tokens"),
        "cached_tokens": judging.tokens("cached_tokens"),
        "completion_tokens": judging.tokens("completion_tokens"),
    }


def _rerank_document(reranking: Reranking | None) -> dict[str, Any] | None:
    if reranking is None:
        return None
    return {"passages": reranking.passages, "calls": sum(reranking.calls.values())}


def _measured_document(replies: Replies[Measured] | None) -> dict[str, Any] | None:
    if replies is None:
        return None
    undefined = sum(any(map(math.isnan, each.values())) for each in replies.found.values())
    return {
        "rounds": len(replies.found) - undefined,
        "undefined": undefined,
        "failed": len(replies.failures),
        "left": replies.left,
    }


def _clusters_document(clustered: ClusteredTraces | None) -> dict[str, Any] | None:
    if clustered is None:
        return None
    return {
        **clustered.stated,
        "rounds": len(clustered.replies.found),
        "before": clustered.before,
        "failed": len(clustered.replies.failures),
        "left": clustered.replies.left,
    }


def _print(stored: StoredSignals, written: Path, clustered: ClusteredTraces | None) -> None:
    print(f"wrote {written}")
    print(f"  computed {', '.join(stored.computed) or 'nothing new'}")
    clusters = _clusters_document(clustered)
    if clusters is not None:
        print(
            f"  clustered the samples of {clusters['rounds']} rounds ({clusters['before']} before) by "
            f"{clusters['encoder']} at cosine {clusters['cosine']:g}; {clusters['failed']} failed"
        )
    judge = _judge_document(stored.judging)
    if judge is not None:
        print(
            f"  the judge rated {judge['rated']} rounds in {judge['calls']} calls; "
            f"{judge['undefined']} undefined, {judge['failed']} failed"
        )
    if stored.reranking is not None:
        print(f"  the reranker scored {stored.reranking.passages} passages")
    for who, replies in (("encoder", stored.encoding), ("entailment model", stored.entailing)):
        measured = _measured_document(replies)
        if measured is not None:
            print(
                f"  the {who} measured {measured['rounds']} rounds; "
                f"{measured['undefined']} undefined, {measured['failed']} failed"
            )
    for name, reason in stored.skipped.items():
        print(f"  skipped {name}: {reason}")


def _ended(stored: StoredSignals, written: Path, clustered: ClusteredTraces | None) -> int:
    """Tell what a model left undone; the exit code."""
    asked: dict[str, Replies[Any] | None] = {
        "encoder of the samples": None if clustered is None else clustered.replies,
        "encoder": stored.encoding,
        "entailment model": stored.entailing,
        "judge": stored.judging,
    }
    code = 0
    for who, replies in asked.items():
        if replies is None or not (replies.failures or replies.left or replies.interrupted):
            continue
        if replies.failures:
            reason = next(iter(replies.failures.values()))
            say(f"{len(replies.failures)} calls of the {who} failed, the first: {reason}")
        why = "interrupted" if replies.interrupted else f"the {who} is not done"
        say(f"{why}; run the same command on {written} to ask about the rounds without a value")
        code = max(code, INTERRUPTED if replies.interrupted else 1)
    return code
