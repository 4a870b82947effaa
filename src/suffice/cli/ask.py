"""``suffice ask``: answer a question over one's own files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from suffice.cli.options import add_json, add_model, connect_model, natural, positive, seconds
from suffice.cli.output import print_json, say
from suffice.pipelines.answering import Answered, Budgets, answer, check_policy
from suffice.pipelines.controller import Controller
from suffice.pipelines.cumulative import CumulativeSettings
from suffice.pipelines.live_policy import DEFAULT_RULE, live_policy
from suffice.retrieval.bm25 import BM25Index
from suffice.retrieval.corpus import read_corpus
from suffice.signals.recorded import JUDGE_SUPPORT

__all__ = ["add_command"]

_DEFAULT_ROUNDS = 5
_SAMPLES_WHEN_READ = 3


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "ask",
        help="answer a question over your own files",
        description="Answers a question over a folder of txt, md and jsonl files: one more passage a "
        "round, until the policy has seen enough. Says after which round it stopped and why.",
    )
    parser.add_argument("question", metavar="QUESTION", help="the question")
    parser.add_argument("--corpus", required=True, metavar="PATH", help="a folder or file to read")
    parser.add_argument(
        "--policy",
        metavar="P",
        help=f"a policy file, fixed-K or a rule's text (default: {DEFAULT_RULE!r})",
    )
    parser.add_argument(
        "--budget-rounds",
        type=positive,
        metavar="N",
        help="at most N rounds (default: the policy file's, else 5)",
    )
    parser.add_argument("--budget-tokens", type=positive, metavar="N", help="at most N tokens")
    parser.add_argument("--budget-seconds", type=seconds, metavar="S", help="at most S seconds")
    parser.add_argument("--seed", type=natural, default=42, help="of samples (default: 42)")
    add_model(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Read, index, loop, print."""
    chosen = live_policy(arguments.policy)
    rounds = arguments.budget_rounds or chosen.max_rounds or _DEFAULT_ROUNDS
    corpus = read_corpus(Path(arguments.corpus))
    for file in corpus.skipped:
        say(f"skipped {file.path}: {file.reason}")
    reads_samples = any("samples" in spec.needs for spec in chosen.policy.specs)
    settings = CumulativeSettings(
        rounds=rounds,
        samples=_SAMPLES_WHEN_READ if reads_samples else 0,
        seed=arguments.seed,
        judge=any(spec.name == JUDGE_SUPPORT.name for spec in chosen.policy.specs),
    )
    model = connect_model(arguments)
    reads_tokens = any("tokens" in spec.needs for spec in chosen.policy.specs)
    logprobs = not reads_tokens or getattr(model, "supports_logprobs", lambda: True)()
    check_policy(chosen.policy, settings, logprobs=logprobs)
    answered = answer(
        arguments.question,
        BM25Index.build(corpus.passages),
        model,
        Controller(chosen.policy, max_rounds=rounds),
        settings,
        Budgets(tokens=arguments.budget_tokens, seconds=arguments.budget_seconds),
    )
    if arguments.json:
        print_json(_document(answered))
    else:
        _print(answered)
    return 0


def _document(answered: Answered) -> dict[str, Any]:
    usages = [each.usage for each in answered.rounds]
    tokens = ("prompt_tokens", "cached_tokens", "completion_tokens")
    names = (
        "llm_calls",
        "sample_calls",
        "judge_calls",
        *tokens,
        *(f"sample_{name}" for name in tokens),
    )
    return {
        "answer": answered.answer,
        "rounds": len(answered.rounds),
        "stopped_by": answered.stopped_by,
        "reason": answered.reason,
        "reasons": [
            {"round": number, "reason": each.reason, "values": dict(each.values)}
            for number, each in enumerate(answered.decisions, start=1)
        ],
        "passages": [
            {"id": each.id, "title": each.title, "text": each.text, "score": each.score}
            for finished in answered.rounds
            for each in finished.passages or ()
        ],
        "usage": {name: _total([getattr(usage, name) for usage in usages]) for name in names},
        "answer_set": None,
        "declined": False,
    }


def _total(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _print(answered: Answered) -> None:
    rounds = len(answered.rounds)
    print(answered.answer or "(the model gave no answer)")
    print(f"stopped after round {rounds} by {answered.stopped_by}: {answered.reason}")
    print("evidence:")
    for finished in answered.rounds:
        for each in finished.passages or ():
            print(f"  {each.id}  {each.title}")
