"""MiCP as a method."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffice.errors import DataError
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.method import FitRun, Method, Preset, read_told
from suffice.policies.micp.policy import UNSTATED_WEIGHT, Clusters, MiCPPolicy
from suffice.policies.micp.relevance_filter import RelevanceFilter
from suffice.policies.micp.settings import CALIBRATE, OPTIMIZE, MiCPSettings
from suffice.scoring import Match
from suffice.signals.samples import CLUSTERINGS
from suffice.stats.conformal.order_statistics import Threshold
from suffice.stats.fields import Fields, finite, number

if TYPE_CHECKING:
    from suffice.measures.measures import Measures


class MiCP(Method):
    """See :class:`suffice.policies.method.Method`."""

    name = "micp"
    summary = "stop when samples agree, and give a set of answers with a promised coverage"
    source = "paper 3"
    about = (
        "fitted on the splits optimize and calibrate where the traces have both, else, or with another "
        "--split than tune, on a division of that"
    )
    reads = (frozenset({OPTIMIZE, CALIBRATE}), frozenset({FIT_SPLIT}))
    main_field = "stops"
    options = MiCPSettings

    def fit(
        self,
        measures: Measures,
        preset: Preset,
        settings: Any,
        split: str,
        run: FitRun | None = None,
    ) -> MiCPPolicy:
        """See :func:`suffice.policies.micp.fit.fit_micp`."""
        from suffice.policies.micp.fit import fit_micp

        del run
        return fit_micp(measures, preset, split, settings)

    def read(self, document: Mapping[str, Any], file: Path) -> MiCPPolicy:
        """See :meth:`suffice.policies.method.PolicyKind.read`."""
        del file
        fields = Fields(document)
        fields.need("alpha", "rounds", "samples", "stops", "answer_set")
        match = fields.of("match", dict, {"score": "em"})
        chosen = fields.of("filter", dict)
        budget, clusters = fields.part("budget"), fields.part("clusters")
        budget.number("weight", UNSTATED_WEIGHT)
        fields.part("fitted_on").part("loop")
        return MiCPPolicy(
            alpha=fields.number("alpha"),
            rounds=fields.of("rounds", int),
            samples=fields.of("samples", int),
            stops=tuple(_read_stop(stop) for stop in fields.of("stops", list)),
            final=_or_below_all(fields.of("answer_set", dict), "confidence"),
            stop_on=document.get("stop_on", "entropy"),
            penalty=fields.number("penalty", 0.0),
            clusters=Clusters(
                by=clusters.one_of("by", CLUSTERINGS, "string"),
                cosine=clusters.number_or_none("cosine"),
                encoder=clusters.of("encoder", str),
            ),
            match=Match(
                f1=None if match.get("score") == "em" else number(match.get("at_least"), "match")
            ),
            filter=None if chosen is None else RelevanceFilter.from_json(chosen),
            filtered=fields.of("filtered", bool, default=False),
            seed=fields.of("seed", int, 42),
            budget=budget.document,
            **read_told(fields),
        )


def _read_stop(stop: object) -> Threshold:
    if not isinstance(stop, dict) or "value" not in stop:
        raise DataError(
            f'must hold objects with "value" and "tied_share", found {stop!r}', column="stops"
        )
    share = Fields(stop, "stops").number("tied_share", 0.0)
    return Threshold(_or_below_all(stop, "value"), share)


def _or_below_all(document: Mapping[str, Any], name: str) -> float:
    """A threshold; null lies below everything."""
    value = document.get(name)
    return -math.inf if value is None else finite(value, name)


METHOD = MiCP()
