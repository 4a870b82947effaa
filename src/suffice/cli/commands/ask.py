"""``suffice ask``: answer a question over one's own files."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from functools import reduce
from pathlib import Path
from typing import Any, get_args

from suffice.cli.options import (
    add_json,
    add_model,
    add_prices,
    connect_model,
    given_prices,
    natural,
    number,
    positive,
    seconds,
)
from suffice.cli.output import ProgressLine, print_json, say
from suffice.cli.retrieval_options import (
    add_pipeline,
    add_retrieval,
    connect_retrieval,
)
from suffice.cli.settings_options import add_shared_options, chosen_options
from suffice.errors import UsageError
from suffice.pipelines.live.answering import Answered, Answering, Choice, answer
from suffice.pipelines.live.budgets import Budgets
from suffice.pipelines.live.choice import (
    cluster_cosine,
    clusters_by_meaning,
    differences,
    live_filter,
    live_policy,
    names_ab_rag,
    samples_read,
)
from suffice.pipelines.live.controller import Controller
from suffice.pipelines.live.requirements import check_confidence, check_policy
from suffice.pipelines.loops.indexes import IndexMaker
from suffice.pipelines.loops.ranked import BudgetedSettings, settle_certainty
from suffice.pipelines.loops.registry import LOOPS
from suffice.pipelines.loops.settings import LoopSettings
from suffice.pipelines.loops.sources import Retrieval, corpus_retriever
from suffice.policies.ab_rag.policy import ABRagPolicy, Certainty
from suffice.policies.file import PolicyFile
from suffice.policies.micp.policy import MiCPPolicy
from suffice.protocols import AnswerSet, ChatModel, Retriever, StopPolicy
from suffice.retrieval.corpus import read_corpus
from suffice.signals.asking.verdicts import JUDGE_TOKENS, add_judge_calls
from suffice.signals.registry import SIGNALS
from suffice.trace.rounds.records import Passage, Usage


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Answers a question over a folder of txt, md and jsonl files: more passages a "
        "round, until the policy has seen enough. Says after which round it stopped and why, and how "
        "confident the policy is."
    )
    parser.add_argument("question", metavar="QUESTION", help="the question")
    parser.add_argument("--corpus", required=True, metavar="PATH", help="a folder or file to read")
    parser.add_argument(
        "--policy",
        metavar="P",
        help="a policy file, fixed-K, ab-rag (published) or a rule's text "
        f"(default: {_default_rules()})",
    )
    parser.add_argument(
        "--decline-below",
        type=number,
        metavar="C",
        help="give no answer when the policy's confidence in it is below C or undefined, C in [0, 1]",
    )
    parser.add_argument("--seed", type=natural, default=42, help="of samples (default: 42)")
    _add_loop(parser)
    _add_budgets(parser)
    add_retrieval(parser)
    parser.add_argument(
        "--index",
        metavar="DIR",
        help="keep the index of the corpus here (of hybrid ones the dense index) and use it again",
    )
    parser.add_argument(
        "--reindex", action="store_true", help="build the index of --index anew, whatever is there"
    )
    add_model(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def _default_rules() -> str:
    rules = {name: loop.default_rule for name, loop in LOOPS.items()}
    usual = LoopSettings.default_rule
    others = [f"of the {name} pipeline {rule!r}" for name, rule in rules.items() if rule != usual]
    return "; ".join([repr(usual), *others])


def _add_loop(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("loop")
    add_pipeline(group, "budgeted for ab-rag, else cumulative")
    decided = {name for loop in LOOPS.values() for name in loop.writing(())}
    add_shared_options(group, LOOPS, without={"rounds", "samples", "closed_book", *decided})
    group.add_argument(
        "--samples",
        type=positive,
        metavar="M",
        help="sampled answers a round, where the policy or the vote reads them (default: as many as "
        "the policy was fitted on where it tells, else 3)",
    )


def _add_budgets(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("budgets (whichever is spent first ends the loop)")
    group.add_argument(
        "--budget-rounds",
        type=positive,
        metavar="N",
        help="at most N rounds (default: the policy file's, else 5; budgeted and react 3, iterative and "
        "chain 10)",
    )
    group.add_argument("--budget-tokens", type=positive, metavar="N", help="at most N tokens")
    group.add_argument("--budget-seconds", type=seconds, metavar="S", help="at most S seconds")
    group.add_argument(
        "--budget-usd",
        type=number,
        metavar="U",
        help="at most U US dollars, by --price-model or --prices",
    )
    add_prices(group)
    group.add_argument(
        "--answer",
        choices=get_args(Choice),
        default="latest",
        help="when not the policy ends the loop: the latest round's answer, or that of the round the "
        "policy is most confident in",
    )


def run(arguments: argparse.Namespace) -> int:
    """Read, index, loop, print."""
    chosen = live_policy(arguments.policy, pipeline=arguments.pipeline)
    budgets = Budgets(
        tokens=arguments.budget_tokens,
        seconds=arguments.budget_seconds,
        usd=arguments.budget_usd,
        prices=given_prices(arguments),
    )
    Answering(decline_below=arguments.decline_below)  # refused before models are loaded
    _check_options(arguments, chosen.policy)
    corpus = read_corpus(Path(arguments.corpus))
    for file in corpus.skipped:
        say(f"skipped {file.path}: {file.reason}")
    model = connect_model(arguments)
    loop, chosen = _settled(arguments, model, chosen)
    _tell_samples(arguments.samples, loop.samples, chosen.policy)
    encodes = "--encoder" in _asks(chosen.policy) or clusters_by_meaning(chosen.policy)
    retrieval, encoder = connect_retrieval(arguments, encode=encodes)
    encoder = encoder if encodes else None
    loop = replace(loop, cluster_cosine=cluster_cosine(chosen.policy, encoder))
    check_policy(
        chosen.policy,
        loop,
        logprobs=_logprobs(model, chosen.policy),
        encoder=encoder is not None,
        reranker=retrieval.reranks,
    )
    _tell_promise(chosen.policy, loop, model, retrieval)
    answered = answer(
        arguments.question,
        _retriever(arguments, corpus.passages, retrieval.reaching(loop.shown(loop.rounds))),
        model,
        Controller(chosen.policy, max_rounds=loop.rounds),
        Answering(
            loop=loop,
            budgets=budgets,
            encoder=encoder,
            passage_filter=live_filter(chosen.policy),
            choose=arguments.answer,
            decline_below=arguments.decline_below,
        ),
    )
    if arguments.json:
        print_json(_document(answered))
    else:
        _print(answered, arguments.decline_below)
    return 0


def _check_options(arguments: argparse.Namespace, policy: StopPolicy) -> None:
    """Refuse options that can have no effect, or that the policy cannot serve."""
    if arguments.reindex and arguments.index is None:
        raise UsageError("--reindex is about the folder of --index; name one")
    chosen_options(arguments, LOOPS, _pipeline(arguments, policy), by="--pipeline")
    check_confidence(policy, choose=arguments.answer, decline_below=arguments.decline_below)


def _pipeline(arguments: argparse.Namespace, policy: StopPolicy) -> str:
    return arguments.pipeline or ("budgeted" if policy.kind == "ab-rag" else "cumulative")


def _asks(policy: StopPolicy) -> set[str]:
    """Which further models the policy's signals need."""
    return {SIGNALS[spec.name].asks for spec in policy.specs if spec.name in SIGNALS}


