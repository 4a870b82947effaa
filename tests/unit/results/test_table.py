from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import dataclass
from unicodedata import combining, east_asian_width

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties import examples

from suffice.results.markup import visible
from suffice.results.table import Cell, Column, Kind, Table, Value
from suffice.results.tabular import Tabular
from suffice.stats.intervals import Estimate, Interval

HOSTILE = 'a|b "c"\n<script>alert(1)</script> \\cmd{x}_y 100% & #1 ~^ é 漢 \u202e=1+1'


def policies() -> Table:
    zero = Cell(Interval(estimate=0.0, low=0.0, high=0.0), "(baseline)")
    lower = Interval(estimate=-0.01, low=-0.02, high=0.005)
    area = Estimate(estimate=0.714, low=0.65, high=0.784)
    unknown = Estimate(estimate=None, reason="none")
    return Table(
        name="policies",
        title="Policies side by side; F1 in percent.",
        columns=(
            Column(name="policy", most=12),
            Column(name="f1", kind="percent", head="F1"),
            Column(name="delta_f1", kind="points", head="delta F1\n[95%]", interval=True),
            Column(name="auroc", kind="number", digits=2, head="AUROC", interval=True),
            Column(name="tokens", kind="count", head="prompt\ntokens"),
            Column(name="rounds", kind="number"),
            Column(name="p", kind="significant", digits=2),
        ),
        rows=(
            ("fixed-1", 0.41498, zero, area, 1234.56, 0.000412, 0.01234),
            ("a policy of a long name", math.nan, lower, unknown, None, 2, math.inf),
        ),
        notes=("Means per question.",),
    )


def hostile() -> Table:
    head = Column(name="n", kind="count", head="a|b <b>_x_</b> $1 [h]")
    return Table(
        name="hostile|name",
        title=HOSTILE,
        columns=(Column(name=HOSTILE), head),
        rows=((HOSTILE, 1), ("[x] *y", -2)),
        notes=(HOSTILE,),
    )


def test_text_is_aligned_and_says_long_names_in_full() -> None:
    assert policies().text().split("\n") == [
        "Policies side by side; F1 in percent.",
        "                            delta F1                     prompt",
        "policy          F1             [95%]              AUROC  tokens    rounds      p",
        "-" * 80,
        "fixed-1       41.5        (baseline)  0.71 [0.65, 0.78]   1,235  0.000412  0.012",
        "a pol...name     -  -1.0 [-2.0, 0.5]                  -       -      2.00    inf",
        "",
        "a pol...name is in full: a policy of a long name",
        "Means per question.",
    ]


def test_no_line_is_longer_than_asked_and_nothing_is_lost() -> None:
    for width in (20, 30, 40, 60, 80, 200):
        text = policies().text(width)
        lines = [line for line in text.split("\n") if " is in full: " not in line]
        assert max(map(len, lines)) <= width
        flat = " ".join(text.split())
        for figure in ("41.5", "(baseline)", "0.71", "1,235", "0.000412", "0.012", "-1.0 [-2.0,"):
            assert figure in flat, width
        assert "a policy of a long name" in flat


def test_columns_that_may_be_left_out_are_named() -> None:
    columns = (
        Column(name="policy"),
        Column(name="em", kind="percent", head="EM", drop=1),
        Column(name="f1", kind="percent", head="F1"),
        Column(name="tokens", kind="count", head="prompt\ntokens", drop=2),
    )
    table = Table(name="t", columns=columns, rows=(("a policy of 23 letters", 0.5, 0.6, 300),))
    assert table.text(30).split("\n") == [
        "policy                    F1",
        "-" * 28,
        "a policy of 23 letters  60.0",
        "",
        "Left out for width: EM, prompt",
        "tokens.",
    ]
    assert "EM: 50.0" in table.text(20)
    assert "Left out" not in table.text(60)


def test_colours_move_nothing_and_say_which_side_of_zero_an_interval_lies() -> None:
    columns = (
        Column(name="policy"),
        Column(name="gain", kind="points", interval=True),
        Column(name="use"),
    )
    rows = (
        ("a", Interval(estimate=0.1, low=0.01, high=0.2), Cell("useful", "useful", "good")),
        ("b", Interval(estimate=-0.1, low=-0.2, high=-0.01), "none"),
        ("c", Interval(estimate=0.0, low=-0.1, high=0.1), None),
    )
    table = Table(name="gains", title="Gains", columns=columns, rows=rows)
    painted = table.text(paint=lambda text, tone: f"<{tone}>{text}</{tone}>")
    assert re.sub("</?(title|head|quiet|good|bad)>", "", painted) == table.text()
    assert painted.startswith("<title>Gains</title>\n<head>policy</head>")
    assert "<good>+10.0 [1.0, 20.0]</good>  <good>useful</good>" in painted
    assert "<bad>-10.0 [-20.0, -1.0]</bad>  none" in painted
    assert "\nc        +0.0 [-10.0, 10.0]" in painted


