"""``suffice serve``: adaptive answers over HTTP, as OpenAI's clients ask for them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffice._optional import require
from suffice.cli.options import add_json, connect_model, given_prices
from suffice.cli.output import print_json, put, say, waiting
from suffice.cli.settings_options import add_settings, given_options
from suffice.errors import StorageError, UsageError
from suffice.serve.settings import ServeSettings, load_settings, with_given

if TYPE_CHECKING:
    from suffice.serve.service import Ground, Service
    from suffice.trace.rounds.records import Passage

_NAME = re.compile(r"([A-Za-z0-9][\w.-]*)=(?!=)(.+)", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9][\w.-]*")
DECIDES_ONLY = (
    "answers no questions, since there is no --corpus to search: decides at /v1/decisions and "
    "/v1/loops"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Answers questions over HTTP for OpenAI's clients: each is searched and answered in rounds until its "
        "policy has seen enough. What is not given stands in the file of --config, else is as by default."
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a TOML file with these settings and more; see docs/serving.md",
    )
    parser.add_argument(
        "--policy",
        action="append",
        metavar="[NAME=]P",
        help="what decides, by the name a client asks for, the default first: a policy file, fixed-K, ab-rag "
        "(published) or a rule's text (default: the default rule of the pipeline, as 'default'); "
        "may be repeated",
    )
    add_settings(parser, ServeSettings)
    parser.add_argument(
        "--check",
        action="store_true",
        help="load everything, ask the model what it gives, say what would be served, and end",
    )
    parser.add_argument(
        "--new-token",
        metavar="NAME",
        help="make a bearer token of that name, keep its hash in the file of --tokens, print it, and end",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Read, load, check, listen."""
    for module in ("fastapi", "uvicorn", "prometheus_client"):
        require(module, extra="serve", purpose="suffice serve")
    settings = settings_of_arguments(arguments)
    if arguments.new_token is not None:
        put(_made_token(settings, arguments.new_token))
        return 0
    from suffice.serve.operation import Operation, check

    door = check(settings)
    service = open_service(settings)
    if arguments.check:
        _tell_check(settings, service, as_json=arguments.json)
        service.close()
        return 0
    from suffice.serve.app import make_app
    from suffice.serve.listen import run as serve

    operation = Operation(settings, service, door)
    for name, served in service.policies.items():
        say(f"suffice/{name}: {served.file.policy.facts.summary}")
        for note in served.notes:
            say(f"  {note}")
    if service.ground is None:
        say(DECIDES_ONLY)
    app = make_app(service, routers=operation.routers, door=door, beside=operation.running)
    hooks = operation.hooks(lambda address: put(f"listening at {address}/v1"))
    serve(app, operation.listening, hooks)
    service.close()  # where a second signal left no time for it
    rounds, questions, why = service.lost
    if questions:
        raise StorageError(
            f"{rounds:,} rounds of {questions:,} questions are not in the record "
            f"{settings.record.folder}: {why}; make room, or name another folder: --record DIR"
        )
    return 0


def _made_token(settings: ServeSettings, name: str) -> str:
    """A new token, whose hash is kept."""
    from suffice.serve.guard import new_token

    if settings.security.tokens is None:
        raise UsageError(
            'where is its hash to be kept? Type --tokens FILE, or write tokens = "FILE" under [security]'
        )
    return new_token(Path(settings.security.tokens), name)


def settings_of_arguments(arguments: argparse.Namespace) -> ServeSettings:
    """The settings of the file, with the options that were given in their place."""
    from dataclasses import replace

    settings = ServeSettings() if arguments.config is None else load_settings(arguments.config)
    settings = with_given(settings, given_options(arguments, ServeSettings))
    return settings if arguments.policy is None else replace(settings, policies=_named(arguments))


def _named(arguments: argparse.Namespace) -> dict[str, str]:
    """Policies by name: the one before ``=``, else a file's stem, a plain name itself, ``rule-N``."""
    named: dict[str, str] = {}
    for text in arguments.policy:
        match = _NAME.fullmatch(text)
        if match is not None:
            name, source = match.groups()
        elif _PLAIN.fullmatch(text) or text.endswith(".json"):
            path = Path(text)
            name, source = (path.parent.name if path.stem == "policy" else path.stem), text
        else:
            name, source = f"rule-{len(named) + 1}", text
        if not _PLAIN.fullmatch(name) or name in named:
            raise UsageError(
                f"--policy {text!r}: give it a name of its own: --policy NAME={source}"
            )
        named[name] = source
    return named


def open_service(settings: ServeSettings) -> Service:
    """The service that settings describe, with everything it needs loaded."""
    from suffice.serve.service import Service

    return Service(
        None if _decides_only(settings) else _ground(settings),
        settings.policies,
        record=settings.record.folder,
        explore=settings.record.explore,
        texts=settings.record.texts,
        limits=settings.limits,
        loops=settings.loops,
    )


