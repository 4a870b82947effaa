"""Options of commands that retrieve: which retriever, and the models it reads with."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from suffice.cli.options import number, positive
from suffice.cli.output import say, waiting
from suffice.errors import UsageError, unknown_name, without_credentials
from suffice.integrations.own_retrievers import FORMS, connect_own, is_own
from suffice.loops.models import connect_encoder, connect_reranker, reranker_name
from suffice.loops.registry import LOOPS
from suffice.protocols import Encoder
from suffice.retrieval.corpus import CorpusReading, read_corpus
from suffice.retrieval.retrievers import (
    RETRIEVERS,
    Retrieval,
    check_reranking,
    first_stage,
    kinds_of,
)
from suffice.signals.asking.meaning_clusters import DEFAULT_COSINE
from suffice.trace.rounds.records import Passage

SEARCHED = (
    f"--corpus PATH, a folder or file of txt, md and jsonl, or --retriever X of {', '.join(FORMS)}"
)
"""What to type where nothing is said to be searched."""
_NO_ENCODER = "none"


def add_retrieval(parser: argparse.ArgumentParser) -> None:
    """``--retriever`` and the models it reads with."""
    group = parser.add_argument_group("retrieval")
    group.add_argument(
        "--retriever",
        type=_retriever,
        default="bm25",
        metavar="X",
        help=f"what ranks passages (default: bm25): {', '.join(RETRIEVERS)}; hybrid fuses bm25 and dense, "
        "X+rerank reranks what X finds first. Or what finds passages of its own: "
        f"{', '.join(FORMS)}, these also with +rerank",
    )
    group.add_argument(
        "--encoder",
        metavar="E",
        help="what makes vectors: minilm (the default where one is needed: MiniLM in 8 bit), the base "
        "URL of a server with embeddings, a model of sentence-transformers by folder or name, or none",
    )
    group.add_argument("--encoder-model", metavar="M", help="the embedding server's model name")
    group.add_argument(
        "--query-prefix",
        metavar="TEXT",
        help="what the encoder puts before a query, for models trained with one, as in 'query: ' (default: "
        "what the model brings)",
    )
    group.add_argument(
        "--reranker",
        metavar="PATH",
        help="a cross-encoder that sentence-transformers saved, or a reranker in a GGUF file",
    )
    group.add_argument(
        "--pool",
        type=positive,
        metavar="N",
        help="how many passages are given to the reranker, the most that a query finds (default: 40)",
    )


def add_pipeline(group: Any, default: str) -> None:
    """``--pipeline``; ``default`` says which loop it is where none is named."""
    summaries = "; ".join(f"{name}: {loop.summary}" for name, loop in LOOPS.items())
    group.add_argument("--pipeline", choices=tuple(LOOPS), help=f"{summaries} (default: {default})")


def add_clustering(group: argparse._ActionsContainer) -> None:
    """``--cluster-cosine``."""
    group.add_argument(
        "--cluster-cosine",
        type=number,
        nargs="?",
        const=DEFAULT_COSINE,
        metavar="C",
        help="cluster each round's samples by meaning, as --encoder sees it: answers are joined while "
        f"their mean cosine is above C ({DEFAULT_COSINE:g} when no C is given); the column "
        "sample_clusters",
    )


def _retriever(text: str) -> str:
    """The argparse type of ``--retriever``."""
    if text in RETRIEVERS or is_own(text):
        return text
    raise argparse.ArgumentTypeError(unknown_name("retriever", text, (*RETRIEVERS, *FORMS)))


def finds_its_own(arguments: argparse.Namespace) -> bool:
    """Whether the retriever searches a place of its own, and no corpus given here."""
    return is_own(arguments.retriever)


def check_finds_its_own(arguments: argparse.Namespace, others: Sequence[str]) -> None:
    """Refuse the options ``others``, which say what another retriever searches."""
    for name in others:
        value = getattr(arguments, name)
        if value is not None:
            raise UsageError(
                f"--retriever {without_credentials(arguments.retriever)} finds passages of its own; drop "
                f"--{name} {value}, or --retriever"
            )


def tell_skipped(corpus: CorpusReading) -> None:
    """Say which of the user's files were left out, and why."""
    for file in corpus.skipped:
        say(f"skipped {file.path}: {file.reason}")


def read_passages(path: str) -> tuple[Passage, ...]:
    """The passages of ``--corpus``; says what was skipped."""
    with waiting(f"reading {path}"):
        corpus = read_corpus(Path(path))
    tell_skipped(corpus)
    return corpus.passages


def connect_retrieval(
    arguments: argparse.Namespace, *, encode: bool
) -> tuple[Retrieval, Encoder | None]:
    """The retriever and encoder that :func:`add_retrieval`'s options name.

    ``encode``: whether the command has a use for an encoder beside the retriever's. An encoder that
    is named is loaded in any case; ``None``: there is none.
    """
    name, wanted = arguments.retriever, arguments.encoder
    _check(arguments)
    vectors = "dense" in kinds_of(name)
    own = connect_own(first_stage(name)) if is_own(name) else None
    encoder = None
    if wanted != _NO_ENCODER and (wanted is not None or encode or vectors):
        shown = without_credentials((wanted or "minilm").partition("?")[0])
        with waiting(f"loading the encoder {shown}"):
            encoder = connect_encoder(
                wanted or "minilm", arguments.encoder_model, arguments.query_prefix
            )
    reranker = None
    if arguments.reranker is not None:
        with waiting(f"loading the reranker {arguments.reranker}"):
            reranker = connect_reranker(arguments.reranker)
    retrieval = Retrieval(
        name=name if own is None else name.replace(first_stage(name), own.name),
        source=None if own is None else own.retriever,
        encoder=encoder if vectors else None,
        query_prefix=arguments.query_prefix,
        reranker=reranker,
        reranker_name=None if arguments.reranker is None else reranker_name(arguments.reranker),
        pool=arguments.pool,
    )
    return retrieval, encoder


def _check(arguments: argparse.Namespace) -> None:
    """Refuse, before anything is loaded, options that do not go together."""
    name, encoder = without_credentials(arguments.retriever), arguments.encoder
    check_reranking(name, reranker=arguments.reranker is not None, pool=arguments.pool)
    served = encoder is not None and encoder.startswith(("http://", "https://"))
    if arguments.encoder_model is not None and not served:
        raise UsageError("--encoder-model goes with the URL of a server: --encoder URL")
    if arguments.query_prefix is not None and "dense" not in kinds_of(name):
        raise UsageError(
            f"--query-prefix is for a retriever with vectors, not for {name!r}; type --retriever dense or "
            "--retriever hybrid"
        )
