"""AB-RAG: stop when a confidence of three signals reaches a threshold (paper 2).

``published``: Conf = clip(0.70 S1 + 0.05 S2 + 0.25 S3, 0, 1), stop when Conf >= 0.6. S1 is the mean
token probability, or the agreement of samples if the model gives no probabilities. S2 is the cosine
of answer and evidence, S3 the variance of the reranker's scores. Conf is at most 0.8125, since S3 is
at most 1/4. ``corrected``: Conf = sigmoid(b + sum of w S), with weights and threshold learned on the
tune split. There S2 says whether the evidence holds the answer, and an abstaining answer has
confidence 0.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

import numpy as np

from suffice.contracts import Certainty, Explanation, Facts, LoopNeeds, PolicyTable, StopPolicy
from suffice.errors import SufficeWarning, UsageError
from suffice.options import Option
from suffice.policies.method import (
    USUAL_SAMPLES,
    Method,
    Preset,
    loop_needs,
    read_abstention,
    read_told,
)
from suffice.scoring import F1Kind
from suffice.signals.abstained import abstained_signal
from suffice.signals.known_signals import SignalSpec, resolve
from suffice.stats.fields import Fields, known, numbers
from suffice.stats.logistic import sigmoids
from suffice.stats.units import Array, Mask

if TYPE_CHECKING:
    from suffice.measures.measures import Measures


Support = Literal["answer_in_evidence", "evidence_entailment", "evidence_consistency"]
Link = Literal["clip", "logistic"]
CERTAINTIES: tuple[Certainty, ...] = get_args(Certainty)
SUPPORTS: tuple[Support, ...] = get_args(Support)
SPREAD = "rerank_variance"
PUBLISHED_WEIGHTS = (0.70, 0.05, 0.25)
PUBLISHED_THRESHOLD = 0.6
_ABSTAINED = "abstained"


@dataclass(frozen=True, slots=True)
class Plateau:
    """Thresholds above ``low`` and up to ``high`` that stop where ``signal`` is at least ``level``."""

    low: float
    high: float
    signal: str
    level: float

    def __str__(self) -> str:
        return (
            f"any threshold above {self.low:.4g} and up to {self.high:.4g} stops exactly where "
            f"{self.signal} is at least {self.level:.4g}: the other signals do not decide there"
        )


@dataclass(frozen=True, kw_only=True)
class Combination:
    """The weights that make a confidence of signals; see :class:`ABRagPolicy`."""

    weights: Mapping[str, float]
    link: Link = "clip"
    intercept: float = 0.0
    undefined: Mapping[str, float] = field(default_factory=dict)
    reads_abstention: bool = False

    def confidence(self, table: PolicyTable) -> Array:
        """Return Conf (paper 2, Eq. 4), (n_questions, n_rounds) in [0, 1], NaN where undefined."""
        # round by round, as signals are stored
        total = np.full((table.n_rounds, table.n_questions), self.intercept)
        for name, weight in self.weights.items():
            values = table.signal(name).T
            part = weight * values
            if name in self.undefined:
                part = np.where(np.isnan(values), self.undefined[name], part)
            total += part
        total = self.linked(total)
        if self.reads_abstention:
            total[table.signal(_ABSTAINED).T == 1.0] = 0.0
        return total.T

    def linked(self, total: Array) -> Array:
        return sigmoids(total) if self.link == "logistic" else np.clip(total, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class ABRagPolicy(Combination):
    """Stops at the first round whose confidence is at least ``threshold``.

    The confidence is the sum of ``intercept`` and the weighted signals, S1 first: clipped to [0, 1], or its
    sigmoid, P(EM = 1). A signal that is undefined adds its number in ``undefined``; without one the
    confidence is undefined and does not stop. If ``reads_abstention``, an abstaining answer has confidence
    0. ``levels`` are the values of S1 if it is the agreement of samples: (1/3, 2/3, 1) for three.

    >>> policy = ABRagPolicy.published("self_consistency")
    >>> [f"{plateau.low:.4f} {plateau.high:.2f}" for plateau in policy.plateaus]
    ['0.3458 0.47', '0.5792 0.70']
    """

    threshold: float = PUBLISHED_THRESHOLD
    abstention: tuple[str, ...] | None = None
    preset: str | None = None
    levels: tuple[float, ...] = ()
    fitted_on: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=(), compare=False)
    kind: ClassVar[str] = "ab-rag"

    def __post_init__(self) -> None:
        if not self.weights:
            raise UsageError("ab-rag needs a weight for at least one signal")
        if self.link not in get_args(Link):
            raise UsageError(f"no link {self.link!r}; allowed: {', '.join(get_args(Link))}")
        numbers = {
            **self.weights,
            **{f"undefined {name}": value for name, value in self.undefined.items()},
            "intercept": self.intercept,
            "threshold": self.threshold,
        }
        for name, value in numbers.items():
            if not math.isfinite(value):
                raise UsageError(f"{name} of ab-rag must be a finite number, found {value!r}")
        low, high = self.reachable
        if self.threshold > high:
            warnings.warn(
                f"the threshold {self.threshold:g} of ab-rag can never be reached: its confidence is at "
                f"most {high:.4f}, so the loop always runs to its budget",
                SufficeWarning,
                stacklevel=3,
            )
        elif self.threshold <= low:
            unless = ", unless the answer abstains" if self.reads_abstention else ""
            warnings.warn(
                f"the threshold {self.threshold:g} of ab-rag is always reached: its confidence is at "
                f"least {low:.4f}, so the loop always stops after round 1{unless}",
                SufficeWarning,
                stacklevel=3,
            )

    @classmethod
    def published(
        cls,
        certainty: Certainty = "token_probability",
        *,
        threshold: float = PUBLISHED_THRESHOLD,
        levels: Sequence[float] | None = None,
        notes: tuple[str, ...] = (),
    ) -> ABRagPolicy:
        """Return the paper's policy; ``certainty`` is S1, ``levels`` default to three samples."""
        if certainty not in CERTAINTIES:
            raise UsageError(f"no certainty (S1) {certainty!r}; allowed: {', '.join(CERTAINTIES)}")
        if levels is None:
            levels = (1 / 3, 2 / 3, 1.0) if certainty == "self_consistency" else ()
        names = (certainty, "evidence_consistency", SPREAD)
        return cls(
            weights=dict(zip(names, PUBLISHED_WEIGHTS, strict=True)),
            threshold=threshold,
            preset="published",
            levels=tuple(levels),
            notes=notes,
        )

    @cached_property
    def signals(self) -> tuple[str, ...]:
        return (*self.weights, *((_ABSTAINED,) if self.reads_abstention else ()))

    @cached_property
    def specs(self) -> tuple[SignalSpec, ...]:
        return tuple(
            abstained_signal(self.abstention)
            if name == _ABSTAINED and self.abstention is not None
            else resolve(name)
            for name in self.signals
        )

    @property
    def needs(self) -> LoopNeeds:
        """Inputs of its signals, with as many samples as in the fit of S1."""
        by_samples = self.signals[0] == "self_consistency"
        return loop_needs(
            self.specs,
            samples=(by_samples and len(self.levels)) or USUAL_SAMPLES,
            other_samples="" if self.preset == "published" else "its confidence may be off",
            pipeline="budgeted",
        )

    @property
    def facts(self) -> Facts:
        """Its confidence, and notes on thresholds that change nothing."""
        return Facts(
            name="ab-rag-corrected" if self.preset == "corrected" else "ab-rag",
            summary=self._summary,
            fitted_on=self.fitted_on,
            notes=(*self.notes, *map(str, self.plateaus)),
            threshold=self.threshold,
        )

    @property
    def _summary(self) -> str:
        terms = [
            f"{weight:.3g} {name}"
            + (f" (undefined: {self.undefined[name]:.3g})" if name in self.undefined else "")
            for name, weight in self.weights.items()
        ]
        if self.intercept:
            terms.insert(0, f"{self.intercept:.3g}")
        return f"{self.link}({' + '.join(terms)}) >= {self.threshold:.4g}".replace("+ -", "- ")

    def where_undefined(self, signal: str) -> str:
        """Say in words how it decides where one of its signals is undefined."""
        if signal in self.undefined:
            return f"{self.undefined[signal]:.3g} stands in its place there"
        return "there its confidence is undefined, so it goes on"

    # --- what can be reached ---------------------------------------------------------------------
    @property
    def reachable(self) -> tuple[float, float]:
        """Lowest and highest possible confidence without abstentions."""
        low, high = self.linked(np.array(self._range(self.weights))).tolist()
        return low, high

    def _range(self, names: Iterable[str]) -> tuple[float, float]:
        """Return the bounds of the intercept plus these weighted signals."""
        low = high = self.intercept
        for name in names:
            spec, weight = resolve(name), self.weights[name]
            ends = [weight * spec.low, weight * spec.high] if weight else [0.0]
            ends += [self.undefined[name]] if name in self.undefined else []
            low, high = low + min(ends), high + max(ends)
        return low, high

    @cached_property
    def plateaus(self) -> tuple[Plateau, ...]:
        """Ranges of the threshold in which S1 alone decides, if it has few ``levels``."""
        name, weight = next(iter(self.weights.items()))
        if not self.levels or weight <= 0 or name in self.undefined:
            return ()
        low, high = self._range([signal for signal in self.weights if signal != name])
        plateaus = []
        for below, level in pairwise(sorted(self.levels)):
            ends = np.array([high + weight * below, low + weight * level])
            most, least = self.linked(ends).tolist()
            if most < least:
                plateaus.append(Plateau(most, least, name, level))
        return tuple(plateaus)

    # --- deciding --------------------------------------------------------------------------------
    def explain(self, table: PolicyTable, question: int, round_number: int) -> Explanation:
        """Compare the confidence with the threshold, and list the signals."""
        at = question, round_number - 1
        stop = bool(self.fires(table)[at])
        shown = {name: known(float(table.signal(name)[at])) for name in self.signals}
        confidence = known(float(self.confidence(table)[at]))
        listed = ", ".join(
            f"{spec.name} = "
            + (table.undefined(spec, question, round_number) if value is None else f"{value:.4g}")
            for spec, value in zip(self.specs, shown.values(), strict=True)
        )
        said = "is undefined" if confidence is None else f"{confidence:.4g} {'>=' if stop else '<'}"
        against = "" if confidence is None else f" {self.threshold:g}"
        return Explanation(
            reason=f"confidence {said}{against} at round {round_number}: {listed}",
            values={**shown, "confidence": confidence},
        )

    def fires(self, table: PolicyTable) -> Mask:
        """Return where the confidence reaches the threshold."""
        fires = self.confidence(table) >= self.threshold
        if self.reads_abstention:  # a threshold of 0 holds them too
            fires &= table.signal(_ABSTAINED) != 1.0
        return fires

    def document(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "preset": self.preset,
            "link": self.link,
            "intercept": self.intercept,
            "weights": dict(self.weights),
            "undefined": dict(self.undefined) or None,
            "threshold": self.threshold,
            "reads_abstention": self.reads_abstention,
            "abstention": None if self.abstention is None else list(self.abstention),
            "levels": list(self.levels) or None,
            "fitted_on": dict(self.fitted_on) or None,
            "notes": list(self.notes) or None,
        }
        return {name: value for name, value in body.items() if value is not None}


