"""The tables of the Stop-RAG paper over several records: ``python -m studies.stop_rag A B C``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.bench.repetitions import seeds_named
from suffice.bench.stop_rag.fits import FitProgress
from suffice.bench.stop_rag.results import (
    DEFAULT,
    LLM_STOPS,
    SIGNALS,
    Contender,
    RunScores,
    StopRAGStudy,
    StopRAGStudySettings,
    TrainingOptions,
)
from suffice.bench.stop_rag.run import stop_rag_study
from suffice.bench.stop_rag.scores import Questions
from suffice.cli.options import out_path
from suffice.cli.output import ProgressLine, add_format, print_result, say
from suffice.cli.parser import Parser
from suffice.cli.settings_options import add_settings, read_settings
from suffice.errors import SufficeError, UsageError
from suffice.measures.measures import Measures
from suffice.numbers.intervals.bootstrap import Interval, percentile_interval, resampled_means
from suffice.policies.stop_rag.settings import StopRAGSettings
from suffice.replay.run.replay import at_stop
from suffice.results.formats import counted
from suffice.results.table import Column, Kind, Table, Value, notes_table
from suffice.results.tabular import Tabular
from suffice.signals.recorded import LLM_STOP
from suffice.trace.loops import is_veiled
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.table import TraceSet

Values = NDArray[np.float64]

SCORES = {"em": "EM", "f1": "F1", "acc": "Acc"}
RETRIEVAL = {"precision": "Prec", "recall": "Recall", "steps": "Steps"}
METHODS = {
    "full": "all rounds",
    "best": "best fixed number",
    LLM_STOPS: "+ LLM-Stop",
    DEFAULT: "+ Stop-RAG",
    SIGNALS: "+ Stop-RAG on signals",
}
"""The paper's three, and before and after them a budget chosen on tune and a network without text."""
TARGETS = {"binary": "binary", "mc": "MC", DEFAULT: "Q(λ)", "q0": "Q(0)"}


# --- one record -----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStudy:
    """A record's evaluation, with every figure by question; ``lacks`` is what it has not, in words."""

    path: str
    dataset: str
    pipeline: str
    study: StopRAGStudy
    questions: Questions
    samples: int
    lacks: tuple[str, ...]

    def figure(self, method: str, name: str) -> Interval | None:
        """A mean over questions of what a method gives, averaged over seeds; ``None``: unknown."""
        contender = self.contender(method)
        if contender is None:
            return None
        values = np.mean([self._by_question(name, run) for run in contender.runs], axis=0)
        known = values[np.isfinite(values)]
        if not len(known):
            return None
        settings = self.study.settings
        draws = resampled_means(known[:, None], resamples=settings.resamples, seed=settings.seed)
        return percentile_interval(float(known.mean()), draws[:, 0])

    def contender(self, method: str) -> Contender | None:
        """Of the study, by the name of the method here."""
        fixed = {"full": self.study.full, "best": self.study.best}
        return self.study.contender(fixed.get(method, method))

    def _by_question(self, name: str, run: RunScores) -> Values:
        scored, quality = self.questions.scored, self.questions.quality
        if name == "steps":
            return run.stops.astype(np.float64)
        if name == "acc" and not scored.metric.gold:
            return np.full(len(run.stops), np.nan)  # whether an answer holds another needs its text
        columns = {
            "em": scored.em,
            "f1": scored.f1,
            "acc": scored.acc,
            "precision": quality.precision,
            "recall": quality.recall,
        }
        return at_stop(columns[name], run.stops)


def study_record(
    path: str,
    settings: StopRAGStudySettings,
    on_progress: Callable[[FitProgress], None] | None = None,
) -> RecordStudy:
    """Train on one record and score it; of one without texts, the network over signals alone."""
    traces = read_traces(path)
    run = traces.origin.run
    dataset, pipeline = named(path, traces)
    if is_veiled(run):
        settings = replace(settings, variants=(SIGNALS,))
    if settings.folder is not None:
        settings = replace(settings, folder=settings.folder / f"{dataset}-{pipeline}")
    study = stop_rag_study(traces, settings, on_progress)
    counts = traces.lengths("samples")
    return RecordStudy(
        path=path,
        dataset=dataset,
        pipeline=pipeline,
        study=study,
        questions=Questions.read(traces.only_split(settings.split), settings.f1_kind),
        samples=int(np.nanmax(counts)),
        lacks=tuple(_lacks(traces, int(np.nanmax(counts)))),
    )


def named(path: str, traces: TraceSet) -> tuple[str, str]:
    """Data set and pipeline as the run document has them, else the file's name and ``unnamed``."""
    run = traces.origin.run
    stated = run.get("dataset")
    dataset = Path(stated).stem if isinstance(stated, str) else Path(path).stem
    pipeline = run.get("pipeline")
    final = str(run.get("prompt", "")).rpartition("+")[0]
    name = pipeline if isinstance(pipeline, str) else "unnamed"
    return dataset, f"{name} {final}".strip()


