"""AB-RAG as a method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from suffice.contracts import Certainty
from suffice.errors import UsageError
from suffice.options import Option
from suffice.policies.ab_rag.policy import ABRagPolicy, Support
from suffice.policies.method import FitRun, Method, Preset, read_abstention, read_told
from suffice.scoring import F1Kind
from suffice.stats.fields import Fields, numbers

if TYPE_CHECKING:
    from suffice.measures.measures import Measures


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSettings:
    """What the published preset leaves open."""

    certainty: Annotated[
        Certainty | None,
        Option(
            help="what says how sure the model is, S1 of the paper "
            "(default: token_probability where the trace holds tokens, else self_consistency)"
        ),
    ] = None
    threshold: Annotated[
        float | None,
        Option(
            help="stop at this confidence (default: published 0.6, corrected chosen on the split)",
            metavar="TAU",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedSettings(PublishedSettings):
    """The same, the corrected S2, and the F1 that the threshold is chosen by."""

    f1_kind: Annotated[
        F1Kind | None,
        Option(name="f1", help="which F1 the threshold is chosen by (default: hotpotqa)"),
    ] = None

    def __post_init__(self) -> None:
        if self.f1_kind is not None and self.threshold is not None:
            raise UsageError("f1 is what a threshold is chosen by, and one is given; leave one out")

    support: Annotated[
        Support | None,
        Option(
            help="S2 of the corrected preset (default: the first of these that the trace gives)"
        ),
    ] = None


class ABRag(Method):
    """See :class:`suffice.policies.method.Method`."""

    name = "ab-rag"
    summary = (
        "stop when a confidence made of model certainty, evidence and reranker scores "
        "reaches a threshold"
    )
    source = "paper 2"
    about = "what its confidence is made of, and where it stops"
    fitted = frozenset({"corrected"})
    unfitted = MappingProxyType({"published": ABRagPolicy.published})
    main_field = "weights"

    def settings(self, preset: Preset) -> type[Any]:
        """The corrected preset also has a choice of S2."""
        return CorrectedSettings if preset == "corrected" else PublishedSettings

    def fit(
        self,
        measures: Measures,
        preset: Preset,
        settings: Any,
        split: str,
        run: FitRun | None = None,
    ) -> ABRagPolicy:
        """See :mod:`suffice.policies.ab_rag.fit`."""
        from suffice.policies.ab_rag.fit import fit_ab_rag, published_ab_rag
        from suffice.policies.fitting import warn_of_undefined

        del run
        if preset == "published":
            policy = published_ab_rag(
                measures, certainty=settings.certainty, threshold=settings.threshold
            )
            warn_of_undefined(policy, measures, self.name, policy.where_undefined)
            return policy
        policy = fit_ab_rag(
            measures,
            split,
            certainty=settings.certainty,
            support=settings.support,
            threshold=settings.threshold,
            f1_kind=settings.f1_kind or "hotpotqa",
        )
        warn_of_undefined(policy, measures.only_split(split), self.name, policy.where_undefined)
        return policy

    def read(self, document: Mapping[str, Any], file: Path) -> ABRagPolicy:
        """See :meth:`suffice.policies.method.PolicyKind.read`."""
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


METHOD = ABRag()
