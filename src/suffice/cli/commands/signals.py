"""``suffice signals``: compute signals and store them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from suffice.cli.output import (
    INTERRUPTED,
    Form,
    ProgressLine,
    print_json,
    print_result,
    put,
    say,
    waiting,
)
from suffice.cli.parser import command
from suffice.cli.retrieval import ClusterCosine, EncoderModel
from suffice.cli.shared_options import ModelOptions, Reading, Traces, TracesOut
from suffice.errors import UsageError, counted
from suffice.loops.calls import conversation_of
from suffice.loops.connecting import connect_encoder, connect_reranker
from suffice.options import Option
from suffice.results.table import Column, Table
from suffice.retrieval.networks import NliCrossEncoder
from suffice.signals.asking.looks import Looking, Looks, LookSamples, check_looks
from suffice.signals.asking.meaning_clusters import CLUSTERS, check_clustering, cluster_traces
from suffice.signals.asking.whole_record import Asked, Replies
from suffice.signals.known_signals import SIGNALS, askings
from suffice.signals.stored_signals import SignalModels, with_signals
from suffice.trace.parquet import only_file
from suffice.trace.rounds.trace_set import refuse_veiled
from suffice.trace.rounds.writer import write_trace_set


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions(ModelOptions):
    """Options of a language model; without a name no model is asked."""

    llm: str | None = None  # type: ignore[assignment]  # asked only where it is named


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalOptions:
    only: Annotated[tuple[str, ...] | None, Option(metavar="A,B", help="only these signals")] = None
    reranker: Annotated[
        str | None,
        Option(
            metavar="PATH", help="folder of a cross-encoder, or a .gguf file, to score passages"
        ),
    ] = None
    encoder: Annotated[
        str | None,
        Option(
            metavar="NAME|PATH|URL", help="minilm, a sentence-transformers model, or a server's URL"
        ),
    ] = None
    encoder_model: EncoderModel = None
    cluster_cosine: ClusterCosine = None
    recluster: Annotated[bool, Option(help="with --cluster-cosine: replace existing clusters")] = (
        False
    )
    nli: Annotated[
        str | None,
        Option(metavar="PATH", help="a sentence-transformers cross-encoder with three labels"),
    ] = None
    looks: Looks = ()
    look_samples: LookSamples = 0
    judge: JudgeOptions

    def check(self) -> None:
        """Refuse options that exclude each other, before any file or model is loaded."""
        check_looks(self.looks)
        if self.looks and self.asked_llm is None:
            raise UsageError("looks ask a model; add --llm URL")
        if self.cluster_cosine is not None:
            if self.encoder is None:
                raise UsageError("--cluster-cosine needs an encoder; add --encoder minilm")
            check_clustering(self.cluster_cosine)
        elif CLUSTERS in (self.only or ()):
            raise UsageError(f"{CLUSTERS} needs --encoder minilm --cluster-cosine")

    @property
    def asked_llm(self) -> str | None:
        return self.judge.llm or self.judge.model

    def models(self) -> SignalModels:
        """Connect the models that were named."""
        model = None if self.asked_llm is None else self.judge.connect()
        looks = None
        if model is not None and self.looks:
            looks = Looking(
                model=model,
                names=self.looks,
                conversation=partial(conversation_of, api=model.api),
                samples=self.look_samples,
            )
        return SignalModels(
            judge=model if looks is None else None,
            looks=looks,
            reranker=None if self.reranker is None else connect_reranker(self.reranker),
            encoder=None
            if self.encoder is None
            else connect_encoder(self.encoder, self.encoder_model),
            entailment=None if self.nli is None else NliCrossEncoder.load(self.nli),
        )


@command()
def signals(
    traces: Traces | None = None,
    *,
    out: TracesOut | None = None,
    list_all: Annotated[bool, Option(name="list", help="list all signals and exit")] = False,
    reading: Reading,
    options: SignalOptions,
    form: Form,
) -> int:
    """Compute every signal that the record allows and store it in the 'signals' map.

    Some signals need a model. --llm: a judge rates every round's answer (judge_support); with --looks it is
    asked these and no others. --reranker: scores passages (rerank_top_score and others). --encoder: compares
    answers with passages (evidence_consistency and others). --nli: tests whether a passage entails the
    answer (evidence_entailment). --encoder with --cluster-cosine: clusters samples by meaning (the column
    sample_clusters). The calls of --llm and --reranker are counted as costs. Keeps stored values and all
    columns. If a call fails its round gets no value; run the command again on TRACES2 to retry.
    """
    if list_all:
        table = _listed()
        print_result(form, [table], lambda: {"signals": table.to_arrow().to_pylist()})
        return 0
    if traces is None or out is None:
        raise UsageError(f"{'TRACES' if traces is None else '--out'} is missing; or type --list")
    if form.name not in ("text", "json"):
        raise UsageError(f"--format {form.name} needs --list; leave it out")
    options.check()
    record = reading.open(traces, keep_unknown=True)
    if options.reranker or options.encoder or options.nli or options.asked_llm:
        refuse_veiled(record)
    only_file(out)  # before a model is asked
    with waiting("loading models"):
        models = options.models()
    progress = _progress()
    clustered = None
    if models.encoder is not None and options.cluster_cosine is not None:
        clustered = cluster_traces(
            record,
            models.encoder,
            options.cluster_cosine,
            again=options.recluster,
            on_progress=progress,
        )
        record = clustered.traces
        if clustered.replies.interrupted:
            models = SignalModels()
    only = options.only and tuple(name for name in options.only if name != CLUSTERS)
    stored = with_signals(record, only, models=models, on_progress=progress)
    written = str(write_trace_set(stored.traces, out))
    asked: list[tuple[str, Replies[Any]]] = []
    summaries: dict[str, Any] = dict.fromkeys((*(one.name for one in askings()), "clusters"))
    lines = []
    if clustered is not None:
        asked.append(("encoder of the samples", clustered.replies))
        summaries["clusters"] = clustered.summary
        lines.append(_CLUSTERED.format(**clustered.summary))
    for asking in askings():
        if (replies := stored.asked.get(asking.name)) is not None:
            asked.append((asking.who, replies))
            summary = summaries[asking.name] = asking.summary(replies)
            lines.append(asking.line.format(who=asking.who, **summary))
    if form.name == "json":
        computed = {"computed": list(stored.computed), "skipped": dict(stored.skipped)}
        print_json({"out": written, **computed, **summaries})
    else:
        lines += [f"skipped {name}: {reason}" for name, reason in stored.skipped.items()]
        put(f"wrote {written}\n  computed {', '.join(stored.computed) or 'nothing new'}")
        for line in lines:
            put(f"  {line}")
    return max((_ended(*one, written) for one in asked), default=0)


_CLUSTERED = (
    "clustered the samples of {rounds} rounds ({before} before) by {encoder} at cosine {cosine:g}; "
    "{failed} failed"
)


def _listed() -> Table:
    names = ("signal", "meaning", "direction", "needs", "charges")
    columns = [Column(name=name, drop=int(name in ("direction", "needs"))) for name in names]
    columns.append(Column(name="computed", head="computed by"))
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


def _progress() -> Callable[[Asked], None]:
    lines: dict[str, ProgressLine] = {}
    started = time.monotonic()  # many questions may be asked before the first is answered

    def show(now: Asked) -> None:
        line = lines.setdefault(now.what, ProgressLine(f"{now.unit} {now.what}", started))
        line.show(now.finished, now.planned, failed=now.failed)

    return show


def _ended(who: str, replies: Replies[Any], written: str) -> int:
    if not (replies.failures or replies.left or replies.interrupted):
        return 0
    if replies.failures:
        reason = next(iter(replies.failures.values()))
        say(f"{counted(len(replies.failures), 'call')} of the {who} failed; the first: {reason}")
    why = "interrupted" if replies.interrupted else f"the {who} is not done"
    say(f"{why}; run the same command on {written} to ask about the rounds without a value")
    return INTERRUPTED if replies.interrupted else 1