def _lacks(traces: TraceSet, samples: int) -> Iterator[str]:
    run = traces.origin.run
    if is_veiled(run):
        yield "texts: no network over text, no Acc; rewards are the own scores of rounds"
    if samples < 8:
        yield "samples: fewer than the paper's 8 a round"
    if LLM_STOP.name not in traces.signal_names:
        yield "verdicts: no LLM-Stop"
    if not Measures(traces).recorded.has("gold_passage_ids"):
        yield "gold passages: no precision and recall"
    if not isinstance(run.get("dataset"), str):
        yield "the name of its data set"
    if (run.get("retriever"), run.get("pool")) != ("dense+rerank", 10):
        yield "the paper's retrieval: it does not rerank ten passages of dense vectors"
    if "ircot+" not in str(run.get("prompt", "")):
        yield "the paper's final answer: none by --final-answer ircot"


# --- all of them ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StopRAGTables(Tabular):
    """The records' evaluations as the paper's tables; ``refused``: records of which nothing can be said."""

    records: tuple[RecordStudy, ...]
    refused: Mapping[str, str]

    def tables(self) -> Sequence[Table]:
        """Tables 1 to 3 of the paper, the differences, and what each record lacks."""
        wanted = self.records[0].study.settings
        brackets = (
            f"In brackets the 95% interval of {wanted.resamples:,} resamples of the questions, each figure "
            f"averaged over {seeds_named(wanted.seed, wanted.seeds)} first. A dash is unknown."
        )
        targets = {name: TARGETS[name] for name in TARGETS if self._has(name)}
        return (
            self._paper_table(
                "table 1",
                f"Scores in percent, by pipeline and data set. {brackets}",
                {name: said for name, said in METHODS.items() if self._has(name)},
                SCORES,
            ),
            self._paper_table(
                "table 2",
                "Precision and recall of the passages found by the stop, in percent, and mean rounds.",
                {name: said for name, said in METHODS.items() if self._has(name)},
                RETRIEVAL,
            ),
            *(
                [self._paper_table("table 3", "Targets learned towards.", targets, SCORES)]
                if targets
                else []
            ),
            self._differences(),
            *self._about(),
            *notes_table(self.notes),
        )

    @property
    def notes(self) -> Sequence[str]:
        """What a reader must know, each with the records it is said of."""
        said: dict[str, list[str]] = {}
        for record in self.records:
            for note in record.study.notes:
                said.setdefault(note, []).append(f"{record.dataset} {record.pipeline}")
        notes = [f"{', '.join(where)}: {note}" for note, where in said.items()]
        return [*notes, *(f"{path} is left out: {why}" for path, why in self.refused.items())]

    def to_json(self) -> dict[str, Any]:
        """Every record's evaluation, and the tables' unrounded values."""
        return {
            "records": [
                {
                    "dataset": record.dataset,
                    "pipeline": record.pipeline,
                    "lacks": list(record.lacks),
                    **record.study.to_json(),
                }
                for record in self.records
            ],
            "tables": {table.name: table.data() for table in self.tables() if table.columns},
            "refused": dict(self.refused),
            "notes": list(self.notes),
        }

    def _has(self, method: str) -> bool:
        return any(record.contender(method) is not None for record in self.records)

    def _paper_table(
        self, name: str, title: str, methods: Mapping[str, str], figures: Mapping[str, str]
    ) -> Table:
        """Rows are a pipeline's methods, columns the data sets' figures."""
        datasets = list(dict.fromkeys(record.dataset for record in self.records))
        pipelines = list(dict.fromkeys(record.pipeline for record in self.records))
        by_place = {(record.pipeline, record.dataset): record for record in self.records}
        rows: list[list[Value]] = []
        for pipeline in pipelines:
            for method, said in methods.items():
                here = [by_place.get((pipeline, dataset)) for dataset in datasets]
                if not any(record is not None and record.contender(method) for record in here):
                    continue
                cells: list[Value] = [
                    None if record is None else record.figure(method, figure)
                    for record in here
                    for figure in figures
                ]
                rows.append([pipeline, said, *cells])
        return Table(
            name=name,
            title=title,
            columns=[
                Column(name="pipeline", once=True),
                Column(name="method"),
                *(
                    Column(
                        name=f"{dataset}_{figure}",
                        head=f"{dataset}\n{head}",
                        kind=_kind(figure),
                        digits=2 if figure == "steps" else None,
                        interval=True,
                    )
                    for dataset in datasets
                    for figure, head in figures.items()
                ),
            ],
            rows=rows,
            names=2,
        )

    def _differences(self) -> Table:
        rows: list[list[Value]] = []
        for record in self.records:
            against = dict.fromkeys((record.study.full, record.study.best, LLM_STOPS))
            for of in (DEFAULT, SIGNALS, LLM_STOPS):
                for rival in against:
                    contrast = record.study.contrast(of, rival)
                    if contrast is not None:
                        at_once = replace(contrast.interval, low=contrast.low, high=contrast.high)
                        rows.append(
                            [record.dataset, record.pipeline, of, rival, contrast.interval, at_once]
                        )
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

    def _about(self) -> Sequence[Table]:
        lacking: dict[str, list[str]] = {}
        for record in self.records:
            for lack in record.lacks:
                lacking.setdefault(lack, []).append(f"{record.dataset} {record.pipeline}")
        return (
            Table(
                name="records",
                title="The records: rounds, samples a round, labelled questions fitted on and scored.",
                columns=[
                    Column(name="data set"),
                    Column(name="pipeline"),
                    *(
                        Column(name=name, kind="count")
                        for name in ("rounds", "samples", "fitted on", "scored")
                    ),
                    Column(name="file"),
                ],
                rows=[
                    (
                        record.dataset,
                        record.pipeline,
                        record.study.rounds,
                        record.samples,
                        sum(record.study.fitting.values()),
                        record.study.questions,
                        record.path,
                    )
                    for record in self.records
                ],
                names=2,
            ),
            Table(
                name="lacking",
                title="What records lack of the paper's.",
                columns=[Column(name="lacks"), Column(name="records")],
                rows=[(lack, ", ".join(names)) for lack, names in lacking.items()],
            ),
        )


