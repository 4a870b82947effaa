"""What the evaluation of Stop-RAG is asked for and what it found, as data and as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from studies.command import Band, FirstSeed, check_names, mean_intervals, names_option, seeds_named
from suffice.errors import UsageError
from suffice.evaluation.settings import Resamples
from suffice.options import Option
from suffice.policies.defaults import EVAL_SPLIT, FIT_SPLIT
from suffice.policies.method import Preset
from suffice.policies.stop_rag.fit import VALIDATION_SPLIT
from suffice.policies.stop_rag.stop_rag_settings import StopRAGSettings
from suffice.results.table import Cell, Column, Table, Value
from suffice.scoring import F1Kind
from suffice.stats.intervals import Interval

Variant = Literal["q-lambda", "mc", "q0", "binary", "signals"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
DEFAULT: Variant = "q-lambda"
SIGNALS: Variant = "signals"
LLM_STOPS = "llm-stop"
ORACLE = "oracle-f1"
SCORES = {"em": "EM", "f1": "F1", "acc": "Acc"}
RETRIEVAL = {"precision": "Prec", "recall": "Recall", "mean_rounds": "Steps"}
_FIGURES = ("em", "f1", "acc", "mean_rounds", "llm_calls", "precision", "recall")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRAGStudySettings:
    """What is evaluated: networks over texts by what they learn towards, and ``signals`` alone.

    Every variant is trained with ``seed``, ``seed`` + 1, ... on ``fit_split`` (and ``validation``, if there)
    and scored on ``split``; target, reward and seed of ``text`` and ``signals`` play no part.
    """

    variants: Annotated[tuple[Variant, ...], names_option(VARIANTS)] = VARIANTS
    seeds: Annotated[int, Option(metavar="N", at_least=1, help="trainings a variant")] = 3
    seed: FirstSeed = 42
    preset: Annotated[Preset, Option(help="settings for small data, or the paper's")] = "corrected"
    fit_split: str = FIT_SPLIT
    split: Annotated[str, Option(metavar="S", help="questions to score")] = EVAL_SPLIT
    text: StopRAGSettings = field(default_factory=StopRAGSettings)
    signals: StopRAGSettings = field(default_factory=lambda: StopRAGSettings(features="signals"))
    f1_kind: Annotated[
        F1Kind, Option(name="f1", help="which F1, of answers and of rewards; the paper's is squad")
    ] = "squad"
    resamples: Resamples = 1000
    folder: Path | None = None

    def __post_init__(self) -> None:
        check_names("--variants", self.variants, VARIANTS)
        if self.split in (self.fit_split, VALIDATION_SPLIT):
            raise UsageError(
                f"split {self.split!r} is fitted on; name another one to score, as in --split {EVAL_SPLIT}"
            )

    @property
    def all_seeds(self) -> tuple[int, ...]:
        return tuple(range(self.seed, self.seed + self.seeds))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScores:
    """A policy on the questions: figures of each (n_questions,), NaN where undefined; mean ``llm_calls``.

    ``beyond_record`` counts questions that end before the round it wanted.
    """

    seed: int | None = None
    llm_calls: float | None
    stops: NDArray[np.int16]
    by_question: Mapping[str, NDArray[np.float64]]
    beyond_record: int

    def mean(self, name: str) -> float | None:
        """The mean of a figure over the questions where it is defined; ``None``: nowhere."""
        if name == "llm_calls":
            return self.llm_calls
        values = self.by_question[name]
        known = values[np.isfinite(values)]
        return float(known.mean()) if len(known) else None

    def to_json(self) -> dict[str, Any]:
        rounds, counts = np.unique(self.stops, return_counts=True)
        return {
            "seed": self.seed,
            **{name: self.mean(name) for name in _FIGURES},
            "stop_rounds": {str(r): int(c) for r, c in zip(rounds, counts, strict=True)},
            "beyond_record": self.beyond_record,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A policy, or a variant in its seeds; ``fits`` say how each of its ``runs`` was trained, if it was."""

    name: str
    kind: Literal["learned", "llm-stop", "fixed", "oracle"]
    runs: Sequence[RunScores]
    fits: Sequence[Mapping[str, Any]] = ()

    def band(self, name: str) -> Band | None:
        """Mean, least and greatest over seeds of a figure; ``None``: unknown."""
        return Band.of([run.mean(name) for run in self.runs])

    def mean(self, name: str) -> float | None:
        over_seeds = self.band(name)
        return None if over_seeds is None else over_seeds.mean

    def of_questions(self, name: str) -> NDArray[np.float64]:
        """A figure of each question (n_questions,), averaged over seeds."""
        return np.asarray(np.mean([run.by_question[name] for run in self.runs], axis=0))

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            **{name: self.band(name) for name in _FIGURES},
            "runs": self.runs,
            **({"fits": self.fits} if self.fits else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStudy:
    """Every contender on the same questions of a record, and what its document says beside them.

    ``contrasts`` are differences of F1, alone and with all others of the study, by ``critical`` bootstrap
    errors. ``best_fixed`` was chosen where policies are fitted. ``unread`` counts actions (queries and
    verdicts) that could not be read, if known; ``lacks`` is what the record has not of the paper's.
    """

    settings: StopRAGStudySettings
    document: Mapping[str, Any]
    contenders: Sequence[Contender]
    samples: int

    def contender(self, name: str) -> Contender | None:
        return next((policy for policy in self.contenders if policy.name == name), None)

    def figure(self, method: str, name: str) -> Interval | None:
        """A mean over questions of what a method gives, averaged over seeds; ``None``: unknown."""
        contender = self.contender(self.document.get(method, method))
        if contender is None:
            return None
        values, wanted = contender.of_questions(name), self.settings
        known = values[np.isfinite(values), None]
        if not len(known):
            return None
        return mean_intervals(known, resamples=wanted.resamples, seed=wanted.seed)[0]


def record_tables(study: RecordStudy) -> Iterator[Table]:
    """What was evaluated, every policy, difference and training, and what the figures are."""
    wanted = study.settings
    yield _policies(study)
    yield _contrasts([study])
    yield _trainings(study)
    yield Table(
        name="explanation",
        title=f"Preset {wanted.preset} in {seeds_named(wanted.seed, wanted.seeds)}; F1 and rewards as "
        f"{wanted.f1_kind} scores them. Scores, precision, recall and differences in percent; rounds and "
        "calls are means a question. "
        "In brackets after a mean: least and greatest over seeds. Differences: F1 of a question averaged "
        f"over seeds, 95% intervals of {wanted.resamples} paired resamples of the questions (seed "
        f"{wanted.seed}), which say nothing of luck in training; those that hold at once cover all of them "
        f"({len(study.document['contrasts'])}) together with 95%.",
    )


def _policies(study: RecordStudy) -> Table:
    full, best = study.document["full_budget"], study.document["best_fixed"]
    quality = ("precision", "recall") if study.document["with_gold_passages"] else ()
    role = f"{full} is the full budget, and had the best F1 on the questions fitted on."
    if full != best:
        role = (
            f"{full} is the full budget; {best} had the best F1 on the questions fitted on, and was chosen "
            "there."
        )
    rows: list[list[Value]] = []
    for policy in study.contenders:
        band = policy.band if len(policy.runs) > 1 else policy.mean
        figures = (policy.mean("em"), band("f1"), policy.mean("acc"), band("mean_rounds"))
        rows.append([policy.name, *figures, *map(policy.mean, ("llm_calls", *quality))])
    return Table(
        name="policies",
        title=f"What each policy earns and costs. {role}",
        columns=[
            Column(name="policy"),
            Column(name="em", head="EM", kind="percent"),
            Column(name="f1", head="F1", kind="percent", interval=True),
            Column(name="acc", head="Acc", kind="percent"),
            Column(name="rounds", kind="number", digits=2, interval=True),
            Column(name="calls", kind="number", digits=2),
            *(Column(name=name, kind="percent") for name in quality),
        ],
        rows=rows,
    )


def _contrasts(records: Sequence[RecordStudy], *, some: bool = False) -> Table:
    """Differences of F1; ``some``: those of the paper's methods alone."""
    rows: list[list[Value]] = []
    for record in records:
        told, methods = record.document, (DEFAULT, SIGNALS, LLM_STOPS)
        rivals = (told["full_budget"], told["best_fixed"], LLM_STOPS)
        rows += [
            [told["dataset"], told["pipeline"], *one.values()]
            for one in told["contrasts"]
            if not some or (one["of"] in methods and one["against"] in rivals)
        ]
    return Table(
        name="differences",
        title="Differences of F1 in points, paired by question. The last column holds for all "
        "differences of one record at once, not for all records.",
        columns=[
            Column(name="data set", once=True),
            Column(name="pipeline", once=True),
            Column(name="of", head="F1 of"),
            Column(name="against", head="minus that of"),
            Column(name="difference", head="difference [95%]", kind="points", interval=True),
            Column(name="at_once", head="at once [95%]", kind="points", interval=True),
        ],
        rows=rows,
        names=4,
    )


def _trainings(study: RecordStudy) -> Table:
    rows: list[list[Value]] = [
        [
            *(policy.name, Cell(fit["seed"], str(fit["seed"]))),
            *(run.mean("f1"), run.mean("mean_rounds"), fit["threshold"], fit["trajectories"]),
            f"{fit['informative']:,}/{fit['decisions']:,}",
            *(fit[name] for name in ("validated", "steps", "seconds", "truncated")),
            1000 * fit["state_seconds"],
        ]
        for policy in study.contenders
        for fit, run in zip(policy.fits, policy.runs, strict=bool(policy.fits))
    ]
    return Table(
        name="trainings",
        title="Every training: questions trained on, states in the loss of those before the last, questions "
        "validated on, training steps and seconds, states cut to the window, milliseconds to value a state "
        "on this machine.",
        columns=[
            Column(name="variant", head=""),
            Column(name="seed", kind="number", digits=0),
            Column(name="f1", head="F1", kind="percent"),
            Column(name="rounds", kind="number", digits=2),
            Column(name="threshold", kind="number", digits=3, signed=True),
            Column(name="questions", head="train on", kind="count"),
            Column(name="states"),
            Column(name="validated", kind="count"),
            Column(name="steps", kind="count"),
            Column(name="seconds", kind="number", digits=0),
            Column(name="cut", head="cut %", kind="percent"),
            Column(name="ms", kind="number"),
        ],
        rows=rows,
    )


_METHODS = {
    "full_budget": "all rounds",
    "best_fixed": "best fixed number",
    LLM_STOPS: "+ LLM-Stop",
    DEFAULT: "+ Stop-RAG",
    SIGNALS: "+ Stop-RAG on signals",
}
_TARGETS = {"binary": "binary", "mc": "MC", DEFAULT: "Q(λ)", "q0": "Q(0)"}


def paper_tables(records: Sequence[RecordStudy]) -> Sequence[Table]:
    """Tables 1 to 3 of the paper, and the differences."""
    wanted = records[0].settings
    seeds = seeds_named(wanted.seed, wanted.seeds)
    return (
        _paper_table(
            records,
            "table 1",
            "Scores in percent, by pipeline and data set. In brackets the 95% interval of "
            f"{wanted.resamples:,} resamples of the questions, each figure averaged over {seeds} first. A "
            "dash is unknown.",
            _METHODS,
            SCORES,
        ),
        _paper_table(
            records,
            "table 2",
            "Precision and recall of the passages found by the stop, in percent, and mean rounds.",
            _METHODS,
            RETRIEVAL,
        ),
        _paper_table(records, "table 3", "Targets learned towards.", _TARGETS, SCORES),
        _contrasts(records, some=True),
    )


def _paper_table(
    records: Sequence[RecordStudy],
    name: str,
    title: str,
    methods: Mapping[str, str],
    figures: Mapping[str, str],
) -> Table:
    by_place = {(one.document["pipeline"], one.document["dataset"]): one for one in records}
    datasets = list(dict.fromkeys(dataset for _, dataset in by_place))
    rows: list[list[Value]] = []
    for pipeline in dict.fromkeys(pipeline for pipeline, _ in by_place):
        for method, said in methods.items():
            cells: list[Value] = [
                None if record is None else record.figure(method, figure)
                for record in (by_place.get((pipeline, dataset)) for dataset in datasets)
                for figure in figures
            ]
            if any(cell is not None for cell in cells):
                rows.append([pipeline, said, *cells])
    columns = [
        Column(
            name=f"{dataset}_{'steps' if figure == 'mean_rounds' else figure}",
            head=f"{dataset}\n{head}",
            kind="number" if figure == "mean_rounds" else "percent",
            digits=2 if figure == "mean_rounds" else None,
            interval=True,
        )
        for dataset in datasets
        for figure, head in figures.items()
    ]
    lead = [Column(name="pipeline", once=True), Column(name="method")]
    return Table(name=name, title=title, columns=[*lead, *columns], rows=rows, names=2)


def about_records(records: Sequence[RecordStudy]) -> Iterator[Table]:
    """What the records are."""
    counts = ("rounds", "samples", "fitted on", "scored")
    yield Table(
        name="records",
        title="The records: rounds, samples a round, labelled questions fitted on and scored.",
        columns=[
            *(Column(name=name) for name in ("data set", "pipeline")),
            *(Column(name=name, kind="count") for name in counts),
            Column(name="file"),
        ],
        rows=[
            (
                *(one.document["dataset"], one.document["pipeline"], one.document["rounds"]),
                *(one.samples, sum(one.document["fitted_on"].values())),
                *(one.document["questions"], one.document["traces"]),
            )
            for one in records
        ],
        names=2,
    )
