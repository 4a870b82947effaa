"""Fitting of AB-RAG: its signals, and the corrected weights from the tune split."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from suffice.contracts import Certainty
from suffice.errors import UsageError, all_of
from suffice.measures.measures import Measures
from suffice.policies.ab_rag.policy import (
    CERTAINTIES,
    PUBLISHED_THRESHOLD,
    SPREAD,
    SUPPORTS,
    ABRagPolicy,
    Combination,
    CorrectedSettings,
    PublishedSettings,
    Support,
)
from suffice.policies.fitting import FitData, fit_data, right_abstentions, warn_of_little
from suffice.policies.thresholds import (
    cheapest_within_one_error,
    first_stops,
    score_stops,
    shortest_threshold,
)
from suffice.signals.abstained import ABSTAINED
from suffice.signals.known_signals import resolve
from suffice.signals.signal_table import lack, remedy
from suffice.stats.logistic import fit_logistic
from suffice.stats.units import Array, Mask

THRESHOLDS = tuple(round(0.02 * step, 2) for step in range(1, 51))  # at 1 it never stops
_MOST_SAMPLES = 20
_ROUNDED = 6e-5
_PENALTY = 1.0


class _Held:
    def __init__(self, measures: Measures, names: Sequence[str]) -> None:
        traces = measures.traces
        self.source = traces.origin.source
        self._lacks = {name: lack(resolve(name), traces) for name in names}
        table = measures.signals([name for name in names if self._lacks[name] is None])
        self._values = {name: values[traces.exists] for name, values in table.values.items()}

    def values(self, name: str) -> Array:
        """Return a signal's defined values; empty if the record cannot give it."""
        values = self._values.get(name, np.empty(0))
        return values[np.isfinite(values)]

    def share(self, name: str) -> float:
        """Return the share of recorded rounds in which a signal is defined."""
        rounds = len(self._values.get(name, ()))
        return len(self.values(name)) / rounds if rounds else 0.0

    def remark(self, name: str) -> str:
        """Say how often a signal is undefined, at the end of a sentence; empty: never."""
        share = self.share(name)
        return "" if share == 1.0 else f" (undefined in {1.0 - share:.1%} of the rounds)"

    def require(self, name: str) -> None:
        if self.share(name):
            return
        why = self._lacks[name]
        lacks = f"is defined in no round of {self.source}"
        if why is not None and not why.spec.recorded_only:
            lacks = why.needed
        raise UsageError(f"ab-rag reads {name!r}, which {lacks}{remedy(resolve(name))}")


def _certainty(held: _Held, wanted: Certainty | None) -> tuple[Certainty, str]:
    if wanted is not None:
        held.require(wanted)
        return wanted, f"certainty (S1) is {wanted}, as asked{held.remark(wanted)}"
    best = max(CERTAINTIES, key=held.share)  # of equal ones the first
    if not held.share(best):
        raise UsageError(
            "ab-rag needs token_probability or self_consistency for its certainty (S1), and "
            f"{held.source} holds neither tokens nor samples; record with a server that gives "
            "log-probabilities, or with --samples 3"
        )
    return best, f"certainty (S1) is {best}, which the record gives most often{held.remark(best)}"


def _support(held: _Held, wanted: Support | None) -> tuple[Support, str]:
    if wanted is not None:
        held.require(wanted)
        return wanted, f"S2 is {wanted}, as asked{held.remark(wanted)}"
    for name in SUPPORTS:
        if held.share(name):
            return name, f"S2 is {name}{held.remark(name)}"
    raise UsageError(
        f"ab-rag needs {', '.join(SUPPORTS[:-1])} or {SUPPORTS[-1]} for S2, and {held.source} holds no "
        "passages' texts to compute one from"
    )


def published_ab_rag(measures: Measures, settings: PublishedSettings) -> ABRagPolicy:
    """Return the published preset with the S1 of these traces, without a fit."""
    others = ("evidence_consistency", SPREAD)
    held = _Held(measures, (*CERTAINTIES, *others))
    (chosen, note), *_ = all_of(
        lambda: _certainty(held, settings.certainty),
        *(partial(held.require, name) for name in others),
    )
    return ABRagPolicy.published(
        chosen,
        threshold=PUBLISHED_THRESHOLD if settings.threshold is None else settings.threshold,
        levels=_levels(held, chosen),
        notes=(note, *(f"{name}{held.remark(name)}" for name in others if held.remark(name))),
    )


