"""The evaluation of Stop-RAG (its paper, 5 and 6): what a learned value of stopping is worth."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from studies.command import Found, out_option, own_options, report
from studies.stop_rag.fits import FittedPolicy, Watch, fit_variants, fitting_questions
from studies.stop_rag.results import (
    DEFAULT,
    LLM_STOPS,
    ORACLE,
    SIGNALS,
    Contender,
    RecordStudy,
    RunScores,
    StopRAGStudySettings,
    about_records,
    paper_tables,
    record_tables,
)
from suffice._version import VERSION
from suffice.cli.output import Form, fit_progress, say, waiting
from suffice.cli.parser import Given, command
from suffice.cli.shared_options import Reading, SeveralTraces
from suffice.contracts import StopPolicy
from suffice.costs.usage import CostModel, CostReads
from suffice.errors import UsageError, counted
from suffice.evaluation.replay.answers import Resampling
from suffice.evaluation.replay.named_policies import ORACLES
from suffice.evaluation.replay.runner import at_stop
from suffice.measures.costs import CostBook, cost_reads
from suffice.measures.measures import Measures
from suffice.measures.scores import Outcomes, RetrievalQuality
from suffice.policies.fitting import fitted_rule
from suffice.policies.stop_rag.stop_rag_settings import PACKAGED_ENCODER, StopRAGSettings
from suffice.scoring import F1Kind
from suffice.signals.known_signals import LLM_STOP, MALFORMED_ACTIONS
from suffice.signals.signal_table import first_stops, signal_table
from suffice.stats.simultaneous import simultaneous_bands
from suffice.trace.rounds.labels import labelled
from suffice.trace.rounds.trace_set import TraceSet, is_veiled


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Labelled questions with everything a stop at any round is worth."""

    traces: TraceSet
    scored: Outcomes
    quality: RetrievalQuality
    book: CostBook

    @classmethod
    def read(cls, traces: TraceSet, f1_kind: F1Kind) -> Questions:
        chosen = labelled(traces)
        if not chosen.any():
            raise UsageError(
                f"no question of {traces.origin.source} that was asked for has gold answers; the evaluation "
                "needs them"
            )
        measures = Measures(traces.take(chosen)).by(None)  # of a redacted record its own scores
        return cls(
            traces=traces.take(chosen),
            scored=measures.scores(f1_kind),
            quality=measures.retrieval(),
            book=measures.costs(CostModel()),
        )

    def fixed(self, rounds: int) -> RunScores:
        """Always stopping after so many rounds."""
        return self._stopped(np.full(self.traces.n_questions, rounds, np.int16), CostReads())

    def oracle(self) -> RunScores:
        stops = ORACLES[ORACLE](self.scored, self.traces.last_rounds)
        return self._stopped(stops, CostReads(answers=True))

    def policy(self, policy: StopPolicy, seed: int | None = None) -> tuple[RunScores, float]:
        """A policy's figures, and the seconds it took to decide a recorded round."""
        # a model may be loaded when it first decides, which is not timed
        first = self.traces.take(np.arange(self.traces.n_questions) == 0)
        first_stops(policy, signal_table(first, policy.specs))
        started = time.perf_counter()
        wanted = first_stops(policy, signal_table(self.traces, policy.specs))
        seconds = (time.perf_counter() - started) / int(self.traces.exists.sum())
        return self._stopped(wanted, cost_reads(policy.specs), seed), seconds

    def _stopped(
        self, wanted: NDArray[np.int16], reads: CostReads, seed: int | None = None
    ) -> RunScores:
        last, scored = self.traces.last_rounds, self.scored
        stops = np.minimum(wanted, last)
        calls = self.book.at_stops(reads)["llm_calls"]
        columns = {
            "em": scored.em,
            "f1": scored.f1,
            # whether an answer holds another needs its text
            "acc": scored.acc if scored.metric.gold else np.full_like(scored.acc, np.nan),
            "precision": self.quality.precision,
            "recall": self.quality.recall,
        }
        return RunScores(
            seed=seed,
            llm_calls=None if calls is None else float(at_stop(calls, stops).mean()),
            stops=stops,
            by_question={
                "mean_rounds": stops.astype(np.float64),
                **{name: at_stop(column, stops) for name, column in columns.items()},
            },
            beyond_record=int((wanted > last).sum()),
        )


