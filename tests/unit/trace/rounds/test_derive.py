"""Records split, joined and narrowed: nothing is lost, and nothing stands there in part."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import keep
from tests.properties import examples

from suffice.errors import DataError, UsageError
from suffice.testing.traces import make_record
from suffice.trace.rounds.derive import (
    TraceFilter,
    assign_splits,
    filter_traces,
    merge_traces,
    parse_splits,
    split_traces,
)
from suffice.trace.rounds.reader import pool_traces, read_traces
from suffice.trace.rounds.records import QuestionRecord, Round
from suffice.trace.rounds.writer import question_writer, write_traces


def records(prefix: str, count: int, *, split: str | None = None) -> list[QuestionRecord]:
    return [
        make_record(
            f"{prefix}{number:02d}",
            ["Rome", "Oslo", "Oslo"][: 2 + number % 2],
            gold=["Oslo"] if number else [],
            split=split,
            closed_book=Round(answer="Bergen") if number == 1 else None,
        )
        for number in range(count)
    ]


def with_own_column(file: Path, name: str, values: Any) -> None:
    """Add a column and a metadata entry that the schema does not know."""
    table = pq.read_table(file)
    metadata = {**(table.schema.metadata or {}), b"mine": b"kept"}
    table = table.append_column(name, pa.array([values] * table.num_rows))
    pq.write_table(table.replace_schema_metadata(metadata), file)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two parts of a recording of five questions, with a column of one's own and a failure."""
    root = tmp_path / "recorded"
    for some in (records("q", 5)[:3], records("q", 5)[3:]):
        with question_writer(root, run={"model": "m", "rounds": 3}) as writer:
            keep(writer, some)
            writer.fail(("q99",), "no reply")
    for file in root.glob("*.parquet"):
        with_own_column(file, "mine", {"note": 1})
    return root


def content(path: Path) -> Any:
    traces = read_traces(path, keep_unknown=True)
    return [t.drop_columns(["split"]).to_pylist() for t in (traces.table, traces.closed_book)]


@pytest.mark.parametrize("out", ["new", "new.parquet"])
def test_a_split_is_drawn_by_the_seed_and_all_else_stays(
    folder: Path, tmp_path: Path, out: str
) -> None:
    shares = {"tune": 0.4, "eval": 0.6}
    written = split_traces(folder, tmp_path / out, shares, seed=7)
    assert (written.questions, written.rounds) == (5, 12)
    traces = read_traces(tmp_path / out)
    assert traces.splits == written.splits == {"eval": 3, "tune": 2}
    assert content(tmp_path / out) == content(folder)
    assert (traces.origin.run["splits"], traces.origin.run["model"]) == (shares, "m")
    (step,) = traces.origin.run["derived"]
    assert (step["by"], step["seed"]) == ("split", 7)
    split_traces(folder, tmp_path / f"again-{out}", shares, seed=7)
    again = read_traces(tmp_path / f"again-{out}")
    assert again.of_questions("split") == traces.of_questions("split")


def test_a_split_holds_its_shares_of_every_type(tmp_path: Path) -> None:
    typed = [
        replace(record, question=replace(record.question, type="ab"[number % 2]))
        for number, record in enumerate(records("q", 80))
    ]
    write_traces(typed, tmp_path / "t.parquet")
    split_traces(tmp_path / "t.parquet", tmp_path / "s.parquet", {"tune": 0.5, "eval": 0.5})
    traces = read_traces(tmp_path / "s.parquet")
    names = ("question_type", "split")
    pairs = Counter(zip(*map(traces.of_questions, names), strict=True))
    assert max(pairs.values()) - min(pairs.values()) <= 4


def test_splits_that_are_there_are_not_drawn_anew_unasked(tmp_path: Path) -> None:
    write_traces(records("q", 4, split="test"), tmp_path / "t.parquet")
    with pytest.raises(UsageError, match=r"has splits already: test \(4\).*--replace"):
        split_traces(tmp_path / "t.parquet", tmp_path / "s.parquet")
    written = split_traces(tmp_path / "t.parquet", tmp_path / "s.parquet", replace_splits=True)
    assert set(written.splits) == {"tune", "eval"}
    with pytest.raises(UsageError, match=r"sum to 0\.5, not to 1"):
        split_traces(tmp_path / "t.parquet", tmp_path / "x.parquet", {"tune": 0.5})