def test_csv_holds_the_unrounded_values() -> None:
    assert policies().csv().split("\n") == [
        "policy,f1,delta_f1,delta_f1_low,delta_f1_high,auroc,auroc_low,auroc_high,tokens,rounds,p",
        "fixed-1,0.41498,0.0,0.0,0.0,0.714,0.65,0.784,1234.56,0.000412,0.01234",
        "a policy of a long name,,-0.01,-0.02,0.005,,,,,2,inf",
        "",
    ]


def test_markdown() -> None:
    columns = ("policy", "f1", "delta_f1", "auroc")
    assert policies().picked(*columns).markdown().split("\n") == [
        "### Policies",
        "",
        "Policies side by side; F1 in percent.",
        "",
        "| policy                  |   F1 |   delta F1 \\[95%\\] |               AUROC |",
        "| ----------------------- | ---: | -----------------: | ------------------: |",
        "| fixed-1                 | 41.5 |         (baseline) | 0.71 \\[0.65, 0.78\\] |",
        "| a policy of a long name |    - | -1.0 \\[-2.0, 0.5\\] |                   - |",
        "",
        "Means per question.",
        "",
    ]


def test_latex() -> None:
    assert policies().latex() == (
        "\\begin{table}\n"
        "\\caption{Policies side by side; F1 in percent.}\n"
        "\\begin{tabular}{lrrrrrr}\n"
        "\\hline\n"
        "policy & F1 & delta F1 {[}95\\%{]} & AUROC & prompt tokens & rounds & p \\\\\n"
        "\\hline\n"
        "fixed-1 & 41.5 & (baseline) & 0.71 {[}0.65, 0.78{]} & 1,235 & 0.000412 & 0.012 \\\\\n"
        "a policy of a long name & -- & $-$1.0 {[}$-$2.0, 0.5{]} & -- & -- & 2.00 & inf \\\\\n"
        "\\hline\n"
        "\\end{tabular}\n"
        "\\par\n"
        "Means per question.\\par\n"
        "\\end{table}\n"
    )


def test_hostile_text_in_markdown() -> None:
    lines = hostile().markdown().split("\n")
    row = next(line for line in lines if line.endswith("  1 |"))
    assert "\u202e" not in row
    assert "<script>" not in hostile().markdown()
    expected = (
        'a\\|b "c"<br>&lt;script&gt;alert(1)&lt;/script&gt; \\\\cmd{x}\\_y 100% &amp; #1 \\~^ é 漢 '
        "\\[U+202E\\]=1+1"
    )
    assert row.count(expected) == 1
    assert "| a\\|b &lt;b&gt;\\_x\\_&lt;/b&gt; $1 \\[h\\] |" in hostile().markdown()


def test_hostile_text_in_latex() -> None:
    text = hostile().latex()
    expected = (
        'a\\textbar{}b "c" \\textless{}script\\textgreater{}alert(1)\\textless{}/script\\textgreater{} '
        "\\textbackslash{}cmd\\{x\\}\\_y 100\\% \\& \\#1 \\textasciitilde{}\\textasciicircum{} é 漢 "
        "{[}U+202E{]}=1+1"
    )
    assert f"\\caption{{{expected}}}" in text
    assert f"\n{expected} & 1 \\\\\n" in text
    assert "\n{[}x{]} {*}y & $-$2 \\\\\n" in text


def test_html_has_intervals_in_small_words_as_tags_and_texts_to_copy_as_code() -> None:
    columns = (
        Column(name="rule", whole=True),
        Column(name="f1", kind="percent"),
        Column(name="delta", kind="points", interval=True),
        Column(name="kept", kind="percent"),
    )
    half = Interval(estimate=0.5, low=0.4, high=0.6)
    row = ("round >= 2", half, Cell(None, "(baseline)"), Cell(None, ""))
    table = Table(name="rules", columns=columns, rows=(row,))
    cells = (
        '<th scope="row"><code>round &gt;= 2</code></th><td>50.0 <small>[40.0, 60.0]</small></td>'
        '<td><span class="tag">baseline</span></td></tr>'
    )
    assert cells in table.html()
    assert "kept" not in table.html()
    assert "[40" not in table.text()
    assert table.data()["f1"] == [0.5]