def _kind(figure: str) -> Kind:
    return "number" if figure == "steps" else "percent"


def stop_rag_tables(
    paths: Sequence[str],
    settings: StopRAGStudySettings,
    on_progress: Callable[[FitProgress], None] | None = None,
) -> StopRAGTables:
    """Every record's evaluation; one that cannot be evaluated is named with the reason."""
    records: list[RecordStudy] = []
    refused: dict[str, str] = {}
    places: dict[tuple[str, str], str] = {}
    for path in paths:
        place = named(path, read_traces(path))
        if place in places:
            raise UsageError(
                f"{places[place]} and {path} are both of data set {place[0]!r} and pipeline {place[1]!r}; "
                f"name one of them, or join them: suffice traces merge {places[place]} {path} --out NEW"
            )
        places[place] = path
    for path in paths:
        say(f"{path}: {' '.join(named(path, read_traces(path)))}")
        try:
            records.append(study_record(path, settings, on_progress))
        except UsageError as error:
            refused[path] = str(error)
    if not records:
        raise UsageError("; ".join(f"{path}: {why}" for path, why in refused.items()))
    return StopRAGTables(records=tuple(records), refused=refused)


# --- the command ----------------------------------------------------------------------------------
def parser() -> Parser:
    """The options."""
    made = Parser(
        prog="python -m studies.stop_rag",
        description="Trains Stop-RAG on several records and prints the paper's tables: methods by pipeline "
        "in rows, data sets in columns. 'suffice bench stop-rag' tells more of one record.",
    )
    made.add_argument("traces", metavar="TRACES", nargs="+", help="records of different loops")
    add_settings(made, StopRAGStudySettings, nested=False)
    add_settings(made, TrainingOptions, nested=False)
    made.add_argument(
        "--out",
        type=out_path(folder=True),
        metavar="DIR",
        help="keep every trained policy in DIR/DATASET-PIPELINE/VARIANT-SEED, to go on from there",
    )
    add_format(made)
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Run the study; the exit code."""
    arguments = parser().parse_args(words)
    try:
        training = read_settings(arguments, TrainingOptions)
        steps = StopRAGSettings(epochs=training.epochs, min_steps=training.min_steps)
        settings = read_settings(
            arguments,
            StopRAGStudySettings,
            text=replace(steps, encoder=training.encoder),
            signals=replace(steps, features="signals"),
            folder=None if arguments.out is None else Path(arguments.out),
        )
        found = stop_rag_tables(arguments.traces, settings, _Told().show)
    except SufficeError as error:
        say(" ".join(str(error).split()), lead="python -m studies.stop_rag:")
        return error.exit_code
    print_result(arguments, found.tables(), found.to_json, found.notes)
    say(f"{counted(len(found.records), 'record')} evaluated")
    return 0


class _Told:
    """One line for every fit, and the steps of the one under way."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], ProgressLine] = {}

    def show(self, now: FitProgress) -> None:
        """State how far a fit is."""
        fit, training = now.fit, now.training
        said = f"  {fit.variant}, seed {fit.seed} ({fit.number} of {fit.of})"
        if training is None:
            say(f"{said}: {now.stage}")
            self._lines.clear()
            return
        done = f"{said}: {'texts read' if training.stage == 'read' else 'steps trained'}"
        line = self._lines.setdefault((said, training.stage), ProgressLine(done))
        line.show(training.done, training.total)


if __name__ == "__main__":
    sys.exit(main())
