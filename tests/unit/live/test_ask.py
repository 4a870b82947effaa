"""Asking in Python: what can decide, the loop it gets, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from suffice.contracts import Certainty
from suffice.errors import DataError, UsageError
from suffice.live.ask import Answered, AskSettings, LiveLoop, ask
from suffice.live.requirements import choose_policy
from suffice.loops.steps import LoopSettings
from suffice.policies.ab_rag.policy import ABRagPolicy
from suffice.policies.file import save_policy
from suffice.policies.fixed import FixedPolicy
from suffice.policies.gate.policy import GatePolicy
from suffice.policies.gate.risk import RiskModel
from suffice.policies.gate.settings import GateCosts, GateSettings
from suffice.policies.micp.policy import Clusters, MiCPPolicy
from suffice.policies.micp.relevance_filter import RelevanceFilter
from suffice.policies.rules.policy import RulePolicy
from suffice.stats.conformal.order_statistics import Threshold
from suffice.testing.encoders import HashingEncoder
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import Passage

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


def test_the_answer_given_most_often_is_returned() -> None:
    model = ScriptedModel(["Answer: Oslo", "Answer: Oslo.", "Answer: Bergen"])
    answered = asked("fixed-3", model, AskSettings(choose="majority"))
    assert (answered.answer, answered.answer_round, len(answered.rounds)) == ("Oslo.", 2, 3)


# --- what can decide ----------------------------------------------------------------------------
def test_what_can_decide(tmp_path: Path) -> None:
    assert choose_policy(None).policy == RulePolicy(rule=LoopSettings.default_rule)
    assert choose_policy("fixed-4").policy == FixedPolicy(4)
    for named, rounds in (
        ("fixed-4", 4),
        (AGREE, 3),
    ):  # which offer as many rounds as they may take
        live = LiveLoop.of(choose_policy(named), ScriptedModel([""]), AskSettings(), lambda _: None)
        assert (choose_policy(named).max_rounds, live.loop.rounds) == (None, rounds)
    assert choose_policy("overlap > 0.5").policy == RulePolicy(rule="overlap > 0.5")
    file = save_policy(FixedPolicy(2), tmp_path / "p.json", max_rounds=7)
    assert choose_policy(str(file)).max_rounds == choose_policy(file).max_rounds == 7
    with pytest.raises(UsageError, match="suffice fit tasr"):
        choose_policy("tasr-corrected")
    with pytest.raises(UsageError, match="gold answers"):
        choose_policy("oracle-f1")
    with pytest.raises(UsageError, match="decides nothing live"):
        choose_policy("closed-book")
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


def test_as_many_samples_as_the_policy_was_fitted_on() -> None:
    fifths = tuple(n / 5 for n in range(1, 6))
    assert ABRagPolicy(weights={"self_consistency": 1.0}, levels=fifths).needs.samples == 5
    assert ABRagPolicy(weights={"self_consistency": 1.0}).needs.samples == 3
    assert ABRagPolicy.published("self_consistency").needs.samples == 3
    assert ABRagPolicy.published("token_probability").needs.samples == 0
    assert RulePolicy(rule="self_consistency > 0.5").needs.samples == 3
    assert FixedPolicy(2).needs.samples == 0


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
