"""MiCP as a method."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffice.errors import DataError
from suffice.numbers.conformal.order_statistics import Threshold
from suffice.numbers.fields import field_of, finite, number, number_or_none, strings_of
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.method import FitRun, Method, Preset
from suffice.policies.micp.policy import Clusters, MiCPPolicy
from suffice.policies.micp.relevance_filter import RelevanceFilter
from suffice.policies.micp.settings import CALIBRATE, OPTIMIZE, MiCPSettings
from suffice.scoring import Match
from suffice.signals.samples import CLUSTERINGS

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

    def settings(self, preset: Preset) -> type[Any]:
        """Those of both presets."""
        del preset
        return MiCPSettings

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
        """See :meth:`suffice.policies.kind.PolicyKind.read`."""
        del file
        for name in ("alpha", "rounds", "samples", "stops", "answer_set"):
            if document.get(name) is None:
                raise DataError("is missing", column=name)
        match = field_of(document, "match", dict, {"score": "em"})
        chosen = field_of(document, "filter", dict)
        budget = field_of(document, "budget", dict, {})
        finite(budget.get("weight", 1.0), "budget.weight")
        fitted_on = field_of(document, "fitted_on", dict, {})
        field_of(fitted_on, "loop", dict, {})
        return MiCPPolicy(
            alpha=finite(document["alpha"], "alpha"),
            rounds=field_of(document, "rounds", int),
            samples=field_of(document, "samples", int),
            stops=_read_stops(field_of(document, "stops", list)),
            final=_or_below_all(field_of(document, "answer_set", dict), "confidence"),
            stop_on=document.get("stop_on", "entropy"),
            penalty=finite(document.get("penalty", 0.0), "penalty"),
            clusters=_read_clusters(field_of(document, "clusters", dict, {})),
            match=Match(
                f1=None if match.get("score") == "em" else number(match.get("at_least"), "match")
            ),
            filter=None if chosen is None else RelevanceFilter.from_json(chosen),
            filtered=field_of(document, "filtered", bool, default=False),
            seed=field_of(document, "seed", int, 42),
            preset=field_of(document, "preset", str),
            budget=budget,
            fitted_on=fitted_on,
            notes=strings_of(document, "notes") or (),
        )


def _read_clusters(clusters: Mapping[str, Any]) -> Clusters:
    by: Any = clusters.get("by", "string")
    if by not in CLUSTERINGS:
        raise DataError(
            f"must be one of {', '.join(CLUSTERINGS)}, found {by!r}", column="clusters.by"
        )
    cosine = number_or_none(clusters.get("cosine"), "clusters.cosine")
    return Clusters(by=by, cosine=cosine, encoder=field_of(clusters, "encoder", str))


def _read_stops(stops: list[Any]) -> tuple[Threshold, ...]:
    thresholds = []
    for stop in stops:
        if not isinstance(stop, dict) or "value" not in stop:
            raise DataError(
                f'must hold objects with "value" and "tied_share", found {stop!r}', column="stops"
            )
        share = finite(stop.get("tied_share", 0.0), "stops.tied_share")
        thresholds.append(Threshold(_or_below_all(stop, "value"), share))
    return tuple(thresholds)


def _or_below_all(document: Mapping[str, Any], name: str) -> float:
    """A threshold; null lies below everything."""
    value = document.get(name)
    return -math.inf if value is None else finite(value, name)


METHOD = MiCP()
