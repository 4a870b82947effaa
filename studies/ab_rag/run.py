"""AB-RAG on several records: what its paper reports of each, and all of them by one price list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from studies.ab_rag.answers import long_answers, loop_examples
from studies.ab_rag.page import ab_rag_page
from studies.ab_rag.prices import PriceList, read_price_list
from studies.ab_rag.results import METHOD, ABRagRecords, RecordStudy
from studies.ab_rag.record import ABRagComparison, ABRagStudySettings, ab_rag_study
from studies.study import Options, Request, Study
from suffice.costs.usage import CostModel
from suffice.datasets.files import unique_ids
from suffice.errors import UsageError
from suffice.numbers.intervals.bootstrap import Interval, percentile_interval, resampled_means
from suffice.options import Option
from suffice.replay.diagnose.reliability import wilson
from suffice.replay.settings import ComparisonSettings, FittedElsewhere
from suffice.trace.rounds.table import TraceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsSettings:
    """What is asked of every record beside the study itself."""

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
    study: ABRagStudySettings = field(default_factory=ABRagStudySettings)


def ab_rag_records(
    traces: Sequence[TraceSet], settings: RecordsSettings | None = None
) -> ABRagRecords:
    """Evaluate AB-RAG on each record and set them side by side."""
    settings = RecordsSettings() if settings is None else settings
    names = unique_ids(PurePath(one.origin.source).stem for one in traces)
    return ABRagRecords(
        records=tuple(
            _record(one, name, settings) for one, name in zip(traces, names, strict=True)
        ),
        priced_by=None if settings.prices is None else settings.prices.source,
    )


def _record(traces: TraceSet, name: str, settings: RecordsSettings) -> RecordStudy:
    told = traces.origin.run.get("model")
    model = told if isinstance(told, str) else ""
    prices = None if settings.prices is None else settings.prices.of(name, model)
    wanted: ComparisonSettings = settings.study.comparison
    priced = replace(wanted, cost_model=CostModel(prices=prices))
    study = ab_rag_study(traces, replace(settings.study, comparison=priced))
    result = study.comparison.result
    static = f"fixed-{min(settings.static, result.max_rounds)}"
    by_name = {policy.name: policy for policy in result.policies}
    compared = [by_name[static], by_name[METHOD], *(swept.result for swept in study.swept)]

    past = [policy.name for policy in compared if policy.at_stops.past is not None]
    if past:
        raise UsageError(
            f"{traces.origin.source} was cut where a live policy stopped, and {past[0]} goes past the "
            "cuts: its answers there are not known; suffice replay weighs the questions that ran on"
        )
    em = study.comparison.measures.score("em")
    rows = np.arange(len(em))
    columns = np.column_stack([em[rows, policy.answers - 1] for policy in compared])
    columns = columns[np.isfinite(columns).all(axis=1)]
    if not len(columns) or not result.metric.gold:
        raise UsageError(
            f"{traces.origin.source} has no question with a gold answer, so no exact match can be told; add "
            "gold answers: suffice traces label"
        )
    drawn = resampled_means(columns, resamples=result.resamples, seed=result.seed)
    means = columns.mean(axis=0)
    bands = [
        _interval(float(mean), draws, len(columns))
        for mean, draws in zip(means, drawn.T, strict=True)
    ]
    return RecordStudy(
        name=name,
        model=model,
        study=study,
        static=static,
        em={static: bands[0], METHOD: bands[1]},
        gain=percentile_interval(float(means[1] - means[0]), drawn[:, 1] - drawn[:, 0]),
        swept_em=tuple(bands[2:]),
        long_answers=tuple(
            long_answers(study, policy, settings.examples) for policy in compared[:2]
        ),
        loops=loop_examples(study, by_name[METHOD], settings.examples),
        prices=prices,
    )


def _interval(mean: float, draws: NDArray[np.float64], questions: int) -> Interval:
    """That of the resamples; where all answers are right or all wrong these do not vary, and Wilson's."""
    if 0.0 < mean < 1.0:
        return percentile_interval(mean, draws)
    low, high = wilson(mean * questions, questions)
    return Interval(estimate=mean, low=low, high=high)


def _run(request: Request) -> ABRagRecords:
    elsewhere = request.read(FittedElsewhere).fit_on
    fit_on = None if elsewhere is None else request.open_traces(elsewhere)
    comparison = request.read(ABRagComparison, fit_on=fit_on)
    study = request.read(ABRagStudySettings, comparison=comparison)
    settings: RecordsSettings = request.read(RecordsSettings, study=study)
    return ab_rag_records([request.open_traces(path) for path in request.paths], settings)


STUDY = Study(
    description="Evaluates AB-RAG on each record as 'suffice bench ab-rag' does, sets the records side by "
    "side, prices them by one list, and shows the answers that hold the gold answer and are no exact match.",
    options=(
        Options(settings=RecordsSettings),
        Options(settings=ABRagStudySettings),
        Options(settings=ABRagComparison, without=("cost_model",)),
        Options(settings=FittedElsewhere),
    ),
    run=_run,
    traces="several",
    out="write ab_rag.json and ab_rag.html, the figures, into this folder",
    page=ab_rag_page,
)