def best_fixed(fitting: Sequence[TraceSet], f1_kind: F1Kind, rounds: int) -> int:
    """The fewest rounds, at most ``rounds``, with the highest F1 on the questions with gold answers."""
    scores: list[NDArray[np.float64]] = []
    for part in fitting:
        traces = part.take(labelled(part))
        if traces.n_questions:
            at = np.minimum(np.arange(1, rounds + 1)[None, :], traces.last_rounds[:, None])
            f1 = Measures(traces).by(None).score("f1", f1_kind)
            scores.append(np.take_along_axis(f1, at.astype(np.int64) - 1, axis=1))
    if not scores:
        raise UsageError("no question that is fitted on has gold answers; fitting needs them")
    # equal means may differ in their last bits
    return int(np.round(np.concatenate(scores).mean(axis=0), 12).argmax()) + 1


def contrasts(
    contenders: Sequence[Contender], pairs: Sequence[tuple[str, str]], draws: Resampling
) -> tuple[list[dict[str, Any]], float]:
    """Mean differences of F1, the first of a pair minus the second, over the same resampled questions."""
    f1_of = {contender.name: contender.of_questions("f1") for contender in contenders}
    differences = np.stack([f1_of[of] - f1_of[against] for of, against in pairs], axis=1)
    (band,) = simultaneous_bands(
        len(pairs), lambda part: differences[:, part], [None], **asdict(draws)
    )
    found = [
        {"of": of, "against": against, "difference": band.alone(at), "at_once": band.at_once(at)}
        for at, (of, against) in enumerate(pairs)
    ]
    return found, band.critical


def record_study(
    traces: TraceSet, wanted: StopRAGStudySettings, watch: Watch = lambda _: None
) -> RecordStudy:
    """Train every variant in every seed, and compare them on questions that none has seen."""
    if is_veiled(traces.origin.run) and SIGNALS in wanted.variants:
        wanted = replace(wanted, variants=(SIGNALS,))  # the others read texts
    asked = traces.only_split(wanted.split)
    questions = Questions.read(asked, wanted.f1_kind)
    fitting = fitting_questions(traces, wanted)
    if not traces.has("samples"):
        raise UsageError(
            f"{traces.origin.source} holds no column samples, which the study's rewards are made of; record "
            "with --samples 8"
        )
    known = questions.traces
    full = f"fixed-{known.n_rounds}"
    best = f"fixed-{best_fixed(list(fitting.values()), wanted.f1_kind, known.n_rounds)}"
    fitted = fit_variants(traces, wanted, watch)
    contenders = tuple(_contenders(questions, fitted, wanted))
    pairs = list(dict.fromkeys(_pairs(contenders, (full, best))))
    found, critical = contrasts(contenders, pairs, Resampling(wanted.resamples, wanted.seed))
    dataset, pipeline = named(traces)
    samples = int(np.nanmax(traces.lengths("samples")))
    recall = at_stop(questions.quality.recall, known.last_rounds)
    document = {
        "dataset": dataset,
        "pipeline": pipeline,
        "lacks": list(_lacks(traces, samples)),
        "traces": traces.origin.source,
        "split": wanted.split,
        "questions": known.n_questions,
        "unlabelled": asked.n_questions - known.n_questions,
        "rounds": known.n_rounds,
        "fitted_on": {name: int(labelled(part).sum()) for name, part in fitting.items()},
        "with_gold_passages": int(np.isfinite(recall).sum()),
        "variants": wanted.variants,
        "seeds": wanted.all_seeds,
        "preset": wanted.preset,
        "encoder": wanted.text.encoder,
        "f1_kind": wanted.f1_kind,
        "bootstrap": wanted.resamples,
        "version": VERSION,
        "full_budget": full,
        "best_fixed": best,
        "policies": contenders,
        "contrasts": found,
        "critical": critical,
        "unread": _unread(known),
        "band": "mean, least and greatest over seeds",
        "notes": list[str](),
    }
    study = RecordStudy(settings=wanted, document=document, contenders=contenders, samples=samples)
    document["notes"] = list(_notes(study, known, fitted))
    return study


def named(traces: TraceSet) -> tuple[str, str]:
    """Data set and pipeline as the run document has them, else the file's name and ``unnamed``."""
    run, path = traces.origin.run, traces.origin.source
    stated, pipeline = run.get("dataset"), run.get("pipeline")
    dataset = Path(stated).stem if isinstance(stated, str) else Path(path).stem
    final = str(run.get("prompt", "")).rpartition("+")[0]
    name = pipeline if isinstance(pipeline, str) else "unnamed"
    return dataset, f"{name} {final}".strip()


