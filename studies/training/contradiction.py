"""Trains the contradiction head on template pairs and measures it on templates it never saw."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from studies.command import Found, report
from studies.hidden_constraints.contradiction_head import (
    ContradictionHead,
    HeadWeights,
    kept_vectors,
    pair_features,
)
from studies.training.template_pairs import KINDS, Pair, make_pairs, pole_phrases
from suffice._version import VERSION
from suffice.cli.output import Form
from suffice.cli.parser import command
from suffice.contracts import ContradictionDetector, Encoder
from suffice.errors import UsageError
from suffice.options import Option
from suffice.results.table import Column, Table
from suffice.retrieval.dense import OnnxEncoder
from suffice.signals.samples import MarkerDetector
from suffice.stats.auroc import ResampledAuroc, auroc
from suffice.stats.intervals import from_draws, resampled_counts
from suffice.stats.logistic import least_cross_entropy
from suffice.trace.durable import writable

_FORMS = ("{}", "{} it", "{} the service", "{} access to the store", "we {} the system")
"""Around a phrase, so that the pole is not that of single words only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContradictionSettings:
    """How the head is trained; ridges are penalties on squared weights."""

    pairs: Annotated[int, Option(at_least=1, help="pairs of each family of templates")] = 60
    pole_ridge: Annotated[float, Option(help="penalty on the pole's weights")] = 0.5
    ridge: Annotated[float, Option(help="penalty on the head's weights")] = 1.0
    seed: Annotated[int, Option(at_least=0, help="of the pairs")] = 42

    def __post_init__(self) -> None:
        for name in ("pole_ridge", "ridge"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UsageError(f"{name} must be above 0, found {getattr(self, name)!r}")


def logistic_weights(
    features: NDArray[np.float64], labels: NDArray[np.bool_], *, ridge: float
) -> NDArray[np.float64]:
    """Logistic regression, (n_features + 1,), the offset last; ``ridge / 2`` penalises squared weights."""
    design = np.vstack([features.T, np.ones(len(features))])
    penalty = np.append(np.full(features.shape[1], ridge), 0.0)
    return least_cross_entropy(design, labels.astype(np.float64), penalty)


def train(
    encoder: Encoder, settings: ContradictionSettings = ContradictionSettings()
) -> HeadWeights:
    """The head of the training families; the same encoder and settings give the same weights."""
    vector_of, phrases = kept_vectors(encoder), pole_phrases()
    vectors = [vector_of(form.format(phrase)) for form in _FORMS for phrase, _ in phrases]
    doing = np.array([doing for _ in _FORMS for _, doing in phrases])
    # the direction that tells phrases of doing from those of undoing, (dimension + 1,)
    pole = logistic_weights(np.array(vectors), doing, ridge=settings.pole_ridge)
    pairs = make_pairs("train", per_family=settings.pairs, seed=settings.seed)
    features = [pair_features(pair.step, pair.candidate, vector_of, pole) for pair in pairs]
    labels = np.array([pair.conflict for pair in pairs])
    weights = logistic_weights(np.array(features), labels, ridge=settings.ridge)
    return HeadWeights(encoder=encoder.name, pole=pole, weights=weights)


_SHARED = {"flagged, of a kind": "flagged_by_kind", "accuracy, of a family": "accuracy_by_family"}
METRICS = ("accuracy", "precision", "recall", "f1")


def measure(
    detector: ContradictionDetector, pairs: Sequence[Pair], *, resamples: int = 1000
) -> dict[str, Any]:
    """Ask a detector about every pair, one a call; 95% intervals over resampled families."""
    started = time.perf_counter()
    values = np.concatenate(
        [detector.contradictions([(pair.step, pair.candidate)]) for pair in pairs]
    )
    seconds = (time.perf_counter() - started) / len(pairs)
    conflict, flagged = np.array([pair.conflict for pair in pairs]), values >= 0.5
    names, family = np.unique([pair.family for pair in pairs], return_inverse=True)
    kinds = np.array([pair.kind for pair in pairs])
    cells = (flagged & conflict, flagged & ~conflict, ~flagged & conflict, ~flagged & ~conflict)
    counts = np.array([np.bincount(family, weights=cell, minlength=len(names)) for cell in cells])
    blocks = resampled_counts(len(names), resamples=resamples)
    drawn = np.concatenate(list(blocks)).T  # (n_families, n_draws)
    plain, resampled = _metrics(counts.sum(axis=1)), _metrics(counts @ drawn)
    metrics = {name: from_draws(float(plain[name]), resampled[name]) for name in METRICS}
    areas = ResampledAuroc(values, conflict, family, len(names))(drawn)
    return {
        "metrics": {**metrics, "auroc": from_draws(auroc(values, conflict), areas)},
        "flagged_by_kind": {
            kind: float(flagged[kinds == kind].mean()) for kind in KINDS if (kinds == kind).any()
        },
        "accuracy_by_family": {
            str(name): float((flagged == conflict)[family == place].mean())
            for place, name in enumerate(names)
        },
        "seconds_a_pair": seconds,
    }


def _metrics(counts: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    hit, alarm, missed, left = counts
    with np.errstate(invalid="ignore"):
        return {
            "accuracy": (hit + left) / (hit + alarm + missed + left),
            "precision": hit / (hit + alarm),
            "recall": hit / (hit + missed),
            "f1": 2 * hit / (2 * hit + alarm + missed),
        }


def _tables(held_out: Mapping[str, Mapping[str, Any]], pairs: int) -> tuple[Table, Table]:
    metrics = (*METRICS, "auroc")
    return (
        Table(
            name="detectors",
            title=f"{pairs} pairs of templates held out; microseconds a pair.",
            columns=[
                Column(name="detector"),
                *(Column(name=m, kind="number", digits=3, interval=True) for m in metrics),
                Column(name="microseconds", kind="number", digits=0),
            ],
            rows=[
                (name, *(one["metrics"][m] for m in metrics), 1e6 * one["seconds_a_pair"])
                for name, one in held_out.items()
            ],
        ),
        Table(
            name="shares",
            title="Shares by kind of pair and by family of templates.",
            columns=[
                Column(name="detector", once=True),
                Column(name="share", once=True),
                Column(name="of"),
                Column(name="value", kind="number", digits=2),
            ],
            rows=[
                (name, what, key, share)
                for name, scores in held_out.items()
                for what, part in _SHARED.items()
                for key, share in scores[part].items()
            ],
            names=3,
        ),
    )


@command()
def run(
    *,
    out: Annotated[str, Option(metavar="FILE", help="where the weights are written")],
    settings: ContradictionSettings,
    form: Form,
) -> int:
    """Train the contradiction head on pairs of plan steps made from templates.

    Compares it with the published markers on templates held out.
    """
    file = writable(out)
    file.parent.mkdir(parents=True, exist_ok=True)
    encoder = OnnxEncoder.load(threads=1)
    weights = train(encoder, settings)
    weights.write(file)
    pairs = make_pairs("test", per_family=settings.pairs, seed=settings.seed)
    detectors: dict[str, ContradictionDetector] = {
        "markers": MarkerDetector(),
        "head": ContradictionHead(weights, encoder),
    }
    held_out = {name: measure(detector, pairs) for name, detector in detectors.items()}
    document = {
        "version": VERSION,
        "file": out,
        "encoder": encoder.name,
        "settings": settings,
        "test_pairs": len(pairs),
        "held_out": held_out,
    }
    found = Found(document=document, shown=_tables(held_out, len(pairs)))
    return report("contradiction", found, form)
