"""The page of the hidden-constraint experiment."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from tests.studies.hidden_constraints import (
    GATED,
    about,
    made_cell,
    made_steps,
    made_study,
)

from studies.hidden_constraints.page import hidden_constraints_page
from studies.hidden_constraints.results import (
    HiddenConstraintsStudy,
)
from studies.hidden_constraints.runs import (
    HiddenConstraintsSettings,
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


def test_a_panel_has_its_agents_and_vanilla() -> None:
    dense = pictures(hidden_constraints_page(made_study()))[1]
    assert "vanilla: 2.0% at 0.00" in dense
    assert f"{GATED}: 8.9% at 11.75" in dense
    assert re.findall(r'badge-text mid">(\w+)<', dense) == ["V", "F", "A", "S", "C", "G1"]


def test_real_retrievers_share_heights() -> None:
    drawn = pictures(hidden_constraints_page(made_study()))[:5]
    heights = [re.findall(r'tick end">([\d.,]+)<', picture) for picture in drawn]
    assert heights[0] == heights[1] == heights[2] == heights[3] != heights[4]
    across = [re.findall(r'tick mid">([\d.,]+)<', picture) for picture in drawn]
    assert across[0] == across[3] != across[4]


def test_the_gated_agent_is_shown_where_another_is_better() -> None:
    study = made_study()
    drawn = pictures(hidden_constraints_page(study))[5]
    assert "hybrid, best: corrected: 18.1% at 18.00" in drawn
    assert f"hybrid, {GATED}: 16.1% at 18.00" in drawn
    only = replace(study, cells=tuple(cell for cell in study.cells if cell.agent != "corrected"))
    alone = pictures(hidden_constraints_page(only))[5]
    assert f"hybrid, best: {GATED}: 16.1%" in alone
    assert f"hybrid, {GATED}:" not in alone


def test_steps_are_drawn_with_both_bands() -> None:
    drawn = pictures(hidden_constraints_page(made_study()))[6]
    for class_ in ("band output", "band adaptive", "curve fixed", "curve output", "curve adaptive"):
        assert drawn.count(f'class="{class_}"') == 1


def test_a_run_of_one_step_is_drawn() -> None:
    made = made_steps(GATED, "tfidf")
    names = ("count", "confidence", "error", "median", "low", "high", "contradiction", "actions")
    one = replace(made, **{name: getattr(made, name)[:1] for name in names})
    html = hidden_constraints_page(replace(made_study(), steps=(one,)))
    assert "nan" not in pictures(html)[6]


def test_one_run_is_drawn_between_its_thresholds_with_its_actions() -> None:
    html = hidden_constraints_page(made_study())
    drawn = pictures(html)[16]
    for class_ in ("curve fixed", "curve output", "curve adaptive"):
        assert drawn.count(f'class="{class_}"') == 1
    assert re.findall(r">(RETRIEVE|REPLAN|ASK)<", drawn) == ["RETRIEVE", "REPLAN", "ASK"]
    assert "step 1: c 0.180, RETRIEVE, 3 documents" in drawn
    assert "step 2: c 0.100, REPLAN, a retrieval blocked by the cool-down" in drawn
    assert "tau_low 0.25" in html
    assert "the plan names its token, the judge was not satisfied" in html


def test_a_step_without_confidence_is_left_out_of_the_curve() -> None:
    study = made_study()
    run = study.examples[0]
    gap = replace(run, steps=(replace(run.steps[0], confidence=math.nan), *run.steps[1:]))
    drawn = pictures(hidden_constraints_page(replace(study, examples=(gap,))))[16]
    assert "nan" not in drawn
    assert "step 1: " not in drawn
    assert "step 2: " in drawn


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


def test_zeros_and_gaps_are_drawn() -> None:
    cells = (
        made_cell("vanilla", None, semantic=0.0, documents=0.0),
        made_cell("fixed-top-k", "tfidf", semantic=0.0, documents=0.0),
        replace(
            made_cell(GATED, "tfidf", semantic=0.0, documents=0.0),
            measures={"documents_read": about(3.0)},
        ),
    )
    html = hidden_constraints_page(replace(small(), cells=cells))
    assert len(headings(html)) == 1
    assert "nan" not in pictures(html)[0]
    assert f"{GATED}:" not in pictures(html)[0]


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
