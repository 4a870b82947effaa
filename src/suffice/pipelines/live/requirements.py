"""Whether a policy can run over what a loop produces; refused before the first call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.pipelines.answers.prompts import PromptName, asks_rating
from suffice.pipelines.loops.settings import LoopSettings
from suffice.protocols import ClusterNeeds, ConfidentPolicy, Encoder, Signal, StopPolicy
from suffice.signals.recorded import LLM_STOP, MALFORMED_ACTIONS
from suffice.signals.registry import SIGNALS

_PROVIDED = frozenset({"passages", "candidate_scores", "query", "action", "response"})
_AGENTS = frozenset({LLM_STOP.name, MALFORMED_ACTIONS.name})
_MISSING: Mapping[str, str] = MappingProxyType(
    {
        "--encoder": "no encoder is loaded; type --encoder minilm",
        "--reranker": "no reranker scores the passages; type --retriever hybrid+rerank --reranker PATH",
        "--nli": "this loop asks no entailment model",
        "--llm": "this loop asks no {who}, so there is no recorded value",
    }
)
_NO_RATING = "the prompt {} asks for no confidence; type --prompt answer-first"


def check_policy(
    policy: StopPolicy,
    settings: LoopSettings,
    *,
    logprobs: bool,
    encoder: bool = False,
    reranker: bool = False,
) -> None:
    """Refuse, before the first call, a policy that reads what this loop does not produce.

    Parameters
    ----------
    policy
        What is to decide.
    settings
        Of the loop, with its certainty settled.
    logprobs
        Whether the model gives log-probabilities.
    encoder
        Whether the loop compares answers with their evidence.
    reranker
        Whether its passages carry a reranker's scores.

    Raises
    ------
    UsageError
        Naming the signal, what it needs and what to type or use instead.
    """
    columns, asked = set(_PROVIDED), set()
    if settings.samples:
        columns.add("samples")
    if settings.cluster_cosine is not None:
        columns.add("sample_clusters")
    if asks_rating(settings.prompt):
        columns.add("verbalized_confidence")
    if logprobs and not settings.majority:
        columns.add("tokens")
    for asking, there in (
        ("encoder", encoder),
        ("rerank", reranker),
        ("judge", settings.judge),
    ):
        if there:
            asked.add(asking)
    for spec in policy.specs:
        if spec.name in settings.writes:
            continue
        why = _missing(spec, columns, asked, settings.prompt)
        if why:
            instead = f"; use {spec.instead} instead" if spec.instead else ""
            raise UsageError(f"the policy reads {spec.name!r}, but {why}{instead}")


def _missing(spec: Signal, columns: set[str], asked: set[str], prompt: PromptName) -> str:
    """Why the loop cannot give a signal; empty when it can."""
    asking = SIGNALS[spec.name].asking if spec.name in SIGNALS else None
    if asking is not None and asking.name not in asked:
        return _MISSING[asking.option].format(who=asking.who)
    if spec.name in _AGENTS:
        return (
            "only a loop whose model chooses the queries records it; type --pipeline react, iterative or "
            "chain"
        )
    if spec.recorded_only and asking is None:
        return "this loop does not produce a recorded value"
    for column in spec.needs:
        if column not in columns:
            return _lacks(column, prompt)
    return ""


def _lacks(column: str, prompt: PromptName) -> str:
    if column == "tokens":
        return "the model's server gives no log-probabilities, or the answers are sampled"
    if column == "verbalized_confidence" and not asks_rating(prompt):
        return _NO_RATING.format(prompt)
    return f"this loop does not produce {column}"


@dataclass(frozen=True, slots=True)
class _NoQuestions:
    """A table without rows: what a policy says of it, it says of every table."""

    n_questions: int = 0
    n_rounds: int = 1
    question_ids: tuple[str, ...] = ()

    def signal(self, _name: str) -> NDArray[np.float64]:
        return np.empty((0, 1))


def has_confidence(policy: StopPolicy) -> bool:
    """Whether the policy estimates how likely its answers are right."""
    return isinstance(policy, ConfidentPolicy) and policy.confidence(_NoQuestions()) is not None


def check_confidence(
    policy: StopPolicy, *, choose: str = "latest", decline_below: float | None = None
) -> None:
    """Refuse to go by the confidence of a policy that has none.

    Raises
    ------
    UsageError
        Saying what to use instead.
    """
    wanted = "--answer most-confident" if choose == "most-confident" else ""
    if decline_below is not None:
        wanted = "--decline-below"
    if wanted and not has_confidence(policy):
        raise UsageError(
            f"{wanted} goes by the policy's confidence, and one of kind {policy.kind!r} without "
            "calibrated parts has none; use --policy ab-rag, or a fitted one: suffice fit tasr TRACES "
            "--out policy.json"
        )


def cluster_cosine(needs: ClusterNeeds | None, encoder: Encoder | None) -> float | None:
    """The cosine a loop must cluster samples at; ``None``: no such clusters are needed.

    Raises
    ------
    UsageError
        Without the encoder the policy was fitted with.
    """
    if needs is None:
        return None
    if encoder is None:
        raise UsageError(
            "the policy clusters samples by meaning and no encoder is loaded; type --encoder minilm"
        )
    if needs.cosine is None:
        raise UsageError(
            "the policy's samples were clustered at a cosine its record does not state, so a loop cannot "
            "cluster them alike; cluster them with suffice signals --cluster-cosine and fit again"
        )
    if needs.encoder not in (None, encoder.name):
        raise UsageError(
            f"the policy's samples were clustered by {needs.encoder!r} and this encoder is "
            f"{encoder.name!r}; name the same one with --encoder"
        )
    return needs.cosine


def differences(policy: StopPolicy, loop: Mapping[str, Any]) -> list[str]:
    """Where a loop is not the one a promise was calibrated on, each in words; none without a promise.

    ``loop`` says of it what a run document says.
    """
    facts = policy.facts
    most = facts.max_rounds
    differences = facts.differences(loop)
    if facts.promise and most is not None and loop.get("rounds", most) < most:
        differences.append(f"up to {most} rounds there, {loop['rounds']} here")
    return differences
