"""Options that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from suffice.llm.cache import CachedModel
from suffice.llm.connect import connect
from suffice.llm.openai_compatible import OpenAISettings
from suffice.protocols import ChatModel
from suffice.replay.compare import ComparisonSettings
from suffice.scoring import F1_KINDS
from suffice.testing.models import ScriptedModel
from suffice.trace.reader import read_traces
from suffice.trace.table import TraceSet

__all__ = [
    "add_json",
    "add_model",
    "add_replay",
    "add_traces",
    "comparison_settings",
    "connect_model",
    "natural",
    "open_traces",
    "positive",
    "seconds",
]


def positive(text: str) -> int:
    """An argparse type: a whole number from 1."""
    return _whole(text, 1)


def natural(text: str) -> int:
    """An argparse type: a whole number from 0."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be a whole number, found {text!r}") from error
    if value < least:
        raise argparse.ArgumentTypeError(f"must be at least {least}, found {value}")
    return value


def seconds(text: str) -> float:
    """An argparse type: a duration above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, found {text!r}")
    return value


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json``."""
    parser.add_argument(
        "--json", action="store_true", help="one JSON document on stdout, nothing else there"
    )


def add_traces(parser: argparse.ArgumentParser) -> None:
    """TRACES and ``--skip-invalid``."""
    parser.add_argument("traces", metavar="TRACES", help="a Parquet file or a directory of them")
    parser.add_argument(
        "--skip-invalid",
        action="store_true",
        help="leave out what is invalid, count it, and go on with the rest",
    )


def open_traces(
    arguments: argparse.Namespace, say: Callable[[str], None], *, keep_unknown: bool = False
) -> TraceSet:
    """Read TRACES as asked, and say what was skipped."""
    found = read_traces(
        arguments.traces, skip_invalid=arguments.skip_invalid, keep_unknown=keep_unknown
    )
    if found.origin.skipped:
        say(
            f"skipped {len(found.origin.skipped)} invalid parts; the first: {found.origin.skipped[0]}"
        )
    return found


def add_model(parser: argparse.ArgumentParser) -> None:
    """``--llm``, ``--model`` and what goes with a server."""
    group = parser.add_argument_group("language model")
    group.add_argument(
        "--llm",
        default="embedded",
        metavar="URL",
        help="base URL of an OpenAI-compatible server, 'embedded' (default: a small model in this "
        "process) or 'scripted' (a deterministic stand-in for tests)",
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
        "--concurrency",
        type=positive,
        default=8,
        metavar="N",
        help="calls to the server under way at once (default: 8)",
    )
    group.add_argument(
        "--cache",
        metavar="FILE",
        help="keep replies in this SQLite file and never ask the same twice",
    )


def connect_model(arguments: argparse.Namespace) -> ChatModel:
    """The model that :func:`add_model`'s options name."""
    server = OpenAISettings(
        api=arguments.api, timeout_s=arguments.timeout, concurrency=arguments.concurrency
    )
    if arguments.llm == "scripted":
        scripted = ScriptedModel()
        return scripted if arguments.cache is None else CachedModel(scripted, arguments.cache)
    return connect(arguments.llm, arguments.model, server=server, cache=arguments.cache)


def add_replay(parser: argparse.ArgumentParser) -> None:
    """What :func:`suffice.replay` is asked for."""
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        metavar="P",
        help="fixed-K, oracle-em, oracle-f1, a method's name (tasr: published; tasr-corrected) or a "
        "policy file; may be given several times",
    )
    parser.add_argument(
        "--stop-when",
        action="append",
        default=[],
        metavar="RULE",
        help="a rule's text, as in 'answer_stable and overlap > 0.2'; may be given several times",
    )
    parser.add_argument("--split", help="which questions (default: eval where present, else all)")
    parser.add_argument(
        "--baseline", metavar="P", help="what differences are taken against (default: fixed-3)"
    )
    parser.add_argument(
        "--bootstrap", type=positive, default=1000, metavar="N", help="resamples (default: 1000)"
    )
    parser.add_argument("--seed", type=natural, default=42, help="of the resampling (default: 42)")
    parser.add_argument(
        "--f1", choices=F1_KINDS, default="hotpotqa", help="which F1 (default: hotpotqa)"
    )


def comparison_settings(arguments: argparse.Namespace) -> ComparisonSettings:
    """What :func:`add_replay`'s options ask for."""
    return ComparisonSettings(
        policies=tuple(arguments.policy),
        rules=tuple(arguments.stop_when),
        split=arguments.split,
        baseline=arguments.baseline,
        f1_kind=arguments.f1,
        resamples=arguments.bootstrap,
        seed=arguments.seed,
    )
