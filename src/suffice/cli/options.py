"""Options that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from suffice.cli.output import say, waiting
from suffice.errors import UsageError
from suffice.options import as_share, read_names

if TYPE_CHECKING:  # help is printed without what the command runs on
    from concurrent.futures import Executor
    from pathlib import Path

    from suffice.costs.prices import Prices
    from suffice.costs.usage import CostModel
    from suffice.integrations.ray import RayExecutor
    from suffice.llm.endpoint import OpenAISettings
    from suffice.measures.measures import Measures
    from suffice.protocols import ChatModel, StopPolicy
    from suffice.replay.settings import ComparisonSettings
    from suffice.trace.durable import Shard
    from suffice.trace.rounds.table import TraceSet

Read = TypeVar("Read")

TRACES = "a Parquet file, a directory of them, a FILE.db of live loops, or 'example'"
_SEED = 42  # of a sample, where --seed is not given


def argument_type(read: Callable[[str], Read]) -> Callable[[str], Read]:
    """The argparse type that reads so; what ``read`` refuses is said under the option's name."""

    @wraps(read)
    def typed(text: str) -> Read:
        try:
            return read(text)
        except (ValueError, UsageError) as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return typed


names = argument_type(read_names)
share = argument_type(as_share)


def positive(text: str) -> int:
    """An argparse type: a whole number from 1."""
    return _whole(text, 1)


def natural(text: str) -> int:
    """An argparse type: a whole number from 0."""
    return _whole(text, 0)


def whole(least: int | None) -> Callable[[str], int]:
    """The argparse type of whole numbers from ``least``."""
    return lambda text: _whole(text, least)


def _whole(text: str, least: int | None) -> int:
    try:
        value = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be a whole number, found {text!r}") from error
    if least is not None and value < least:
        raise argparse.ArgumentTypeError(f"must be at least {least}, found {value}")
    return value


def number(text: str) -> float:
    """An argparse type: a finite number."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not -float("inf") < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a finite number, found {text!r}")
    return value


def numbers(text: str) -> tuple[float, ...]:
    """An argparse type: numbers separated by commas."""
    return tuple(number(part) for part in text.split(","))


def seconds(text: str) -> float:
    """An argparse type: a duration above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, found {text!r}")
    return value


