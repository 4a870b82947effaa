"""Trains the contradiction head on template pairs and measures it on templates it never saw."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from studies.command import Found, Options, Request, Study
from studies.training.template_pairs import KINDS, Pair, make_pairs, pole_phrases
from suffice._version import VERSION
from suffice.errors import UsageError
from suffice.numbers.auroc import ResampledAuroc, auroc
from suffice.numbers.intervals.bootstrap import resampled_counts
from suffice.numbers.intervals.estimate import Estimate, from_draws
from suffice.numbers.logistic import least_cross_entropy
from suffice.options import Option
from suffice.protocols import ContradictionDetector, Encoder
from suffice.results.table import Column, Table
from suffice.retrieval.dense.onnx_encoder import OnnxEncoder
from suffice.retrieval.pairs.contradiction_features import VectorOf, pair_features
from suffice.retrieval.pairs.contradiction_head import ContradictionHead, HeadWeights, kept_vectors
from suffice.signals.candidates import MarkerDetector
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
    """Penalised logistic regression, (n_features + 1,), the offset last.

    It minimises the summed log-loss plus ``ridge / 2`` times the squared weights, the offset left free.
    """
    design = np.vstack([features.T, np.ones(len(features))])
    penalty = np.append(np.full(features.shape[1], ridge), 0.0)
    targets = labels.astype(np.float64)
    return least_cross_entropy(design, targets, penalty)


def learn_pole(vector_of: VectorOf, *, ridge: float) -> NDArray[np.float64]:
    """The direction that tells phrases of doing from those of undoing, (dimension + 1,)."""
    phrases = pole_phrases()
    vectors = [vector_of(form.format(phrase)) for form in _FORMS for phrase, _ in phrases]
    labels = np.array([doing for _ in _FORMS for _, doing in phrases])
    return logistic_weights(np.array(vectors), labels, ridge=ridge)


def train(
    encoder: Encoder, settings: ContradictionSettings = ContradictionSettings()
) -> HeadWeights:
    """The head of the training families; the same encoder and settings give the same weights."""
    vector_of = kept_vectors(encoder)
    pole = learn_pole(vector_of, ridge=settings.pole_ridge)
    pairs = make_pairs("train", per_family=settings.pairs, seed=settings.seed)
    features = [pair_features(pair.step, pair.candidate, vector_of, pole) for pair in pairs]
    labels = np.array([pair.conflict for pair in pairs])
    weights = logistic_weights(np.array(features), labels, ridge=settings.ridge)
    return HeadWeights(encoder=encoder.name, pole=pole, weights=weights)


# --- what a detector is worth ----------------------------------------------------------------------
METRICS = ("accuracy", "precision", "recall", "f1")


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorScores:
    """What a detector is worth on labelled pairs; a contradiction is the positive.

    Intervals are 95% over resampled families, since pairs of a family resemble each other. A pair is timed
    one a call, vectors of texts seen before kept.
    """

    metrics: Mapping[str, Estimate]
    flagged_by_kind: Mapping[str, float]
    accuracy_by_family: Mapping[str, float]
    seconds_a_pair: float


def counted_metrics(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """:data:`METRICS` of counts, (4, n)."""
    hit, alarm, missed, left = counts
    with np.errstate(invalid="ignore"):
        return np.array(
            [
                (hit + left) / (hit + alarm + missed + left),
                hit / (hit + alarm),
                hit / (hit + missed),
                2 * hit / (2 * hit + alarm + missed),
            ]
        )


def measure(
    detector: ContradictionDetector,
    pairs: Sequence[Pair],
    *,
    threshold: float = 0.5,
    resamples: int = 1000,
    seed: int = 42,
) -> DetectorScores:
    """Ask a detector about every pair."""
    if not pairs:
        raise UsageError("there are no pairs to measure a detector on")
    started = time.perf_counter()
    values = np.concatenate(
        [detector.contradictions([(pair.step, pair.candidate)]) for pair in pairs]
    )
    seconds = (time.perf_counter() - started) / len(pairs)
    conflict = np.array([pair.conflict for pair in pairs])
    flagged = values >= threshold
    names, family = np.unique([pair.family for pair in pairs], return_inverse=True)
    kinds = np.array([pair.kind for pair in pairs])
    return DetectorScores(
        metrics=_metrics(values, flagged, conflict, family, resamples=resamples, seed=seed),
        flagged_by_kind={
            kind: float(flagged[kinds == kind].mean()) for kind in KINDS if (kinds == kind).any()
        },
        accuracy_by_family={
            str(name): float((flagged == conflict)[family == place].mean())
            for place, name in enumerate(names)
        },
        seconds_a_pair=seconds,
    )


def _metrics(
    values: NDArray[np.float64],
    flagged: NDArray[np.bool_],
    conflict: NDArray[np.bool_],
    family: NDArray[np.int64],
    *,
    resamples: int,
    seed: int,
) -> dict[str, Estimate]:
    n_families = int(family.max()) + 1
    cells = (flagged & conflict, flagged & ~conflict, ~flagged & conflict, ~flagged & ~conflict)
    by_family = np.array(
        [np.bincount(family, weights=cell, minlength=n_families) for cell in cells]
    )
    drawn = np.concatenate(
        list(resampled_counts(n_families, resamples=resamples, seed=seed))
    ).T  # (n_families, n_draws)
    plain = counted_metrics(by_family.sum(axis=1, keepdims=True))[:, 0]
    resampled = counted_metrics(by_family @ drawn)
    metrics = {
        name: from_draws(float(plain[row]), resampled[row]) for row, name in enumerate(METRICS)
    }
    areas = ResampledAuroc(values, conflict, family, n_families)(drawn)
    metrics["auroc"] = from_draws(auroc(values, conflict), areas)
    return metrics


# --- the command ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class ContradictionOptions:
    """Where the weights are written."""

    out: Annotated[str, Option(metavar="FILE", help="where the weights are written")]


def _tables(held_out: Mapping[str, DetectorScores], pairs: int) -> tuple[Table, Table]:
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
                (name, *(one.metrics[m] for m in metrics), 1e6 * one.seconds_a_pair)
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
                for what, values in (
                    ("flagged, of a kind", scores.flagged_by_kind),
                    ("accuracy, of a family", scores.accuracy_by_family),
                )
                for key, share in values.items()
            ],
            names=3,
        ),
    )


def _run(request: Request) -> Found:
    asked = request.read(ContradictionOptions)
    out = writable(asked.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    settings = request.read(ContradictionSettings)
    encoder = OnnxEncoder.load(threads=1)
    weights = train(encoder, settings)
    weights.write(out)
    pairs = make_pairs("test", per_family=settings.pairs, seed=settings.seed)
    detectors: dict[str, ContradictionDetector] = {
        "markers": MarkerDetector(),
        "head": ContradictionHead(weights, encoder),
    }
    held_out = {name: measure(detector, pairs) for name, detector in detectors.items()}
    document = {
        "version": VERSION,
        "file": asked.out,
        "encoder": encoder.name,
        "settings": settings,
        "test_pairs": len(pairs),
        "held_out": held_out,
    }
    return Found(document=document, shown=_tables(held_out, len(pairs)))


STUDY = Study(
    name="training contradiction",
    description="Trains the contradiction head on pairs of plan steps made from templates, and compares it "
    "with the published markers on templates held out.",
    options=(Options(settings=ContradictionOptions), Options(settings=ContradictionSettings)),
    run=_run,
)
