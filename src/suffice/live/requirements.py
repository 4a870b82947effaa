"""The policy of a name, and the check that a loop gives what the policy reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from suffice.contracts import Certainty, Clusters, ConfidentPolicy, Encoder, StopPolicy
from suffice.errors import UsageError, did_you_mean
from suffice.loops import LOOPS, LoopSettings
from suffice.loops.prompts import asks_rating
from suffice.policies.policy_file import load_policy, names_policy_file
from suffice.policies.registry import method_and_preset, nameable_methods, unfitted_policy
from suffice.policies.rules.policy import Rule, rule_needs
from suffice.signals.asking.whole_record import Asking
from suffice.signals.known_signals import LLM_STOP, MALFORMED_ACTIONS, SIGNALS, SignalSpec, given_by
from suffice.signals.signal_table import Lack, SignalTable, policy_lacks


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPolicy:
    """The policy that decides, its file's full budget, and its maker for a model's abilities."""

    policy: StopPolicy
    max_rounds: int | None = None
    for_model: Callable[[Certainty], StopPolicy] | None = None


def choose_policy(
    wanted: StopPolicy | str | Path | None,
    *,
    pipeline: str | None = None,
    abstention: tuple[str, ...] | None = None,
) -> ChosenPolicy:
    """Return the wanted policy: itself, a policy file, ``fixed-K``, a method without fitting, or a rule.

    ``None`` is the default rule of the ``pipeline``, which needs no fitting. ``abstention`` are the phrases
    by which a rule recognizes an abstention; ``None``: the usual ones.
    """
    if wanted is None:
        loop = LoopSettings if pipeline is None else LOOPS[pipeline]
        return ChosenPolicy(policy=Rule(rule=loop.default_rule, abstention=abstention))
    name = str(wanted)
    ready = ChosenPolicy(policy=wanted) if not isinstance(wanted, str | Path) else _ready(name)
    if ready is None:
        if rule_needs(name).fitting:
            raise UsageError(
                f"rule {name!r} has parts that must be fitted on traces; type: suffice fit rule "
                "RULE TRACES --out policy.json, then --policy policy.json"
            )
        return ChosenPolicy(policy=Rule(rule=name, abstention=abstention))
    if abstention is not None and isinstance(wanted, str | Path):
        raise UsageError(
            f"--abstention needs a rule's text, and {name!r} is none: other policies fix it when they are "
            "fitted; type suffice fit METHOD TRACES --abstention FILE"
        )
    if refusal := ready.policy.needs.refusal:
        raise UsageError(refusal)
    return ready


def _ready(name: str) -> ChosenPolicy | None:
    ready = unfitted_policy(name)
    if ready is not None:
        return ChosenPolicy(policy=ready)
    if name == "closed-book" or name.startswith("oracle-"):
        raise UsageError(f"{name} cannot decide live; use it with 'suffice replay'")
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
        return ChosenPolicy(policy=file.policy, max_rounds=file.max_rounds)
    near = did_you_mean(name, ("fixed-3", *nameable_methods()))
    if near and name not in SIGNALS:
        raise UsageError(f"unknown policy {name!r}{near}")
    return None


_PROVIDED = frozenset({"passages", "candidate_scores", "query", "action", "response"})
_AGENTS = frozenset({LLM_STOP.name, MALFORMED_ACTIONS.name})
_UNASKED = {
    "--encoder": ("no encoder is loaded", "type --encoder minilm"),
    "--reranker": (
        "no reranker scores the passages",
        "type --retriever hybrid+rerank --reranker PATH",
    ),
    "--nli": ("it asks no entailment model", ""),
    "--llm": ("it asks no {who}", ""),
    "--looks": ("it asks no such look", "type --looks and its name, in a loop that converses"),
}
"""Why a model is not asked, and the remedy, by its option of ``suffice signals``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOutput:
    settings: LoopSettings
    logprobs: bool = True
    encoder: bool = False
    reranker: bool = False

    @property
    def columns(self) -> frozenset[str]:
        settings = self.settings
        there = {
            "samples": settings.samples > 0,
            "sample_clusters": settings.cluster_cosine is not None,
            "verbalized_confidence": asks_rating(settings.prompt),
            "tokens": self.logprobs and not settings.majority,
        }
        return _PROVIDED | {column for column, given in there.items() if given}

    def lack(self, spec: SignalSpec) -> Lack | None:
        """Return why its rounds do not give a signal; ``None``: they do."""
        spec = given_by(spec)
        if spec.name in self.settings.writes:
            return None
        columns = tuple(column for column in spec.needs if column not in self.columns)
        because, give = self._why(spec, columns)
        recorded = spec.recorded_only and _asking(spec) is None
        if not (columns or because or recorded):
            return None
        return Lack(spec=spec, columns=columns, source="this loop", because=because, give=give)

    def _why(self, spec: SignalSpec, columns: tuple[str, ...]) -> tuple[str, str]:
        asked = {"encoder": self.encoder, "rerank": self.reranker, "judge": self.settings.judge}
        prompt = self.settings.prompt
        asking = _asking(spec)
        if asking is not None and not asked.get(asking.name, False):
            because, give = _UNASKED[asking.option]
            return because.format(who=asking.who), give
        if spec.name in _AGENTS:
            return (
                "only a loop whose model chooses the queries records it",
                "type --pipeline react, iterative or chain",
            )
        if "samples" in columns:
            return "", "type --samples 3"
        if "tokens" in columns:
            return "the model's server gives no log-probabilities, or the answers are sampled", ""
        if "verbalized_confidence" in columns:
            return f"the prompt {prompt} asks for no confidence", "type --prompt answer-first"
        return "", ""


