"""Which policy is meant by a file, a name or a rule's text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from suffice.contracts import Certainty, StopPolicy
from suffice.errors import UsageError, did_you_mean
from suffice.policies.file import load_policy, names_policy_file
from suffice.policies.registry import method_and_preset, nameable_methods, unfitted_policy
from suffice.policies.rules.policy import RulePolicy, rule_needs
from suffice.signals.registry import SIGNALS


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPolicy:
    """What is to decide, the full budget its file states, and how it is made for what a model gives."""

    policy: StopPolicy
    max_rounds: int | None = None
    for_model: Callable[[Certainty], StopPolicy] | None = None


def choose_policy(
    wanted: StopPolicy | str | Path | None,
    *,
    pipeline: str | None = None,
    abstention: tuple[str, ...] | None = None,
) -> ChosenPolicy:
    """The policy meant: itself, or a policy file, ``fixed-K``, a method that runs unfitted, or a rule.

    ``None`` is the default rule of the ``pipeline`` named, which needs no fitting. ``abstention`` are the
    phrases by which a rule takes an answer for an abstention; ``None``: the usual ones.
    """
    if wanted is None:
        from suffice.loops.registry import LOOPS
        from suffice.loops.settings import LoopSettings

        loop = LoopSettings if pipeline is None else LOOPS[pipeline]
        return ChosenPolicy(policy=RulePolicy(rule=loop.default_rule, abstention=abstention))
    if not isinstance(wanted, str | Path):
        return _checked(ChosenPolicy(policy=wanted))
    name = str(wanted)
    ready = _ready(name)
    if ready is None:
        if rule_needs(name).fitting:
            raise UsageError(
                f"rule {name!r} has parts that must be fitted on traces; write it with: suffice fit rule "
                "RULE TRACES --out policy.json, then --policy policy.json"
            )
        return ChosenPolicy(policy=RulePolicy(rule=name, abstention=abstention))
    if abstention is not None:
        raise UsageError(
            f"--abstention goes with a rule's text, and {name!r} is none: what abstains is settled where a "
            "policy is fitted; type suffice fit METHOD TRACES --abstention FILE"
        )
    return ready


def _checked(chosen: ChosenPolicy) -> ChosenPolicy:
    if refusal := chosen.policy.needs.refusal:
        raise UsageError(refusal)
    return chosen


def _ready(name: str) -> ChosenPolicy | None:
    """What is named and needs no making; ``None``: a rule's text, perhaps."""
    ready = unfitted_policy(name)
    if ready is not None:
        return ChosenPolicy(policy=ready)
    if name.startswith("oracle-"):
        raise UsageError(f"{name} needs gold answers and cannot run live; use 'suffice replay'")
    if name == "closed-book":
        raise UsageError(
            "closed-book answers without passages and decides nothing live; use fixed-1"
        )
    named = method_and_preset(name)
    if named is not None:
        method, preset = named
        unfitted = method.unfitted.get(preset)
        if unfitted is not None:
            return ChosenPolicy(policy=unfitted("token_probability"), for_model=unfitted)
        raise UsageError(
            f"policy {name!r} must be fitted first: suffice fit {method.name} TRACES --out policy.json, "
            "then --policy policy.json"
        )
    if names_policy_file(name):
        file = load_policy(name)
        return _checked(ChosenPolicy(policy=file.policy, max_rounds=file.max_rounds))
    near = did_you_mean(name, ("fixed-3", *nameable_methods()))
    if near and name not in SIGNALS:
        raise UsageError(f"unknown policy {name!r}{near}")
    return None
