"""A loop asks for what is read: live calls are those that replay charges, for every loop and policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import of_rounds
from tests.live_answers import answered as answered_by

from suffice.contracts import Generation, GenerationRequest, StopPolicy
from suffice.costs.usage import stop_costs
from suffice.datasets.files import Example
from suffice.datasets.known_datasets import load
from suffice.errors import BackendError
from suffice.evaluation.replay.runner import stop_rounds
from suffice.live.answering import Answered, AskSettings, LiveLoop
from suffice.live.requirements import ChosenPolicy
from suffice.loops import LOOPS, make_pipeline
from suffice.loops.query_loop import QueryLoopSettings
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.steps import LoopSettings
from suffice.measures.costs import policy_reads
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.rules.policy import Rule
from suffice.policies.unfitted import FixedPolicy
from suffice.retrieval.retrievers import OwnParagraphs
from suffice.stats.conformal import Threshold
from suffice.testing.models import Failures, ScriptedModel
from suffice.trace.rounds.records import Passage
from suffice.trace.rounds.trace_set import TraceSet

ROUNDS, SAMPLES = 4, 3
EXAMPLES = load("generated", limit=6)
AGREE = MiCPPolicy(
    alpha=0.2,
    rounds=ROUNDS,
    samples=SAMPLES,
    stops=(Threshold(0.6),) * (ROUNDS - 1),
    final=0.0,
    fitted_on={},
)
RULES = (
    "overlap > 0.1",
    "answer_stable",
    "normalized_entropy < 0.4",
    "judge_support >= 4",
    "answer_stable and self_consistency > 0.5",
)
AGENTS = (
    "llm_stop",
    "llm_stop and answer_stable",
    "llm_stop or overlap > 0.2",
    "malformed_actions > 2",
)
EVERY: dict[str, StopPolicy] = {
    **{rule: Rule(rule=rule) for rule in RULES},
    **{f"fixed-{rounds}": FixedPolicy(rounds) for rounds in (1, 3, ROUNDS)},
    "micp": AGREE,
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in LOOPS] + [
    ("budgeted", {"certainty": "self_consistency"})
]


def live_settings(name: str, policy: StopPolicy, own: dict[str, Any]) -> LoopSettings:
    """The loop as ``suffice ask`` makes it for the policy."""
    certainty = {"certainty": "token_probability"} if name == "budgeted" else {}
    settings = AskSettings(pipeline=name, rounds=ROUNDS, samples=SAMPLES, loop={**certainty, **own})
    return LiveLoop.of(ChosenPolicy(policy=policy), ScriptedModel(), settings, lambda _: None).loop


def recorded(example: Example, settings: LoopSettings, *, judge: bool) -> TraceSet:
    """The same loop, with all that could be read, to its full budget; verdicts and ratings share columns."""
    everything: dict[str, Any] = {"samples": SAMPLES, "judge": judge}
    if isinstance(settings, QueryLoopSettings):
        everything["verdicts"] = not judge
    pipeline = make_pipeline(ScriptedModel(), replace(settings, **everything))
    question = replace(example.question, id="ask")
    return of_rounds(*pipeline.rounds(question, OwnParagraphs(example.passages)))


class Counted(ScriptedModel):
    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.spent = dict.fromkeys(("llm_calls", "prompt_tokens", "completion_tokens"), 0)

    def generate(self, request: GenerationRequest) -> Generation:
        made = super().generate(request)
        self.spent["llm_calls"] += len(made.completions)
        self.spent["prompt_tokens"] += made.prompt_tokens or 0
        self.spent["completion_tokens"] += made.completion_tokens or 0
        return made


def asked(example: Example, policy: StopPolicy, settings: LoopSettings) -> tuple[Answered, Counted]:
    model = Counted()
    text, passages = example.question.text, example.passages
    return answered_by(policy, model, settings, passages, text, max_rounds=ROUNDS), model


def finishes_passed(answered: Answered) -> int:
    """Calls of an agent that would have ended and was made to go on.

    A round's usage counts them twice, as the verdict and as the next round's first choice.
    """
    return sum(finished.usage.judge_calls or 0 for finished in answered.rounds[:-1])


def unused_choice(answered: Answered) -> int:
    """Calls for the next query of an agent that would have gone on and was stopped; no record counts them."""
    last = answered.rounds[-1]
    return 0 if last.signals.get("llm_stop") == 1 else last.usage.judge_calls or 0


@pytest.mark.parametrize(("name", "own"), VARIANTS, ids=str)
def test_live_calls_are_those_that_replay_charges(name: str, own: dict[str, Any]) -> None:
    """For every policy: the stop, the answer and the costs of replay."""
    unasked, examples = 0, EXAMPLES[:2]
    records = {
        (example.question.id, judge): recorded(
            example, live_settings(name, FixedPolicy(ROUNDS), own), judge=judge
        )
        for example in examples
        for judge in (False, True)
    }
    agents = issubclass(LOOPS[name], QueryLoopSettings)
    policies = {rule: Rule(rule=rule) for rule in AGENTS} if agents else {}
    for called, policy in {**EVERY, **policies}.items():
        settings = live_settings(name, policy, own)
        for example in examples:
            traces = records[example.question.id, policy.needs.judge]
            (record,) = traces.records()
            (stop,) = stop_rounds(policy, traces)
            answered, model = asked(example, policy, settings)
            assert answered.answer == record.rounds[stop - 1].answer, called
            agent = name == "react" and policy.needs.verdicts
            twice = finishes_passed(answered) if agent else 0
            beyond = unused_choice(answered) if agent else 0
            calls = model.spent["llm_calls"]
            usage = answered.to_json()["usage"]
            assert usage["llm_calls"] + (usage["judge_calls"] or 0) == calls + twice, called
            reads = policy_reads(policy, budget=ROUNDS)
            known = stop_costs(traces, reads=reads)
            for cost, spent in model.spent.items():
                charged = known[cost]
                if charged is None:  # the tokens of samples that are answers are not told apart
                    assert own, cost
                    assert policy.needs.samples, cost
                elif not (twice or beyond):
                    assert spent == charged[0, stop - 1], (called, cost, example.question.id)
                elif cost == "llm_calls":
                    assert calls + twice - beyond == charged[0, stop - 1], called
            silent = [finished.answer is None for finished in answered.rounds]
            read = policy.needs.answers or bool(own and policy.needs.samples)
            assert silent == [not read] * (stop - 1) + [False], called
            unasked += answered.unasked
    assert unasked > 0


def test_an_answer_that_cannot_be_had_is_asked_for_in_fewer_rounds() -> None:
    """As where the last prompt is too long: of 4 rounds the second answers, and the error is told."""
    passages = tuple(Passage(id=f"p{n}", title=f"Page {n}", text=f"Fact {n}") for n in range(4))

    def ask(containing: str) -> tuple[Answered, ScriptedModel]:
        failing = Failures(containing=(containing,))
        model = ScriptedModel(lambda *_: "Answer: a", failures=failing)
        return answered_by(FixedPolicy(4), model, CumulativeSettings(rounds=4), passages), model

    answered, model = ask("Fact 2")
    assert (answered.answer, answered.stopped_by, answered.answer_round) == ("a", "error", 2)
    assert answered.reason.startswith("scripted failure")
    assert len(answered.decisions) == len(answered.rounds) == 2
    assert len(model.requests) == 2
    with pytest.raises(BackendError, match="scripted failure"):
        ask("Fact 0")


@pytest.mark.parametrize("choose", ["latest", "highest:overlap"])
def test_who_chooses_among_answers_has_them_all(choose: str) -> None:
    model, loop = ScriptedModel(), CumulativeSettings(rounds=3)
    passages = EXAMPLES[0].passages
    answered = answered_by(FixedPolicy(3), model, loop, passages, choose=choose)
    assert len(model.requests) == (1 if choose == "latest" else 3)
    assert answered.unasked == (2 if choose == "latest" else 0)
    document = answered.to_json()
    assert document["unasked"] == answered.unasked
    assert document["usage"]["llm_calls"] == len(model.requests)


def test_one_round_asks_nothing_to_decide_by() -> None:
    """With a budget of one round no verdict is asked for, and its absence is no lack."""
    settings = live_settings("react", Rule(rule="llm_stop"), {})
    model = ScriptedModel()
    policy, one_round = Rule(rule="llm_stop"), replace(settings, rounds=1)
    passages = EXAMPLES[0].passages
    answered = answered_by(policy, model, one_round, passages, max_rounds=1)
    assert (answered.stopped_by, len(model.requests)) == ("budget", 2)
