"""What a reader of the hidden-constraint experiment has to know beside its figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from suffice.bench.hidden_constraints.results import (
    HiddenConstraintsStudy,
)
from suffice.bench.hidden_constraints.runs import GATED, VANILLA, published_gate
from suffice.pipelines.recorder import RecordSummary

__all__ = ["study_notes"]


def study_notes(study: HiddenConstraintsStudy, summary: RecordSummary) -> HiddenConstraintsStudy:
    """The study with its notes."""
    return replace(study, notes=tuple(_notes(study, summary)))


def _notes(study: HiddenConstraintsStudy, summary: RecordSummary) -> Iterator[str]:
    settings = study.settings
    if GATED in settings.agents:
        for each in published_gate(settings).unreachable:
            yield f"the published gate: {each}"
    for name, gate in settings.gates.items():
        for each in gate.unreachable:
            yield f"the gate {name}: {each}"
    cells = (*study.cells, *(each.cell for each in study.variants))
    failed = sum(cell.failed for cell in cells)
    if failed:
        kept = "; their reasons are in plans/failures.jsonl, and running the same again tries them again"
        yield f"{failed} runs failed and enter no mean" + (kept if settings.folder else "")
    if summary.recorded == 0 and summary.failed == 0:
        yield "nothing was run anew: all runs were recorded before"
    yield from _of_the_model(study)
    for asked in study.recalls:
        found = [cell.mean("covered") for cell in study.cells if cell.retriever == asked.retriever]
        if found and not any(found):
            yield (
                f"with {asked.retriever} no run retrieved a document that carries its constraint: semantic "
                "success is what a plan gets right unread"
            )
    if study.contrasts and failed:
        yield "tasks without a run of every agent and retriever are left out of all differences"


def _of_the_model(study: HiddenConstraintsStudy) -> Iterator[str]:
    leaked = [c for c in study.cells if c.agent == VANILLA and (c.mean("proxy") or 0.0) > 0.0]
    if leaked:
        yield (
            f"{VANILLA} names {leaked[0].mean('proxy'):.0%} of the tokens without ever retrieving: they leak"
        )
    malformed = [cell.mean("malformed") or 0.0 for cell in study.cells]
    if malformed and max(malformed) > 0.0:
        worst = max(study.cells, key=lambda cell: cell.mean("malformed") or 0.0)
        yield (
            f"the final JSON could not be read in up to {max(malformed):.0%} of the runs "
            f"({worst.agent}, {worst.retriever or 'no retriever'}); the steps as drafted are judged there"
        )
    judged = study.agreement
    if judged is not None and judged.unreadable:
        yield f"{judged.unreadable} verdicts of the judge could not be read and count as not satisfied"
    if study.settings.seeds == 1:
        yield "one seed: no interval over seeds"