def test_hostile_text_in_csv() -> None:
    """The words stay; in data frames every letter does."""
    read = list(csv.reader(io.StringIO(hostile().csv(), newline="")))
    assert read == [[visible(HOSTILE), "n"], [visible(HOSTILE), "1"], ["[x] *y", "-2"]]
    assert hostile().to_arrow().column(0).to_pylist() == [HOSTILE, "[x] *y"]


STEERING = ["\x1b[2J", "\x9b2J", "\x07", "a\rb", "\u202eabc", "\u2066x", "\x7f", "\x00"]


@pytest.mark.parametrize("letters", STEERING)
@pytest.mark.parametrize("form", ["text", "csv", "latex", "markdown", "html"])
def test_nothing_steers_a_terminal(form: str, letters: str) -> None:
    """Neither in the name of a table or a column, nor its head, a cell, the title or a note."""
    column = Column(name=f"policy{letters}", head=f"head{letters}")
    table = Table(
        name=f"name{letters}",
        title=f"title{letters}",
        columns=(Column(name=f"x{letters}"), column),
        rows=((f"fixed{letters}", Cell("v", f"shown{letters}")),),
        notes=(f"note{letters}",),
    )
    shown = getattr(table, form)()
    assert not any(ord(c) < 32 and c != "\n" for c in shown)
    assert not {*shown} & {*"\x7f\x9b\u202e\u2066"}
    bare = Table(name="n", title=f"title{letters}", notes=(f"note{letters}",))
    assert not {*getattr(bare, form)()} & ({*letters} - {*"[2Jabcx\n"})


def test_data_frames_are_typed() -> None:
    arrow = policies().to_arrow()
    assert arrow.schema.field("policy").type == "string"
    assert arrow.schema.field("tokens").type == "double"
    assert arrow.schema.field("auroc_low").type == "double"
    assert arrow.column("f1").to_pylist() == [0.41498, None]
    whole = Table(name="t", columns=(Column(name="n", kind="count"),), rows=((1,), (None,)))
    assert whole.to_arrow().schema.field("n").type == "int64"


VALUES: dict[Kind, st.SearchStrategy[Value]] = {
    "text": st.text(
        st.characters(exclude_categories=["Cs", "Cn"])
    ),  # unassigned ones have no agreed width
    "count": st.integers(-(10**12), 10**12) | st.none(),
    "number": st.floats() | st.none(),
    "significant": st.floats() | st.none(),
    "percent": st.floats() | st.none(),
    "points": st.floats() | st.none(),
}


@st.composite
def tables(draw: st.DrawFn) -> Table:
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=5))
    columns = [Column(name=f"c{number}", kind=kind) for number, kind in enumerate(kinds)]
    rows = draw(st.lists(st.tuples(*(VALUES[kind] for kind in kinds)), max_size=5))
    return Table(name="t", columns=columns, rows=rows)


@given(tables())
def test_csv_gives_back_every_value(table: Table) -> None:
    head, *rows = csv.reader(io.StringIO(table.csv(), newline=""))
    assert head == [column.name for column in table.columns]
    assert len(rows) == len(table.rows)
    for read, row in zip(rows, table.rows, strict=True):
        for column, text, value in zip(table.columns, read, row, strict=True):
            if column.kind == "text":
                assert text.removeprefix("'") == visible(str(value)).removeprefix("'")
            elif value is None or (isinstance(value, float) and math.isnan(value)):
                assert text == ""
            else:
                assert float(text) == value


def cells(text: str) -> int:
    return sum(1 + (east_asian_width(c) in "WF") - bool(combining(c)) for c in text)


@settings(max_examples=examples(25))
@given(tables(), st.integers(20, 200))
def test_every_form_of_every_table(table: Table, width: int) -> None:
    assert max(map(cells, table.text(width).split("\n"))) <= width
    assert table.markdown().count("\n") == 4 + len(table.rows)
    assert table.latex().count(" \\\\\n") == 1 + len(table.rows)
    assert table.html().count("<tr>") == 1 + len(table.rows)
    assert table.to_arrow().num_rows == len(table.rows)


@pytest.mark.parametrize(
    "cell", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "＝1", " =1"]
)
def test_csv_computes_nothing(cell: str) -> None:
    table = Table(name="t", columns=[Column(name=cell)], rows=[(cell,), ("\r" + cell,)])
    head, row, other = csv.reader(table.csv().splitlines())
    assert head == row == [f"'{cell}"]
    assert other == [f"[U+000D]{cell}"]
    for plain in ("-", "-0.5", "+3%", "-1e-9", "a=1", "fixed-1"):
        table = Table(name="t", columns=[Column(name="name")], rows=[(plain,)])
        assert list(csv.reader(table.csv().splitlines()))[1] == [plain]


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