def _asking(spec: SignalSpec) -> Asking | None:
    return SIGNALS[spec.name].asking if spec.name in SIGNALS else None


def check_policy(policy: StopPolicy, output: LoopOutput, read: Iterable[SignalSpec] = ()) -> None:
    """Refuse, before the first call, a policy whose inputs, or all that is ``read``, this loop lacks."""
    lacks = [lack for spec in read or policy.specs if (lack := output.lack(spec)) is not None]
    if lacks:
        raise UsageError(policy_lacks(policy, lacks))


def not_recorded(settings: LoopSettings) -> str:
    """Return the signals whose inputs a recording with these settings lacks, and what to type, or nothing."""
    output, names = LoopOutput(settings=settings), dict[str, list[str]]()
    for lack in map(output.lack, SIGNALS.values()):
        if lack is not None and lack.columns:
            names.setdefault(lack.give or "", []).append(lack.spec.name)
    groups = (", ".join(of) + f" ({give})" * bool(give) for give, of in names.items())
    return f"not recorded: {'; '.join(groups)}" if names else ""


def has_confidence(policy: StopPolicy) -> bool:
    """Whether the policy estimates the probability that its answers are right."""
    none = np.empty((0, 1))
    values = dict.fromkeys(policy.signals, none)
    table = SignalTable(values=values, exists=none.astype(bool))
    return isinstance(policy, ConfidentPolicy) and policy.confidence(table) is not None


def check_confidence(
    policy: StopPolicy, *, choose: str = "latest", decline_below: float | None = None
) -> None:
    """Refuse options that need a confidence, if the policy has none."""
    wanted = "--answer most-confident" if choose == "most-confident" else ""
    if decline_below is not None:
        wanted = "--decline-below"
    if wanted and not has_confidence(policy):
        raise UsageError(
            f"{wanted} needs a policy with a confidence, and this one of kind {policy.kind!r} has none; "
            "use --policy ab-rag, or a fitted one: suffice fit tasr TRACES --out policy.json"
        )


def cluster_cosine(needs: Clusters | None, encoder: Encoder | None) -> float | None:
    """Return the cosine for clustering samples in the loop; ``None``: no such clusters are needed."""
    if needs is None:
        return None
    if encoder is None:
        raise UsageError(
            "the policy clusters samples by meaning and no encoder is loaded; type --encoder minilm"
        )
    if needs.cosine is None:
        raise UsageError(
            "the policy's record does not state at which cosine its samples were clustered, so a loop cannot "
            "do the same; cluster them with suffice signals --cluster-cosine and fit again"
        )
    if needs.encoder not in (None, encoder.name):
        raise UsageError(
            f"the policy's samples were clustered by {needs.encoder!r}, but this encoder is "
            f"{encoder.name!r}; name the same one with --encoder"
        )
    return needs.cosine


def differences(policy: StopPolicy, loop: Mapping[str, Any]) -> list[str]:
    """Return the differences between a loop and the one of a promise's calibration, in words."""
    facts = policy.facts
    most = facts.max_rounds
    differences = facts.differences(loop)
    if facts.promise and most is not None and loop.get("rounds", most) < most:
        differences.append(f"up to {most} rounds there, {loop['rounds']} here")
    return differences
