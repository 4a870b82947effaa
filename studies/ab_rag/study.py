"""The evaluation of AB-RAG (its paper, V) on one record or several that hold its signals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Annotated, Any

import numpy as np

from studies.ab_rag.results import METHOD, RecordStudy, paper_tables, share_interval
from studies.command import Found, mean_intervals, out_option, own_options, report
from suffice.cli.output import Form, waiting
from suffice.cli.parser import Given, command
from suffice.cli.shared_options import Reading, SeveralTraces
from suffice.datasets.files import unique_ids
from suffice.errors import UsageError
from suffice.evaluation.diagnose.diagnosis import selective_prediction
from suffice.evaluation.diagnose.signal_checks import Rows, separations
from suffice.evaluation.replay.compare import Comparison, compare
from suffice.evaluation.replay.named_policies import NamedPolicy
from suffice.evaluation.replay.results import PolicyResult
from suffice.evaluation.replay.runner import replay
from suffice.evaluation.settings import ComparisonSettings, DiagnosisSettings, FittedElsewhere
from suffice.measures.measures import Measures
from suffice.options import Option, read_grid
from suffice.policies.ab_rag.policy import CERTAINTIES, ABRagPolicy
from suffice.policies.defaults import FIT_SPLIT
from suffice.scoring import F1Kind, normalize_answer
from suffice.signals.known_signals import resolve
from suffice.signals.signal_table import lack
from suffice.stats.intervals import Interval
from suffice.trace.rounds.trace_set import TraceSet

SWEPT = tuple(round(0.05 * step, 2) for step in range(6, 17))
FORMS = (
    *(("S1", name, name, 1.0) for name in CERTAINTIES),
    ("S2", "mean of the passages (published)", "evidence_consistency", 1.0),
    ("S2", "best passage", "evidence_consistency_max", 1.0),
    ("S2", "first passage", "evidence_consistency_top1", 1.0),
    ("S2", "answer in evidence (corrected)", "answer_in_evidence", 1.0),
    ("S2", "entailment", "evidence_entailment", 1.0),
    ("S3", "normalised variance (published)", "rerank_variance", 1.0),
    ("S3", "minus raw variance", "rerank_variance_raw", -1.0),
    ("S3", "raw variance", "rerank_variance_raw", 1.0),
    ("S3", "mean score", "rerank_mean", 1.0),
)
"""Part, name, signal, and whether it counts upwards or (-1) as a penalty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ABRagComparison(ComparisonSettings):
    """A comparison scored as the paper scores: by plain SQuAD F1."""

    f1_kind: F1Kind = "squad"


@dataclass(frozen=True, slots=True, kw_only=True)
class ABRagStudySettings:
    """What is asked of every record; ``comparison.policies`` come after AB-RAG's and every fixed-K."""

    comparison: ComparisonSettings = field(default_factory=ABRagComparison)
    taus: Annotated[
        Sequence[float],
        Option(
            name="grid",
            metavar="LOW:HIGH:STEP|A,B,...",
            parse=read_grid,
            help="thresholds swept (default: 0.3:0.8:0.05)",
        ),
    ] = SWEPT
    static: Annotated[
        int,
        Option(
            metavar="K",
            at_least=1,
            help="which fixed number of rounds is static retrieval; 2 are the paper's ten passages",
        ),
    ] = 2


def ab_rag_study(traces: Sequence[TraceSet], settings: ABRagStudySettings) -> list[RecordStudy]:
    """Evaluate AB-RAG on each record."""
    names = unique_ids(PurePath(one.origin.source).stem for one in traces)
    return [_record(one, name, settings) for one, name in zip(traces, names, strict=True)]


def found_in(records: Sequence[RecordStudy]) -> Found:
    """Of one record its own document and the whole comparison; the paper's tables."""
    tables = paper_tables(records)
    notes = [f"{one.name}: {note}" for one in records for note in one.comparison.result.notes]
    if len(records) == 1:
        shown = (*records[0].comparison.tables(), *tables)
        return Found(document=records[0].document, shown=shown, notes=notes)
    document = {"records": [one.document for one in records]}
    return Found(document=document, shown=tuple(tables), notes=notes)


