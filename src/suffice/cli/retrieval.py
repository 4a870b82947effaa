"""Options of commands that retrieve and answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from suffice.cli.output import ProgressLine, say, waiting
from suffice.cli.parser import listed_prices
from suffice.contracts import Encoder, Retriever
from suffice.errors import UsageError, unknown_name, without_credentials
from suffice.integrations.documents import FORMS, connect_own, is_own
from suffice.live.answering import AskSettings
from suffice.live.watching import Budgets
from suffice.loops import LOOPS
from suffice.loops.connecting import connect_encoder, connect_reranker, reranker_name
from suffice.options import Option
from suffice.retrieval.corpus import read_corpus
from suffice.retrieval.retrievers import (
    RETRIEVERS,
    IndexMaker,
    Retrieval,
    check_reranking,
    corpus_retriever,
    first_stage,
    kinds_of,
)
from suffice.serve.service_settings import AnswerSettings, BudgetSettings, RankingSettings
from suffice.signals.asking.meaning_clusters import DEFAULT_COSINE
from suffice.trace.rounds.records import Passage

SEARCHED = (
    f"--corpus PATH, a folder or file of txt, md and jsonl, or --retriever X of {', '.join(FORMS)}"
)
"""What to type where nothing is said to be searched."""
_NO_ENCODER = "none"
_SUMMARIES = "; ".join(f"{name}: {loop.summary}" for name, loop in LOOPS.items())

PipelineName = Annotated[
    str | None,
    Option(
        choices=tuple(LOOPS),
        help=f"{_SUMMARIES} (default: cumulative; ask and serve use budgeted for ab-rag)",
    ),
]
ClusterCosine = Annotated[
    float | None,
    Option(
        metavar="C",
        bare=DEFAULT_COSINE,
        help="cluster each round's samples by meaning, with --encoder, into the column sample_clusters. "
        f"Answers join while their mean cosine is above C ({DEFAULT_COSINE:g} if C is left out).",
    ),
]
EncoderModel = Annotated[str | None, Option(metavar="M", help="model name on the embedding server")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalOptions(RankingSettings):
    GROUP: ClassVar = "Retrieval"

    retriever: Annotated[
        str,
        Option(
            metavar="X",
            help=f"ranks passages: {', '.join(RETRIEVERS)}. hybrid fuses bm25 and dense; X+rerank reranks "
            f"the passages of X. Or a search service: {', '.join(FORMS)}, also with +rerank.",
        ),
    ] = "bm25"

    def finds_its_own(self, **others: object) -> bool:
        """Whether it searches a place of its own; then refuse ``others``, which name a corpus."""
        self._check()
        if not is_own(self.retriever):
            return False
        for name, value in others.items():
            if value is not None:
                raise UsageError(
                    f"--retriever {without_credentials(self.retriever)} searches a place of its own; "
                    f"leave out --{name} {value}, or --retriever"
                )
        return True

    def passages(
        self, corpus: str | None, index: str | None, otherwise: str = ""
    ) -> tuple[Passage, ...]:
        """Read the passages to search; none for a retriever that searches a place of its own."""
        if self.finds_its_own(corpus=corpus, index=index):
            return ()
        if corpus is None:
            raise UsageError(f"no corpus is named; type {SEARCHED}{otherwise}")
        return read_passages(corpus)

    def connect(self, *, encode: bool) -> tuple[Retrieval, Encoder | None]:
        """Load the retriever, and the encoder if one is named or ``encode`` says that it has a use."""
        name, wanted = self.retriever, self.encoder
        vectors = "dense" in kinds_of(name)
        own = connect_own(first_stage(name)) if is_own(name) else None
        encoder = None
        if wanted != _NO_ENCODER and (wanted is not None or encode or vectors):
            wanted = wanted or "minilm"
            with waiting(f"loading the encoder {without_credentials(wanted.partition('?')[0])}"):
                encoder = connect_encoder(wanted, self.encoder_model, self.query_prefix)
        reranker = None
        if self.reranker is not None:
            with waiting(f"loading the reranker {self.reranker}"):
                reranker = connect_reranker(self.reranker)
        retrieval = Retrieval(
            name=name if own is None else name.replace(first_stage(name), own.name),
            source=None if own is None else own.retriever,
            encoder=encoder if vectors else None,
            query_prefix=self.query_prefix,
            reranker=reranker,
            reranker_name=None if self.reranker is None else reranker_name(self.reranker),
            pool=self.pool,
        )
        return retrieval, encoder

    def _check(self) -> None:
        name, encoder = without_credentials(self.retriever), self.encoder
        if self.retriever not in RETRIEVERS and not is_own(self.retriever):
            raise UsageError(unknown_name("retriever", name, (*RETRIEVERS, *FORMS)))
        check_reranking(name, reranker=self.reranker is not None, pool=self.pool)
        served = encoder is not None and encoder.startswith(("http://", "https://"))
        if self.encoder_model is not None and not served:
            raise UsageError("--encoder-model needs a server's URL: --encoder URL")
        if self.query_prefix is not None and "dense" not in kinds_of(name):
            raise UsageError(
                f"--query-prefix needs a retriever with vectors, not {name!r}; type --retriever dense or "
                "--retriever hybrid"
            )


def read_passages(path: str) -> tuple[Passage, ...]:
    """Read the passages of a folder or file; print which files were skipped, and why."""
    with waiting(f"reading {path}"):
        corpus = read_corpus(Path(path))
    for file in corpus.skipped:
        say(f"skipped {file.path}: {file.reason}")
    return corpus.passages


def ask_settings(answers: AnswerSettings, budgets: BudgetSettings, **more: Any) -> AskSettings:
    """Return the settings of ``ask``."""
    named = ("tokens", "seconds", "usd", "usd_per_day", "hard")
    limits: dict[str, Any] = {name: getattr(budgets, name, None) for name in named}
    return AskSettings(
        pipeline=answers.pipeline,
        rounds=budgets.rounds,
        samples=answers.samples,
        seed=answers.seed,
        budgets=Budgets(**limits, prices=listed_prices(budgets)),
        choose=answers.answer,
        decline_below=answers.decline_below,
        **more,
    )


def indexed(
    retrieval: Retrieval, passages: tuple[Passage, ...], index: str | None, *, renew: bool = False
) -> Retriever:
    with waiting("indexing"):
        if retrieval.source is not None:
            return retrieval.over(())
        make = IndexMaker(encoder=retrieval.encoder, on_progress=ProgressLine("encoded").show)
        folder = None if index is None else Path(index)
        return corpus_retriever(passages, retrieval, make, folder, renew=renew)
