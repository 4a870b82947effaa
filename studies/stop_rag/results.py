"""What the evaluation of Stop-RAG is asked for and what it found, as data and as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from studies.repetitions import Band, seeds_named
from suffice._version import VERSION
from suffice.errors import UsageError
from suffice.numbers.intervals.bootstrap import Interval, percentile_interval, resampled_means
from suffice.options import Option, read_names
from suffice.policies.defaults import EVAL_SPLIT, FIT_SPLIT
from suffice.policies.method import Preset
from suffice.policies.stop_rag.fit import VALIDATION_SPLIT
from suffice.policies.stop_rag.settings import PACKAGED_ENCODER, StopRAGSettings, Target
from suffice.results.as_json import as_json
from suffice.results.formats import amount, counted, points
from suffice.results.markup import visible
from suffice.results.table import Cell, Column, Table, Value, notes_table
from suffice.results.tabular import Tabular
from suffice.scoring import F1Kind

Variant = Literal["q-lambda", "mc", "q0", "binary", "signals"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
DEFAULT: Variant = "q-lambda"
SIGNALS: Variant = "signals"
LLM_STOPS = "llm-stop"
ORACLE = "oracle-f1"
LEARNED: Mapping[Variant, Target] = MappingProxyType(
    {"q-lambda": "q-lambda", "mc": "mc", "q0": "q0", "binary": "binary", "signals": "q-lambda"}
)
Kind = Literal["learned", "llm-stop", "fixed", "oracle"]
SCORES = {"em": "EM", "f1": "F1", "acc": "Acc"}
RETRIEVAL = {"precision": "Prec", "recall": "Recall", "mean_rounds": "Steps"}
_FIGURES = ("em", "f1", "acc", "mean_rounds", "llm_calls", "precision", "recall")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRAGStudySettings:
    """What is evaluated: networks over texts by what they learn towards, and ``signals`` alone.

    Every variant is trained with ``seed``, ``seed`` + 1, ... on ``fit_split`` (a split ``validation`` is read
    beside it) and scored on ``split``; target, reward and seed of ``text`` and ``signals`` play no part.
    Fitted policies are kept in ``folder``, ``VARIANT-SEED`` each, and found again.
    """

    variants: Annotated[
        tuple[Variant, ...],
        Option(
            metavar="A,B,...", parse=read_names, help=f"of {', '.join(VARIANTS)} (default: all)"
        ),
    ] = VARIANTS
    seeds: Annotated[int, Option(metavar="N", at_least=1, help="trainings a variant")] = 3
    seed: Annotated[
        int,
        Option(
            at_least=0,
            help="of the first training, each next one's is 1 more, and of the resampling",
        ),
    ] = 42
    preset: Annotated[Preset, Option(help="settings for small data, or the paper's")] = "corrected"
    fit_split: str = FIT_SPLIT
    split: Annotated[str, Option(metavar="S", help="questions to score")] = EVAL_SPLIT
    text: StopRAGSettings = field(default_factory=StopRAGSettings)
    signals: StopRAGSettings = field(default_factory=lambda: StopRAGSettings(features="signals"))
    f1_kind: Annotated[
        F1Kind,
        Option(name="f1", help="which F1, of answers and of rewards; the paper's is squad"),
    ] = "squad"
    resamples: Annotated[
        int, Option(name="bootstrap", metavar="N", at_least=1, help="resamples")
    ] = 1000
    folder: Path | None = None

    def __post_init__(self) -> None:
        unknown = [variant for variant in self.variants if variant not in VARIANTS]
        if unknown or not self.variants or len(set(self.variants)) < len(self.variants):
            raise UsageError(
                f"variants must be of {', '.join(VARIANTS)}, each once, found "
                f"{', '.join(self.variants) or 'none'}"
            )
        if self.seeds < 1 or self.seed < 0 or self.resamples < 1:
            raise UsageError(
                f"seeds and resamples must be at least 1 and the first seed at least 0, found "
                f"{self.seeds}, {self.resamples} and {self.seed}"
            )
        if (self.text.features, self.signals.features) != ("text", "signals"):
            raise UsageError("text must be trained on features text, and signals on signals")
        if self.split in (self.fit_split, VALIDATION_SPLIT):
            raise UsageError(
                f"split {self.split!r} is fitted on; name another one to score, as in --split {EVAL_SPLIT}"
            )

    @property
    def all_seeds(self) -> tuple[int, ...]:
        return tuple(range(self.seed, self.seed + self.seeds))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """What a command says of the training of every network; ``None``: as the preset has it."""

    encoder: Annotated[str, Option(metavar="PATH_OR_NAME", help="of networks over texts")] = (
        PACKAGED_ENCODER
    )
    epochs: Annotated[float | None, Option(metavar="E", help="passes over the questions")] = None
    min_steps: Annotated[
        int | None,
        Option(metavar="N", at_least=1, help="optimiser steps at least, of every network"),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScores:
    """A policy on the questions.

    ``by_question`` has em, f1, acc, mean_rounds, precision and recall of each (n_questions,), NaN where
    undefined; ``llm_calls`` is a mean (``None``: unknown), ``beyond_record`` counts questions that end before
    the round it wanted.
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
class FitFacts:
    """How one network was trained (``loaded``: found so), and what deciding with it takes.

    Of ``trajectories`` (questions) with ``decisions`` (states before the last) the ``informative`` states are
    in the loss; ``validated`` questions chose checkpoint and threshold. ``seconds`` are those of its last
    sitting, ``truncated`` is the share of states that lost text (``None``: it reads none), ``state_seconds``
    what a recorded state took to value on this machine.
    """

    seed: int
    loaded: bool
    threshold: float
    trajectories: int
    decisions: int
    informative: int
    validated: int
    steps: int
    seconds: float
    truncated: float | None
    state_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A policy, or a variant in its seeds; ``fits`` are those of ``runs``, empty unless it is learned."""

    name: str
    kind: Kind
    runs: tuple[RunScores, ...]
    fits: tuple[FitFacts, ...] = ()

    def band(self, name: str) -> Band | None:
        """Mean, least and greatest over seeds of a figure; ``None``: unknown."""
        return Band.of([run.mean(name) for run in self.runs])

    def mean(self, name: str) -> float | None:
        over_seeds = self.band(name)
        return None if over_seeds is None else over_seeds.mean

    def shown(self, name: str) -> Value:
        """The band where there are several seeds, else the mean."""
        return self.band(name) if len(self.runs) > 1 else self.mean(name)

    def of_questions(self, name: str) -> NDArray[np.float64]:
        """A figure of each question (n_questions,), averaged over seeds."""
        return np.asarray(np.mean([run.by_question[name] for run in self.runs], axis=0))

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            **{name: as_json(self.band(name)) for name in _FIGURES},
            "runs": as_json(self.runs),
            **({"fits": as_json(self.fits)} if self.fits else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class F1Difference:
    """F1 of one contender minus that of another, alone and (``at_once``) with all others of the study."""

    of: str
    against: str
    interval: Interval
    at_once: Interval

    def to_json(self) -> dict[str, Any]:
        return {
            "of": self.of,
            "against": self.against,
            **as_json(self.interval),
            "simultaneous": {"low": self.at_once.low, "high": self.at_once.high},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Actions (queries and verdicts) that could not be read, in ``rounds`` rounds of the questions."""

    actions: int
    questions: int
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStudy:
    """Every contender on the same questions of a record.

    ``full`` and ``best`` are the fixed budgets compared with: all rounds, and the one with the best F1 where
    policies are fitted. ``critical``: bootstrap errors on either side of an interval at once. ``unread`` is
    ``None`` where the record does not count them; ``lacks`` is what it has not of the paper's.
    """

    settings: StopRAGStudySettings
    source: str
    dataset: str
    pipeline: str
    samples: int
    questions: int
    unlabelled: int
    rounds: int
    fitting: Mapping[str, int]
    with_gold_passages: int
    contenders: tuple[Contender, ...]
    full: str
    best: str
    contrasts: tuple[F1Difference, ...]
    critical: float
    unread: Unread | None
    lacks: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def place(self) -> str:
        return f"{self.dataset} {self.pipeline}"

    def contender(self, name: str) -> Contender | None:
        return next((policy for policy in self.contenders if policy.name == name), None)

    def of_kind(self, *kinds: Kind) -> Sequence[Contender]:
        return [policy for policy in self.contenders if policy.kind in kinds]

    def contrast(self, of: str, against: str) -> F1Difference | None:
        named = ((one.of, one.against, one) for one in self.contrasts)
        return next((one for *pair, one in named if pair == [of, against]), None)

    def figure(self, method: str, name: str) -> Interval | None:
        """A mean over questions of what a method gives, averaged over seeds; ``None``: unknown."""
        contender = self.contender({"full": self.full, "best": self.best}.get(method, method))
        if contender is None:
            return None
        values = contender.of_questions(name)
        known = values[np.isfinite(values)]
        if not len(known):
            return None
        wanted = self.settings
        draws = resampled_means(known[:, None], resamples=wanted.resamples, seed=wanted.seed)
        return percentile_interval(float(known.mean()), draws[:, 0])

    def to_json(self) -> dict[str, Any]:
        wanted = self.settings
        return {
            "dataset": self.dataset,
            "pipeline": self.pipeline,
            "lacks": list(self.lacks),
            "traces": self.source,
            "split": wanted.split,
            "questions": self.questions,
            "unlabelled": self.unlabelled,
            "rounds": self.rounds,
            "fitted_on": dict(self.fitting),
            "with_gold_passages": self.with_gold_passages,
            "variants": list(wanted.variants),
            "seeds": list(wanted.all_seeds),
            "preset": wanted.preset,
            "encoder": wanted.text.encoder,
            "f1_kind": wanted.f1_kind,
            "bootstrap": wanted.resamples,
            "version": VERSION,
            "full_budget": self.full,
            "best_fixed": self.best,
            "policies": as_json(self.contenders),
            "contrasts": as_json(self.contrasts),
            "critical": self.critical,
            "unread": as_json(self.unread),
            "band": "mean, least and greatest over seeds",
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StopRAGStudy(Tabular):
    """The records' evaluations; ``refused``: records of which nothing can be said."""

    records: tuple[RecordStudy, ...]
    refused: Mapping[str, str]

    @property
    def notes(self) -> Sequence[str]:
        """What a reader must know; of several records with those it is said of."""
        if len(self.records) == 1 and not self.refused:
            return self.records[0].notes
        said: dict[str, list[str]] = {}
        for record in self.records:
            for note in record.notes:
                said.setdefault(note, []).append(record.place)
        notes = [f"{', '.join(where)}: {note}" for note, where in said.items()]
        return [*notes, *(f"{path} is left out: {why}" for path, why in self.refused.items())]

    def tables(self) -> Sequence[Table]:
        """Of one record every policy, difference and training; of several the paper's tables 1 to 3."""
        one = len(self.records) == 1
        found = record_tables(self.records[0]) if one else paper_tables(self.records)
        return (*found, *_about(self.records), *notes_table(self.notes))

    def to_json(self) -> dict[str, Any]:
        if len(self.records) == 1 and not self.refused:
            return self.records[0].to_json()
        tables = paper_tables(self.records)
        return {
            "records": as_json(self.records),
            "tables": {table.name: table.data() for table in tables},
            "refused": dict(self.refused),
            "notes": list(self.notes),
        }


# --- words ----------------------------------------------------------------------------------------
def of_what(study: RecordStudy) -> str:
    """Questions, rounds and trainings in a sentence."""
    wanted = study.settings
    parts = " and ".join(f"{count:,} of {visible(name)}" for name, count in study.fitting.items())
    return (
        f"{visible(PurePath(study.source).name)}: {counted(study.questions, 'labelled question')} of split "
        f"{visible(wanted.split)} scored, learned on {parts}; at most {study.rounds} rounds; "
        f"{counted(len(wanted.variants), 'variant')} in {seeds_named(wanted.seed, wanted.seeds)}, preset "
        f"{wanted.preset}; F1 and rewards as {wanted.f1_kind} scores them."
    )


def explained(study: RecordStudy) -> str:
    """What the figures are."""
    return (
        "Scores, precision, recall and differences in percent; rounds and calls are means a question. In "
        "brackets after a mean: least and greatest over seeds. Differences: F1 of a question averaged over "
        f"seeds, 95% intervals of {study.settings.resamples} paired resamples of the questions (seed "
        f"{study.settings.seed}), which say nothing of luck in training; those that hold at once cover all "
        f"of them ({len(study.contrasts)}) together with 95%."
    )


def worth_of_text(study: RecordStudy) -> str:
    """Whether reading documents earns what it costs, as far as both were trained; else empty."""
    contrast = study.contrast(DEFAULT, SIGNALS)
    text, signals = study.contender(DEFAULT), study.contender(SIGNALS)
    if contrast is None or text is None or signals is None:
        return ""
    ms = [
        amount(1000 * sum(fit.state_seconds for fit in one.fits) / len(one.fits))
        for one in (text, signals)
    ]
    return (
        f"Does text earn its cost? {DEFAULT} minus {SIGNALS}: {points(contrast.interval)} points of F1, all "
        f"differences at once {points(contrast.at_once)}, at {ms[0]} ms a state against {ms[1]} ms."
    )


def roles(study: RecordStudy) -> str:
    """What the fixed budgets stand for that others are compared with."""
    if study.full == study.best:
        return f"{study.full} is the full budget, and had the best F1 on the questions fitted on."
    return (
        f"{study.full} is the full budget; {study.best} had the best F1 on the questions fitted on, and was "
        "chosen there."
    )


# --- tables of one record -------------------------------------------------------------------------
def record_tables(study: RecordStudy) -> Iterator[Table]:
    worth = worth_of_text(study)
    yield Table(name="record", title=of_what(study))
    yield policies_table(study)
    yield contrasts_table([study])
    yield trainings_table(study)
    if worth:
        yield Table(name="worth of text", title=worth)
    yield Table(name="explanation", title=explained(study))


def policies_table(study: RecordStudy, *, every_run: bool = False) -> Table:
    """Every policy, or every policy in every seed."""
    quality = ("precision", "recall") if study.with_gold_passages else ()
    rows: list[list[Value]] = []
    for policy in study.contenders:
        for run in policy.runs if every_run else policy.runs[:1]:
            named = policy.name if run.seed is None else f"{policy.name}, seed {run.seed}"
            cell = run.mean if every_run else policy.mean
            band = run.mean if every_run else policy.shown
            rows.append(
                [
                    *(named if every_run else policy.name, cell("em"), band("f1"), cell("acc")),
                    *(band("mean_rounds"), cell("llm_calls"), *map(cell, quality)),
                ]
            )
    return Table(
        name="policies",
        title=f"What each policy earns and costs. {roles(study)}",
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


def contrasts_table(records: Sequence[RecordStudy], *, some: bool = False) -> Table:
    """Differences of F1; ``some``: those of the paper's methods alone."""
    rows: list[list[Value]] = []
    for record in records:
        methods, rivals = (DEFAULT, SIGNALS, LLM_STOPS), (record.full, record.best, LLM_STOPS)
        rows += [
            [record.dataset, record.pipeline, one.of, one.against, one.interval, one.at_once]
            for one in record.contrasts
            if not some or (one.of in methods and one.against in rivals)
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


def trainings_table(study: RecordStudy) -> Table:
    rows: list[list[Value]] = [
        [
            *(policy.name, Cell(fit.seed, str(fit.seed)), run.mean("f1"), run.mean("mean_rounds")),
            *(fit.threshold, fit.trajectories, f"{fit.informative:,}/{fit.decisions:,}"),
            *(fit.validated, fit.steps, fit.seconds, fit.truncated, 1000 * fit.state_seconds),
        ]
        for policy in study.of_kind("learned")
        for fit, run in zip(policy.fits, policy.runs, strict=True)
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


# --- the paper's tables ---------------------------------------------------------------------------
_METHODS = {
    "full": "all rounds",
    "best": "best fixed number",
    LLM_STOPS: "+ LLM-Stop",
    DEFAULT: "+ Stop-RAG",
    SIGNALS: "+ Stop-RAG on signals",
}
_TARGETS = {"binary": "binary", "mc": "MC", DEFAULT: "Q(λ)", "q0": "Q(0)"}


def paper_tables(records: Sequence[RecordStudy]) -> Sequence[Table]:
    """Tables 1 to 3 of the paper, and the differences."""
    wanted = records[0].settings
    seeds = seeds_named(wanted.seed, wanted.seeds)
    tables = (
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
        contrasts_table(records, some=True),
    )
    return [table for table in tables if table.rows]


def _paper_table(
    records: Sequence[RecordStudy],
    name: str,
    title: str,
    methods: Mapping[str, str],
    figures: Mapping[str, str],
) -> Table:
    """Rows are a pipeline's methods, columns the data sets' figures."""
    datasets = list(dict.fromkeys(record.dataset for record in records))
    by_place = {(record.pipeline, record.dataset): record for record in records}
    rows: list[list[Value]] = []
    for pipeline in dict.fromkeys(record.pipeline for record in records):
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


def _about(records: Sequence[RecordStudy]) -> Iterator[Table]:
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
                *(one.dataset, one.pipeline, one.rounds, one.samples),
                *(sum(one.fitting.values()), one.questions, one.source),
            )
            for one in records
        ],
        names=2,
    )
    lacking: dict[str, list[str]] = {}
    for record in records:
        for lack in record.lacks:
            lacking.setdefault(lack, []).append(record.place)
    yield Table(
        name="lacking",
        title="What records lack of the paper's.",
        columns=[Column(name="lacks"), Column(name="records")],
        rows=[(lack, ", ".join(names)) for lack, names in lacking.items()],
    )