# --- join -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("out", ["new", "new.parquet"])
def test_joined_records_keep_every_row_and_say_what_they_differ_in(
    folder: Path, tmp_path: Path, out: str
) -> None:
    other = tmp_path / "b.parquet"
    write_traces(records("r", 3, split="eval"), other, run={"model": "other", "rounds": 3})
    written = merge_traces([folder, other], tmp_path / out)
    assert (written.questions, written.splits) == (8, {"eval": 3})
    assert any("model: m, other" in note for note in written.notes)
    assert "no split: 5 of 8 questions" in written.notes
    traces = read_traces(tmp_path / out, keep_unknown=True)
    assert traces.of_questions("model") == ["m"] * 5 + ["other"] * 3
    assert traces.of_questions("mine") == [{"note": 1}] * 5 + [None] * 3
    run = traces.origin.run
    assert (run["rounds"], "model" in run) == (3, False)
    assert [each["model"] for each in run["runs"]] == ["m", "other"]
    narrowed = filter_traces(tmp_path / out, tmp_path / f"m-{out}", TraceFilter(model=("m",)))
    assert narrowed.questions == 5


def test_what_it_was_made_of_is_said_without_where_that_lay(folder: Path, tmp_path: Path) -> None:
    write_traces([make_record("other", ["Rome"])], tmp_path / "other.parquet")
    split_traces(folder, tmp_path / "split", replace_splits=True)
    merge_traces([folder, tmp_path / "other.parquet"], tmp_path / "merged")
    filter_traces(folder, tmp_path / "filtered", TraceFilter(sample=1))
    for out in ("split", "merged", "filtered"):
        run = read_traces(tmp_path / out).origin.run
        assert folder.name in json.dumps(run["derived"])
        assert str(folder.parent) not in json.dumps(run)


def test_questions_held_twice_and_columns_that_disagree_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "b.parquet"
    write_traces(records("q", 2), other)
    with pytest.raises(UsageError, match=r"2 questions, the first 'q00' in .*--without"):
        merge_traces([folder, other], tmp_path / "new")
    write_traces(records("r", 2), other)
    with_own_column(other, "mine", "text")
    with pytest.raises(DataError, match="disagree on a column the schema does not know"):
        merge_traces([folder, other], tmp_path / "new")
    with pytest.raises(UsageError, match="at least two"):
        merge_traces([folder], tmp_path / "new")
    assert not (tmp_path / "new").exists()


# --- narrow -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        (TraceFilter(model=("m",), labelled=True), ("q01", "q02", "q03", "q04")),
        (TraceFilter(min_rounds=3), ("q01", "q03")),
        (TraceFilter(ids=["q02", "q04", "zz"]), ("q02", "q04")),
        (TraceFilter(without=["q02", "q04"]), ("q00", "q01", "q03")),
        (TraceFilter(sample=2, seed=3), None),
    ],
)
def test_conditions(
    folder: Path, tmp_path: Path, keep: TraceFilter, kept: tuple[str, ...] | None
) -> None:
    filter_traces(folder, tmp_path / "new", keep)
    traces = read_traces(tmp_path / "new")
    expected = kept or read_traces(folder).sample(2, seed=3).question_ids
    assert traces.question_ids == expected
    assert traces.closed_book.num_rows == ("q01" in expected)
    (step,) = traces.origin.run["derived"]
    assert step["by"] == "filter"


def test_rounds_are_cut_and_the_run_document_says_so(folder: Path, tmp_path: Path) -> None:
    written = filter_traces(folder, tmp_path / "new.parquet", TraceFilter(max_rounds=1))
    traces = read_traces(tmp_path / "new.parquet")
    assert (written.questions, written.rounds, traces.n_rounds) == (5, 5, 1)
    assert (traces.origin.run["rounds"], traces.closed_book.num_rows) == (1, 1)