def _settled(
    arguments: argparse.Namespace, model: ChatModel, chosen: PolicyFile
) -> tuple[LoopSettings, PolicyFile]:
    """The loop's settings for the policy, and the policy for what the model gives."""
    columns = {column for spec in chosen.policy.specs for column in spec.needs}
    asked = arguments.certainty
    if asked is None and not names_ab_rag(arguments.policy):
        by_samples = "samples" in columns and "tokens" not in columns
        asked = "self_consistency" if by_samples else None
    budgeted = _pipeline(arguments, chosen.policy) == "budgeted"
    if not budgeted and not names_ab_rag(arguments.policy):
        return _loop(arguments, chosen), chosen
    settled, why = settle_certainty(BudgetedSettings(certainty=asked or "auto"), model)
    say(f"certainty: {settled.certainty} ({why})")
    if names_ab_rag(arguments.policy):
        certainty: Certainty = "self_consistency" if settled.majority else "token_probability"
        chosen = live_policy(arguments.policy, certainty=certainty)
    loop = _loop(arguments, chosen)
    if isinstance(loop, BudgetedSettings):
        wanted = loop.samples or arguments.samples or settled.samples
        loop = replace(
            loop, certainty=settled.certainty, samples=wanted if settled.majority else loop.samples
        )
    return loop, chosen


def _loop(arguments: argparse.Namespace, chosen: PolicyFile) -> LoopSettings:
    wanted = samples_read(chosen.policy)
    name = _pipeline(arguments, chosen.policy)
    kind = LOOPS[name]
    given: dict[str, Any] = {
        **chosen_options(arguments, LOOPS, name, by="--pipeline"),
        **kind.writing([spec.name for spec in chosen.policy.specs]),
        "rounds": arguments.budget_rounds or chosen.max_rounds,
        "seed": arguments.seed,
        "samples": (arguments.samples or wanted) if wanted else 0,
    }
    return kind(**{name: value for name, value in given.items() if value is not None})


