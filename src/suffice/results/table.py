"""One table in every form: text, HTML, Markdown, CSV, LaTeX and data frames, unrounded."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from textwrap import wrap
from typing import Any, Literal

from rich.cells import cell_len

from suffice._optional import require
from suffice.errors import InternalError
from suffice.results.formats import UNKNOWN, Measured, amount, p_value
from suffice.results.markup import Html, data_table, element, join, shorten, visible

WIDTH = 80
_NARROWEST = 20
_LEAST_WRAPPED = 16  # letters a line that a wrapped text keeps

Kind = Literal["text", "count", "number", "significant", "percent", "points", "p_value"]
Tone = Literal["title", "head", "quiet", "good", "bad"]
Paint = Callable[[str, Tone], str]  # text that a terminal shows in a tone


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    r"""The kind of a column's cells and their format."""

    name: str
    kind: Kind = "text"
    head: str | None = None
    digits: int | None = None
    interval: bool = False
    signed: bool = False
    most: int | None = None
    once: bool = False
    whole: bool = False
    drop: int = 0
    in_text: bool = True

    @property
    def heading(self) -> str:
        """The text above the column."""
        return self.name if self.head is None else self.head


@dataclass(frozen=True, slots=True)
class Cell:
    """A value with its own text, and perhaps a ``tone``.

    >>> Cell(0.0, "(baseline)").shown
    '(baseline)'
    """

    value: Plain | Measured
    shown: str
    tone: Tone | None = None


