"""``suffice serve`` and ``view``: answer over HTTP, and show a record in a browser."""

from __future__ import annotations

import re
import sys
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from suffice._optional import require
from suffice.cli.output import print_json, put, say, waiting
from suffice.cli.parser import Given, command, field_options
from suffice.cli.shared_options import Json, Measuring, ModelOptions, Traces, out_path
from suffice.concurrency import started
from suffice.errors import StorageError, UsageError, counted
from suffice.evaluation.settings import ComparedBy, CostName, FittedElsewhere, Policies, Rules
from suffice.options import Option, read_since
from suffice.serve.service_settings import ServeSettings, load_settings, with_given

if TYPE_CHECKING:
    from suffice.serve.service import Ground, Service


_NAME = re.compile(r"([A-Za-z0-9][\w.-]*)=(?!=)(.+)", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9][\w.-]*")
DECIDES_ONLY = "no --corpus, so no questions are answered; decisions at /v1/decisions and /v1/loops"


@command(*field_options(ServeSettings))
def serve(
    *,
    given: Given,
    config: Annotated[
        str | None, Option(metavar="FILE", help="TOML file with these settings and more")
    ] = None,
    policy: Annotated[
        tuple[str, ...],
        Option(
            metavar="[NAME=]P",
            repeats=True,
            help="a policy file, fixed-K, ab-rag or a rule; the first is the default. Repeatable. "
            "(default: the rule of the pipeline)",
        ),
    ] = (),
    check: Annotated[
        bool, Option(help="load everything, print what would be served, and exit")
    ] = False,
    json: Json = False,
) -> None:
    """Answer questions over HTTP for OpenAI's clients.

    Searches and answers each question in rounds, until its policy has seen enough. Options that are left out
    come from the file of --config, else from the defaults.
    """
    for module in ("fastapi", "uvicorn", "prometheus_client"):
        require(module, extra="serve", purpose="suffice serve")
    told = given.of(ServeSettings)
    settings = with_given(ServeSettings(), told) if config is None else load_settings(config, told)
    if policy:
        settings = replace(settings, policies=named(policy))
    from suffice.serve import operation
    from suffice.serve.app import make_app
    from suffice.serve.listen import run

    door = operation.check(settings)
    service = open_service(settings)
    if check:
        if service.ground is not None:
            service.ground.ask_once(settings.limits.seconds)
        _tell_check(settings, service, as_json=json)
        service.close()
        return
    running = operation.Operation(settings, service, door)
    for name, served in service.policies.items():
        say(f"suffice/{name}: {served.file.policy.facts.summary}")
        for note in served.notes:
            say(f"  {note}")
    if service.ground is None:
        say(DECIDES_ONLY)
    app = make_app(service, routers=running.routers, door=door, beside=running.running)
    run(app, running.listening(lambda at: put(f"listening at {at}/v1")))
    service.close()  # where a second signal left no time for it
    rounds, questions, why = service.lost
    if questions:
        raise StorageError(
            f"{counted(rounds, 'round')} of {counted(questions, 'question')} missing in the record "
            f"{settings.record.folder}: {why}; free space there, or name another folder: --record DIR"
        )


def named(policies: Sequence[str]) -> dict[str, str]:
    """Return policies by name: the text before ``=``, a file's stem, a plain name, or ``rule-N``."""
    by_name: dict[str, str] = {}
    for text in policies:
        match = _NAME.fullmatch(text)
        if match is not None:
            name, source = match.groups()
        elif _PLAIN.fullmatch(text) or text.endswith(".json"):
            path = Path(text)
            name, source = (path.parent.name if path.stem == "policy" else path.stem), text
        else:
            name, source = f"rule-{len(by_name) + 1}", text
        if not _PLAIN.fullmatch(name) or name.lower() in map(str.lower, by_name):
            raise UsageError(f"--policy {text!r}: give it its own name: --policy NAME={source}")
        by_name[name] = source
    return by_name


def open_service(settings: ServeSettings) -> Service:
    from suffice.serve.service import Service

    usual = ServeSettings()
    decides_only = bool(settings.policies) and all(
        getattr(settings, table) == getattr(usual, table)
        for table in ("model", "retrieval", "answers", "budgets")
    )
    return Service(
        None if decides_only else _ground(settings),
        settings.policies,
        record=settings.record.folder,
        explore=settings.record.explore,
        texts=settings.record.texts,
        limits=settings.limits,
        loops=settings.loops,
    )