def _levels(held: _Held, certainty: Certainty) -> tuple[float, ...]:
    """Return the possible agreements of the samples; empty for token probabilities, or if they vary."""
    if certainty != "self_consistency":
        return ()
    levels = np.unique(held.values(certainty))
    for count in range(1, _MOST_SAMPLES + 1):
        # stored shares may be rounded to a few digits
        if np.allclose(levels * count, np.round(levels * count), atol=_ROUNDED * count):
            return tuple(agreeing / count for agreeing in range(1, count + 1))
    return ()


def fit_ab_rag(measures: Measures, split: str, settings: CorrectedSettings) -> ABRagPolicy:
    """Fit the corrected preset's weights, and its threshold unless the settings give one."""
    fitting = measures.only_split(split)
    held = _Held(fitting, (*CERTAINTIES, *SUPPORTS, SPREAD))
    (first, why_first), (second, why_second), _ = all_of(
        lambda: _certainty(held, settings.certainty),
        lambda: _support(held, settings.support),
        lambda: held.require(SPREAD),
    )
    names = (first, second, SPREAD)
    data = fit_data(
        measures,
        (*names, ABSTAINED.name),
        split=split,
        f1_kind=settings.f1_kind or "hotpotqa",
        abstention=right_abstentions(fitting),
    )
    weights = _fit(data, names, np.ones(data.table.n_questions, np.bool_))
    warn_of_little(data, "ab-rag's confidence")
    threshold = settings.threshold
    if threshold is None:
        confidence = _out_of_fold(data, names)
        last = data.table.exists.sum(axis=1)
        scores = [
            score_stops(tau, first_stops(confidence >= tau, last), data.outcomes)
            for tau in THRESHOLDS
        ]
        ends = np.append(confidence[data.table.exists], (0.0, 1.0))
        best = cheapest_within_one_error(scores).threshold
        threshold = shortest_threshold(best, ends, ">=")
    spread = (f"{SPREAD}{held.remark(SPREAD)}",) if held.remark(SPREAD) else ()
    return ABRagPolicy(
        **vars(weights),
        threshold=threshold,
        abstention=data.abstention,
        preset="corrected",
        levels=_levels(held, first),
        fitted_on=dict(data.chosen_by if settings.threshold is None else data.provenance),
        notes=(why_first, why_second, *spread),
    )


def _fit(data: FitData, names: Sequence[str], rows: Mask) -> Combination:
    em, table = data.outcomes.em, data.table
    used = rows[:, None] & np.isfinite(em) & (table.signal(ABSTAINED.name) != 1.0)
    if not used.any():
        weights = dict.fromkeys(names, 0.0)
        return Combination(weights=weights, link="logistic", reads_abstention=True)
    absent = {name: np.isnan(table.signal(name)) for name in names}
    some = [name for name in names if (absent[name] & used).any()]
    features = np.empty((int(used.sum()), len(names) + len(some)))  # a column at a time, for memory
    for index, name in enumerate(names):
        features[:, index] = np.where(absent[name], 0.0, table.signal(name))[used]
    for index, name in enumerate(some, len(names)):
        features[:, index] = absent[name][used]
    fitted = fit_logistic(features, em[used], penalty=_PENALTY)
    return Combination(
        weights=dict(zip(names, fitted.weights, strict=False)),
        undefined=dict(zip(some, fitted.weights[len(names) :], strict=True)),
        intercept=fitted.intercept,
        link="logistic",
        reads_abstention=True,
    )


def _out_of_fold(data: FitData, names: Sequence[str]) -> Array:
    out_of_fold = np.full((data.table.n_questions, data.table.n_rounds), np.nan)
    for held_out, others in data.held_out():
        confidence = _fit(data, names, others).confidence(data.table)
        out_of_fold[held_out] = confidence[held_out]
    return out_of_fold
