"""Networks of the evaluation of Stop-RAG: trained, or found trained in its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from studies.stop_rag.results import SIGNALS, StopRAGStudySettings, Variant
from suffice.errors import DataError
from suffice.measures.measures import Measures
from suffice.policies.method import FitRun
from suffice.policies.policy_file import load_policy, save_policy
from suffice.policies.stop_rag.fit import VALIDATION_SPLIT, fit_stop_rag
from suffice.policies.stop_rag.policy import StopRAGPolicy
from suffice.trace.rounds.trace_set import TraceSet

_READ = (
    *("question_id", "round", "question", "gold_answers", "split"),
    *("passages", "answer", "samples"),
)
_STUDY = "study"  # where a policy's provenance says what it was fitted for
_ROWS = 1024
Watch = Callable[[str], Callable[[Any], None] | None]  # of a training's name and its progress


class FittedPolicy(NamedTuple):
    """A variant fitted in one seed; ``loaded``: it was found."""

    variant: Variant
    seed: int
    policy: StopRAGPolicy
    loaded: bool

    @property
    def name(self) -> str:
        return f"{self.variant}-{self.seed}"


def fitting_questions(traces: TraceSet, settings: StopRAGStudySettings) -> Mapping[str, TraceSet]:
    """The questions trained on, and those that validate, if there are such."""
    splits = [settings.fit_split]
    if VALIDATION_SPLIT in traces.splits and settings.fit_split != VALIDATION_SPLIT:
        splits.append(VALIDATION_SPLIT)
    return {split: traces.only_split(split) for split in splits}


def fit_variants(
    traces: TraceSet, settings: StopRAGStudySettings, watch: Watch = lambda _: None
) -> list[FittedPolicy]:
    """Every variant in every seed; one that the folder holds is taken if it was fitted in the same way."""
    questions = fitting_questions(traces, settings).values()
    fitted = []
    for variant in settings.variants:
        digest = _digest(questions, (*_READ, "signals") if variant == SIGNALS else _READ)
        fitted += [
            _fitted(traces, settings, variant, seed, digest, watch) for seed in settings.all_seeds
        ]
    return fitted


def _fitted(
    traces: TraceSet,
    settings: StopRAGStudySettings,
    variant: Variant,
    seed: int,
    digest: str,
    watch: Watch,
) -> FittedPolicy:
    base = settings.signals if variant == SIGNALS else settings.text
    target = "q-lambda" if variant == "signals" else variant
    reward = "f1" if settings.f1_kind == "squad" else f"f1-{settings.f1_kind}"
    how = replace(base, target=target, reward=reward, seed=seed)
    schedule = asdict(how.schedule(settings.preset, traces.origin.run.get("dataset")))
    schedule.pop("device", None)
    stated: dict[str, Any] = {
        "preset": settings.preset,
        "features": how.features,
        "reward": how.reward,
        "inputs": how.inputs,
        "split": settings.fit_split,
        **schedule,
        "questions": digest,
    }
    stated = json.loads(json.dumps(stated))
    folder = None if settings.folder is None else settings.folder / f"{variant}-{seed}"
    if folder is not None and (folder / "policy.json").exists():
        return FittedPolicy(variant, seed, _read_fit(folder, stated), loaded=True)
    run = FitRun(progress=watch(f"{variant}, seed {seed}"))
    measures = Measures(traces).by(None)
    policy = fit_stop_rag(measures, settings.preset, settings.fit_split, how, run)
    policy = replace(policy, fitted_on={**policy.fitted_on, _STUDY: stated})
    if folder is not None:
        save_policy(policy, folder, max_rounds=policy.rounds)
    return FittedPolicy(variant, seed, policy, loaded=False)


def _read_fit(folder: Path, stated: Mapping[str, Any]) -> StopRAGPolicy:
    policy = load_policy(folder).policy
    where = str(folder / "policy.json")
    if not isinstance(policy, StopRAGPolicy):
        raise DataError(
            f"holds a policy of kind {policy.kind!r}; choose an empty folder", file=where
        )
    before = policy.fitted_on.get(_STUDY, {})
    for name in {**stated, **before}:
        was, now = (json.dumps(document.get(name))[:40] for document in (before, stated))
        if before.get(name) != stated.get(name):
            raise DataError(
                f"this policy was fitted for another study: {name} was {was}, now {now}; choose an empty "
                f"folder, or remove {folder.name} to fit it again",
                file=where,
            )
    return policy


def _digest(questions: Iterable[TraceSet], columns: Sequence[str]) -> str:
    """SHA-256 of what is fitted on."""
    fingerprint = hashlib.sha256()
    for part in questions:
        held = [name for name in columns if name in part.table.column_names]
        for batch in part.table.select(held).to_batches(max_chunksize=_ROWS):
            fingerprint.update(json.dumps(batch.to_pylist()).encode())
    return fingerprint.hexdigest()