def test_ids_come_from_a_file_or_another_record(folder: Path, tmp_path: Path) -> None:
    listed = tmp_path / "ids.txt"
    listed.write_text("q01\n\n q02 \nq77\n")
    written = filter_traces(folder, tmp_path / "a.parquet", TraceFilter(ids=str(listed)))
    assert written.questions == 2
    assert "'q77'" in written.notes[0]
    keep = TraceFilter(without=str(tmp_path / "a.parquet"))
    assert filter_traces(folder, tmp_path / "b.parquet", keep).questions == 3
    listed.write_text("\n")
    with pytest.raises(DataError, match="one id a line"):
        filter_traces(folder, tmp_path / "c.parquet", TraceFilter(ids=str(listed)))


@pytest.mark.parametrize(
    ("keep", "error"),
    [
        (TraceFilter(), UsageError),
        (TraceFilter(model=("M",)), DataError),
        (TraceFilter(split=("eval",)), DataError),
        (TraceFilter(min_rounds=9), DataError),
    ],
)
def test_nothing_left(
    folder: Path, tmp_path: Path, keep: TraceFilter, error: type[Exception]
) -> None:
    with pytest.raises(error):
        filter_traces(folder, tmp_path / "new", keep)
    assert not (tmp_path / "new").exists()


# --- whole or not at all ------------------------------------------------------------------------------
def test_a_place_that_is_taken_is_left_as_it_is(folder: Path, tmp_path: Path) -> None:
    for out in (folder, next(folder.glob("*.parquet"))):
        with pytest.raises(UsageError, match="exists already; choose another --out"):
            split_traces(folder, out)
    with pytest.raises(UsageError, match="would become a part of"):
        split_traces(folder, folder / "new.parquet")
    (tmp_path / "empty").mkdir()
    assert split_traces(folder, tmp_path / "empty").questions == 5


def test_invalid_questions_are_refused_or_left_out(folder: Path, tmp_path: Path) -> None:
    write_traces(records("r", 2), folder / "more.parquet")
    table = pq.read_table(folder / "more.parquet").slice(1)  # q00 starts at round 2
    pq.write_table(table, folder / "more.parquet")
    with pytest.raises(DataError, match="starts at round 2"):
        split_traces(folder, tmp_path / "new")
    written = split_traces(folder, tmp_path / "new", skip_invalid=True)
    assert (written.questions, written.notes[0]) == (6, "1 invalid parts were skipped")


# --- shares -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "shares", [{"a": 0.1, "b": 0.9, "none": 0.0}, {"optimize": 0.2, "calibrate": 0.3, "eval": 0.5}]
)
def test_every_prefix_holds_its_shares(shares: dict[str, float]) -> None:
    assigned = assign_splits(range(600), shares, seed=42)
    assert "none" not in assigned
    taken: Counter[str] = Counter()
    for number, name in enumerate(assigned, start=1):
        taken[name] += 1
        for each, share in shares.items():
            assert abs(taken[each] - share * number) <= 1.5, (number, each)


@settings(max_examples=examples(40))
@given(
    weights=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    count=st.integers(0, 80),
    more=st.integers(0, 40),
    seed=st.integers(0, 1000),
)
def test_prefixes_do_not_depend_on_what_follows(
    weights: list[int], count: int, more: int, seed: int
) -> None:
    shares = {f"s{n}": weight / sum(weights) for n, weight in enumerate(weights)}
    assert (
        assign_splits(range(count), shares, seed=seed)
        == assign_splits(range(count + more), shares, seed=seed)[:count]
    )


def test_texts() -> None:
    assert parse_splits(" tune = 0.4 , eval = 60% ") == {"tune": 0.4, "eval": 0.6}
    assert parse_splits("a=.1,b=.2,c=.7,d=0") == {"a": 0.1, "b": 0.2, "c": 0.7, "d": 0.0}


