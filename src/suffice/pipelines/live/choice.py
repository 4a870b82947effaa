"""What a live loop can be told to stop by: a policy file, fixed-K, ab-rag, or a rule's text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from suffice.errors import UsageError
from suffice.pipelines.loops.ranked import VOTES
from suffice.pipelines.loops.react import ReactSettings
from suffice.policies.ab_rag.policy import ABRagPolicy, Certainty
from suffice.policies.file import PolicyFile, load_policy, names_policy_file
from suffice.policies.fixed import FixedPolicy
from suffice.policies.gate.policy import GatePolicy
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.micp.relevance_filter import RelevanceFilter
from suffice.policies.registry import find_method, method_and_preset
from suffice.policies.rules.policy import RulePolicy, rule_needs
from suffice.protocols import Encoder, StopPolicy

DEFAULT_RULE = "answer_stable and not abstained"
AGENT_RULE = "llm_stop"
"""An agent stops where it would by itself."""


def names_ab_rag(named: str | None) -> bool:
    """Whether this is the published ``ab-rag``, which reads for S1 what the model gives."""
    return named is not None and method_and_preset(named) == (find_method("ab-rag"), "published")


def live_policy(
    named: str | None,
    *,
    certainty: Certainty = "token_probability",
    pipeline: str | None = None,
) -> PolicyFile:
    """The policy of a name; ``None``: the default rule, which needs no fitting.

    ``certainty``: what the published ``ab-rag`` reads for S1. ``pipeline``: the loop's name; for an
    agent the default is that it stops where it would finish.

    Raises
    ------
    UsageError
        For a method that must be fitted first, an oracle, a rule with fitted parts, or a planning
        agent's gate, with what to type instead.
    """
    if named is None:
        default = AGENT_RULE if pipeline == ReactSettings.pipeline else DEFAULT_RULE
        return PolicyFile(RulePolicy(rule=default), None)
    fixed = FixedPolicy.named(named)
    if fixed is not None:
        return PolicyFile(fixed, fixed.rounds)
    if named.startswith("oracle-"):
        raise UsageError(f"{named} needs gold answers and cannot run live; use 'suffice replay'")
    if named == "closed-book":
        raise UsageError(
            "closed-book answers without passages and decides nothing live; use fixed-1"
        )
    found = method_and_preset(named)
    if found is not None:
        method = found[0].name
        if names_ab_rag(named):
            return PolicyFile(ABRagPolicy.published(certainty), None)
        raise UsageError(
            f"policy {named!r} must be fitted first: suffice fit {method} TRACES --out policy.json, "
            "then --policy policy.json"
        )
    if names_policy_file(named):
        file = load_policy(named)
        if isinstance(file.policy, GatePolicy):
            file.policy.full_budget()  # refuses one for planning agents before a model is asked
        return file
    if rule_needs(named).fitting:
        raise UsageError(
            f"rule {named!r} has parts that must be fitted on traces; fit a policy file instead"
        )
    return PolicyFile(RulePolicy(rule=named), None)


def passage_filter(path: str) -> RelevanceFilter:
    """The passage filter of a micp policy file.

    Raises
    ------
    UsageError
        For another policy, or one without a filter, with what to type.
    """
    policy = load_policy(path).policy
    if not isinstance(policy, MiCPPolicy):
        raise UsageError(
            f"{path} is a policy of kind {policy.kind!r}; only micp has a passage filter: suffice fit "
            "micp TRACES --out policy.json"
        )
    if policy.filter is None:
        raise UsageError(
            f"the policy of {path} has no passage filter: it was fitted on traces without relevance of "
            "passages, or without gold passages"
        )
    return policy.filter


def live_filter(policy: StopPolicy) -> RelevanceFilter | None:
    """What a loop under this policy must drop passages by; ``None``: nothing.

    A filter counts only where the policy's thresholds come from filtered passages.
    """
    return policy.filter if isinstance(policy, MiCPPolicy) and policy.filtered else None


def clusters_by_meaning(policy: StopPolicy) -> bool:
    """Whether it needs samples clustered by an encoder."""
    return isinstance(policy, MiCPPolicy) and policy.clusters.by == "embedding"


def cluster_cosine(policy: StopPolicy, encoder: Encoder | None) -> float | None:
    """The cosine a loop must cluster samples at for this policy; ``None``: it needs no such clusters.

    Raises
    ------
    UsageError
        Without the encoder the policy was fitted with.
    """
    if not isinstance(policy, MiCPPolicy) or not clusters_by_meaning(policy):
        return None
    if encoder is None:
        raise UsageError(
            "the policy clusters samples by meaning and no encoder is loaded; type --encoder minilm"
        )
    if policy.clusters.cosine is None:
        raise UsageError(
            "the policy's samples were clustered at a cosine its record does not state, so a loop cannot "
            "cluster them alike; cluster them with suffice signals --cluster-cosine and fit again"
        )
    if policy.clusters.encoder not in (None, encoder.name):
        raise UsageError(
            f"the policy's samples were clustered by {policy.clusters.encoder!r} and this encoder is "
            f"{encoder.name!r}; name the same one with --encoder"
        )
    return policy.clusters.cosine


def differences(policy: StopPolicy, loop: Mapping[str, Any]) -> list[str]:
    """Where a loop is not the one a promise was calibrated on, each in words; none without a promise.

    ``loop`` says of it what a run document says.
    """
    facts = policy.facts
    found = facts.differences(loop)
    if facts.promise and loop.get("rounds", facts.max_rounds) < facts.max_rounds:
        found.append(f"up to {facts.max_rounds} rounds there, {loop['rounds']} here")
    return found


def samples_read(policy: StopPolicy) -> int:
    """How many samples a round a policy wants: as many as it was fitted on where it tells, else three.

    0 where it reads none.
    """
    if not any("samples" in spec.needs for spec in policy.specs):
        return 0
    if isinstance(policy, MiCPPolicy | GatePolicy):
        return policy.samples
    if isinstance(policy, ABRagPolicy) and policy.signals[0] == "self_consistency":
        return len(policy.levels) or VOTES
    return VOTES
