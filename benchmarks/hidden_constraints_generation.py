"""Drawing the hidden-constraint benchmark, against indexing the same corpus by TF-IDF."""

from __future__ import annotations

from functools import partial

from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.corpus.tasks import BenchmarkSettings

from benchmarks.timing import best_seconds
from suffice.retrieval.lexical.tfidf import TfidfIndex

PUBLISHED = BenchmarkSettings()
LARGE = BenchmarkSettings(tasks=5_000, hard_small=2_000, documents=45_000)


def main() -> dict[str, float]:
    figures = {}
    for settings, repeats in ((PUBLISHED, 5), (LARGE, 1)):
        documents = generate(settings).documents
        drawing = best_seconds(partial(generate, settings), repeats=repeats)
        indexing = best_seconds(partial(TfidfIndex.build, documents), repeats=repeats)
        size = f"{settings.tasks:,} tasks, {settings.documents:,} documents"
        figures[f"{size}: seconds to draw them"] = drawing
        figures[f"{size}: of a TF-IDF index over them"] = drawing / indexing
    return figures