Plain = str | float | None
Value = Plain | Measured | Cell
Dress = Callable[[int, str], object]  # of the row's number and what would stand in its cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns and rows under a title, with notes below.

    >>> f1 = Column(name="f1", kind="percent", head="F1")
    >>> found = Table(name="policies", columns=(Column(name="policy"), f1), rows=[("fixed-1", 0.41498)])
    >>> print(found.text())
    policy     F1
    -------------
    fixed-1  41.5
    >>> print(found.csv(), end="")
    policy,f1
    fixed-1,0.41498
    """

    name: str
    columns: Sequence[Column] = ()
    rows: Sequence[Sequence[Value]] = ()
    title: str = ""
    notes: Sequence[str] = ()
    names: int = 1

    def __post_init__(self) -> None:
        keys = [key for column in self.columns for key in _keys(column)]
        if len(set(keys)) < len(keys):
            raise InternalError(f"the table {self.name!r} names a column twice: {', '.join(keys)}")

    # --- for people -------------------------------------------------------------------------------
    def text(self, width: int | None = WIDTH, paint: Paint | None = None) -> str:
        """Return title, aligned columns and notes, in lines of at most ``width`` (``None``: no limit)."""
        limit = None if width is None else max(width, _NARROWEST)
        paint = paint or (lambda text, _: text)
        body, full = _text_body(self, limit, paint)
        title = [line for text in self.title.split("\n") for line in _wrapped(text, limit)]
        blocks = [
            [paint(line, "title") for line in title] + body,
            full + [line for note in self.notes for line in _wrapped(note, limit, hyphens=False)],
        ]
        return "\n\n".join("\n".join(block) for block in blocks if block)

    def __str__(self) -> str:
        return self.text()

    def html(self, dressed: Mapping[str, Dress] | None = None) -> Html:
        """Return the table with its caption in a scrolling region, then its notes; all escaped."""
        notes = [element("p", note, class_="note") for note in self.notes]
        if not self.columns:
            return join([element("p", self.title, class_="note") if self.title else "", *notes])
        shown = list(_dressed_columns(self, dressed or {}))
        head = [_broken(column) for column, _ in shown]
        rows = zip(*(cells for _, cells in shown), strict=True)
        names = max(1, sum(column in self.columns[: self.names] for column, _ in shown))
        return join([data_table(self.title or self.name, head, rows, names=names), *notes])

    def markdown(self) -> str:
        """Return a heading if it has a name, the title, a GitHub Markdown table, and the notes."""
        heads = [f"### {self.name[:1].upper()}{self.name[1:]}"] if self.name else []
        blocks = [_markdown(text) for text in (*heads, self.title) if text]
        if self.columns:
            blocks.append("\n".join(_markdown_lines(self)))
        return "\n\n".join([*blocks, *(_markdown(note) for note in self.notes)]) + "\n"

    def latex(self) -> str:
        r"""Return a ``table`` environment with its caption; it needs no package."""
        notes = [_latex(note) + r"\par" for note in self.notes]
        if not self.columns:
            return "\n".join([*([_latex(self.title) + r"\par"] if self.title else []), *notes, ""])
        lines = [
            " & ".join(map(_latex, row)) + r" \\"
            for row in ([column.heading for column in self.columns], *self.shown())
        ]
        sides = "".join("l" if column.kind == "text" else "r" for column in self.columns)
        return "\n".join(
            [
                r"\begin{table}",
                rf"\caption{{{_latex(self.title or self.name)}}}",
                rf"\begin{{tabular}}{{{sides}}}",
                r"\hline",
                lines[0],
                r"\hline",
                *lines[1:],
                r"\hline",
                r"\end{tabular}",
                *([r"\par", *notes] if notes else []),
                r"\end{table}",
                "",
            ]
        )

    def shown(self) -> list[list[str]]:
        return [
            [_shown(column, value) for column, value in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]

    # --- a part of it, to stand where more is said around it ---------------------------------------
    def picked(self, *names: str) -> Table:
        """Return a table of these columns alone, in this order."""
        at = [[column.name for column in self.columns].index(name) for name in names]
        rows = [[row[number] for number in at] for row in self.rows]
        return replace(self, columns=[self.columns[number] for number in at], rows=rows)

    # --- for programs -----------------------------------------------------------------------------
    def data(self) -> dict[str, list[Plain]]:
        """Return unrounded values by column, ``None`` where unknown; an interval is three columns."""
        by_key: dict[str, list[Plain]] = {}
        for number, column in enumerate(self.columns):
            cells = [_parts(column, row[number]) for row in self.rows]
            for part, key in enumerate(_keys(column)):
                by_key[key] = [values[part] for values in cells]
        return by_key

    def csv(self) -> str:
        """Return unrounded values as CSV (RFC 4180 with line feeds); unknown ones are empty."""
        held = self.data()
        text = io.StringIO()
        rows: list[Iterable[Plain]] = [held, *zip(*held.values(), strict=True)] if held else []
        csv.writer(text, lineterminator="\n").writerows(map(_csv_text, row) for row in rows)
        return text.getvalue()

    def to_arrow(self) -> Any:
        """Return the data as a ``pyarrow.Table``; whole counts are integers."""
        pa = require("pyarrow", purpose="a table of Arrow", package="pyarrow")
        held = self.data()
        types = {
            key: pa.string()
            if column.kind == "text"
            else pa.int64()
            if column.kind == "count" and all(isinstance(v, int | None) for v in held[key])
            else pa.float64()
            for column in self.columns
            for key in _keys(column)
        }
        return pa.table({key: pa.array(held[key], type=types[key]) for key in held})

    def to_pandas(self) -> Any:
        require("pandas", purpose="a data frame", package="pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        polars = require("polars", purpose="a data frame", package="polars")
        return polars.from_arrow(self.to_arrow())


# --- cells ------------------------------------------------------------------------------------------
def _keys(column: Column) -> tuple[str, ...]:
    name = column.name
    return (name, f"{name}_low", f"{name}_high") if column.interval else (name,)


def _parts(column: Column, value: Value) -> tuple[Plain, ...]:
    if isinstance(value, Cell):
        value = value.value
    if column.kind == "text":
        return (None if value is None else str(value),)
    figure, low, high = _measured(value)
    return (figure, low, high) if column.interval else (figure,)


def _measured(value: object) -> tuple[float | None, float | None, float | None]:
    if value is None or isinstance(value, Real):
        return _known(value), None, None
    ends = (getattr(value, name) for name in ("estimate", "low", "high"))
    figure, low, high = (_known(end) for end in ends)
    return figure, low, high


def _known(value: Any) -> float | None:
    if value is None or math.isnan(value):
        return None
    return int(value) if isinstance(value, int) or hasattr(value, "__index__") else float(value)


def _shown(column: Column, value: Value) -> str:
    figure, ends = _in_two(column, value)
    return f"{figure} {ends}" if ends and column.interval else figure


def _in_two(column: Column, value: Value) -> tuple[str, str]:
    if isinstance(value, Cell):
        return visible(value.shown), ""
    if column.kind == "text":
        return "" if value is None else visible(str(value)), ""
    figure, low, high = _measured(value)
    if figure is None:
        return UNKNOWN, ""
    sign = "+" if column.signed or column.kind == "points" else ""
    text = _figure(column, figure, sign)
    if isinstance(value, Real):
        return text, ""
    if low is None or high is None:
        return text, f"[{UNKNOWN}]"
    return text, f"[{_figure(column, low)}, {_figure(column, high)}]"


def _figure(column: Column, value: float, sign: str = "") -> str:
    digits = column.digits
    if math.isinf(value):
        return f"{value:{sign}}"
    match column.kind:
        case "count":
            return f"{value:{sign}z,.0f}"
        case "significant":
            return f"{value:{sign}.{6 if digits is None else digits}g}"
        case "p_value":
            return p_value(value)
        case "percent" | "points":
            return f"{round(100 * value, 9):{sign}z.{1 if digits is None else digits}f}"
        case _:
            return amount(value) if digits is None else f"{value:{sign}z,.{digits}f}"


# --- of items ---------------------------------------------------------------------------------------
Described = tuple[str | Callable[[Any], Value], Column]
"""Where an item's value stands, by keys or attributes with dots between them, and its column."""


