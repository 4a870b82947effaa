"""Settings of replays, searches, choices and diagnoses: a command's options, without heavy imports."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from suffice.costs.usage import COSTS, USUAL_COSTS, CostModel
from suffice.errors import UsageError, unknown_name
from suffice.options import Option, as_share, as_tuple, read_grid, read_names, settle
from suffice.policies.defaults import EVAL_SPLIT, FIT_SPLIT, TEMPLATE
from suffice.scoring import METRICS, AnswerChoice, F1Kind

if TYPE_CHECKING:
    from suffice.evaluation.replay.named_policies import Wanted
    from suffice.measures.measures import Traces

LOSSES, USUAL_LOSS = (0.01, 0.02, 0.03, 0.05, 0.10), 0.02
"""Losses that are proven together where none is asked for, and the one that is recommended if proven."""
Form = Literal["or", "and", "dnf", "vote"]
FORMS: tuple[Form, ...] = get_args(Form)
GAIN_AT_COST = "gain-at-cost"
OBJECTIVES = ("f1", "em", GAIN_AT_COST)
LossName = Literal["signed", "drop", "wrong-stop"]
Correction = Literal["fixed-sequence", "holm"]
Family = Literal["all", "rule", "thresholds", "fixed"]
FAMILIES: tuple[Family, ...] = get_args(Family)
_MOST_THRESHOLDS = 200


def threshold_grid(text: str) -> int | Literal["quantiles"]:
    if text == "quantiles":
        return text  # type: ignore[return-value]
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"must be a whole number, found {text!r}") from None


def answer_choice(text: str) -> str:
    AnswerChoice.parse(text)
    return text


def _names(given: object) -> tuple[str, ...]:
    if not isinstance(given, str):
        return as_tuple(given)
    try:
        return read_names(given)
    except ValueError as error:
        raise UsageError(f"signals {error}") from error


def _policies(what: str) -> Option:
    return Option(name="policy", metavar="P", repeats=True, parse=str, help=what)


TuneSplit = Annotated[str, Option(metavar="S", help="split to fit and choose on")]
EvalSplit = Annotated[str, Option(name="split", metavar="S", help="split to score on")]
Resamples = Annotated[
    int, Option(name="bootstrap", metavar="N", at_least=1, help="number of resamples")
]
Seed = Annotated[int, Option(at_least=0, help="seed of the resampling")]
F1 = Annotated[F1Kind, Option(name="f1", help="F1 variant")]
ComparedBy = Annotated[
    str | None,
    Option(
        name="metric",
        metavar="NAME",
        help=f"quantity to compare policies by: {', '.join(METRICS)}, a column or signal of your own, or "
        "MODULE:FUNCTION of an answer and its gold answers. f1-mlqa, em-mlqa: MLQA's script, in the language "
        "that question_type names. score: the record's own score. agreement: with "
        "the full budget's own answer, without gold answers. (default: f1 where there are gold answers, else "
        "score where the record holds scores, else agreement)",
    ),
]
WhichAnswer = Annotated[
    str,
    Option(
        name="answer",
        metavar="latest|majority|most-confident|[first-]highest:NAME|[first-]lowest:NAME",
        parse=answer_choice,
        help="answer to return and score, of those up to the stop. majority: the most frequent one, "
        "abstentions apart. most-confident: by the policy's confidence. highest, lowest: by a "
        "signal, the latest or the first of equal values. (default: the policy's own choice, if any; "
        "otherwise the latest)",
    ),
]
CostName = Annotated[
    str | None,
    Option(
        metavar="NAME",
        choices=tuple(COSTS),
        help=f"cost to compare policies at: {', '.join(COSTS)} (default: the first of "
        f"{', '.join(USUAL_COSTS)} that is known and differs between fixed budgets)",
    ),
]
Policies = Annotated[
    tuple["Wanted", ...],
    _policies(
        "a policy file, fixed-K, oracle-em, -f1, -score, closed-book (round 0) or a method's name. "
        "NAME: as in the paper; NAME-corrected: our corrected version. Repeatable."
    ),
]
Baseline = Annotated[
    str | None,
    Option(
        metavar="P",
        help="policy to take differences against: fixed-K, a method or a policy file (default: all rounds)",
    ),
]
Rules = Annotated[
    tuple[str, ...],
    Option(
        name="stop-when",
        metavar="RULE",
        repeats=True,
        help="a rule, as in 'answer_stable and overlap > 0.2'. Repeatable.",
    ),
]


Confidence = Annotated[
    float,
    Option(metavar="P", parse=as_share, help="confidence of the promise, above 0 and below 1"),
]
MaxWrongStops = Annotated[
    float | None,
    Option(
        metavar="S",
        parse=as_share,
        help="also promise at most this share of wrong stops: wrong at the stop, right at the full budget",
    ),
]
MinRounds = Annotated[
    int, Option(metavar="K", at_least=1, help="never stop before this round, live too")
]


def refuse_draws(resamples: int, seed: int, least: int = 1) -> None:
    if resamples < least or seed < 0:
        raise UsageError(
            f"resamples must be at least {least} and the seed at least 0, found {resamples} and {seed}"
        )


def _refuse_own_choice(answer: str) -> None:
    if answer == "most-confident":
        raise UsageError(
            "--answer most-confident depends on each policy's own confidence, so candidates cannot be "
            "compared by it; choose by a signal: --answer highest:NAME"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredSettings:
    metric: ComparedBy = None
    f1_kind: F1 = "hotpotqa"
    cost: CostName = None
    cost_model: CostModel = field(default_factory=CostModel)
    resamples: Resamples = 1000
    seed: Seed = 42

    @property
    def scored(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(ScoredSettings)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSettings(ScoredSettings):
    """Settings of a comparison.

    ``policies`` are names, paths of policy files or policies. Without policies and rules, every fixed-K (of
    more than 20 some), the usual methods and the oracles are compared. ``fit_on`` is another record, whose
    split tune fits methods and rules.
    """

    policies: Policies = ()
    rules: Rules = ()
    split: Annotated[
        str | None, Option(help="split to replay, or all (default: eval if present, else all)")
    ] = None
    baseline: Baseline = None
    answer: WhichAnswer = "latest"
    fit_on: Traces | None = None
    strict: Annotated[
        bool, Option(help="fail if a policy cannot run on this record, instead of leaving it out")
    ] = False

    def __post_init__(self) -> None:
        settle(self, policies=as_tuple(self.policies), rules=as_tuple(self.rules))
        refuse_draws(self.resamples, self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedElsewhere:
    fit_on: Annotated[
        str | None,
        Option(
            metavar="TRACES2",
            help="fit methods and rules on split tune of this other record, to test how a calibration "
            "transfers",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings(ScoredSettings):
    """Settings of a search; with ``max_cost`` the default ``cost`` is model calls."""

    signals: Annotated[
        tuple[str, ...],
        Option(
            metavar="A,B,...",
            help="signals, each at most once in a rule; calibrated(NAME) is allowed",
        ),
    ]
    form: Annotated[
        str,
        Option(
            choices=FORMS, help="or, and: every subset. vote: k of every subset. dnf: OR of ANDs."
        ),
    ] = "or"
    tune_split: TuneSplit = FIT_SPLIT
    eval_split: EvalSplit = EVAL_SPLIT
    answer: WhichAnswer = "latest"
    grid: Annotated[
        int | Literal["quantiles"],
        Option(
            name="threshold-grid",
            metavar="N|quantiles",
            parse=threshold_grid,
            help="N evenly spaced thresholds a signal, or quantiles of its tune values",
        ),
    ] = 40
    max_cost: Annotated[
        float | None,
        Option(
            metavar="C",
            help="cap on the mean cost (--cost) a question on tune. Skips thresholds above it and lists "
            "rules above it last.",
        ),
    ] = None
    objective: Annotated[
        str | None,
        Option(
            choices=OBJECTIVES,
            help="quantity to maximize on tune (default: that of --metric). gain-at-cost: gain over fixed "
            "budgets at equal cost.",
        ),
    ] = None
    baseline: Baseline = None

    def __post_init__(self) -> None:
        settle(self, signals=_names(self.signals))
        _refuse_own_choice(self.answer)
        if self.objective is not None and self.objective not in OBJECTIVES:
            raise UsageError(unknown_name("objective", self.objective, OBJECTIVES))
        if self.grid != "quantiles" and self.grid < 1:
            raise UsageError(f"the grid needs at least 1 threshold, found {self.grid}")
        refuse_draws(self.resamples, self.seed, least=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceSettings(ScoredSettings):
    """Settings of a choice, with one of three aims.

    ``max_loss``: the cheapest policy with a proven bound on its expected loss against the full budget.
    ``max_cost``: the best policy within this mean cost. ``cost_per_error``: the least sum of mean cost and
    this number times the missing score. Without an aim, losses of 1, 2, 3, 5 and 10 points are proven
    together, and the choice is the policy of 2 points, else of the smallest proven loss.
    """

    max_loss: Annotated[
        float | None,
        Option(
            metavar="E",
            parse=as_share,
            help="greatest mean loss against the full budget; 0.02 is 2 points. Chooses the cheapest policy "
            "proven to keep it. (default: 1, 2, 3, 5 and 10 points, tested together)",
        ),
    ] = None
    confidence: Confidence = 0.95
    loss: Annotated[
        LossName,
        Option(
            help="loss that --max-loss bounds. signed: the mean difference, full budget minus policy. "
            "drop: losses only, gains do not offset them. wrong-stop: share of questions wrong at "
            "the stop and right at the full budget."
        ),
    ] = "signed"
    correction: Annotated[
        Correction, Option(help="correction for many tests (fixed-sequence: until one fails)")
    ] = "fixed-sequence"
    max_cost: Annotated[
        float | None,
        Option(
            metavar="C",
            help="greatest mean cost (--cost) a question. Chooses the best policy within it and proves "
            "nothing.",
        ),
    ] = None
    max_wrong_stops: MaxWrongStops = None
    min_rounds: MinRounds = 1
    cost_per_error: Annotated[
        float | None,
        Option(
            metavar="X",
            help="cost of a wrong answer, in units of --cost. Chooses the least total cost.",
        ),
    ] = None
    policies: Annotated[
        tuple[Wanted, ...],
        _policies(
            "an additional candidate: a policy file, or a method that takes long to fit. Repeatable."
        ),
    ] = ()
    family: Annotated[
        Family,
        Option(
            help="candidates to fit. rule: OR and AND rules. thresholds: one rule (--rule) with the "
            "numbers of --grid. fixed: numbers of rounds only."
        ),
    ] = "all"
    rule: Annotated[
        str | None,
        Option(
            metavar="RULE",
            help="with --family thresholds: a rule with '?' in place of a number, which is chosen from "
            f"--grid (default: '{TEMPLATE}')",
        ),
    ] = None
    grid: Annotated[
        tuple[float, ...] | None,
        Option(
            metavar="LOW:HIGH:STEP|A,B,...",
            parse=read_grid,
            help="numbers to try in --rule. If the first is negative, write --grid=-1:1:0.5. (default: "
            "0.20:0.35:0.01 for a calibrated value, else quantiles on tune)",
        ),
    ] = None
    signals: Annotated[
        tuple[str, ...] | None,
        Option(
            metavar="A,B,...",
            help="signals to combine into rules (default: all that the record defines without a model)",
        ),
    ] = None
    max_signals: Annotated[int, Option(metavar="N", at_least=1, help="most signals in a rule")] = 2
    path: Annotated[
        str | None,
        Option(
            metavar="RULE",
            help="your own path: a rule with x in place of a number, as in 'answer_prob > x'. Fix it before "
            "you look at any label.",
        ),
    ] = None
    levels: Annotated[
        tuple[float, ...] | None,
        Option(
            metavar="A,B,...",
            parse=read_grid,
            help="numbers of --path, from safe to bold, fixed before you look at any label",
        ),
    ] = None
    anytime: Annotated[
        bool,
        Option(
            help="bet on questions in the order of recording: the promise holds although you choose again "
            "whenever the record has grown. Paths only. Proves less than choosing once."
        ),
    ] = False
    answer: WhichAnswer = "latest"
    tune_split: TuneSplit = FIT_SPLIT
    split: Annotated[
        str,
        Option(
            metavar="S",
            help="held-out split: a third of it ranks the fitted candidates, the rest proves them. Paths "
            "are proven on all questions. (default: eval; without splits, a random 40%, 20% and 40% "
            "fit, rank and prove)",
        ),
    ] = EVAL_SPLIT
    seed: Annotated[
        int, Option(at_least=0, help="seed of the random splits and of the resampling")
    ] = 42

    def __post_init__(self) -> None:
        settle(self, policies=as_tuple(self.policies))
        for name in ("max_loss", "confidence", "max_wrong_stops"):
            if (given := getattr(self, name)) is None:
                continue
            settle(self, **{name: (share := as_share(given, name))})
            if share in (0.0, 1.0):
                raise UsageError(f"{name} must lie above 0 and below 1, found {given}")
        for name, known in (("loss", LossName), ("correction", Correction), ("family", Family)):
            if (given := getattr(self, name)) not in get_args(known):
                raise UsageError(unknown_name(name, given, get_args(known)))
        if self.max_wrong_stops is not None and self.loss == "wrong-stop":
            raise UsageError(
                "loss 'wrong-stop' (--loss) already bounds the share of wrong stops by max_loss; leave "
                "max_wrong_stops out, or bound another loss beside it"
            )
        if self.signals is not None:
            settle(self, signals=_names(self.signals))
        aims = {
            "max_loss": self.max_loss if self.max_loss is not None else self.max_wrong_stops,
            "max_cost": self.max_cost,
            "cost_per_error": self.cost_per_error,
        }
        if len(named := [name for name, aim in aims.items() if aim is not None]) > 1:
            raise UsageError(
                "choose one aim: a loss (max_loss, max_wrong_stops), max_cost or cost_per_error; found "
                f"{' and '.join(named)}"
            )
        if self.min_rounds < 1:
            raise UsageError(f"min_rounds must be at least 1, found {self.min_rounds}")
        _refuse_own_choice(self.answer)
        for name in ("max_cost", "cost_per_error"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value < float("inf"):
                raise UsageError(f"{name} must be above 0, found {value:g}")
        self._settle_family()
        if (self.path is None) != (self.levels is None):
            raise UsageError(
                "your own path needs a rule and its levels: --path 'answer_prob > x' --levels .99,.95,.9"
            )
        if self.tune_split == self.split:
            raise UsageError(
                f"the tune split and the held-out split are both {self.split!r}; name two different ones"
            )

    def _settle_family(self) -> None:
        if self.family == "all" and (self.rule or self.grid) is not None:
            settle(self, family="thresholds")
        one_rule = self.family == "thresholds"
        if one_rule:
            settle(self, rule=self.rule or TEMPLATE)
        elif self.rule is not None or self.grid is not None:
            raise UsageError(
                f"--rule and --grid (rule, grid) need family thresholds, found family {self.family!r}; "
                "leave them or the family out"
            )
        if self.grid is not None and not 0 < len(self.grid) <= _MOST_THRESHOLDS:
            raise UsageError(
                f"the grid holds {len(self.grid)} numbers; allowed: 1 to {_MOST_THRESHOLDS}"
            )
        if one_rule and self.path is not None:
            raise UsageError("family 'thresholds' takes no path; leave --path (path) out")
        if self.signals is not None and self.family in ("thresholds", "fixed"):
            raise UsageError(
                f"family {self.family!r} combines no signals; leave --signals (signals) out"
            )

    @property
    def promised_losses(self) -> tuple[float | None, ...]:
        """The losses to prove, the smallest first; empty: none; ``None``: wrong stops alone."""
        if self.max_loss is not None or self.max_wrong_stops is not None:
            return (self.max_loss,)
        return () if self.max_cost is not None or self.cost_per_error is not None else LOSSES


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisSettings:
    signals: Annotated[
        tuple[str, ...] | None,
        Option(metavar="A,B", help="only these signals (default: every signal with a value)"),
    ] = None
    tune_split: TuneSplit = FIT_SPLIT
    eval_split: EvalSplit = EVAL_SPLIT
    resamples: Resamples = 1000
    seed: Seed = 42
    policies: Annotated[
        tuple[Wanted, ...],
        _policies(
            "a policy to break down by question type and confidence (default: every fixed-K). Repeatable."
        ),
    ] = ()
    rules: Rules = ()
    confidence: Annotated[
        str | None,
        Option(
            metavar="SIGNAL",
            help="signal to use as a policy's confidence at the stop (default: the policy's own, the "
            "smallest of its calibrated values)",
        ),
    ] = None
    threshold: Annotated[
        float | None,
        Option(
            metavar="X",
            help="threshold that splits confidence into above and below (default: its median)",
        ),
    ] = None
    f1_kind: F1 = "hotpotqa"

    def __post_init__(self) -> None:
        settle(self, policies=as_tuple(self.policies), rules=as_tuple(self.rules))
        if self.signals is not None:
            settle(self, signals=_names(self.signals))
        refuse_draws(self.resamples, self.seed)
        if self.signals == ():
            raise UsageError("no signal is named; name some, or leave the option out for all")
        if self.tune_split == self.eval_split:
            raise UsageError(
                f"the tune and the eval split are both {self.tune_split!r}; name two different ones"
            )
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise UsageError(f"the threshold must be a finite number, found {self.threshold}")
