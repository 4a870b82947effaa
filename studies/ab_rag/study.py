"""The evaluation of AB-RAG (its paper, V) on one record or several that hold its signals."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Annotated, Any

import numpy as np

from studies.ab_rag.results import METHOD, RecordStudy, paper_tables
from studies.command import Found, Options, Request, Study
from suffice.costs.prices import Prices, parse_prices
from suffice.costs.usage import CostModel
from suffice.datasets.files import unique_ids
from suffice.errors import DataError, UsageError
from suffice.measures.measures import Measures
from suffice.options import Option, read_grid
from suffice.policies.ab_rag.policy import CERTAINTIES, ABRagPolicy
from suffice.policies.defaults import FIT_SPLIT
from suffice.replay.diagnose.diagnosis import selective_prediction
from suffice.replay.diagnose.reliability import wilson
from suffice.replay.run.compare import Comparison, compare
from suffice.replay.run.named_policies import NamedPolicy
from suffice.replay.run.replay import ReplaySettings, replay
from suffice.replay.run.results import PolicyResult
from suffice.replay.settings import (
    ComparisonSettings,
    DiagnosisSettings,
    DiagnosticsSettings,
    FittedElsewhere,
)
from suffice.scoring import F1Kind, normalize_answer
from suffice.signals.registry import resolve
from suffice.signals.table import lack
from suffice.stats.auroc import ResampledAuroc, auroc
from suffice.stats.intervals import (
    Interval,
    from_draws,
    percentile_interval,
    resampled_counts,
    resampled_means,
    undefined,
)
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.table import TraceSet

# --- one price list for several records ------------------------------------------------------------
_LIST = '["llama3.2:3b"] with input = 0.06 and output = 0.06 below it; ["*"] is for all others'


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """Prices by the name of a model or a record; ``*`` for all others. ``source`` is where they stand."""

    source: str
    by_name: Mapping[str, Prices]

    def of(self, *names: str) -> Prices | None:
        """The prices of the first of the names that is listed, else those for all others."""
        return next((self.by_name[name] for name in (*names, "*") if name in self.by_name), None)


def read_price_list(given: str) -> PriceList:
    """Rates as ``input=1,output=5``, or a TOML file that has them by model.

    >>> read_price_list("input=1,output=5").of("any model").output
    5.0
    """
    path = Path(given)
    if path.suffix != ".toml" and not path.exists():
        return PriceList(source="by hand", by_name={"*": parse_prices(given)})
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"there is no price list {given}; a file holds {_LIST}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"is no TOML ({error}); it holds {_LIST}", file=given) from error
    by_name = {}
    for name, rates in document.items():
        if not isinstance(rates, dict):
            raise DataError(f"{name!r} has no rates, found {rates!r}; type {_LIST}", file=given)
        try:
            by_name[name] = parse_prices(",".join(f"{key}={value}" for key, value in rates.items()))
        except UsageError as error:
            raise DataError(f"{name!r}: {error}", file=given) from error
    if not by_name:
        raise DataError(f"holds no prices; it holds {_LIST}", file=given)
    return PriceList(source=given, by_name=by_name)


# --- the study ------------------------------------------------------------------------------------
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
    prices: Annotated[
        PriceList | None,
        Option(
            metavar="RATES|FILE",
            parse=read_price_list,
            help="one price list for all records: input=1,output=5 in USD per million tokens, or a .toml "
            "file with such rates by model or record",
        ),
    ] = None
    static: Annotated[
        int,
        Option(
            metavar="K",
            at_least=1,
            help="which fixed number of rounds is static retrieval; 2 are the paper's ten passages",
        ),
    ] = 2
    examples: Annotated[
        int,
        Option(metavar="N", at_least=0, help="how many single questions are listed of a record"),
    ] = 6


def ab_rag_study(
    traces: Sequence[TraceSet], settings: ABRagStudySettings | None = None
) -> list[RecordStudy]:
    """Evaluate AB-RAG on each record."""
    settings = ABRagStudySettings() if settings is None else settings
    names = unique_ids(PurePath(one.origin.source).stem for one in traces)
    return [_record(one, name, settings) for one, name in zip(traces, names, strict=True)]


def found_in(records: Sequence[RecordStudy], settings: ABRagStudySettings) -> Found:
    """Of one record its own document and the whole comparison; the paper's tables."""
    priced_by = None if settings.prices is None else settings.prices.source
    tables = paper_tables(records, priced_by)
    notes = [f"{one.name}: {note}" for one in records for note in one.comparison.result.notes]
    if len(records) == 1:
        shown = (*records[0].comparison.tables(), *tables)
        return Found(document=records[0].document, shown=shown, notes=notes)
    document = {"records": [one.document for one in records], "priced_by": priced_by}
    return Found(document=document, shown=tuple(tables), notes=notes)