@pytest.mark.parametrize(
    "text",
    [
        *("", "tune=", "=1", "tune=x", "tune=0.4,,eval=0.6", "tune=0.5,tune=0.5"),
        *("tune=-0.5,eval=1.5", "tune=nan", "tune=40,eval=60", "a=1,b=1"),
    ],
)
def test_texts_that_are_no_shares(text: str) -> None:
    with pytest.raises(UsageError, match="--splits"):
        parse_splits(text)


@pytest.mark.parametrize("kind", [pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_columns_of_types_that_arrow_cannot_take_from(tmp_path: Path, kind: pa.DataType) -> None:
    """Columns of the schema and of the user's own; those that are filled take the schema's type."""
    plain, views = tmp_path / "plain.parquet", tmp_path / "views.parquet"
    write_traces([make_record(f"q{n}", ["Oslo", "Rome"], split="tune") for n in range(3)], plain)
    table = pq.read_table(plain)
    for at, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            cells = pa.array(table.column(at).to_pylist(), pa.string()).cast(kind)
            table = table.set_column(at, field.name, cells)
    own = pa.array([[{"at": "y"}]] * 6, pa.list_view(pa.struct([("at", pa.string())])))
    table = table.append_column("mine", pa.array(["x"] * 6).cast(kind)).append_column("views", own)
    pq.write_table(table, views)
    assert next(iter(read_traces(views).records())).question.id == "q0"
    split_traces(views, tmp_path / "out", {"tune": 0.4, "eval": 0.6}, seed=1, replace_splits=True)
    written = read_traces(tmp_path / "out", keep_unknown=True)
    assert written.table.column("mine").to_pylist() == ["x"] * 6
    assert written.table.column("views").to_pylist() == [[{"at": "y"}]] * 6
    assert set(written.splits) == {"tune", "eval"}


# --- pooled ---------------------------------------------------------------------------------------
def anew(records: list[QuestionRecord], query: str) -> list[QuestionRecord]:
    """Another run on the same questions, which asks for something else in its last round."""
    return [
        replace(one, rounds=(*one.rounds[:-1], replace(one.rounds[-1], query=query)))
        for one in records
    ]


def test_gold_answers_that_contradict_are_refused(tmp_path: Path) -> None:
    """Of one question; not of another with the same id, in another order, or where one has none."""
    for name, gold, text in (
        ("a", ["Oslo", "Rome"], "Where?"),
        ("same", ["Rome", "Oslo"], "Where?"),
        ("other", ["Paris"], "When?"),
        ("none", [], "Where?"),
        ("wrong", ["Paris"], "Where?"),
    ):
        one = make_record("q", ["Rome", name], gold=gold)
        one = replace(one, question=replace(one.question, text=text))
        write_traces([one], tmp_path / f"{name}.parquet", run={})
    read = {path.stem: read_traces(path) for path in tmp_path.glob("*.parquet")}
    assert pool_traces([read[name] for name in ("a", "same", "other", "none")]).n_questions == 4
    with pytest.raises(UsageError, match="gold answers of question 'q'"):
        pool_traces([read[name] for name in ("none", "a", "wrong")])


def test_records_of_one_loop_are_pooled(tmp_path: Path) -> None:
    week = [tmp_path / "monday.parquet", tmp_path / "tuesday.parquet"]
    for path, count in zip(week, (3, 5), strict=True):
        write_traces(anew(records("q", count), path.stem), path, run={"pipeline": "agent"})
    monday, tuesday = map(read_traces, week)
    pooled = pool_traces([monday, tuesday])
    again = [name for name in pooled.question_ids if name.endswith("#2")]
    assert (pooled.n_questions, again) == (8, ["q00#2", "q01#2", "q02#2"])  # of tuesday
    assert pooled.closed_book.num_rows == 2
    assert pooled.origin.run["pipeline"] == "agent"
    for other in ({"pipeline": "pipeline"}, {"pipeline": "agent", "budget_note": True}):
        write_traces(records("r", 3), tmp_path / f"{len(other)}.parquet", run=other)
        with pytest.raises(UsageError, match="different loops"):
            pool_traces([monday, read_traces(tmp_path / f"{len(other)}.parquet")])
    with pytest.raises(UsageError):
        pool_traces([])