def out_path(*suffixes: str, folder: bool = False) -> Callable[[str], str]:
    """The argparse type of a place to write to, refused here rather than after the work.

    See :func:`suffice.trace.durable.writable`.
    """

    def read(text: str) -> str:
        from suffice.trace.durable import writable

        writable(text, *suffixes, folder=folder)
        return text

    return argument_type(read)


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json``."""
    parser.add_argument(
        "--json", action="store_true", help="one JSON document on stdout, nothing else there"
    )


def add_traces(
    parser: argparse.ArgumentParser,
    *,
    several: str = "",
    sampled: bool = False,
    measured: bool = False,
) -> None:
    """TRACES, ``--skip-invalid``, ``--abstention`` and, of a command that has ``--seed``, ``--sample``.

    What is done with ``several``, where there may be several.

    A command that opens them with :func:`open_measures` (``measured``) has ``--workers`` and ``--ray`` too.
    """
    if several:
        parser.add_argument("traces", metavar="TRACES", nargs="+", help=f"{TRACES}; {several}")
    else:
        parser.add_argument("traces", metavar="TRACES", help=TRACES)
    parser.add_argument(
        "--skip-invalid",
        action="store_true",
        help="leave out what is invalid, count it, and go on with the rest",
    )
    parser.add_argument(
        "--abstention",
        metavar="FILE",
        help="what abstains, one phrase a line ('...' at its end or beginning: anything), in place of the "
        "usual phrases; a policy that is fitted takes it along",
    )
    if sampled:
        parser.add_argument(
            "--sample",
            type=positive,
            metavar="N",
            help="only N questions, drawn by --seed; the same whatever else is asked, and part of those of a "
            "larger N",
        )
    if measured:
        add_workers(parser)


def add_workers(parser: argparse.ArgumentParser) -> None:
    """``--workers`` or ``--ray``."""
    who = parser.add_mutually_exclusive_group()
    who.add_argument(
        "--workers",
        type=positive,
        metavar="N",
        help="processes that measure shards of a large record side by side; the results are the same for any "
        "number (default: one a core)",
    )
    add_ray(who, "the workers that measure shards of a large record are those of a Ray cluster")


def add_ray(parser: argparse._ActionsContainer, what: str) -> None:
    """``--ray``, which says ``what``."""
    parser.add_argument(
        "--ray",
        nargs="?",
        const="",
        type=_ray_address,
        metavar="HOST:PORT",
        help=f"{what}, which see the same files (default: the cluster in RAY_ADDRESS, one that runs on this "
        "machine, or a new one here)",
    )


@argument_type
def _ray_address(text: str) -> str:
    from suffice.integrations.ray import ray_address

    return ray_address(text)


def workers_of(arguments: argparse.Namespace) -> Executor | None:
    """Who measures shards side by side; ``None``: this process alone."""
    from suffice.measures.shards import Workers, usable_cores

    if arguments.ray is not None:
        return ray_workers(arguments.ray)
    count = arguments.workers or usable_cores()
    return Workers(count) if count > 1 else None


def ray_workers(address: str) -> RayExecutor:
    """The workers of ``--ray``, joined."""
    from suffice.integrations.ray import RayExecutor

    with waiting(f"joining Ray {address}".rstrip()):
        return RayExecutor(address)


def open_measures(arguments: argparse.Namespace, say: Callable[[str], None]) -> Measures:
    """:func:`open_traces`, to be measured by as many workers as asked."""
    from suffice.measures.measures import Measures

    workers = workers_of(arguments)  # one that cannot be had is told before the record is read
    return Measures(open_traces(arguments, say), executor=workers)


def open_traces(
    arguments: argparse.Namespace,
    say: Callable[[str], None],
    *,
    keep_unknown: bool = False,
    progress: Callable[[float], object] | None = None,
) -> TraceSet:
    """Read TRACES as asked, and say what was skipped and what of them is a sample."""
    given = arguments.traces
    paths = [given] if isinstance(given, str) else given
    read = [
        open_more(path, arguments, say, keep_unknown=keep_unknown, progress=progress)
        for path in paths
    ]
    traces = read[0]
    if len(read) > 1:
        from suffice.trace.rounds.derive import pool_traces

        traces = pool_traces(read)
        say(f"pooled {len(read)} records of one loop: {traces.n_questions:,} questions")
    return sampled(traces, arguments, say)


def sampled(
    traces: TraceSet, arguments: argparse.Namespace, say: Callable[[str], None]
) -> TraceSet:
    """What ``--sample`` leaves of the traces, said; all of them without it."""
    count = getattr(arguments, "sample", None)
    if count is None:
        return traces
    seed = _SEED if arguments.seed is None else arguments.seed
    drawn = traces.sample(count, seed=seed)
    say(f"a sample: {drawn.n_questions:,} of {traces.n_questions:,} questions, seed {seed}")
    return drawn


def open_more(
    path: str,
    arguments: argparse.Namespace,
    say: Callable[[str], None],
    *,
    keep_unknown: bool = False,
    progress: Callable[[float], object] | None = None,
) -> TraceSet:
    """Read further traces with the same options."""
    from suffice.trace.rounds.reader import read_traces

    with waiting(f"reading {path}"):
        traces = read_traces(
            path,
            skip_invalid=arguments.skip_invalid,
            keep_unknown=keep_unknown,
            progress=progress,
        )
    if getattr(arguments, "abstention", None) is not None:
        from suffice.signals.abstained import read_phrases

        traces = traces.with_abstention(read_phrases(arguments.abstention))
    if traces.origin.skipped:
        say(
            f"skipped {len(traces.origin.skipped)} invalid parts; the first: {traces.origin.skipped[0]}"
        )
    return traces


def add_policy_out(parser: argparse.ArgumentParser, written: str) -> None:
    """``--out`` of a command that can write the policy it found."""
    parser.add_argument(
        "--out",
        type=out_path(".json", folder=True),
        metavar="PATH",
        help=f"also write {written} as a policy file, with its calibrated(...) and base_rate() fitted: "
        "a .json file, or a directory that gets policy.json",
    )


def write_policy(out: str, policy: StopPolicy, traces: TraceSet) -> dict[str, Any]:
    """Write a policy that was found on these traces, and say so; what ``--json`` says of it."""
    return tell_policy(keep_policy(out, policy, traces), policy, traces)


def keep_policy(
    out: str | Path, policy: StopPolicy, traces: TraceSet, remark: str | None = None
) -> Path:
    """Write a policy that was found on these traces; where."""
    from suffice.policies.file import save_policy

    return save_policy(policy, out, max_rounds=traces.full_budget, remark=remark)


def tell_policy(
    written: Path, policy: StopPolicy, traces: TraceSet, remark: str | None = None
) -> dict[str, Any]:
    """Say that a policy was written; what ``--json`` says of it."""
    from suffice.policies.file import policy_document, policy_hash

    known = policy.facts.summary if remark is None else f"{policy.facts.summary} ({remark})"
    say(f"wrote {written}: {known}; use it with: suffice replay {traces.at} --policy {written}")
    return {"out": str(written), "hash": policy_hash(policy), "policy": policy_document(policy)}


def add_model(parser: argparse.ArgumentParser, *, default: str | None = "embedded") -> None:
    """``--llm``, ``--model`` and what goes with a server."""
    group = parser.add_argument_group("language model")
    embedded = (
        "a small model in this process"
        if default is None
        else "the default: a small model in this process"
    )
    group.add_argument(
        "--llm",
        default=default,
        metavar="URL",
        help="base URL of an OpenAI-compatible server, "
        f"'embedded' ({embedded}) or 'scripted' (a "
        "deterministic stand-in for tests)",
    )
    group.add_argument(
        "--model",
        metavar="M",
        help="the server's model name; for 'embedded' a GGUF file (default: Gemma 3 270M)",
    )
    group.add_argument(
        "--api",
        choices=("chat", "completion"),
        default="chat",
        help="which endpoint of the server (default: chat)",
    )
    group.add_argument("--timeout", type=seconds, default=120.0, metavar="S", help="seconds a call")
    group.add_argument(
        "--max-wait",
        type=seconds,
        default=120.0,
        metavar="S",
        help="seconds to wait in all before a call where the server asks for a pause (Retry-After; default: "
        "120); if it asks for more, until when is told",
    )
    group.add_argument(
        "--concurrency",
        type=positive,
        default=8,
        metavar="N",
        help="calls to the server under way at once (default: 8)",
    )
    group.add_argument(
        "--cache",
        type=out_path(),
        metavar="FILE",
        help="keep replies in this SQLite file and never ask the same twice",
    )


def add_shard(parser: argparse.ArgumentParser, before: str) -> None:
    """``--shard``, of a command that records; ``before`` are the options that choose questions first."""
    parser.add_argument(
        "--shard",
        type=_shard,
        metavar="I/N",
        help="only the questions of shard I of N, by a hash of their ids, into files of their own in --out; "
        f"one process a shard, on any machine that sees the directory. {before} choose first, then the shard",
    )


@argument_type
def _shard(text: str) -> Shard:
    from suffice.trace.durable import Shard

    return Shard.parse(text)


def server_settings(arguments: argparse.Namespace) -> OpenAISettings:
    """How :func:`add_model`'s options say that a server is asked."""
    from suffice.llm.endpoint import OpenAISettings

    return OpenAISettings(
        api=arguments.api,
        timeout_s=arguments.timeout,
        max_wait_s=arguments.max_wait,
        concurrency=arguments.concurrency,
    )