def _contenders(
    questions: Questions, fitted: Sequence[FittedPolicy], settings: StopRAGStudySettings
) -> Iterator[Contender]:
    for variant in settings.variants:
        runs, facts = [], []
        for member in fitted:
            if member.variant == variant:
                scored, seconds = questions.policy(member.policy, member.seed)
                runs.append(scored)
                facts.append(_facts(member, seconds))
        yield Contender(name=variant, kind="learned", runs=runs, fits=facts)
    if LLM_STOP.name in questions.traces.signal_names:
        scored, _ = questions.policy(fitted_rule(LLM_STOP.name, None))
        yield Contender(name=LLM_STOPS, kind="llm-stop", runs=(scored,))
    for number in range(1, questions.traces.n_rounds + 1):
        yield Contender(name=f"fixed-{number}", kind="fixed", runs=(questions.fixed(number),))
    yield Contender(name=ORACLE, kind="oracle", runs=(questions.oracle(),))


def _facts(fitted: FittedPolicy, state_seconds: float) -> dict[str, Any]:
    """How one network was trained (``loaded``: found so), and what deciding with it takes.

    Of ``decisions`` (states before the last) the ``informative`` ones are in the loss. ``truncated`` is the
    share of states that lost text (``None``: it reads none).
    """
    policy = fitted.policy
    training, cut = policy.fitted_on["training"], policy.fitted_on["truncation"]
    names = ("decisions", "informative", "steps", "seconds")
    return {
        "seed": fitted.seed,
        "loaded": fitted.loaded,
        "threshold": policy.threshold,
        "trajectories": training["questions"],
        "validated": policy.fitted_on["validation"]["questions"],
        **{name: training[name] for name in names},
        "truncated": None if cut is None else cut["states_cut"] / max(1, cut["states"]),
        "state_seconds": state_seconds,
    }


