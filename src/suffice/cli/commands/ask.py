"""``suffice ask``: answer a question over one's own files."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from suffice.cli.options import (
    add_json,
    add_model,
    add_prices,
    connect_model,
    given_prices,
    natural,
    number,
    out_path,
    positive,
    seconds,
    share,
)
from suffice.cli.output import ProgressLine, print_json, print_lines, put, say, waiting
from suffice.cli.retrieval_options import (
    SEARCHED,
    add_pipeline,
    add_retrieval,
    check_finds_its_own,
    connect_retrieval,
    finds_its_own,
    read_passages,
)
from suffice.cli.settings_options import add_shared_options, chosen_options
from suffice.errors import UsageError
from suffice.live.ahead import Wasted
from suffice.live.answering import Answered, Spent
from suffice.live.ask import AskSettings, LiveLoop
from suffice.live.budgets import Budgets
from suffice.live.chosen import ChosenPolicy, choose_policy
from suffice.live.requirements import check_confidence
from suffice.loops.registry import LOOPS
from suffice.loops.settings import LoopSettings
from suffice.protocols import AnswerSet, Retriever
from suffice.results.formats import counted
from suffice.results.markup import shorten
from suffice.retrieval.indexes import IndexMaker
from suffice.retrieval.retrievers import Retrieval, corpus_retriever
from suffice.signals.abstained import read_phrases
from suffice.trace.rounds.records import Passage

_STATED = ("rounds", "samples", "seed")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Answers a question over a folder of txt, md and jsonl files: more passages a "
        "round, until the policy has seen enough. Says after which round it stopped and why, and how "
        "confident the policy is."
    )
    parser.add_argument("question", metavar="QUESTION", help="the question")
    parser.add_argument(
        "--corpus",
        metavar="PATH",
        help="a folder or file to read; none with a --retriever that finds its own",
    )
    parser.add_argument(
        "--policy",
        metavar="P",
        help="a policy file, fixed-K, ab-rag (published) or a rule's text "
        f"(default: {_default_rules()})",
    )
    parser.add_argument(
        "--abstention",
        metavar="FILE",
        help="what abstains for a rule, one phrase a line, in place of the usual phrases",
    )
    parser.add_argument(
        "--decline-below",
        type=share,
        metavar="C",
        help="give no answer when the policy's confidence in it is below C or undefined, C in [0, 1]",
    )
    parser.add_argument(
        "--speculate",
        action="store_true",
        help="begin the next round while one is answered and decided about: the same answer, sooner from a "
        "server that has room for another call, and no sooner from a model on this machine; what is begun "
        "and not wanted is paid, and told",
    )
    parser.add_argument("--seed", type=natural, default=42, help="of samples (default: 42)")
    _add_loop(parser)
    _add_budgets(parser)
    add_retrieval(parser)
    parser.add_argument(
        "--index",
        type=out_path(folder=True),
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
    group = parser.add_argument_group("loop (what is not given is as the policy needs it)")
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
        metavar="latest|majority|most-confident|highest:NAME|lowest:NAME",
        default="latest",
        help="which of the rounds' answers is returned: the latest, the one given most often, that of the "
        "policy's greatest confidence, or that of the highest or lowest value of a signal (default: latest)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Read, index, loop, print."""
    abstention = None if arguments.abstention is None else read_phrases(arguments.abstention)
    chosen = choose_policy(arguments.policy, pipeline=arguments.pipeline, abstention=abstention)
    settings = AskSettings(
        pipeline=arguments.pipeline,
        rounds=arguments.budget_rounds,
        samples=arguments.samples,
        seed=arguments.seed,
        budgets=Budgets(
            tokens=arguments.budget_tokens,
            seconds=arguments.budget_seconds,
            usd=arguments.budget_usd,
            prices=given_prices(arguments),
        ),
        choose=arguments.answer,
        decline_below=arguments.decline_below,
        speculate=arguments.speculate,
    )
    settings = _with_loop_options(arguments, settings, chosen)
    passages = _passages(arguments)
    model = connect_model(arguments)
    with waiting(f"asking {arguments.llm} what it gives"):
        live = LiveLoop.of(chosen, model, settings, say)
    retrieval, encoder = connect_retrieval(arguments, encode=live.encodes)
    with waiting(f"asking {arguments.llm} what it gives"):
        live = live.with_models(encoder, retrieval, say)
    with waiting("indexing"):
        retriever = _retriever(arguments, passages, live.reaching(retrieval))
    with waiting(f"answering with {arguments.llm}"):
        answered = live.answer(arguments.question, retriever)
    if arguments.json:
        print_json(answered.to_json())
    else:
        _print(answered, arguments.decline_below)
    return 0


