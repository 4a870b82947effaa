"""What the property over all signals cannot show of tokens by columns: which characters count as blank."""

from __future__ import annotations

import sys

import pytest

from suffice.errors import DataError
from suffice.signals.model_confidence import BLANKS
from suffice.signals.samples import entropy_signal
from suffice.signals.table import signal_columns
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import Gold, Question, QuestionRecord, Round


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