def _decides_only(settings: ServeSettings) -> bool:
    """Whether policies are named and nothing that has to do with answers is."""
    usual = ServeSettings()
    of_answers = ("model", "retrieval", "answers", "budgets")
    return bool(settings.policies) and all(
        getattr(settings, table) == getattr(usual, table) for table in of_answers
    )


def _ground(settings: ServeSettings) -> Ground:
    """What is answered from."""
    from suffice.cli.retrieval_options import (
        SEARCHED,
        check_finds_its_own,
        connect_retrieval,
        finds_its_own,
        tell_skipped,
    )
    from suffice.live.ask import AskSettings, LiveLoop
    from suffice.live.budgets import Budgets
    from suffice.live.chosen import choose_policy
    from suffice.retrieval.corpus import read_corpus
    from suffice.retrieval.indexes import IndexMaker
    from suffice.retrieval.retrievers import corpus_retriever
    from suffice.serve.service import DEFAULT_POLICY, Ground

    options = _namespace(settings)
    searched = settings.retrieval
    if finds_its_own(options):
        check_finds_its_own(options, ("corpus", "index"))
    elif searched.corpus is None:
        raise UsageError(
            f"what is to be searched? Type {SEARCHED}; --policy P alone, without a model, decides "
            "about loops of others"
        )
    budgets = settings.budgets
    asking = AskSettings(
        pipeline=settings.answers.pipeline,
        rounds=budgets.rounds,
        samples=settings.answers.samples,
        seed=settings.answers.seed,
        loop=settings.answers.loop,
        budgets=Budgets(
            tokens=budgets.tokens,
            seconds=budgets.seconds,
            usd=budgets.usd,
            prices=given_prices(options),
        ),
        choose=settings.answers.answer,
        decline_below=settings.answers.decline_below,
        speculate=settings.answers.speculate,
    )
    sources: Mapping[str, str | None] = settings.policies or {DEFAULT_POLICY: None}
    chosen = [choose_policy(source, pipeline=asking.pipeline) for source in sources.values()]
    passages: tuple[Passage, ...] = ()
    if searched.corpus is not None:
        with waiting(f"reading {searched.corpus}"):
            corpus = read_corpus(Path(searched.corpus))
        tell_skipped(corpus)
        passages = corpus.passages
    model = connect_model(options)
    with waiting(f"asking {settings.model.llm} what it gives"):
        loops = [LiveLoop.of(policy, model, asking, lambda _: None) for policy in chosen]
    retrieval, encoder = connect_retrieval(options, encode=any(live.encodes for live in loops))
    for live in loops:
        retrieval = live.reaching(retrieval)
    with waiting("indexing"):
        if retrieval.source is not None:
            retriever = retrieval.over(())
        else:
            folder = None if searched.index is None else Path(searched.index)
            make = IndexMaker(encoder=retrieval.encoder)
            retriever = corpus_retriever(passages, retrieval, make, folder)
    return Ground(
        model=model, retriever=retriever, settings=asking, retrieval=retrieval, encoder=encoder
    )


def _namespace(settings: ServeSettings) -> argparse.Namespace:
    """The settings as the options that ``suffice ask`` shares."""
    return argparse.Namespace(
        **asdict(settings.model),
        **asdict(settings.retrieval),
        price_model=settings.budgets.price_model,
        prices=settings.budgets.prices,
    )


def _tell_check(settings: ServeSettings, service: Service, *, as_json: bool) -> None:
    """What would be served."""
    ground = service.ground
    document: dict[str, Any] = {
        "address": f"http://{settings.host}:{settings.port}/v1",
        "model": None if ground is None else ground.model.name,
        "retriever": None if ground is None else settings.retrieval.retriever,
        "policies": {
            name: {
                "policy": served.file.policy.facts.summary,
                "hash": served.hash,
                "pipeline": None if served.live is None else served.live.loop.pipeline,
                "max_rounds": served.max_rounds,
                "notes": list(served.notes),
            }
            for name, served in service.policies.items()
        },
        "record": settings.record.folder,
        "explore": settings.record.explore,
    }
    if as_json:
        print_json(document)
        return
    put(f"would listen at {document['address']}")
    if ground is None:
        put(DECIDES_ONLY)
    else:
        put(f"model: {document['model']}; retriever: {document['retriever']}")
    put(f"record: {settings.record.folder or 'none'}; explore {settings.record.explore:g}")
    for name, told in document["policies"].items():
        put(
            f"suffice/{name}: {told['policy']} (hash {told['hash']}), "
            f"{told['pipeline'] or 'loops of others'}, at most {told['max_rounds'] or 'any number of'} rounds"
        )
        for note in told["notes"]:
            put(f"  {note}")
