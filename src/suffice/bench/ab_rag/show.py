"""The evaluation of AB-RAG as tables."""

from __future__ import annotations

from suffice.bench.ab_rag.results import ABRagStudy
from suffice.replay.diagnose.tables import selective_tables
from suffice.results.table import Column, Table


def tables_of(study: ABRagStudy) -> tuple[Table, ...]:
    """Static against adaptive, selective prediction, thresholds and single signals."""
    swept = [_swept(study)] if study.swept else []
    return (
        *study.comparison.tables(),
        *selective_tables(study.selective),
        *swept,
        _signals(study),
    )


def _swept(study: ABRagStudy) -> Table:
    cost = study.comparison.result.cost.name
    spent = [] if cost == "rounds" else [Column(name=cost, kind="number", digits=2)]
    rows = [
        (
            f"{swept.tau:g}",
            swept.result.em,
            swept.result.f1,
            swept.result.mean_rounds,
            *(swept.result.costs.get(column.name) for column in spent),
            swept.result.auroc,
            swept.result.frontier_gain,
            str(swept.result.beyond_record) if swept.result.beyond_record else "",
        )
        for swept in study.swept
    ]
    return Table(
        name="thresholds",
        title="The published confidence stopped at other thresholds; EM, F1 and gains in percent. Chosen "
        "here, a threshold is chosen on the questions it is scored on. Beyond: questions whose record "
        "ends before the round it wanted.",
        columns=[
            Column(name="tau"),
            Column(name="em", head="EM", kind="percent"),
            Column(name="f1", head="F1", kind="percent"),
            Column(name="rounds", kind="number", digits=2),
            *spent,
            Column(name="auroc", head="AUROC", kind="number", digits=3),
            Column(name="gain", head="gain over fixed-k [95%]", kind="points", interval=True),
            Column(name="beyond"),
        ],
        rows=rows,
    )


def _signals(study: ABRagStudy) -> Table:
    lacking = study.not_in_record
    return Table(
        name="signals",
        title="Single signals in round 1 against exact match in round 1; n: defined there.",
        columns=[
            Column(name="part", head=""),
            Column(name="form"),
            Column(name="signal"),
            Column(name="n", kind="count"),
            Column(name="auroc", head="AUROC [95%]", kind="number", digits=3, interval=True),
        ],
        rows=[
            (worth.form.part, worth.form.name, worth.form.signal, worth.defined, worth.auroc)
            for worth in study.signals
        ],
        names=3,
        notes=[f"Not in the record: {', '.join(lacking)}."] if lacking else [],
    )