def table_of(
    name: str,
    items: Iterable[Any],
    described: Sequence[Described],
    title: str = "",
    notes: Sequence[str] = (),
) -> Table:
    rows = [[_item_value(item, of) for of, _ in described] for item in items]
    columns = [column for _, column in described]
    return Table(name=name, title=title, columns=columns, rows=rows, notes=notes)


def _item_value(item: Any, of: str | Callable[[Any], Value]) -> Value:
    if not isinstance(of, str):
        return of(item)
    for key in of.split("."):
        item = item[key] if isinstance(item, Mapping) else getattr(item, key)
    value: Value = item
    return value


def estimate_column(name: str, head: str, *, signed: bool = False) -> Column:
    return Column(name=name, kind="number", digits=2, interval=True, signed=signed, head=head)


# --- text -------------------------------------------------------------------------------------------
@dataclass(slots=True, eq=False)
class _Shown:
    column: Column
    head: list[str]
    cells: list[list[str]]
    tones: list[Tone | None]
    wraps: bool

    @property
    def name(self) -> str:
        return " ".join(line for line in self.head if line)

    @property
    def width(self) -> int:
        return max(cell_len(line) for lines in (self.head, *self.cells) for line in lines)


def _tone(column: Column, value: Value) -> Tone | None:
    if isinstance(value, Cell):
        return value.tone
    if column.kind != "points" or not column.interval:
        return None
    _, low, high = _measured(value)
    if low is not None and low > 0:
        return "good"
    return "bad" if high is not None and high < 0 else None