def _pairs(contenders: Sequence[Contender], fixed: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Everything that decides against the fixed budgets and LLM-Stop, then the default target's rivals."""
    deciding = [one.name for one in contenders if one.kind in ("learned", "llm-stop")]
    learned = [one.name for one in contenders if one.kind == "learned"]
    against = [*fixed, *([LLM_STOPS] if LLM_STOPS in deciding else [])]
    yield from ((of, rival) for of in deciding for rival in against if of != rival)
    if DEFAULT in learned:
        yield from ((DEFAULT, rival) for rival in learned if rival != DEFAULT)


def _unread(traces: TraceSet) -> dict[str, int] | None:
    """The running count at the last round of each question."""
    if MALFORMED_ACTIONS.name not in traces.signal_names:
        return None
    values, _ = traces.stored_signal(MALFORMED_ACTIONS.name)
    counts = np.nan_to_num(values[np.arange(traces.n_questions), traces.last_rounds - 1])
    return {
        "actions": int(counts.sum()),
        "questions": int((counts > 0).sum()),
        "rounds": int(traces.exists.sum()),
    }


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


def _notes(study: RecordStudy, traces: TraceSet, fitted: Sequence[FittedPolicy]) -> Iterator[str]:
    told = study.document
    for variant in study.contenders:
        same = [run for run in variant.runs if len(np.unique(run.stops)) == 1]
        if same and variant.kind == "learned":
            seeds = ", ".join(f"seed {run.seed} in round {run.stops[0]}" for run in same)
            yield f"{variant.name} stops every question in the same round: {seeds}. It decides nothing there"
    yield from _about_the_record(study, traces)
    yield from _about_fits(study, fitted)
    yield from (f"the record lacks, of the paper's, {lack}" for lack in told["lacks"])


def _about_the_record(study: RecordStudy, traces: TraceSet) -> Iterator[str]:
    told = study.document
    yield from Measures(traces).by(None).notes(None)
    if told["unlabelled"]:
        yield f"{counted(told['unlabelled'], 'question')} without gold answers left out"
    short = int((traces.last_rounds < told["rounds"]).sum())
    if short:
        yield (
            f"{counted(short, 'question')} recorded for fewer than {told['rounds']} rounds: whatever goes on "
            "ends with the last one there is"
        )
    if study.contender(LLM_STOPS) is not None:
        values, _ = traces.stored_signal(LLM_STOP.name)
        silent = int((traces.exists & np.isnan(values)).sum())
        if silent:
            yield f"{counted(silent, 'round')} without a verdict: LLM-Stop goes on there"
        unread = told["unread"]
        if unread is not None and unread["actions"]:
            yield (
                f"{counted(unread['actions'], 'action')} of the model (queries and verdicts, in "
                f"{counted(unread['rounds'], 'round')}) could not be read, of "
                f"{counted(unread['questions'], 'question')}; an unread verdict goes on"
            )
    gold = told["with_gold_passages"]
    if 0 < gold < told["questions"]:
        yield f"precision and recall are known for {gold} of {counted(told['questions'], 'question')}"
    if gold and traces.origin.run.get("corpus") == "pooled":
        yield (
            "precision and recall tell passages apart by id: where the pooled corpus holds a paragraph "
            "under several, they come out too low"
        )


def _about_fits(study: RecordStudy, fitted: Sequence[FittedPolicy]) -> Iterator[str]:
    loaded = sum(fit.loaded for fit in fitted)
    if loaded:
        yield f"{loaded} of {counted(len(fitted), 'training')} found in {study.settings.folder}"
    if len(study.document["fitted_on"]) == 1 and study.settings.seeds > 1:
        yield (
            "no split validation: each seed holds other questions back to choose checkpoint and threshold "
            "on, which is part of its spread"
        )
    said: dict[str, list[str]] = {}
    for one in fitted:
        for remark in one.policy.facts.notes:
            said.setdefault(remark, []).append(one.name)
    for remark, names in said.items():
        which = "every fit" if len(names) == len(fitted) else ", ".join(names)
        yield f"{which}: {remark}"


def stop_rag_study(
    traces: Sequence[TraceSet], settings: StopRAGStudySettings, watch: Watch = lambda _: None
) -> Found:
    """Every record's evaluation; one of several that cannot be evaluated is named with the reason.

    Of one record every policy, difference and training is shown; of several the paper's tables 1 to 3.
    """
    if len(traces) == 1:
        record = record_study(traces[0], settings, watch)
        shown = (*record_tables(record), *about_records([record]))
        return Found(document=record.document, shown=shown, notes=record.document["notes"])
    places: dict[tuple[str, str], str] = {}
    for one in traces:
        place, path = named(one), one.origin.source
        if place in places:
            raise UsageError(
                f"{places[place]} and {path} are both of data set {place[0]!r} and pipeline {place[1]!r}; "
                f"name one of them, or join them: suffice traces merge {places[place]} {path} --out NEW"
            )
        places[place] = path
    records: list[RecordStudy] = []
    refused: dict[str, str] = {}
    for one in traces:
        folder = None if settings.folder is None else settings.folder / "-".join(named(one))
        try:
            records.append(record_study(one, replace(settings, folder=folder), watch))
        except UsageError as error:
            refused[one.origin.source] = str(error)
    if not records:
        raise UsageError("; ".join(f"{path}: {why}" for path, why in refused.items()))
    said: dict[str, list[str]] = {}
    for record in records:
        told = record.document
        for note in told["notes"]:
            said.setdefault(note, []).append(f"{told['dataset']} {told['pipeline']}")
    notes = [f"{', '.join(where)}: {note}" for note, where in said.items()]
    notes += [f"{path} is left out: {why}" for path, why in refused.items()]
    tables = [table for table in paper_tables(records) if table.rows]
    document = {
        "records": [record.document for record in records],
        "tables": {table.name: table.data() for table in tables},
        "refused": refused,
        "notes": notes,
    }
    alone = record_tables(records[0]) if len(records) == 1 else tables
    return Found(document=document, shown=(*alone, *about_records(records)), notes=notes)


def _watched(name: str) -> Callable[[Any], None]:
    say(f"training {name}")
    return fit_progress()


_TRAINING = ("encoder", "epochs", "min_steps")


@command(
    *own_options(StopRAGStudySettings),
    *own_options(StopRAGSettings, only=_TRAINING, group="Training"),
)
def run(
    traces: SeveralTraces,
    *,
    reading: Reading,
    out: Annotated[
        str | None,
        out_option(
            "write stop_rag.json and keep every trained policy in DIR/VARIANT-SEED (of several records "
            "DIR/DATASET-PIPELINE/VARIANT-SEED); run again, it goes on where it stopped"
        ),
    ] = None,
    form: Form,
    given: Given,
) -> int:
    """Evaluate Stop-RAG on records that hold samples, as the paper does.

    Trains a network for every target in several seeds on split tune (and validation where there is one),
    and compares them on another split with every fixed number of rounds, with asking the model, with a
    network over signals alone and with the oracle: scores, rounds, calls, precision and recall of what was
    retrieved, and paired differences of F1. Of several records it prints the paper's tables: methods by
    pipeline in rows, data sets in columns.
    """
    text = given.settings(StopRAGSettings)
    settings = replace(
        given.settings(StopRAGStudySettings),
        text=text,
        signals=replace(text, features="signals", encoder=PACKAGED_ENCODER),
        folder=None if out is None else Path(out),
    )
    records = [reading.open(path) for path in traces]
    with waiting("stop_rag"):
        found = stop_rag_study(records, settings, _watched)
    return report("stop_rag", found, form, out)