def _record(traces: TraceSet, name: str, settings: ABRagStudySettings) -> RecordStudy:
    told = traces.origin.run.get("model")
    model = told if isinstance(told, str) else ""
    prices = None if settings.prices is None else settings.prices.of(name, model)
    comparison = _compared(traces, settings.comparison, CostModel(prices=prices))
    result = comparison.result
    by_name = {policy.name: policy for policy in result.policies}
    static = f"fixed-{min(settings.static, result.max_rounds)}"
    swept = _swept(comparison, settings.taus)
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
            DiagnosisSettings(
                signals=DiagnosticsSettings(resamples=result.resamples, seed=result.seed)
            ),
        ),
        "tau_sweep": [{"tau": tau, **policy.to_json()} for tau, policy in by_tau.items()],
        "signals": worth,
        "not_in_record": missing,
        "static": static,
        "exact_match": {static: bands[0], METHOD: bands[1]},
        "exact_match_gain": gain,
        "exact_match_swept": bands[2:],
        "long_answers": [long_answers(comparison, one, settings.examples) for one in compared],
        "loops": _loop_examples(comparison, by_name[METHOD], settings.examples),
        "prices": prices,
    }
    return RecordStudy(
        name=name, model=model, comparison=comparison, swept=by_tau, document=document
    )


def _compared(traces: TraceSet, wanted: ComparisonSettings, costs: CostModel) -> Comparison:
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
            cost_model=costs,
        ),
    )


def _swept(comparison: Comparison, taus: Sequence[float]) -> Sequence[PolicyResult]:
    """The published policy at other thresholds.

    One above the threshold that the record was stopped at cannot be replayed truly: ``beyond_record``.
    """
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
        for tau in taus
    ]
    if not candidates:
        return ()
    settings = ReplaySettings(
        baseline=candidates[0].name,
        split=result.split,
        f1_kind=result.f1_kind,
        resamples=result.resamples,
        seed=result.seed,
        cost=result.cost.name,
        cost_model=result.cost_model,
    )
    return replay(comparison.measures, candidates, settings).policies


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
    drawn = resampled_means(columns, resamples=result.resamples, seed=result.seed)
    means = columns.mean(axis=0).tolist()
    bands = []
    for mean, draws in zip(means, drawn.T, strict=True):
        if 0.0 < mean < 1.0:
            bands.append(percentile_interval(mean, draws))
        else:  # resamples of answers all right or all wrong do not vary
            low, high = wilson(mean * len(columns), len(columns))
            bands.append(Interval(estimate=mean, low=low, high=high))
    return bands, percentile_interval(means[1] - means[0], drawn[:, 1] - drawn[:, 0])


def _single_signals(comparison: Comparison) -> tuple[list[dict[str, Any]], list[str]]:
    result, traces = comparison.result, comparison.traces
    missing = {signal for _, _, signal, _ in FORMS if lack(resolve(signal), traces)}
    held = [form for form in FORMS if form[2] not in missing]
    table = comparison.measures.signals(signal for _, _, signal, _ in held)
    em = comparison.measures.score("em")[:, 0]
    labelled = np.isfinite(em)
    count = int(labelled.sum())
    drawn = resampled_counts(count, resamples=result.resamples, seed=result.seed) if count else ()
    draws = list(drawn)
    counts = np.concatenate(draws).T if draws else np.empty((0, 0))
    worth = []
    for part, form, signal, sign in held:
        values = sign * table.signal(signal)[labelled, 0]
        defined = int(np.isfinite(values).sum())
        if not defined:
            missing.add(signal)
            continue
        some, right = np.flatnonzero(np.isfinite(values)), em[labelled] == 1.0
        area = undefined("needs right and wrong answers with a value")
        value = auroc(values[some], right[some])
        if not math.isnan(value):
            resampled = ResampledAuroc(values[some], right[some], some, len(values))
            area = from_draws(value, resampled(counts))
        about = {"part": part, "form": form, "signal": signal, "sign": sign}
        worth.append({**about, "defined": defined, "auroc": area})
    return worth, sorted(missing)


