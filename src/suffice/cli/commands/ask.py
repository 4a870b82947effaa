"""``suffice ask``: answer a question over one's own files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from suffice.cli.output import print_json, print_lines, put, say, waiting
from suffice.cli.parser import Given, command, shared_options
from suffice.cli.retrieval import PipelineName, RetrievalOptions, ask_settings, indexed
from suffice.cli.shared_options import Abstention, Json, ModelOptions, out_path
from suffice.errors import UsageError, counted
from suffice.live.answering import Answered, LiveLoop, Tokens, total_usage
from suffice.live.requirements import check_confidence, choose_policy
from suffice.loops import LOOPS, LoopSettings
from suffice.options import Option
from suffice.results.markup import shorten
from suffice.serve.service_settings import AnswerSettings, BudgetSettings, Corpus
from suffice.signals.abstained import read_phrases
from suffice.trace.rounds.records import Round

_STATED = ("rounds", "samples", "seed")
_DECIDED = {name for loop in LOOPS.values() for name in loop.writing(())}
_USUAL = LoopSettings.default_rule
_RULES = "; ".join(
    [repr(_USUAL)]
    + [
        f"{loop.default_rule!r} with the {name} pipeline"
        for name, loop in LOOPS.items()
        if loop.default_rule != _USUAL
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedOptions(AnswerSettings):
    GROUP: ClassVar = "Loop"

    pipeline: PipelineName = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedOptions(RetrievalOptions):
    corpus: Corpus = None
    index: Annotated[
        str | None,
        Option(
            metavar="DIR",
            parse=out_path(folder=True),
            help="folder that keeps the index of the corpus for later runs",
        ),
    ] = None


@command(
    *shared_options(LOOPS, group="Loop", without={"rounds", "samples", "closed_book", *_DECIDED})
)
def ask(
    question: Annotated[str, Option(positional=True, metavar="QUESTION", help="the question")],
    *,
    given: Given,
    policy: Annotated[
        str | None,
        Option(metavar="P", help=f"a policy file, fixed-K, ab-rag or a rule (default: {_RULES})"),
    ] = None,
    abstention: Abstention = None,
    answers: AskedOptions,
    budgets: BudgetSettings,
    retrieval: SearchedOptions,
    reindex: Annotated[bool, Option(help="rebuild the index of --index")] = False,
    model: ModelOptions,
    json: Json = False,
) -> None:
    """Answer a question over a folder of txt, md and jsonl files.

    Reads more passages in every round, until the policy has seen enough. Prints the answer, the round where
    it stopped, the reason, and the policy's confidence. Options that are left out follow the policy.
    """
    phrases = None if abstention is None else read_phrases(abstention)
    chosen = choose_policy(policy, pipeline=answers.pipeline, abstention=phrases)
    settings = ask_settings(answers, budgets)
    if reindex and retrieval.index is None:
        raise UsageError("--reindex needs --index DIR")
    own = given.chosen(LOOPS, settings.pipeline_for(chosen.policy), by="--pipeline")
    check_confidence(chosen.policy, choose=answers.answer, decline_below=answers.decline_below)
    settings = replace(settings, loop={name: own[name] for name in own if name not in _STATED})
    passages = retrieval.passages(retrieval.corpus, retrieval.index)
    asked = model.connect()
    with waiting(f"testing what {model.llm} supports"):
        live = LiveLoop.of(chosen, asked, settings, say)
    connected, encoder = retrieval.connect(encode=live.encodes)
    with waiting(f"testing what {model.llm} supports"):
        live = live.with_models(encoder, connected, say)
    retriever = indexed(live.reaching(connected), passages, retrieval.index, renew=reindex)
    with waiting(f"answering with {model.llm}"):
        answered = live.answer(question, retriever)
    if json:
        print_json(answered.to_json())
    else:
        choice = answers.answer if answers.answer != "latest" else live.policy.needs.returns
        _print(answered, choice, answers.decline_below)


def _spent(rounds: Sequence[Round]) -> str:
    usage, tokens = total_usage(rounds), Tokens.of(rounds)
    calls, judged = usage["llm_calls"], usage["judge_calls"] or 0
    asked = "calls not counted" if calls is None else counted(calls + judged, "call")
    took = "an unknown number of tokens"
    if tokens.prompt is not None and tokens.completion is not None:
        took = counted(tokens.prompt + tokens.completion, "token")
    return f"{counted(len(rounds), 'round')}, {asked}, {took}"


def _print(answered: Answered, chosen: str, decline_below: float | None) -> None:
    rounds = len(answered.rounds)
    put(answered.answer or "(the model gave no answer)")
    print_lines(f"stopped after round {rounds} by {answered.stopped_by}: {answered.reason}")
    known = answered.confidence
    said = "undefined" if known is None else f"{known:.4g}"
    if answered.answer_set is not None:
        for one in answered.answer_set.answers:
            put(f"  {one.confidence:.2f}  {one.answer} (round {one.round})")
        if answered.answer_set.cannot_answer:
            put("  or none of these: the policy did not stop the loop early")
    elif answered.declined:
        put(f"declined: confidence {said}, below {decline_below:g}")
    elif known is not None:
        put(f"confidence {said}")
    if answered.answer_round != rounds:
        put(f"the answer is from round {answered.answer_round}, as --answer {chosen} chooses")
    usd = "" if answered.usd is None else f", {answered.usd:.6f} USD"
    put(f"spent {_spent(answered.rounds)}{usd}")
    if answered.unasked:
        put(
            f"saved {counted(answered.unasked, 'call')}: the model answered at the end only, as the "
            "policy reads no answer"
        )
    if answered.saved_rounds:
        budget = counted(rounds + answered.saved_rounds, "round")
        put(f"saved up to {counted(answered.saved_rounds, 'round')} of {budget}")
    else:
        put(f"saved {'no round' if answered.unasked else 'nothing'}: the loop ran to its end")
    put("evidence:")
    for finished in answered.rounds:
        for passage in finished.passages or ():
            put(f"  {passage.id}  {shorten(' '.join(passage.title.split()), 200)}")
