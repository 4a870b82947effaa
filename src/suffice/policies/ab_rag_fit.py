"""Build AB-RAG on a record: which signals it holds, and the corrected weights learned on tune."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from suffice.calibration.logistic import LogisticFit, fit_logistic
from suffice.errors import SufficeWarning, UsageError
from suffice.policies.ab_rag import (
    CERTAINTIES,
    PUBLISHED_THRESHOLD,
    SPREAD,
    SUPPORTS,
    ABRagPolicy,
    Certainty,
    Support,
)
from suffice.policies.fitting import FitData, abstention_of, folds
from suffice.policies.rule_columns import first_stops
from suffice.policies.sweeping import ThresholdScore, cheapest_within_one_error, score_stops
from suffice.protocols import Signal
from suffice.signals.abstained import ABSTAINED, abstained_signal
from suffice.signals.registry import resolve
from suffice.signals.table import missing_inputs, signal_table
from suffice.trace.table import TraceSet

__all__ = [
    "THRESHOLDS",
    "ab_rag_signals",
    "choose_certainty",
    "choose_support",
    "fit_ab_rag",
    "published_ab_rag",
    "sweep_confidence",
]

THRESHOLDS = tuple(round(0.02 * step, 2) for step in range(1, 51))  # at 1 it never stops
_FEW_LEVELS = 12
_PENALTY = 1.0


def choose_certainty(
    traces: TraceSet, wanted: Certainty | None = None
) -> tuple[Certainty, tuple[str, ...]]:
    """S1 for these traces, and a line that says which and why.

    Token probabilities where the record holds them, else the agreement of samples (paper 2, III-D).

    Raises
    ------
    UsageError
        When the record holds neither, or not the one ``wanted``.
    """
    missing = {name: missing_inputs(resolve(name), traces) for name in CERTAINTIES}
    if wanted is not None:
        if missing[wanted]:
            raise UsageError(
                f"S1 {wanted!r} needs column {' and '.join(missing[wanted])}, which "
                f"{traces.origin.source} does not hold"
            )
        return wanted, (f"S1 is {wanted}, as asked",)
    for name in CERTAINTIES:
        if not missing[name]:
            why = (
                "the record holds token probabilities"
                if name == CERTAINTIES[0]
                else "the record holds no token probabilities"
            )
            return name, (f"S1 is {name}: {why}",)
    raise UsageError(
        f"ab-rag needs token_probability or self_consistency for S1, and {traces.origin.source} holds "
        "neither tokens nor samples; record with a server that gives log-probabilities, or with "
        "--samples 3"
    )


def choose_support(
    traces: TraceSet, wanted: Support | None = None
) -> tuple[Support, tuple[str, ...]]:
    """S2 of the corrected preset: ``answer_in_evidence``, or what the record holds in its place."""
    if wanted is not None:
        return wanted, (f"S2 is {wanted}, as asked",)
    for name in SUPPORTS:
        if not missing_inputs(resolve(name), traces):
            instead = "" if name == SUPPORTS[0] else f": {SUPPORTS[0]} needs the passages' texts"
            return name, (f"S2 is {name}{instead}",)
    raise UsageError(
        f"ab-rag needs {', '.join(SUPPORTS[:-1])} or {SUPPORTS[-1]} for S2, and {traces.origin.source} "
        "holds no passages to compute one from"
    )


def published_ab_rag(
    traces: TraceSet, *, certainty: Certainty | None = None, threshold: float | None = None
) -> ABRagPolicy:
    """The published preset with the S1 that these traces hold; nothing is fitted."""
    chosen, notes = choose_certainty(traces, certainty)
    return ABRagPolicy.published(
        chosen,
        threshold=PUBLISHED_THRESHOLD if threshold is None else threshold,
        levels=_levels(signal_table(traces, [chosen]).signal(chosen)),
        notes=notes,
    )


def _levels(values: NDArray[np.float64]) -> tuple[float, ...]:
    found = np.unique(values[np.isfinite(values)])
    return tuple(found.tolist()) if len(found) <= _FEW_LEVELS else ()


def ab_rag_signals(
    certainty: Certainty, support: Support, gold: Sequence[str] = ()
) -> tuple[Signal, ...]:
    """What the corrected preset reads: S1, S2, S3 and whether the answer abstains."""
    phrases = abstention_of(gold)
    abstained = ABSTAINED if phrases is None else abstained_signal(phrases)
    return (resolve(certainty), resolve(support), resolve(SPREAD), abstained)


def fit_ab_rag(
    data: FitData,
    certainty: Certainty,
    support: Support,
    *,
    gold: Sequence[str] = (),
    threshold: float | None = None,
    notes: tuple[str, ...] = (),
) -> ABRagPolicy:
    """Learn the corrected preset's weights, and its threshold unless one is given.

    Logistic regression (:func:`~suffice.calibration.logistic.fit_logistic`) of exact match on the
    three signals over all rounds of the labelled questions, abstentions left out. A signal that is
    undefined in some of them (``answer_in_evidence`` for yes and no) gets an own number for that. The
    threshold is the cheapest whose F1 with out-of-fold weights is within one standard error of the
    best.

    Parameters
    ----------
    data
        Signals and outcomes of the fitting split, with :func:`ab_rag_signals`.
    certainty, support
        S1 and S2.
    gold
        All gold answers of the split: "none" counts as an abstention only when it is not one.
    threshold
        Confidence at which to stop; ``None``: chosen as said.
    notes
        Kept with the policy.

    Warns
    -----
    SufficeWarning
        When all answers are right or all are wrong: the weights are 0 then.
    """
    names = (certainty, support, SPREAD)
    weights = _fit(data, names, np.ones(data.table.n_questions, np.bool_))
    _warn_of_one_outcome(data)
    if threshold is None:
        scores = sweep_confidence(_out_of_fold(data, names, weights), data, THRESHOLDS)
        threshold = cheapest_within_one_error(scores).threshold
    return ABRagPolicy(
        weights=weights.weights,
        undefined=weights.undefined,
        intercept=weights.intercept,
        link="logistic",
        threshold=threshold,
        reads_abstention=True,
        abstention=abstention_of(gold),
        preset="corrected",
        levels=_levels(data.table.signal(certainty)),
        fitted_on=dict(data.provenance),
        notes=notes,
    )


def _warn_of_one_outcome(data: FitData) -> None:
    em = data.outcomes.em[np.isfinite(data.outcomes.em)]
    if em.min() == em.max():
        warnings.warn(
            f"all answers of the labelled questions are {'right' if em[0] else 'wrong'}: ab-rag's "
            "weights are 0, its confidence is one number",
            SufficeWarning,
            stacklevel=3,
        )


class _Weights:
    """A fit in the policy's terms."""

    def __init__(self, names: Sequence[str], absent: Sequence[str], fit: LogisticFit) -> None:
        self.intercept = fit.intercept
        self.weights: Mapping[str, float] = dict(zip(names, fit.weights, strict=False))
        tail = fit.weights[len(names) :]
        self.undefined: Mapping[str, float] = dict(zip(absent, tail, strict=True))