def _with_loop_options(
    arguments: argparse.Namespace, settings: AskSettings, chosen: ChosenPolicy
) -> AskSettings:
    """The settings with the loop's own; options that have no effect or cannot be served are refused."""
    if arguments.reindex and arguments.index is None:
        raise UsageError("--reindex is about the folder of --index; name one")
    pipeline = settings.pipeline_for(chosen.policy)
    own = chosen_options(arguments, LOOPS, pipeline, by="--pipeline")
    check_confidence(chosen.policy, choose=settings.choose, decline_below=settings.decline_below)
    return replace(settings, loop={name: own[name] for name in own if name not in _STATED})


def _passages(arguments: argparse.Namespace) -> tuple[Passage, ...]:
    """The passages of ``--corpus``; none where the retriever finds its own."""
    if finds_its_own(arguments):
        check_finds_its_own(arguments, ("corpus", "index"))
        return ()
    if arguments.corpus is None:
        raise UsageError(f"what is to be searched? Type {SEARCHED}")
    return read_passages(arguments.corpus)


def _retriever(
    arguments: argparse.Namespace, passages: tuple[Passage, ...], retrieval: Retrieval
) -> Retriever:
    if retrieval.source is not None:
        return retrieval.over(())
    make = IndexMaker(encoder=retrieval.encoder, on_progress=ProgressLine("encoded").show)
    folder = None if arguments.index is None else Path(arguments.index)
    return corpus_retriever(passages, retrieval, make, folder, renew=arguments.reindex)


def _print_set(answer_set: AnswerSet) -> None:
    for answer in answer_set.answers:
        put(f"  {answer.confidence:.2f}  {answer.answer} (round {answer.round})")
    if answer_set.cannot_answer:
        put("  or none of these: the policy did not stop the loop early")


def _in_words(spent: Spent) -> str:
    calls = "calls not counted" if spent.calls is None else counted(spent.calls, "call")
    return f"{counted(spent.rounds, 'round')}, {calls}, {_tokens(spent)}"


def _wasted(wasted: Wasted) -> str:
    if not wasted.rounds:
        return "of that nothing was wasted on a round begun ahead"
    whole, told = wasted.calls - wasted.cut, []
    if whole:
        tokens = "an unknown number of" if wasted.tokens is None else f"{wasted.tokens:,}"
        told.append(f"{counted(whole, 'call')}, {tokens} tokens")
    if wasted.cut:
        told.append(f"{counted(wasted.cut, 'call')} cut before the reply, of unknown tokens")
    said = "; ".join(told) or "no call"
    return f"of that wasted on a round begun ahead: {said}"


def _tokens(spent: Spent, about: str = "") -> str:
    if spent.tokens is None:
        return "an unknown number of tokens"
    return f"{about}{counted(spent.tokens, 'token')}"


def _print(answered: Answered, decline_below: float | None) -> None:
    rounds = len(answered.rounds)
    put(answered.answer or "(the model gave no answer)")
    print_lines(f"stopped after round {rounds} by {answered.stopped_by}: {answered.reason}")
    known = answered.confidence
    said = "undefined" if known is None else f"{known:.4g}"
    if answered.answer_set is not None:
        _print_set(answered.answer_set)
    elif answered.declined:
        put(f"declined: confidence {said}, below {decline_below:g}")
    elif known is not None:
        put(f"confidence {said}")
    if answered.answer_round != rounds:
        put(f"the answer is that of round {answered.answer_round}, the most confident one")
    usd = "" if answered.usd is None else f", {answered.usd:.6f} USD"
    put(f"spent {_in_words(answered.spent)}{usd}")
    budget = counted(rounds + answered.saved.rounds, "round")
    if answered.wasted is not None:
        print_lines(_wasted(answered.wasted))
    if answered.unasked:
        put(
            f"asked for no answer before the end, as nothing reads one: saved "
            f"{counted(answered.unasked, 'call')}"
        )
    if answered.saved.rounds:
        print_lines(
            f"saved up to {_in_words(answered.saved)} against this loop's full budget of {budget}"
        )
    else:
        put(f"saved {'no round' if answered.unasked else 'nothing'}: the loop ran to its end")
    if answered.fixed is not None and (answered.fixed.tokens is not None or not answered.unasked):
        print_lines(
            f"one call on the passages of {budget} would take {_tokens(answered.fixed, 'about ')}"
        )
    put("evidence:")
    for finished in answered.rounds:
        for passage in finished.passages or ():
            put(f"  {passage.id}  {shorten(' '.join(passage.title.split()), 200)}")
