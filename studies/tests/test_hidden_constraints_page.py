"""The page of the hidden-constraint experiment."""

from __future__ import annotations

import re
from dataclasses import replace

from studies.hidden_constraints.page import hidden_constraints_page
from studies.hidden_constraints.results import (
    HiddenConstraintsStudy,
)
from studies.hidden_constraints.runs import (
    HiddenConstraintsSettings,
)
from studies.tests.hidden_constraints import (
    GATED,
    made_study,
)

_HOSTILE = "<script>window.hacked=1</script>"


def headings(html: str) -> list[str]:
    return re.findall(r"<h3>(.*?)</h3>", html)


def pictures(html: str) -> list[str]:
    return re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)


def test_every_figure_is_there() -> None:
    study = made_study()
    html = hidden_constraints_page(study)
    found = headings(html)
    retrievers = study.settings.retrievers
    assert found[:5] == [
        f"Semantic success against documents read, {retriever}" for retriever in retrievers
    ]
    assert found[5] == "Semantic success against recall@10"
    assert found[6:11] == [
        f"Confidence by step, {GATED} with {retriever}" for retriever in retrievers
    ]
    assert found[-2:] == ["Documents by threshold", "Success by threshold"]
    assert found[16:18] == [
        f"Confidence and actions of one run, {agent} with tfidf" for agent in (GATED, "corrected")
    ]
    assert len(pictures(html)) == len(found) == 20
    for summary in ("Success", "Coverage", "Recall", "Ablations", "Sweep", "Costs"):
        assert f"<summary>{summary}</summary>" in html


def small() -> HiddenConstraintsStudy:
    return replace(
        made_study(),
        settings=HiddenConstraintsSettings(retrievers=("tfidf",), experiments=("main",), seeds=1),
        recalls=(),
        contrasts=(),
        critical=float("nan"),
        variants=(),
        steps=(),
        examples=(),
        agreement=None,
        notes=(),
    )


def test_a_study_without_runs_is_a_page() -> None:
    html = hidden_constraints_page(replace(small(), cells=()))
    assert headings(html) == []
    assert "Every number" in html


def test_texts_are_escaped() -> None:
    study = made_study()
    hostile = replace(study.cells[-1], agent=_HOSTILE)
    page = hidden_constraints_page(
        replace(
            study,
            model=_HOSTILE,
            judge=_HOSTILE,
            cells=(*study.cells[:-1], hostile),
            notes=(_HOSTILE,),
            steps=(replace(study.steps[0], agent=_HOSTILE),),
            examples=(replace(study.examples[0], agent=_HOSTILE, goal=_HOSTILE, task=_HOSTILE),),
        )
    )
    assert "<script" not in page
    assert page.count("&lt;script&gt;window.hacked=1") >= 8
