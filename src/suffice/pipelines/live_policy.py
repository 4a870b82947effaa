"""What a live loop can be told to stop by: a policy file, fixed-K, ab-rag, or a rule's text."""

from __future__ import annotations

from suffice.errors import UsageError
from suffice.pipelines.budgeted import VOTES
from suffice.policies.ab_rag import ABRagPolicy, Certainty
from suffice.policies.file import PolicyFile, load_policy, names_policy_file
from suffice.policies.fixed import FixedPolicy
from suffice.policies.methods import METHODS, method_and_preset
from suffice.policies.rule import RulePolicy, rule_needs
from suffice.protocols import StopPolicy

__all__ = ["DEFAULT_RULE", "live_policy", "names_ab_rag", "samples_read"]

DEFAULT_RULE = "answer_stable and not abstained"


def names_ab_rag(named: str | None) -> bool:
    """Whether this is the published ``ab-rag``, which reads for S1 what the model gives."""
    return named is not None and method_and_preset(named) == (METHODS["ab-rag"], "published")


def live_policy(named: str | None, *, certainty: Certainty = "token_probability") -> PolicyFile:
    """The policy of a name; ``None``: the default rule, which needs no fitting.

    ``certainty``: what the published ``ab-rag`` reads for S1.

    Raises
    ------
    UsageError
        For a method that must be fitted first, an oracle, or a rule with fitted parts, with what to
        type instead.
    """
    if named is None:
        return PolicyFile(RulePolicy(rule=DEFAULT_RULE), None)
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
        return load_policy(named)
    if rule_needs(named).fitting:
        raise UsageError(
            f"rule {named!r} has parts that must be fitted on traces; fit a policy file instead"
        )
    return PolicyFile(RulePolicy(rule=named), None)


def samples_read(policy: StopPolicy) -> int:
    """How many samples a round a policy wants: as many as it was fitted on where it tells, else three.

    0 where it reads none.
    """
    if not any("samples" in spec.needs for spec in policy.specs):
        return 0
    if isinstance(policy, ABRagPolicy) and policy.signals[0] == "self_consistency":
        return len(policy.levels) or VOTES
    return VOTES