def _tell_samples(asked: int | None, drawn: int, policy: StopPolicy) -> None:
    """Say where a given number of samples has no effect, or is not what the policy was fitted on."""
    if asked is None:
        return
    wanted = samples_read(policy)
    if not drawn:
        say(
            "--samples has no effect: neither the policy nor a vote reads samples, so none is drawn"
        )
    elif isinstance(policy, MiCPPolicy) and drawn != wanted:
        say(
            f"the policy was calibrated on {wanted} samples a round; on {drawn} it promises nothing"
        )
    elif isinstance(policy, ABRagPolicy) and policy.preset != "published" and drawn != wanted > 0:
        say(
            f"the policy was fitted on {wanted} samples a round; on {drawn} its confidence may be off"
        )


def _tell_promise(
    policy: StopPolicy, loop: LoopSettings, model: ChatModel, retrieval: Retrieval
) -> None:
    """Say where this loop is not the one that the policy's promise was calibrated on."""
    here = {
        **asdict(loop),
        "model": model.name,
        "pipeline": loop.pipeline,
        "retriever": retrieval.name,
    }
    for each in differences(policy, here):
        say(f"the policy's promise may not hold here: {each}")


def _logprobs(model: ChatModel, policy: StopPolicy) -> bool:
    """Whether the model gives log-probabilities; not asked when the policy reads none."""
    reads = any("tokens" in spec.needs for spec in policy.specs)
    return not reads or bool(getattr(model, "supports_logprobs", lambda: True)())


def _retriever(
    arguments: argparse.Namespace, passages: tuple[Passage, ...], retrieval: Retrieval
) -> Retriever:
    make = IndexMaker(encoder=retrieval.encoder, on_progress=ProgressLine("encoded").show)
    folder = None if arguments.index is None else Path(arguments.index)
    return corpus_retriever(passages, retrieval, make, folder, renew=arguments.reindex)


def _document(answered: Answered) -> dict[str, Any]:
    usages = [each.usage for each in answered.rounds]
    tokens = ("prompt_tokens", "cached_tokens", "completion_tokens")
    names = (
        "llm_calls",
        "sample_calls",
        "judge_calls",
        "rerank_calls",
        *tokens,
        *(f"sample_{name}" for name in tokens),
    )
    usage: dict[str, Any] = {
        name: _total([getattr(usage, name) for usage in usages]) for name in names
    }
    judging = reduce(add_judge_calls, usages, Usage())
    usage |= {name: getattr(judging, name) for name in JUDGE_TOKENS}
    return {
        "answer": answered.answer,
        "rounds": len(answered.rounds),
        "answer_round": answered.answer_round,
        "stopped_by": answered.stopped_by,
        "reason": answered.reason,
        "confidence": answered.confidence,
        "declined": answered.declined,
        "reasons": [
            {
                "round": number,
                "reason": each.reason,
                "values": dict(each.values),
                "confidence": each.confidence,
                "answer": None if answered.declined else finished.answer,
            }
            for number, (each, finished) in enumerate(
                zip(answered.decisions, answered.rounds, strict=True), start=1
            )
        ],
        "passages": [
            {
                "id": each.id,
                "title": each.title,
                "text": each.text,
                "score": each.score,
                "rerank_score": each.rerank_score,
            }
            for finished in answered.rounds
            for each in finished.passages or ()
        ],
        "usage": {**usage, "usd": answered.usd},
        "answer_set": None if answered.answer_set is None else answered.answer_set.to_json(),
        "samples": None
        if answered.answer_set is None
        else [list(finished.samples or ()) for finished in answered.rounds],
    }


def _print_set(found: AnswerSet) -> None:
    for each in found.answers:
        print(f"  {each.confidence:.2f}  {each.answer} (round {each.round})")
    if found.cannot_answer:
        print("  or none of these: the policy did not stop the loop early")


def _total(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _print(answered: Answered, decline_below: float | None) -> None:
    rounds = len(answered.rounds)
    print(answered.answer or "(the model gave no answer)")
    print(f"stopped after round {rounds} by {answered.stopped_by}: {answered.reason}")
    known = answered.confidence
    said = "undefined" if known is None else f"{known:.4g}"
    if answered.answer_set is not None:
        _print_set(answered.answer_set)
    elif answered.declined:
        print(f"declined: confidence {said}, below {decline_below:g}")
    elif known is not None:
        print(f"confidence {said}")
    if answered.answer_round != rounds:
        print(f"the answer is that of round {answered.answer_round}, the most confident one")
    if answered.usd is not None:
        print(f"cost {answered.usd:.6f} USD")
    print("evidence:")
    for finished in answered.rounds:
        for each in finished.passages or ():
            print(f"  {each.id}  {each.title}")
