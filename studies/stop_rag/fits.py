"""Networks of the evaluation of Stop-RAG: trained, or found trained in its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from studies.stop_rag.results import LEARNED, SIGNALS, StopRAGStudySettings, Variant
from suffice.errors import DataError
from suffice.measures.measures import Measures
from suffice.policies.file import load_policy, save_policy
from suffice.policies.method import FitRun
from suffice.policies.stop_rag.fit import VALIDATION_SPLIT, fit_stop_rag
from suffice.policies.stop_rag.policy import StopRAGPolicy
from suffice.policies.stop_rag.training import TrainingProgress
from suffice.trace.rounds.table import TraceSet

_READ = (
    "question_id",
    "round",
    "question",
    "gold_answers",
    "split",
    "passages",
    "answer",
    "samples",
)
_STUDY = "study"  # where a policy's provenance says what it was fitted for
_ROWS = 1024


class Fit(NamedTuple):
    """A variant in one seed, the ``number``-th of ``of``."""

    variant: Variant
    seed: int
    number: int
    of: int

    @property
    def name(self) -> str:
        return f"{self.variant}-{self.seed}"


class FitProgress(NamedTuple):
    """How far a fit is; ``training`` while that is under way."""

    fit: Fit
    stage: Literal["found", "training", "trained", "scored"]
    training: TrainingProgress | None = None


class FittedPolicy(NamedTuple):
    """What a fit gave; ``loaded``: it was found."""

    fit: Fit
    policy: StopRAGPolicy
    loaded: bool


def fitting_questions(traces: TraceSet, settings: StopRAGStudySettings) -> Mapping[str, TraceSet]:
    """The questions fitted on, by split: those trained on, then those that validate, if there are such."""
    splits = [settings.fit_split]
    if VALIDATION_SPLIT in traces.splits and settings.fit_split != VALIDATION_SPLIT:
        splits.append(VALIDATION_SPLIT)
    return {split: traces.only_split(split) for split in splits}


def fit_variants(
    traces: TraceSet,
    settings: StopRAGStudySettings,
    on_progress: Callable[[FitProgress], None] = lambda _: None,
) -> list[FittedPolicy]:
    """Every variant in every seed, in this order.

    A policy that the folder holds is taken if it was fitted on the same questions in the same way; a
    training that was killed goes on where its checkpoint stands.
    """
    questions = fitting_questions(traces, settings)
    wanted = [(variant, seed) for variant in settings.variants for seed in settings.all_seeds]
    digests = {False: _digest(questions.values(), _READ)}
    if SIGNALS in settings.variants:
        digests[True] = _digest(questions.values(), (*_READ, "signals"))
    return [
        _fitted(
            traces,
            settings,
            Fit(variant, seed, number, len(wanted)),
            digests[variant == SIGNALS],
            on_progress,
        )
        for number, (variant, seed) in enumerate(wanted, start=1)
    ]


def _fitted(
    traces: TraceSet,
    settings: StopRAGStudySettings,
    fit: Fit,
    digest: str,
    tell: Callable[[FitProgress], None],
) -> FittedPolicy:
    base = settings.signals if fit.variant == SIGNALS else settings.text
    reward = "f1" if settings.f1_kind == "squad" else f"f1-{settings.f1_kind}"
    how = replace(base, target=LEARNED[fit.variant], reward=reward, seed=fit.seed)
    schedule = asdict(how.schedule(settings.preset, traces.origin.run.get("dataset")))
    schedule.pop("device", None)
    depends_on = {
        "preset": settings.preset,
        "features": how.features,
        "reward": how.reward,
        "inputs": how.inputs,
        "split": settings.fit_split,
        **schedule,
        "questions": digest,
    }
    stated: dict[str, Any] = json.loads(json.dumps(depends_on))
    folder = None if settings.folder is None else settings.folder / fit.name
    if folder is not None and (folder / "policy.json").exists():
        found = _read_fit(folder, stated)
        tell(FitProgress(fit, "found"))
        return FittedPolicy(fit, found, loaded=True)
    run = FitRun(
        progress=lambda training: tell(FitProgress(fit, "training", training)),
        checkpoint=None if folder is None else FitRun.checkpoint_of(folder),
    )
    measures = Measures(traces).by(None)
    fitted = fit_stop_rag(measures, settings.preset, settings.fit_split, how, run)
    policy = replace(fitted, fitted_on={**fitted.fitted_on, _STUDY: stated})
    if folder is not None:
        save_policy(policy, folder, max_rounds=policy.rounds)
    tell(FitProgress(fit, "trained"))
    return FittedPolicy(fit, policy, loaded=False)


def _read_fit(folder: Path, stated: Mapping[str, Any]) -> StopRAGPolicy:
    policy = load_policy(folder).policy
    where = str(folder / "policy.json")
    if not isinstance(policy, StopRAGPolicy):
        raise DataError(
            f"holds a policy of kind {policy.kind!r}; choose an empty folder", file=where
        )
    before = policy.fitted_on.get(_STUDY)
    before = before if isinstance(before, Mapping) else {}
    names = [*stated, *(name for name in before if name not in stated)]
    differing = [name for name in names if before.get(name) != stated.get(name)]
    if differing:
        name = differing[0]
        was, now = (json.dumps(document.get(name))[:40] for document in (before, stated))
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
