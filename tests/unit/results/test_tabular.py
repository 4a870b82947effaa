from __future__ import annotations

from dataclasses import dataclass

import pytest

from suffice.errors import UsageError
from suffice.results.table import Column, Table
from suffice.results.tabular import Tabular


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Found(Tabular):
    f1: float

    def tables(self) -> tuple[Table, ...]:
        head = (Column(name="policy"), Column(name="f1", kind="percent", head="F1"))
        return (
            Table(name="remark", title="First of all."),
            Table(name="policies", columns=head, rows=(("<a>", self.f1),)),
            Table(name="rules", columns=head[:1], rows=(("x",), ("y",))),
        )


def test_text_and_notebooks_show_every_table() -> None:
    assert Found(f1=0.5).text().startswith("First of all.\n\npolicy    F1\n")
    shown = Found(f1=0.5)._repr_html_()
    assert shown.count("<table>") == 2
    assert "&lt;a&gt;" in shown


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_of_the_first_table_or_of_one_named(library: str) -> None:
    pytest.importorskip(library)
    assert list(getattr(Found(f1=0.5), f"to_{library}")()["f1"]) == [0.5]
    assert list(getattr(Found(f1=0.5), f"to_{library}")("rules")["policy"]) == ["x", "y"]


def test_a_table_it_does_not_have() -> None:
    with pytest.raises(UsageError, match="'policies'"):
        Found(f1=0.5).table("x")
