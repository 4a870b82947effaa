"""Every signal with a fixed name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from suffice.errors import UsageError
from suffice.protocols import Signal
from suffice.signals.abstained import ABSTAINED
from suffice.signals.answer_in_evidence import ANSWER_IN_EVIDENCE
from suffice.signals.answer_stability import (
    ANSWER_SIMILARITY_F1,
    ANSWER_SIMILARITY_SEQ,
    ANSWER_STABLE,
    ANSWER_STABLE_PUBLISHED,
)
from suffice.signals.asking.reranking import (
    RERANK_MEAN,
    RERANK_TOP_SCORE,
    RERANK_VARIANCE,
    RERANK_VARIANCE_RAW,
)
from suffice.signals.candidates import CANDIDATE_AGREEMENT, CONTRADICTION
from suffice.signals.model_confidence import (
    ANSWER_TOKEN_MARGIN,
    MARGIN_MEAN,
    MARGIN_MEDIAN,
    MARGIN_MIN,
    MARGIN_P10,
    TOKEN_PROBABILITY,
    VERBALIZED_CONFIDENCE,
)
from suffice.signals.overlap import OVERLAP, OVERLAP_IDF
from suffice.signals.recorded import (
    EVIDENCE_CONSISTENCY,
    EVIDENCE_CONSISTENCY_MAX,
    EVIDENCE_CONSISTENCY_TOP1,
    EVIDENCE_ENTAILMENT,
    JUDGE_SUPPORT,
    LLM_STOP,
    MALFORMED_ACTIONS,
    Q_CONT,
    Q_STOP,
    REMAINING_SHARE,
)
from suffice.signals.retrieval_scores import RETRIEVAL_GAP, RETRIEVAL_Z, RETRIEVAL_Z_ROBUST
from suffice.signals.samples import (
    NORMALIZED_ENTROPY,
    SELF_CONSISTENCY,
    TOP_CLUSTER_CONFIDENCE,
)
from suffice.signals.spec import SignalSpec

_ALL: tuple[SignalSpec, ...] = (
    ANSWER_STABLE,
    ANSWER_TOKEN_MARGIN,
    MARGIN_MIN,
    MARGIN_P10,
    MARGIN_MEAN,
    MARGIN_MEDIAN,
    OVERLAP,
    OVERLAP_IDF,
    VERBALIZED_CONFIDENCE,
    ANSWER_IN_EVIDENCE,
    RETRIEVAL_Z,
    RETRIEVAL_Z_ROBUST,
    RETRIEVAL_GAP,
    RERANK_TOP_SCORE,
    JUDGE_SUPPORT,
    ABSTAINED,
    TOKEN_PROBABILITY,
    SELF_CONSISTENCY,
    EVIDENCE_CONSISTENCY,
    RERANK_VARIANCE,
    NORMALIZED_ENTROPY,
    TOP_CLUSTER_CONFIDENCE,
    LLM_STOP,
    Q_STOP,
    Q_CONT,
    ANSWER_SIMILARITY_F1,
    ANSWER_SIMILARITY_SEQ,
    EVIDENCE_CONSISTENCY_MAX,
    EVIDENCE_CONSISTENCY_TOP1,
    RERANK_MEAN,
    RERANK_VARIANCE_RAW,
    EVIDENCE_ENTAILMENT,
    ANSWER_STABLE_PUBLISHED,
    CANDIDATE_AGREEMENT,
    CONTRADICTION,
    REMAINING_SHARE,
    MALFORMED_ACTIONS,
)

SIGNALS: Mapping[str, SignalSpec] = MappingProxyType({spec.name: spec for spec in _ALL})


def is_usual(spec: Signal) -> bool:
    """Whether the signal means what its name says by default, without a policy's own settings."""
    return SIGNALS.get(spec.name, spec) == spec


def resolve(name: str, *, also: Iterable[str] = ()) -> SignalSpec:
    """The declaration of a signal; names in ``also`` are the user's own, recorded ones.

    Raises
    ------
    UsageError
        For an unknown name, listing the known ones.
    """
    if name in SIGNALS:
        return SIGNALS[name]
    own = sorted(set(also))
    if name in own:
        return SignalSpec(name=name, summary="recorded by the user")
    listed = ", ".join([*sorted(SIGNALS), *own])
    raise UsageError(f"unknown signal {name!r}; known: {listed}")
