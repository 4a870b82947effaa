"""What the property over all signals cannot show of tokens by columns: which characters count as blank."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice.errors import DataError
from suffice.signals.model_confidence import BLANKS
from suffice.signals.registry import SIGNALS
from suffice.signals.samples import entropy_signal
from suffice.signals.table import signal_columns
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import Gold, Question, QuestionRecord, Round, Token, TopToken
from suffice.trace.rounds.schema import SCHEMA, SCHEMA_KEY


def test_blanks_are_those_of_python() -> None:
    assert set(BLANKS) == {
        letter for letter in map(chr, range(sys.maxunicode + 1)) if letter.isspace()
    }


def _record(*rounds: Round) -> QuestionRecord:
    return QuestionRecord(question=Question(id="q", text="?"), gold=Gold(), rounds=rounds)


def test_samples_that_were_not_clustered_are_refused() -> None:
    traces = to_trace_set([_record(Round(answer="x", samples=("x",), sample_clusters=(0,)))])
    assert len(signal_columns(traces, [entropy_signal("embedding")])) == 1
    traces = to_trace_set([_record(Round(answer="x", samples=("x",)))])
    with pytest.raises(DataError, match="not clustered by meaning"):
        signal_columns(traces, [entropy_signal("embedding")])


@pytest.mark.parametrize("whole", [True, False])
def test_a_null_among_the_tokens_is_refused(tmp_path: Path, whole: bool) -> None:
    top = (TopToken("x", -0.5), TopToken("y", -2.0))
    traces = to_trace_set([_record(Round(answer="x", tokens=(Token("x", -0.5, top),) * 2))])
    rows = traces.table.select(traces.table.column_names).to_pylist()
    rows[0]["tokens"][1] = None
    file = tmp_path / "null.parquet"
    schema = [SCHEMA.field(name) for name in rows[0]]
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(schema, {SCHEMA_KEY: b"2"})), file)
    with pytest.raises(DataError, match=r"row 0, column tokens"):
        signal_columns(
            read_traces(file, lazily_above=1 << 40 if whole else 0),
            [SIGNALS["answer_token_margin"]],
        )
