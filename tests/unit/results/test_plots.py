"""Every result of the Python interface shows itself: one table, data frames, and its figures drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

import suffice
from suffice.errors import UsageError
from suffice.results.plots import Plot, draw, first_figure
from suffice.results.table import Column, Table
from suffice.results.tabular import Tabular

RESULTS = ("replay", "choose", "search", "diagnose")


@pytest.fixture(scope="module")
def results() -> dict[str, Tabular]:
    rule = "answer_repeats and overlap > ?"
    return {
        "replay": suffice.replay("example", ("fixed-2", "tasr"), resamples=50),
        "choose": suffice.choose("example", rule=rule, grid=(0.1, 0.2), resamples=50),
        "search": suffice.search(
            "example", ("answer_stable", "overlap"), threshold_grid=4, resamples=50
        ),
        "diagnose": suffice.diagnose("example", signals=("overlap", "margin_min"), resamples=50),
    }


@pytest.fixture
def result(request: pytest.FixtureRequest, results: dict[str, Tabular]) -> Tabular:
    return results[request.param]


@pytest.fixture
def pyplot() -> Iterator[Any]:
    pytest.importorskip("matplotlib").use("Agg")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    yield pyplot
    pyplot.close("all")


def drawn(axes: Any) -> tuple[list[float], list[float]]:
    """The points of the first set with error bars, which is all that a plot has."""
    (bars,) = axes.containers
    x, y = bars[0].get_data()
    return [float(value) for value in x], [float(value) for value in y]


def held(table: Table, name: str) -> list[float]:
    values = table.data()[name]
    return [math.nan if value is None else float(value) for value in values]


@pytest.mark.parametrize("result", RESULTS, indirect=True)
def test_the_main_table_has_rows_and_is_one_of_all(result: Tabular) -> None:
    assert result.table.rows
    assert result.table == result.named(result.table.name)
    assert result.table.name in [table.name for table in result.tables()]


@pytest.mark.parametrize("result", RESULTS, indirect=True)
def test_a_data_frame_holds_the_table(result: Tabular) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    data = result.table.data()
    size = (len(result.table.rows), len(data))
    pandas, polars = result.to_pandas(), result.to_polars()
    assert (pandas.shape, list(pandas.columns)) == (size, list(data))
    assert (polars.shape, polars.columns) == (size, list(data))
    last = [table.name for table in result.tables() if table.columns][-1]
    assert (
        len(result.to_pandas(last)) == len(result.named(last).rows) == len(result.to_polars(last))
    )


@pytest.mark.parametrize("result", RESULTS, indirect=True)
def test_a_plot_draws_every_row(result: Tabular, pyplot: Any) -> None:
    wanted = result.plotted()
    axes = result.plot()
    assert axes.figure in map(pyplot.figure, pyplot.get_fignums())
    assert axes.get_title() == wanted.table.title.split("\n")[0]
    assert axes.get_xlabel()
    x, y = drawn(axes)
    if wanted.x is None:
        names = [label.get_text() for label in axes.get_yticklabels()]
        assert names == [str(name) for name in wanted.table.data()[wanted.table.columns[0].name]]
        assert x == pytest.approx(held(wanted.table, wanted.y), nan_ok=True)
    else:
        assert axes.get_ylabel()
        assert len(axes.texts) == len(wanted.table.rows)
        assert x == pytest.approx(held(wanted.table, wanted.x), nan_ok=True)
        assert y == pytest.approx(held(wanted.table, wanted.y), nan_ok=True)


def test_a_plot_is_drawn_where_it_is_asked_for(results: dict[str, Tabular], pyplot: Any) -> None:
    _, axes = pyplot.subplots()
    assert results["diagnose"].plot(axes) is axes
    assert pyplot.get_fignums() == [axes.figure.number]


def test_fixed_numbers_of_rounds_are_joined_in_order(
    results: dict[str, Tabular], pyplot: Any
) -> None:
    del pyplot
    result = results["replay"]
    cost = result.plotted().x
    assert cost is not None
    data = result.table.data()
    fixed = [
        held(result.table, cost)[at]
        for at, name in enumerate(data["policy"])
        if str(name).startswith("fixed-")
    ]
    line = result.plot().lines[-1]
    assert line.get_xdata().tolist() == pytest.approx(sorted(fixed))


def test_what_cannot_be_drawn_says_why(pyplot: Any) -> None:
    del pyplot
    empty = Table(name="none", title="", columns=(Column(name="n", kind="count"),), rows=())
    with pytest.raises(UsageError, match="no rows"):
        draw(Plot(table=empty, y="n"))
    words = Table(name="words", title="", columns=(Column(name="word"),), rows=(("a",),))
    with pytest.raises(UsageError, match="no figures"):
        first_figure(words)
