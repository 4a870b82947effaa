"""``suffice bench``: the published experiments."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from studies.study import STUDIES, ModelAccess, Request, Study, find_study
from suffice.cli.options import add_model, add_traces, open_more, out_path, server_settings
from suffice.cli.output import INTERRUPTED, ProgressLine, add_format, print_result, say, waiting
from suffice.cli.parser import Parser
from suffice.cli.settings_options import add_settings, read_settings


def add_options(parser: Parser) -> None:
    """Declare the command and its experiments; an experiment's own options come when it is chosen."""
    parser.description = "Runs a published experiment on your own data, model or record."
    experiments = parser.add_subparsers(dest="experiment", metavar="NAME", required=True)
    for name, line in STUDIES.items():
        experiments.add_parser(name, help=line).prepare = partial(_prepare, name)


def _prepare(name: str, parser: Parser, _: Sequence[str]) -> None:
    declare(find_study(name), parser)


def declare(study: Study[Any], parser: Parser, **told: Any) -> None:
    """Give a parser what a study is asked and what runs it; ``experiment`` is ``told`` where named."""
    parser.description = study.description
    if study.traces is not None:
        add_traces(parser, several="each evaluated by itself" if study.traces == "several" else "")
    places: dict[str, Any] = {"": parser}
    for options in study.options:
        if options.title not in places:
            places[options.title] = parser.add_argument_group(options.title, options.about)
        place = places[options.title]
        add_settings(
            place, options.settings, only=options.only, without=options.without, nested=False
        )
    if study.asks_model:
        add_model(parser)
    if study.out is not None:
        parser.add_argument("--out", type=out_path(folder=True), metavar="DIR", help=study.out)
    add_format(parser)
    parser.set_defaults(run=partial(_run, study), **told)


def _run(study: Study[Any], arguments: argparse.Namespace) -> int:
    """Run a study, print and write what it found."""
    request = _request(study, arguments)
    with waiting(f"bench {arguments.experiment}"):
        result = study.run(request)
    folder = request.folder
    if result is None:
        kept = "run the same command again to go on" if folder is not None else "nothing was kept"
        say(f"interrupted; {kept}")
        return INTERRUPTED
    wrote = study.write(result, folder, arguments.experiment.replace("-", "_")) if folder else None
    print_result(arguments, result.tables(), result.to_json, result.notes)
    if wrote is not None:
        say(wrote)
    failure = study.failure(result, folder)
    if failure is not None:
        say(failure)
    return 0 if failure is None else 1


def _request(study: Study[Any], arguments: argparse.Namespace) -> Request:
    paths = getattr(arguments, "traces", ())
    out = getattr(arguments, "out", None)
    return Request(
        read=partial(read_settings, arguments),
        paths=[paths] if isinstance(paths, str) else paths,
        open_traces=lambda path: open_more(path, arguments, say),
        model=_model_access(arguments) if study.asks_model else None,
        folder=None if out is None else Path(out),
        say=say,
        progress=ProgressLine,
    )


def _model_access(arguments: argparse.Namespace) -> ModelAccess:
    return ModelAccess(
        llm=arguments.llm,
        model=arguments.model,
        server=server_settings(arguments),
        cache=arguments.cache,
    )
