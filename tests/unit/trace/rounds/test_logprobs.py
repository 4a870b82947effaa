"""Log-probabilities above 0 are refused wherever they come in."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import suffice
from suffice.errors import DataError
from suffice.testing.traces import make_record
from suffice.trace.rounds.records import Token

WRONG = [0.001, float("nan")]


def _record(file: Path, column: str, value: float) -> None:
    """A record of two questions, of which the second round of one holds the value."""
    records = [make_record(name, ["x", "y"], margins=[1.0, 2.0]) for name in ("a", "b")]
    suffice.write_traces(records, file)
    table = pq.read_table(file)
    rows = table.to_pylist()
    token = rows[3]["tokens"][0]
    if column == "tokens.logprob":
        token["logprob"] = value
    else:
        token["top"][-1]["logprob"] = value
    pq.write_table(pa.Table.from_pylist(rows, table.schema), file)


@pytest.mark.parametrize("lazily_above", [0, 1 << 30])
@pytest.mark.parametrize("column", ["tokens.logprob", "tokens.top.logprob"])
@pytest.mark.parametrize("value", WRONG)
def test_of_a_record(column: str, value: float, lazily_above: int, tmp_path: Path) -> None:
    file = tmp_path / "r.parquet"
    _record(file, column, value)
    with pytest.raises(DataError) as caught:
        suffice.read_traces(file, lazily_above=lazily_above).table.column("tokens")
    error = caught.value
    assert (error.file, error.row, error.column) == (str(file), 3, column)
    assert "'b'" in error.message
    assert "round 2" in error.message


def test_what_rounding_leaves_above_0_stands() -> None:
    assert Token("Oslo", 1e-7).logprob == pytest.approx(1e-7)
    assert Token("Oslo", 0.0).logprob == 0.0