def _wrapped(text: str, width: int | None, indent: str = "", *, hyphens: bool = True) -> list[str]:
    text = visible(text).strip()
    room = width or 2 * len(text) + 1
    lines = wrap(text, room, subsequent_indent=indent, break_on_hyphens=hyphens)
    if any(cell_len(line) > room for line in lines):  # letters of two cells
        lines = wrap(text, max(1, room // 2), subsequent_indent=indent)
    return lines


def _text_body(table: Table, width: int | None, paint: Paint) -> tuple[list[str], list[str]]:
    if not table.columns or not table.rows:
        return [], []
    table = table.picked(*(column.name for column in table.columns if column.in_text))
    columns, full = _shown_columns(table, width)
    if width is None or _total(columns, 2) <= width:
        return _aligned(columns, 2, paint), full
    for column in columns:
        column.head = _broken_head(column)
    below = None
    if columns[-1].column.whole and len(columns) > 1 and _total(columns, 1) > width:
        below = columns.pop()
        below.cells = [
            [f"  {line}" for line in _wrapped(cell[0], width - 2, "  ")] for cell in below.cells
        ]
    kept = list(columns)
    while _total(kept, 1) > width and any(shown.column.drop for shown in kept):
        kept.remove(max(kept, key=lambda s: (bool(s.column.drop) and _unknown(s), s.column.drop)))
    gap = 2 if _total(kept, 2) <= width else 1
    if _total(kept, gap) > width:
        gap = 2
        if not _wrap_texts(kept, width):
            return list(_stacked(table, width)), []
    if len(kept) < len(columns):
        gone = ", ".join(column.name for column in columns if column not in kept)
        full = [*_wrapped(f"Left out for width: {gone}.", width), *full]
    return _aligned(kept, gap, paint, below), full


def _shown_columns(table: Table, width: int | None) -> tuple[list[_Shown], list[str]]:
    columns, full = [], []
    for number, column in enumerate(table.columns):
        cells = [_shown(column, row[number]).replace("\n", " ") for row in table.rows]
        if number and cells and not any(cells):
            continue
        if column.most is not None:
            short = [shorten(cell, column.most, "...") for cell in cells]
            for said, cell in dict(zip(short, cells, strict=True)).items():
                full += _in_full(said, cell, width) if said != cell else []
            cells = short
        if column.once:
            cells = ["" if n and cells[n - 1] == cell else cell for n, cell in enumerate(cells)]
        columns.append(
            _Shown(
                column,
                visible(column.heading).split("\n"),
                [[cell] for cell in cells],
                [_tone(column, row[number]) for row in table.rows],
                column.kind == "text"
                and column.most is None
                and not column.whole
                and number >= table.names,
            )
        )
    return columns, full


def _unknown(shown: _Shown) -> bool:
    return all(cell == [UNKNOWN] for cell in shown.cells)


def _in_full(short: str, text: str, width: int | None) -> list[str]:
    line = f"{short} is in full: {text}"
    if width is None or cell_len(line) <= width:
        return [line]
    lines = _wrapped(text, width - 2, "  ")
    return [*_wrapped(f"{short} is in full:", width), *(f"  {part}" for part in lines)]


def _broken_head(column: _Shown) -> list[str]:
    cells = [line for cell in column.cells for line in cell]
    words = [word for line in column.head for word in line.split()]
    room = max(map(cell_len, [*cells, *words, " "]))
    return [part for line in column.head for part in _wrapped(line, room) or [""]]


def _wrap_texts(columns: Sequence[_Shown], width: int) -> bool:
    longest = sorted(
        (column for column in columns if column.wraps), key=lambda c: c.width, reverse=True
    )
    others = _total(columns, 2)
    chosen, room = 0, 0
    for number, column in enumerate(longest, start=1):
        others -= column.width
        share = (width - others) // number
        if share >= _LEAST_WRAPPED:
            chosen, room = number, share
            if number == len(longest) or longest[number].width <= share:
                break
    for column in longest[:chosen]:
        column.cells = [_wrapped(cell[0], room) or [""] for cell in column.cells]
        column.head = [line for head in column.head for line in _wrapped(head, room) or [""]]
    return chosen > 0


def _total(columns: Sequence[_Shown], gap: int) -> int:
    return sum(column.width for column in columns) + gap * (len(columns) - 1)


def _aligned(
    columns: Sequence[_Shown], gap: int, paint: Paint, below: _Shown | None = None
) -> list[str]:
    deepest = max(len(column.head) for column in columns)
    heads = [[""] * (deepest - len(column.head)) + column.head for column in columns]
    widths = [column.width for column in columns]

    def row(cells: Sequence[Sequence[str]], tones: Sequence[Tone | None]) -> Iterator[str]:
        for number in range(max(map(len, cells))):
            line = []
            for shown, width, cell, tone in zip(columns, widths, cells, tones, strict=True):
                text = cell[number] if number < len(cell) else ""
                space = " " * (width - cell_len(text))
                told = paint(text, tone) if text and tone else text
                line.append(told + space if shown.column.kind == "text" else space + told)
            yield (" " * gap).join(line).rstrip()

    lines = [*row(heads, ["head"] * len(columns))]
    lines += [] if below is None else [paint(f"  {below.name}", "head")]
    lines.append(paint("-" * (sum(widths) + gap * (len(columns) - 1)), "quiet"))
    for number in range(len(columns[0].cells)):
        lines += row([c.cells[number] for c in columns], [c.tones[number] for c in columns])
        lines += [] if below is None else below.cells[number]
    return lines


def _stacked(table: Table, width: int) -> Iterator[str]:
    for number, row in enumerate(table.shown()):
        if number:
            yield ""
        if table.names:
            yield from _wrapped(row[0], width) or [""]
        for column, cell in list(zip(table.columns, row, strict=True))[table.names > 0 :]:
            if cell:
                head = visible(column.heading).replace("\n", " ")
                lines = _wrapped(f"{head}: {cell}".replace("\n", " "), width - 2, "  ")
                yield from (f"  {line}" for line in lines)


# --- HTML -------------------------------------------------------------------------------------------
def _dressed_columns(
    table: Table, dressed: Mapping[str, Dress]
) -> Iterator[tuple[Column, list[object]]]:
    for at, column in enumerate(table.columns):
        cells = [_cell_in_html(column, row[at]) for row in table.rows]
        if at and cells and not any(cells):
            continue
        dress = dressed.get(column.name)
        yield (
            column,
            [cell if dress is None else dress(number, cell) for number, cell in enumerate(cells)],
        )


def _cell_in_html(column: Column, value: Value) -> str:
    shown, ends = _in_two(column, value)
    if ends:
        return join([shown, " ", element("small", ends)])
    if isinstance(value, Cell) and column.kind != "text" and shown.startswith("("):
        return element("span", shown.strip("()"), class_="tag")
    return element("code", shown) if column.whole and shown else shown


# --- other forms ------------------------------------------------------------------------------------
def _broken(column: Column) -> Html:
    heading = column.heading
    if column.kind == "percent" and not re.search("%|points", heading.partition("[")[0]):
        heading = re.sub(r"(?=\s*\[|$)", " %", heading, count=1)
    first, *rest = heading.split("\n")
    return join([first, *(part for line in rest for part in (Html("<br>"), line))])


_MARKDOWN = re.compile(r"[\\`*\[\]|~]|(?<!\w)_|_(?!\w)")


def _markdown(text: str) -> str:
    escaped = visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = _MARKDOWN.sub(lambda match: f"\\{match.group()}", escaped)
    return "<br>".join(line.strip() for line in escaped.split("\n"))


def _markdown_lines(table: Table) -> Iterator[str]:
    heads = [_markdown(column.heading.replace("\n", " ")) for column in table.columns]
    rows = [heads, *([_markdown(cell) for cell in row] for row in table.shown())]
    widths = [max(3, *(cell_len(row[n]) for row in rows)) for n in range(len(heads))]
    sides = [column.kind == "text" for column in table.columns]
    rows.insert(
        1, ["-" * (w - 1) + ("-" if s else ":") for w, s in zip(widths, sides, strict=True)]
    )
    for row in rows:
        spaces = [" " * (w - cell_len(cell)) for w, cell in zip(widths, row, strict=True)]
        cells = [c + x if s else x + c for c, x, s in zip(row, spaces, sides, strict=True)]
        yield f"| {' | '.join(cells)} |"


_LATEX = str.maketrans(
    {
        **{letter: f"\\{letter}" for letter in "{}$&#_%"},
        "\\": r"\textbackslash{}",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "[": "{[}",
        "]": "{]}",
        "*": "{*}",  # after a line's end they would be its options
    }
)


def _latex(text: str) -> str:
    escaped = " ".join(visible(text).split()).translate(_LATEX)
    return re.sub(r"(?<![\w.])-(?=[\d.])", "$-$", escaped) if escaped != UNKNOWN else "--"


# what spreadsheets take for the beginning of a formula, but for a number
_FORMULA = re.compile(
    r"\t|\s*[=@＝＠]|\s*[+\-＋－](?!\d*\.?\d+(?:[eE][+-]?\d+)?%?\Z)(?=.)", re.DOTALL
)


def _csv_text(value: Plain) -> str:
    """Return a cell, with an apostrophe before a text that a spreadsheet would compute."""
    if not isinstance(value, str):
        return "" if value is None else str(value)
    text = visible(value)
    return f"'{text}" if _FORMULA.match(text) else text
