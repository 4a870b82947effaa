"""``suffice signals``: compute signals and store them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from suffice.cli.options import add_json, add_model, add_traces, connect_model, open_traces
from suffice.cli.output import INTERRUPTED, ProgressLine, print_json, say
from suffice.errors import UsageError
from suffice.protocols import ChatModel
from suffice.retrieval.cross_encoder import CrossEncoderReranker
from suffice.signals.asking import Asked, Judging, Reranking
from suffice.signals.recorded import JUDGE_SUPPORT
from suffice.signals.store import RERANKED, StoredSignals, with_signals
from suffice.trace.writer import write_trace_set

__all__ = ["add_command"]


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "signals",
        help="compute signals and store them in the trace",
        description="Computes every signal that the record allows and stores it in the 'signals' map. "
        "With --llm a judge rates every round's answer (judge_support), with --reranker passages are "
        "scored (rerank_top_score and its kin); both count their calls. Stored values stay as they "
        "stand; all columns are kept. Rounds whose call failed get no value: run it again on TRACES2.",
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
        help="a cross-encoder that sentence-transformers saved: scores the passages without a score",
    )
    add_model(parser, default=None)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compute, write, and list what was skipped and why."""
    traces = open_traces(arguments, say, keep_unknown=True)
    only = (
        None
        if arguments.only is None
        else tuple(name.strip() for name in arguments.only.split(","))
    )
    _check_out(arguments.out)
    stored = with_signals(
        traces,
        only,
        judge=_judge(arguments, only),
        reranker=_reranker(arguments, only),
        on_progress=_progress(),
    )
    written = write_trace_set(stored.traces, arguments.out)
    if arguments.json:
        print_json(_document(stored, written))
    else:
        _print(stored, written)
    return _ended(stored.judging, written)


def _check_out(out: str) -> None:
    """Refuse before a model is asked what the writer would refuse after."""
    if not out.endswith(".parquet") and any(Path(out).glob("*.parquet")):
        raise UsageError(f"{out} holds trace files already; choose another --out")


def _judge(arguments: argparse.Namespace, only: tuple[str, ...] | None) -> ChatModel | None:
    if arguments.llm is None and arguments.model is None:
        return None
    if only is not None and JUDGE_SUPPORT.name not in only:
        raise UsageError(f"only {JUDGE_SUPPORT.name} asks --llm, and --only leaves it out; add it")
    arguments.llm = arguments.llm or "embedded"
    return connect_model(arguments)


def _reranker(
    arguments: argparse.Namespace, only: tuple[str, ...] | None
) -> CrossEncoderReranker | None:
    if arguments.reranker is None:
        return None
    if only is not None and RERANKED.isdisjoint(only):
        names = ", ".join(sorted(RERANKED))
        raise UsageError(f"only {names} read --reranker, and --only leaves them out; add one")
    return CrossEncoderReranker.load(arguments.reranker)


def _progress() -> Callable[[Asked], None]:
    lines: dict[str, ProgressLine] = {}

    def show(now: Asked) -> None:
        unit = "rounds" if now.what == "judged" else "questions"
        line = lines.setdefault(now.what, ProgressLine(f"{unit} {now.what}"))
        line.show(now.finished, now.planned, failed=now.failed)

    return show


def _document(stored: StoredSignals, written: Path) -> dict[str, Any]:
    return {
        "out": str(written),
        "computed": list(stored.computed),
        "skipped": dict(stored.skipped),
        "judge": _judge_document(stored.judging),
        "rerank": _rerank_document(stored.reranking),
    }


def _judge_document(judging: Judging | None) -> dict[str, Any] | None:
    if judging is None:
        return None
    return {
        "calls": sum(judging.calls.values()),
        "rated": len(judging.verdicts) - judging.undefined,
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


def _print(stored: StoredSignals, written: Path) -> None:
    print(f"wrote {written}")
    print(f"  computed {', '.join(stored.computed) or 'nothing new'}")
    judge = _judge_document(stored.judging)
    if judge is not None:
        print(
            f"  the judge rated {judge['rated']} rounds in {judge['calls']} calls; "
            f"{judge['undefined']} undefined, {judge['failed']} failed"
        )
    if stored.reranking is not None:
        print(f"  the reranker scored {stored.reranking.passages} passages")
    for name, reason in stored.skipped.items():
        print(f"  skipped {name}: {reason}")


def _ended(judging: Judging | None, written: Path) -> int:
    """Tell what the judge left undone; the exit code."""
    if judging is None or not (judging.failures or judging.left or judging.interrupted):
        return 0
    if judging.failures:
        reason = next(iter(judging.failures.values()))
        say(f"{len(judging.failures)} calls of the judge failed, the first: {reason}")
    why = "interrupted" if judging.interrupted else "the judge is not done"
    say(f"{why}; run the same command on {written} to ask about the rounds without a value")
    return INTERRUPTED if judging.interrupted else 1