def _record(traces: TraceSet, name: str, settings: ABRagStudySettings) -> RecordStudy:
    told = traces.origin.run.get("model")
    model = told if isinstance(told, str) else ""
    comparison = _compared(traces, settings.comparison)
    result = comparison.result
    by_name = {policy.name: policy for policy in result.policies}
    static = f"fixed-{min(settings.static, result.max_rounds)}"
    swept = _swept(comparison, settings)
    compared = (by_name[static], by_name[METHOD])
    bands, gain = _exact_matches(comparison, [*compared, *swept])
    worth, missing = _single_signals(comparison)
    by_tau = dict(zip(settings.taus, swept, strict=True))
    document = {
        "record": name,
        "model": model or None,
        **result.to_json(),
        "selective": selective_prediction(
            comparison.measures,
            result,
            DiagnosisSettings(resamples=result.resamples, seed=result.seed),
        ),
        "tau_sweep": [{"tau": tau, **policy.to_json()} for tau, policy in by_tau.items()],
        "signals": worth,
        "not_in_record": missing,
        "static": static,
        "exact_match": {static: bands[0], METHOD: bands[1]},
        "exact_match_gain": gain,
        "exact_match_swept": bands[2:],
        "long_answers": [long_answers(comparison, one) for one in compared],
    }
    return RecordStudy(
        name=name, model=model, comparison=comparison, swept=by_tau, document=document
    )


def _compared(traces: TraceSet, wanted: ComparisonSettings) -> Comparison:
    """AB-RAG's presets and every fixed number of rounds; the corrected preset where there is a tune split."""
    fitting = traces if wanted.fit_on is None else Measures.of(wanted.fit_on).traces
    presets = [METHOD, *([f"{METHOD}-corrected"] if FIT_SPLIT in fitting.splits else [])]
    fixed = [f"fixed-{k}" for k in range(1, traces.n_rounds + 1)]
    return compare(
        traces,
        replace(
            wanted,
            policies=tuple(dict.fromkeys([*presets, *fixed, *wanted.policies])),
            baseline=wanted.baseline or fixed[-1],
            strict=True,
        ),
    )


def _swept(comparison: Comparison, settings: ABRagStudySettings) -> Sequence[PolicyResult]:
    """The published policy at other thresholds."""
    result = comparison.result
    published = result.policies[0].policy
    if not isinstance(published, ABRagPolicy):
        raise UsageError(f"the first policy must be {METHOD}, found {result.policies[0].name!r}")
    candidates = [
        NamedPolicy(
            name=f"tau {tau:g}",
            kind=METHOD,
            preset="published",
            policy=replace(published, threshold=tau),
        )
        for tau in settings.taus
    ]
    if not candidates:
        return ()
    wanted = replace(settings.comparison, baseline=candidates[0].name, split=result.split)
    return replay(comparison.measures, candidates, wanted).policies


def _exact_matches(
    comparison: Comparison, policies: Sequence[PolicyResult]
) -> tuple[list[Interval], Interval]:
    """The exact match of every policy, and how much the second has more than the first."""
    result, source = comparison.result, comparison.traces.origin.source
    past = [policy.name for policy in policies if policy.at_stops.past is not None]
    if past:
        raise UsageError(
            f"{source} was cut where a live policy stopped, and {past[0]} goes past the cuts: its answers "
            "there are not known; suffice replay weighs the questions that ran on"
        )
    em = comparison.measures.score("em")
    columns = np.column_stack([em[np.arange(len(em)), policy.answers - 1] for policy in policies])
    columns = columns[np.isfinite(columns).all(axis=1)]
    if not len(columns) or not result.metric.gold:
        raise UsageError(
            f"{source} has no question with a gold answer, so no exact match can be told; add gold answers: "
            "suffice traces label"
        )
    columns = np.column_stack([columns, columns[:, 1] - columns[:, 0]])
    *bands, gain = mean_intervals(columns, resamples=result.resamples, seed=result.seed)
    for at, band in enumerate(bands):
        if band.estimate in (0.0, 1.0):  # resamples of answers all right or all wrong do not vary
            bands[at] = share_interval(band.estimate * len(columns), len(columns))
    return bands, gain