def _ground(settings: ServeSettings) -> Ground:
    from suffice.cli.retrieval import RetrievalOptions, ask_settings, indexed
    from suffice.live.answering import LiveLoop
    from suffice.live.requirements import choose_policy
    from suffice.serve.service import DEFAULT_POLICY, Ground

    options = asdict(settings.retrieval)
    corpus, index = options.pop("corpus"), options.pop("index")
    searched = RetrievalOptions(**options)
    asking = ask_settings(settings.answers, settings.budgets, loop=settings.answers.loop)
    sources: Mapping[str, str | None] = settings.policies or {DEFAULT_POLICY: None}
    chosen = [choose_policy(source, pipeline=asking.pipeline) for source in sources.values()]
    alone = "; or give --policy P alone, without a model, to decide for other loops"
    passages = searched.passages(corpus, index, alone)
    model = ModelOptions(**asdict(settings.model)).connect()
    with waiting(f"testing what {settings.model.llm} supports"):
        loops = [LiveLoop.of(policy, model, asking, lambda _: None) for policy in chosen]
    retrieval, encoder = searched.connect(encode=any(live.encodes for live in loops))
    for live in loops:
        retrieval = live.reaching(retrieval)
    retriever = indexed(retrieval, passages, index)
    return Ground(
        model=model, retriever=retriever, settings=asking, retrieval=retrieval, encoder=encoder
    )


def _tell_check(settings: ServeSettings, service: Service, *, as_json: bool) -> None:
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
    for name, told in document.pop("policies").items():
        notes = told.pop("notes")
        put(f"suffice/{name}: {', '.join(f'{part} {value}' for part, value in told.items())}")
        for note in notes:
            put(f"  {note}")
    for name, value in document.items():
        put(f"{name}: {value}")


_TURN_S = 0.0005  # for which measuring keeps the interpreter from what answers the page


@command()
def view(
    traces: Traces,
    *,
    reading: Measuring,
    policy: Policies = (),
    stop_when: Rules = (),
    metric: ComparedBy = None,
    cost: CostName = None,
    elsewhere: FittedElsewhere,
    since: Annotated[
        str,
        Option(metavar="TIME", help="report on policies that ran since then, as monitor --since"),
    ] = "7d",
    port: Annotated[int, Option(at_least=0, help="port on 127.0.0.1; 0: any free one")] = 7577,
    no_browser: Annotated[bool, Option(help="do not open a browser")] = False,
    bundle: Annotated[
        str | None,
        Option(
            metavar="OUT",
            parse=out_path(folder=True),
            help="write the viewer and the record's data as static files into this folder",
        ),
    ] = None,
) -> None:
    """Open a record in the browser.

    Shows every question round by round, with its evidence, signals and decisions. Filter and sort questions,
    try a rule while you type it, and compare two policies. Shows new questions while a record grows. Listens
    on this machine only. Without --policy it shows fixed budgets and the usual methods that the record can
    feed.
    """
    for module in ("fastapi", "uvicorn"):
        require(module, purpose="suffice view", extra="view")
    from suffice.measures.measures import Measures
    from suffice.measures.shards import Workers
    from suffice.serve.listen import Listening, run
    from suffice.trace.engines import as_place
    from suffice.trace.stored_file import parquet_files
    from suffice.view.data import RecordView, ViewSettings
    from suffice.view.viewer import Shown, viewer_app, write_bundle

    read_since(since)
    settings = ViewSettings(
        policies=policy,
        rules=stop_when,
        metric=metric,
        cost=cost,
        fit_on=elsewhere.fit_on,
        since=since,
    )
    # measured in processes of their own, however few, so that the page is answered meanwhile
    workers = Workers(reading.workers, behind=True) if reading.ray is None else reading.executor()

    def opened() -> RecordView:
        read = reading.open(traces, progress=shown.reading)
        return RecordView(Measures(read, executor=workers), settings)

    place = as_place(traces)
    shown = Shown(None, place, opened)

    if bundle is not None:
        record = opened()
        with waiting("measuring"):
            record.work()
            written = write_bundle(record, Path(bundle))
        for line in written:
            put(line)
        return
    if not place.is_dir():
        parquet_files(place)  # what is not there is told before the browser opens

    def opening() -> None:
        shown.open()
        if shown.trouble:
            say(shown.trouble, lead="suffice view:")

    def up(address: str) -> None:
        say(f"showing {traces} at {address}/; end with Ctrl-C")
        started(opening, "record")
        if not no_browser:
            started(lambda: webbrowser.open(f"{address}/"), "browser")

    usual = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)
    try:  # what follows the record ends at once, what is asked for within seconds
        run(viewer_app(shown), Listening(port=port, end_s=3.0, started=up, ending=shown.end))
    finally:
        sys.setswitchinterval(usual)