def _fit(data: FitData, names: Sequence[str], rows: NDArray[np.bool_]) -> _Weights:
    """Weights over all rounds of the questions in ``rows`` (n_questions,)."""
    em = data.outcomes.em[rows]
    used = np.isfinite(em) & (data.table.signal(ABSTAINED.name)[rows] != 1.0)
    values = np.stack([data.table.signal(name)[rows][used] for name in names], axis=1)
    absent = np.isnan(values)
    some = [index for index in range(len(names)) if absent[:, index].any()]
    features = np.hstack([np.where(absent, 0.0, values), absent[:, some]])
    if not len(features):
        return _Weights(names, (), LogisticFit(0.0, (0.0,) * len(names)))
    fit = fit_logistic(features, em[used], penalty=_PENALTY)
    return _Weights(names, [names[index] for index in some], fit)


def _out_of_fold(data: FitData, names: Sequence[str], whole: _Weights) -> NDArray[np.float64]:
    """Confidence of every question from weights fitted without its fold, (n_questions, n_rounds)."""
    fold = folds(data.table.n_questions)
    found = np.full((data.table.n_questions, data.table.n_rounds), np.nan)
    for number in np.unique(fold):
        held_out = fold == number
        fitted = whole if held_out.all() else _fit(data, names, ~held_out)
        # what another fold never saw undefined is undefined by the whole fit's number
        policy = ABRagPolicy(
            weights=fitted.weights,
            undefined={**whole.undefined, **fitted.undefined},
            intercept=fitted.intercept,
            link="logistic",
            threshold=0.0,
            reads_abstention=True,
        )
        found[held_out] = policy.confidence(data.table)[held_out]
    return found


def sweep_confidence(
    confidence: NDArray[np.float64], data: FitData, thresholds: Sequence[float]
) -> tuple[ThresholdScore, ...]:
    """What stopping at each threshold of a confidence (n_questions, n_rounds) scores."""
    return tuple(
        score_stops(each, first_stops(confidence >= each, data.table.exists), data.outcomes)
        for each in thresholds
    )
