"""Asking in Python: what can decide, the loop it gets, what is refused before, what it may cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.hashing_encoder import HashingEncoder

from suffice.contracts import Certainty, Clusters, Completion, Generation, GenerationRequest
from suffice.costs.prices import Prices
from suffice.errors import DataError, UsageError
from suffice.live.answering import Answered, AskSettings, LiveLoop, ask
from suffice.live.requirements import LoopOutput, check_policy, choose_policy, has_confidence
from suffice.live.watching import Budgets, Meter
from suffice.loops.ranked import BudgetedSettings, CumulativeSettings
from suffice.loops.react import ReactSettings
from suffice.loops.steps import LoopSettings
from suffice.policies.ab_rag.policy import ABRagPolicy
from suffice.policies.gate.gate_settings import GateCosts, GateSettings, RiskModel
from suffice.policies.gate.policy import GatePolicy
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.micp.relevance_filter import RelevanceFilter
from suffice.policies.policy_file import save_policy
from suffice.policies.rules.policy import Rule
from suffice.policies.unfitted import FixedPolicy
from suffice.stats.conformal import Threshold
from suffice.stats.maps import IsotonicMap, PerRoundCalibrator
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import Passage, Usage

SHELF = tuple(
    Passage(id=f"p{number}", title=f"Page {number}", text=f"Fact {number} about Oslo")
    for number in range(6)
)
AGREE = MiCPPolicy(
    alpha=0.2,
    rounds=3,
    samples=4,
    stops=(Threshold(0.5), Threshold(0.5)),
    final=0.0,
    fitted_on={"loop": {"prompt": "answer-first", "model": "scripted", "temperature": 0.1}},
)


def always(reply: str) -> ScriptedModel:
    return ScriptedModel(lambda _request, _number: f"Answer: {reply}")


def asked(policy: object, model: ScriptedModel, settings: AskSettings | None = None) -> Answered:
    return ask("Which fact?", SHELF, model, policy=policy, settings=settings)  # type: ignore[arg-type]


# --- what can decide ----------------------------------------------------------------------------
def test_what_can_decide(tmp_path: Path) -> None:
    assert choose_policy(None).policy == Rule(rule=LoopSettings.default_rule)
    assert choose_policy("fixed-4").policy == FixedPolicy(4)
    for named, rounds in (
        ("fixed-4", 4),
        (AGREE, 3),
    ):  # which offer as many rounds as they may take
        live = LiveLoop.of(choose_policy(named), ScriptedModel([""]), AskSettings(), lambda _: None)
        assert (choose_policy(named).max_rounds, live.loop.rounds) == (None, rounds)
    assert choose_policy("overlap > 0.5").policy == Rule(rule="overlap > 0.5")
    file = save_policy(FixedPolicy(2), tmp_path / "p.json", max_rounds=7)
    assert choose_policy(str(file)).max_rounds == choose_policy(file).max_rounds == 7
    with pytest.raises(UsageError, match="suffice fit tasr"):
        choose_policy("tasr-corrected")
    for name in ("oracle-f1", "closed-book"):
        with pytest.raises(UsageError, match=name):
            choose_policy(name)
    with pytest.raises(UsageError, match="must be fitted"):
        choose_policy("calibrated(overlap) > 0.2")
    with pytest.raises(DataError, match="no such policy file"):
        choose_policy("missing.json")
    risk = RiskModel(disagreement=3.0, contradiction=1.0, remaining=0.5, intercept=1.0)
    with pytest.raises(UsageError, match="guides a planning agent"):
        choose_policy(
            GatePolicy(settings=GateSettings.corrected(risk, GateCosts(retrieval=1, failure=2)))
        )


@pytest.mark.parametrize("name", ["ab-rag", "ab-rag-published"])
@pytest.mark.parametrize("certainty", ["token_probability", "self_consistency"])
def test_a_method_that_needs_no_fitting_reads_what_the_model_gives(
    name: str, certainty: Certainty
) -> None:
    chosen = choose_policy(name)
    assert chosen.for_model is not None
    policy = chosen.for_model(certainty)
    assert policy.kind == "ab-rag"
    assert policy.signals[0] == certainty


# --- the loop it gets ---------------------------------------------------------------------------
def test_a_fitted_policy_gets_its_samples_its_budget_and_its_warnings() -> None:
    never = replace(AGREE, stops=(Threshold(0.0), Threshold(0.0)))
    found = asked(never, always("Oslo"))
    assert [len(finished.samples or ()) for finished in found.rounds] == [4, 4, 4]
    assert found.answer_set is not None
    assert found.notes == (
        "the policy's promise may not hold here: temperature 0.1 there, 0.8 here",
    )
    short = AskSettings(rounds=2, samples=2)
    assert asked(AGREE, always("Oslo"), short).notes == (
        "the policy was calibrated on 4 samples a round; on 2 it promises nothing",
        "the policy's promise may not hold here: temperature 0.1 there, 0.8 here",
        "the policy's promise may not hold here: up to 3 rounds there, 2 here",
    )


def test_a_fitted_policy_gets_its_passage_filter() -> None:
    nothing_is_that_relevant = RelevanceFilter(
        threshold=1e6, relevance="score", alpha=0.1, preset="published", values=20
    )
    filtering = replace(AGREE, filter=nothing_is_that_relevant, filtered=True)
    assert asked(filtering, always("Oslo")).rounds[0].passages == ()
    unfiltered = asked(replace(filtering, filtered=False), always("Oslo"))
    assert len(unfiltered.rounds[0].passages or ()) == 1


def test_samples_are_clustered_as_the_policy_was_fitted() -> None:
    encoder = HashingEncoder(8)
    clustering = replace(AGREE, clusters=Clusters(by="embedding", cosine=0.7, encoder=encoder.name))
    with pytest.raises(UsageError, match="no encoder is loaded"):
        asked(clustering, always("Oslo"))
    found = asked(clustering, always("Oslo"), AskSettings(encoder=encoder))
    assert found.rounds[0].sample_clusters is not None


def test_a_policy_that_the_loop_cannot_serve_is_refused_before_the_model_answers() -> None:
    model = ScriptedModel([])
    with pytest.raises(UsageError, match="--pipeline react"):
        asked("llm_stop", model)
    with pytest.raises(UsageError, match="has none"):
        asked("answer_stable", model, AskSettings(decline_below=0.5))
    with pytest.raises(UsageError, match="unknown pipeline 'snail'"):
        AskSettings(pipeline="snail")
    with pytest.raises(UsageError, match="cumulative pipeline has no setting 'start'"):
        asked(None, model, AskSettings(loop={"start": 3}))


def test_a_retriever_of_ones_own() -> None:
    class Shelf:
        def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
            del query
            return SHELF[:k]

    model = ScriptedModel(["Answer: Oslo", "Answer: Oslo"])
    found = ask("Which fact?", Shelf(), model)
    assert (found.answer, len(found.rounds), found.stopped_by) == ("Oslo", 2, "policy")
    assert found.notes == ()


BUDGETED = BudgetedSettings(certainty="token_probability")
VOTING = BudgetedSettings(certainty="self_consistency", samples=3)


@pytest.mark.parametrize(
    ("rule", "loop", "there", "parts"),
    [
        (
            "answer_token_margin > 1",
            CumulativeSettings(),
            {"logprobs": False},
            ("no log-probabilities", "self_consistency"),
        ),
        ("self_consistency > 0.5", CumulativeSettings(), {}, ("samples",)),
        ("judge_support >= 4", CumulativeSettings(samples=3), {}, ("recorded value",)),
        ("malformed_actions > 0", BUDGETED, {}, ("--pipeline react",)),
        ("llm_stop", ReactSettings(verdicts=False), {}, ("--pipeline react",)),
        ("q_stop > 0", ReactSettings(), {}, ("recorded value",)),
        ("evidence_consistency > 0.5", BUDGETED, {}, ("--encoder minilm",)),
        (
            "rerank_variance < 0.1",
            BUDGETED,
            {"encoder": True},
            ("--retriever hybrid+rerank --reranker PATH",),
        ),
        ("evidence_entailment > 0.5", BUDGETED, {"encoder": True}, ("entailment",)),
        (
            "verbalized_confidence > 3",
            CumulativeSettings(prompt="no-confidence"),
            {},
            ("the prompt no-confidence asks for no confidence", "--prompt answer-first"),
        ),
        ("token_probability > 0.5", VOTING, {}, ("sampled", "self_consistency")),
    ],
)
def test_a_policy_is_refused_before_the_first_call(
    rule: str, loop: Any, there: dict[str, Any], parts: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError) as refused:
        check_policy(Rule(rule=rule), LoopOutput(settings=loop, **there))
    name = rule.split(maxsplit=1)[0]
    for part in (f"the rule policy reads what is not given: signal {name!r} ", *parts):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("rule", "loop"),
    [
        (
            "answer_token_margin > 1 and self_consistency > 0.5 and overlap > 0.1 and "
            "retrieval_gap > 0 and verbalized_confidence >= 4 and answer_in_evidence",
            CumulativeSettings(samples=3),
        ),
        ("token_probability > 0.5 and answer_stable", BUDGETED),
        ("self_consistency > 0.5 and normalized_entropy < 0.5", VOTING),
        (
            "answer_stable and answer_token_margin > 1",
            BudgetedSettings(certainty="token_probability", prompt="no-confidence"),
        ),
        ("llm_stop and malformed_actions < 1 and answer_stable", ReactSettings()),
        (
            "malformed_actions < 1 and self_consistency > 0.5",
            ReactSettings(samples=3, verdicts=False),
        ),
        ("judge_support >= 4", BudgetedSettings(certainty="token_probability", judge=True)),
    ],
)
def test_what_the_loop_gives_is_accepted(rule: str, loop: Any) -> None:
    check_policy(Rule(rule=rule), LoopOutput(settings=loop))


def test_who_has_a_confidence() -> None:
    assert not has_confidence(FixedPolicy(2))
    assert not has_confidence(Rule(rule="answer_stable"))
    assert has_confidence(ABRagPolicy.published())
    half = PerRoundCalibrator(maps=(IsotonicMap(x=(0.0, 2.0), y=(0.0, 1.0)),) * 2)
    calibrated = "answer_stable and calibrated(answer_token_margin) > 0.25"
    assert has_confidence(Rule(rule=calibrated, calibrators={"answer_token_margin": half}))


ASK = GenerationRequest(prompt="Q?")


@dataclass(frozen=True)
class Counting:
    prompt: int | None = 100
    cached: int | None = 0
    completion: int | None = 10
    name: str = "counting"
    api: Any = "completion"

    def generate(self, request: GenerationRequest) -> Generation:
        return Generation(
            completions=(Completion(text="x"),) * request.n,
            model=self.name,
            prompt_tokens=self.prompt,
            cached_tokens=self.cached,
            completion_tokens=self.completion,
        )


def test_retrievals_and_rerankers_are_paid_too() -> None:
    prices = Prices(input=0, cached=0, output=0, retrieval=0.1, rerank=0.25)
    meter = Meter(Counting(), Budgets(usd=0.35, prices=prices))
    meter.generate(ASK)
    assert meter.spent() is None
    meter.add_lookups(Usage(retrievals=1, rerank_calls=1))
    assert meter.usd == pytest.approx(0.35)
    assert meter.spent() == "the budget of 0.35 USD is spent"


@pytest.mark.parametrize("model", [Counting(prompt=None), Counting(completion=None)])
def test_a_server_that_counts_nothing_cannot_be_held_to_a_budget(model: Counting) -> None:
    """It ends the loop, since nothing else would: no budget is passed over in silence."""
    prices = Prices(input=1, cached=1, output=1)
    for budgets in (Budgets(tokens=10**9), Budgets(usd=1e9, prices=prices)):
        meter = Meter(model, budgets)
        meter.generate(ASK)
        assert "the server counts no tokens" in (meter.uncounted or "")
        assert meter.usd is None
    free = Meter(model, Budgets())
    free.generate(ASK)
    assert free.spent() is None