def connect_model(arguments: argparse.Namespace) -> ChatModel:
    """The model that :func:`add_model`'s options name."""
    from suffice.llm.cache import CachedModel
    from suffice.llm.connect import connect
    from suffice.testing.models import ScriptedModel

    server = server_settings(arguments)
    if arguments.llm == "scripted":
        scripted = ScriptedModel()
        return scripted if arguments.cache is None else CachedModel(scripted, arguments.cache)
    what = "loading the model" if arguments.llm == "embedded" else f"connecting to {arguments.llm}"
    with waiting(what):
        return connect(arguments.llm, arguments.model, server=server, cache=arguments.cache)


def add_replay(parser: argparse.ArgumentParser) -> None:
    """What :func:`suffice.compare` is asked."""
    from suffice.cli.settings_options import add_settings
    from suffice.replay.settings import ComparisonSettings, FittedElsewhere

    add_settings(parser, ComparisonSettings)
    add_settings(parser, FittedElsewhere)


def add_prices_and_energy(group: argparse._ActionsContainer) -> None:
    """What is charged and what prices it: ``--charge``, ``--price-model``, ``--prices``, ``--energy``."""
    group.add_argument(
        "--charge",
        choices=("as-run", "published"),
        default="as-run",
        help="what a policy pays: as-run, what it would cost where it runs (one that reads no answers asks "
        "for one, at its stop); published, every round's answer up to the stop, as the papers charge "
        "(default: as-run)",
    )
    add_prices(group)
    group.add_argument(
        "--energy",
        metavar="RATES",
        help="joules a token, as in prompt=0.03,cached=0,completion=0.35 (the defaults); also "
        "retrieval=, rerank= in joules each",
    )


def add_prices(group: argparse._ActionsContainer) -> None:
    """``--price-model`` and ``--prices``."""
    prices = group.add_mutually_exclusive_group()
    prices.add_argument(
        "--price-model",
        metavar="M",
        help="price tokens as this model, by the list of the package genai-prices; perhaps with its "
        "provider, as in openai:gpt-5-mini",
    )
    prices.add_argument(
        "--prices",
        metavar="RATES",
        help="price tokens by hand, in USD per million, as in input=0.15,cached=0.075,output=0.60 "
        "(cached: as input); also call=, retrieval=, rerank= in USD each",
    )


def given_prices(arguments: argparse.Namespace) -> Prices | None:
    """The prices that :func:`add_prices`' options ask for."""
    from suffice.costs.prices import parse_prices, prices_of

    if arguments.price_model is not None:
        return prices_of(arguments.price_model)
    return None if arguments.prices is None else parse_prices(arguments.prices)


def cost_model(arguments: argparse.Namespace) -> CostModel:
    """The prices and constants that :func:`add_prices_and_energy`'s options ask for."""
    from suffice.costs.energy import EnergyModel, parse_energy
    from suffice.costs.usage import CostModel

    energy = EnergyModel() if arguments.energy is None else parse_energy(arguments.energy)
    return CostModel(prices=given_prices(arguments), energy=energy, charge=arguments.charge)


def comparison_settings(arguments: argparse.Namespace) -> ComparisonSettings:
    """What :func:`add_replay`'s options ask for; reads the traces of ``--fit-on``."""
    from suffice.cli.settings_options import read_settings
    from suffice.replay.settings import ComparisonSettings

    fit_on = None if arguments.fit_on is None else open_more(arguments.fit_on, arguments, say)
    return read_settings(arguments, ComparisonSettings, fit_on=fit_on)