def _single_signals(comparison: Comparison) -> tuple[list[dict[str, Any]], list[str]]:
    result, traces = comparison.result, comparison.traces
    missing = {signal for _, _, signal, _ in FORMS if lack(resolve(signal), traces)}
    held = [form for form in FORMS if form[2] not in missing]
    table = comparison.measures.signals(signal for _, _, signal, _ in held)
    em = comparison.measures.score("em")[:, 0]
    labelled = np.isfinite(em)
    about, parts = [], []
    for part, form, signal, sign in held:
        values = table.signal(signal)[labelled, 0]
        some = np.flatnonzero(np.isfinite(values))
        if not len(some):
            missing.add(signal)
            continue
        right = em[labelled][some] == 1.0
        parts.append(Rows(values=values[some], right=right, questions=some, sign=sign))
        said = {"part": part, "form": form, "signal": signal, "sign": sign}
        about.append({**said, "defined": len(some)})
    n = int(labelled.sum())
    found = separations(parts, n, resamples=result.resamples, seed=result.seed)
    worth = [{**said, "auroc": own["auroc"]} for said, (own, _) in zip(about, found, strict=True)]
    return worth, sorted(missing)


def held_gold(answer: str, gold_answers: Sequence[str]) -> str | None:
    """The first gold answer that stands in the answer as whole words, both normalised.

    Yes and no are left out: an answer holds them by chance.

    >>> held_gold("Wichita, Kansas", ["Wichita"]), held_gold("I know", ["no"])
    ('Wichita', None)
    """
    words = f" {normalize_answer(answer)} "
    for gold in gold_answers:
        form = normalize_answer(gold)
        if form not in ("", "yes", "no") and f" {form} " in words:
            return gold
    return None


def long_answers(comparison: Comparison, policy: PolicyResult) -> dict[str, Any]:
    """How many answers of a policy hold gold and are no exact match."""
    labelled = wrong = holding = 0
    em = comparison.measures.score("em")
    records = zip(comparison.traces.records(), policy.answers.tolist(), strict=True)
    for row, (record, taken) in enumerate(records):
        score = em[row, taken - 1]
        if record.gold.answers and not np.isnan(score):
            labelled += 1
            wrong += bool(score == 0.0)
            answer = record.rounds[taken - 1].answer or ""
            holding += bool(score == 0.0) and held_gold(answer, record.gold.answers) is not None
    return {"policy": policy.name, "labelled": labelled, "wrong": wrong, "holding": holding}


@command(*own_options(ABRagStudySettings), *own_options(ABRagComparison))
def run(
    traces: SeveralTraces,
    *,
    reading: Reading,
    elsewhere: FittedElsewhere,
    out: Annotated[str | None, out_option("write ab_rag.json into this folder")] = None,
    form: Form,
    given: Given,
) -> int:
    """Evaluate AB-RAG on records that hold its signals.

    Static against adaptive retrieval with costs by one price list, what its confidence is worth (AUROC,
    answers above and below the threshold), other thresholds, every single signal with its alternative
    forms, and the answers that hold the gold answer and are no exact match.
    """
    fit_on = None if elsewhere.fit_on is None else reading.open(elsewhere.fit_on)
    comparison = replace(given.settings(ABRagComparison), fit_on=fit_on)
    settings = replace(given.settings(ABRagStudySettings), comparison=comparison)
    records = [reading.open(path) for path in traces]
    with waiting("ab_rag"):
        found = found_in(ab_rag_study(records, settings))
    return report("ab_rag", found, form, out)