# --- the method -----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSettings:
    """Options of the published preset."""

    certainty: Annotated[
        Certainty | None,
        Option(
            help="the model's certainty, S1 of the paper (default: token_probability if the record holds "
            "tokens, else self_consistency)"
        ),
    ] = None
    threshold: Annotated[
        float | None,
        Option(
            help="confidence to stop at (default: published 0.6, corrected chosen on the split)",
            metavar="TAU",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedSettings(PublishedSettings):
    """Options of the corrected preset."""

    f1_kind: Annotated[
        F1Kind | None, Option(name="f1", help="F1 to choose the threshold by (default: hotpotqa)")
    ] = None

    def __post_init__(self) -> None:
        if self.f1_kind is not None and self.threshold is not None:
            raise UsageError("--f1 chooses a threshold, and one is given; leave one out")

    support: Annotated[
        Support | None,
        Option(help="S2 of the corrected version (default: the first that the record gives)"),
    ] = None


class _ABRag(Method):
    name = "ab-rag"
    summary = (
        "stop when a confidence reaches a threshold; it combines model certainty, evidence and reranker "
        "scores"
    )
    source = "paper 2"
    about = "its confidence and its threshold"
    fitted: frozenset[Preset] = frozenset({"corrected"})
    unfitted: Mapping[Preset, Callable[[Certainty], StopPolicy]] = MappingProxyType(
        {"published": ABRagPolicy.published}
    )
    main_field = "weights"

    def settings(self, preset: Preset) -> type[Any]:
        return CorrectedSettings if preset == "corrected" else PublishedSettings

    def fit(self, measures: Measures, preset: Preset, settings: Any, split: str) -> ABRagPolicy:
        from suffice.policies.ab_rag.fit import fit_ab_rag, published_ab_rag
        from suffice.policies.fitting import warn_of_undefined

        if preset == "published":
            policy, read = published_ab_rag(measures, settings), measures
        else:
            policy, read = fit_ab_rag(measures, split, settings), measures.only_split(split)
        warn_of_undefined(policy, read, self.name, policy.where_undefined)
        return policy

    def read(self, document: Mapping[str, Any], file: Path) -> ABRagPolicy:
        del file
        fields = Fields(document)
        fields.need("weights", "threshold", "link")
        return ABRagPolicy(
            weights=fields.numbers("weights"),
            threshold=fields.number("threshold"),
            link=document["link"],
            intercept=fields.number("intercept", 0.0),
            undefined=fields.numbers("undefined"),
            reads_abstention=fields.of("reads_abstention", bool, default=False),
            abstention=read_abstention(fields),
            levels=numbers(document.get("levels", []), "levels"),
            **read_told(fields),
        )


METHOD = _ABRag()