# --- single questions -----------------------------------------------------------------------------
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


def _returned(
    comparison: Comparison, policy: PolicyResult
) -> Iterator[tuple[int, QuestionRecord, int, float]]:
    """Every labelled question with its row, the round whose answer is returned and its exact match."""
    em = comparison.measures.score("em")
    records = zip(comparison.traces.records(), policy.answers.tolist(), strict=True)
    for row, (record, taken) in enumerate(records):
        score = float(em[row, taken - 1])
        if record.gold.answers and not np.isnan(score):
            yield row, record, taken, score


def long_answers(comparison: Comparison, policy: PolicyResult, examples: int) -> dict[str, Any]:
    """The answers of a policy that hold gold and are no exact match, in the record's order."""
    labelled = wrong = 0
    found = []
    for _, record, taken, em in _returned(comparison, policy):
        labelled += 1
        wrong += em == 0.0
        answer, question = record.rounds[taken - 1].answer or "", record.question
        gold = held_gold(answer, record.gold.answers) if em == 0.0 else None
        if gold is not None:
            about = {"question_id": question.id, "question": question.text}
            found.append({**about, "gold": gold, "answer": answer})
    counts = {"labelled": labelled, "wrong": wrong, "holding": len(found)}
    return {"policy": policy.name, **counts, "examples": found[:examples]}


def _loop_examples(
    comparison: Comparison, policy: PolicyResult, number: int
) -> list[dict[str, Any]]:
    """Questions on which the loop went on, those that it put right first, then some that stop at once."""
    published = policy.policy
    if not isinstance(published, ABRagPolicy):
        return []
    confidence = published.confidence(comparison.measures.signals(published.specs))
    em = comparison.measures.score("em")
    made: list[dict[str, Any]] = [
        {
            "question_id": record.question.id,
            "question": record.question.text,
            "gold": record.gold.answers[0],
            "answers": [round_.answer or "" for round_ in record.rounds[:taken]],
            "confidence": [
                None if np.isnan(value) else float(value) for value in confidence[row, :taken]
            ],
            "first_em": float(em[row, 0]),
            "last_em": last_em,
        }
        for row, record, taken, last_em in _returned(comparison, policy)
    ]
    going = [one for one in made if len(one["answers"]) > 1]
    going.sort(key=lambda one: one["first_em"] - one["last_em"])
    stopping = [one for one in made if len(one["answers"]) == 1]
    first = going[: number - number // 2]
    return [*first, *stopping[: number - len(first)]]


# --- the command ----------------------------------------------------------------------------------
def _run(request: Request) -> Found:
    elsewhere = request.read(FittedElsewhere).fit_on
    fit_on = None if elsewhere is None else request.open(elsewhere)
    comparison = request.read(ABRagComparison, fit_on=fit_on, cost_model=CostModel())
    settings = request.read(ABRagStudySettings, comparison=comparison)
    return found_in(ab_rag_study(request.traces, settings), settings)


STUDY = Study(
    name="ab_rag",
    description="Evaluates AB-RAG on records that hold its signals: static against adaptive retrieval with "
    "costs by one price list, what its confidence is worth (AUROC, answers above and below the threshold), "
    "other thresholds, every single signal with its alternative forms, and the answers that hold the gold "
    "answer and are no exact match.",
    options=(
        Options(settings=ABRagStudySettings),
        Options(settings=ABRagComparison, without=("cost_model",)),
        Options(settings=FittedElsewhere),
    ),
    run=_run,
    traces="several",
    out="write ab_rag.json into this folder",
)
