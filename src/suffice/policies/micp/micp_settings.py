"""Settings for fitting MiCP."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from suffice.errors import UsageError, unknown_name
from suffice.options import Option, as_share
from suffice.scoring import Match
from suffice.signals.samples import CLUSTERINGS, Clustering
from suffice.stats.conformal import exact_level

StopOn = Literal["entropy", "top-confidence"]
Grid = Literal["box", "shares"]
Objective = Literal["rounds", "answer-rate", "composite", "composite-rates"]
STOP_ON: tuple[StopOn, ...] = get_args(StopOn)
GRIDS: tuple[Grid, ...] = get_args(Grid)
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
UNSTATED_WEIGHT = 1.0
"""lambda of the composite objectives, and of files that do not state it."""
OPTIMIZE, CALIBRATE = "optimize", "calibrate"
DEFAULT_SHARE = 1 / 3
DEFAULT_ALPHA_RETRIEVAL = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class MiCPSettings:
    """How MiCP is fitted; what each field means stands with it."""

    alpha: Annotated[
        float,
        Option(
            help="allowed error: the answer set holds the right answer with probability 1 - A",
            metavar="A",
            parse=as_share,
        ),
    ] = 0.1
    alpha_retrieval: Annotated[
        float,
        Option(
            help="share of right passages that the passage filter may drop",
            metavar="A",
            parse=as_share,
        ),
    ] = DEFAULT_ALPHA_RETRIEVAL
    objective: Annotated[
        Objective,
        Option(
            help="what the allocation of the error budget minimizes. rounds: mean rounds. answer-rate: "
            "how often it cannot answer. composite: our reading of Eq. 14, whose original is lost. "
            "composite-rates: another reading."
        ),
    ] = "rounds"
    allocation: Annotated[
        tuple[float, ...] | None,
        Option(help="error levels of rounds 1 to T-1, instead of a search", metavar="A1,A2,..."),
    ] = None
    share: Annotated[
        float,
        Option(
            help="share of --split that allocates the budget; the rest calibrates (default: a third)",
            metavar="S",
            parse=as_share,
        ),
    ] = DEFAULT_SHARE
    rounds: Annotated[
        int | None, Option(help="full budget (default: 3, or as recorded)", metavar="T", at_least=1)
    ] = None
    weight: Annotated[
        float,
        Option(
            help="lambda of the composite objectives (default: 1; the paper's is lost)", metavar="L"
        ),
    ] = UNSTATED_WEIGHT
    grid: Annotated[
        Grid,
        Option(
            help="levels to search. box: each from 0 to alpha, as in the paper. shares: shares of the "
            "budget. (default: box)"
        ),
    ] = "box"
    steps: Annotated[
        int, Option(help="number of grid steps in each level or share", metavar="N", at_least=1)
    ] = 10
    stop_on: Annotated[
        StopOn,
        Option(
            help="stop on the samples' normalized entropy, or on the confidence of the largest cluster"
        ),
    ] = "entropy"
    penalty: Annotated[
        float,
        Option(
            help="a cluster's confidence is its share minus L times the entropy (default: 0)",
            metavar="L",
        ),
    ] = 0.0
    clusters: Annotated[
        Clustering | None,
        Option(
            help="string: samples equal after normalization. embedding: clusters that suffice signals "
            "--cluster-cosine stored. (default: string; published: embedding if stored)"
        ),
    ] = None
    match_f1: Annotated[
        float | None,
        Option(help="F1 from which a sample counts as right (default: exact match)", metavar="F"),
    ] = None
    seed: Annotated[int, Option(help="seed of the split and of random draws", at_least=0)] = 42

    def __post_init__(self) -> None:
        exact_level(self.alpha, "alpha")
        exact_level(self.alpha_retrieval, "alpha_retrieval")
        for name in ("rounds", "steps"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, found {value}")
        for name, known in (
            ("objective", OBJECTIVES),
            ("stop_on", STOP_ON),
            ("clusters", (None, *CLUSTERINGS)),
            ("grid", GRIDS),
        ):
            if getattr(self, name) not in known:
                raise UsageError(unknown_name(name, getattr(self, name), filter(None, known)))
        if not 0.0 < self.share < 1.0:
            raise UsageError(f"the allocating share must lie in (0, 1), found {self.share!r}")
        if not 0.0 <= self.weight < math.inf:
            raise UsageError(
                "the weight, lambda of the composite objective, must be a number of at least 0, found "
                f"{self.weight!r}; type --weight 1"
            )
        if not all(0.0 <= level <= 1.0 for level in self.allocation or ()):
            raise UsageError(f"levels of an allocation lie in [0, 1], found {self.allocation!r}")
        Match(f1=self.match_f1)
        for searched, default in (("objective", "rounds"), ("grid", "box"), ("steps", 10)):
            if self.allocation is not None and getattr(self, searched) != default:
                raise UsageError(
                    f"a given allocation is not searched for; leave {searched} or allocation out"
                )
