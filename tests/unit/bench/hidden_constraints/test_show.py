"""Tables of the hidden-constraint experiment."""

from __future__ import annotations

from dataclasses import replace

from tests.studies.hidden_constraints import (
    about,
    made_cell,
    made_study,
)

from studies.hidden_constraints.runs import (
    HiddenConstraintsSettings,
)
from studies.hidden_constraints.show import (
    figures_of,
)


def test_every_table_is_there_and_fits() -> None:
    text = made_study().text(110)
    for part in (
        "Success, in percent.",
        "What it took, a task.",
        "Trajectory cost a task, J = c_r retrievals + L_f [plan fails] with c_r 1 and L_f 2",
        "Coverage: runs",
        "Retrieval asked once a task",
        "What retrieval allows",
        "with the oracle",
        "Retrieval against control",
        "without one signal",
        "other thresholds",
        "Differences of semantic success",
        "Differences of documents read",
        "Judge against the deterministic checker: they agree on 92.5% of 200 plans, kappa 0.75",
        "Costs a task",
        "Note: the published gate: EXECUTE",
    ):
        assert part in text
    assert max(map(len, made_study().text().splitlines())) <= 80


def row(text: str, *starts: str) -> list[str]:
    """Cells of the first row below ``starts[0]`` that starts with ``starts[1]``."""
    lines = iter(text.splitlines())
    next(line for line in lines if line.startswith(starts[0]))
    found = next(line for line in lines if line.strip().startswith(starts[1]))
    return found.split()


def test_figures_stand_where_they_belong() -> None:
    text = made_study().text(110)
    assert "2.0 +-4.3 [0.0, 10.0]" in text
    assert row(text, "Success", "- ")[:4] == ["-", "vanilla", "2.0", "+-4.3"]
    assert row(text, "What it took", "dense ")[:5] == [
        "dense",
        "fixed-top-k",
        "6.00",
        "+-0.04",
        "[4.80,",
    ]
    assert row(text, "Coverage", "tfidf") == ["tfidf", "fixed-top-k", "10.0", "4.00", "10.0"]
    assert row(text, "Retrieval asked", "tfidf")[1:] == ["0.0", "0.0", "0.0", "0", "-", "-", "50"]
    assert row(text, "Retrieval asked", "oracle")[-3:] == ["4.00", "7.00", "50"]
    assert row(text, "Trajectory cost", "dense ")[:4] == ["dense", "fixed-top-k", "2.94", "+-0.04"]
    assert row(text, "Trajectory cost", "dense ")[-2:] == ["1.00", "1.94"]
    assert row(text, "What retrieval", "oracle") == ["oracle", "100.0", "55.0", "corrected"]
    assert row(text, "Semantic success", "self-rag")[-1] == "51.0"
    assert row(text, "Retrieval against", "hybrid")[2:] == ["28.0", "60.0", "4.0"]
    assert row(text, "The published gate with tfidf in seed 42: without", "full") == (
        ["full", "20.0", "30.0", "9.00", "1.50", "4.50", "EXECUTE"]
    )
    assert row(text, "Differences of semantic", "tfidf")[3:] == (
        ["+2.0", "[-6.0,", "10.0]", "+2.0", "[-1.0,", "5.0]"]
    )
    assert row(text, "Differences of documents", "tfidf")[3:5] == ["+0.02", "[-0.06,"]
    assert row(text, "Costs", "self-rag")[-4:] == ["3.21", "1.0", "149", "1"]


def test_a_small_study_has_no_empty_table() -> None:
    made = made_study()
    study = replace(
        made,
        settings=HiddenConstraintsSettings(
            agents=("vanilla",), retrievers=("tfidf",), experiments=("main",), seeds=1
        ),
        cells=(made_cell("vanilla", None, semantic=0.0, documents=0.0),),
        recalls=made.recalls[:1],
        contrasts=(),
        critical=float("nan"),
        variants=(),
        steps=(),
        examples=(),
        agreement=None,
        notes=(),
    )
    titles = [each.title.split()[0] for each in figures_of(study)]
    assert titles == [
        "Success,",
        "What",
        "Trajectory",
        "Coverage:",
        "Retrieval",
        "Retrieval",
        "Costs",
    ]
    assert "nan" not in study.text()


def test_one_seed_has_no_spread() -> None:
    made = made_study()
    cell = replace(made.cells[0], measures={"semantic": about(0.5, None, most=1.0)})
    text = replace(made, cells=(cell, *made.cells[1:])).text(110)
    assert row(text, "Success", "- ") == ["-", "vanilla", "50.0", "[42.0,", "58.0]", "-", "-"]


def test_hostile_names_stay_text() -> None:
    made = replace(made_study(), model="a\x1b[31m", notes=("b\x1b[0m",))
    assert "\x1b" not in made.text()
