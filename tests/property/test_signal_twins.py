"""A signal by columns equals its slow twin bit for bit, on records made to break it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.hostile_records import clusters, records, sample_lists
from tests.properties import examples
from tests.signal_twins import TWINS, abstained_by, normalized_entropy, top_cluster_confidence, twin

from suffice.signals.abstained import abstained_signal
from suffice.signals.known_signals import SIGNALS, SignalSpec
from suffice.signals.samples import entropy_signal, top_cluster_signal
from suffice.signals.signal_table import signal_columns
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import Gold, LoopView, Passage, Question, QuestionRecord, Round

IN_COLUMNS = [spec for spec in SIGNALS.values() if spec.columns is not None]
OWN = ("Hazy!", "no day ...", "... a hazy day", "ﬁ Ünknown ...", "... (ß)")
OWN_PHRASES = replace(abstained_signal(OWN), name="own phrases")
TWIN_OF = {**TWINS, "own phrases": abstained_by(OWN)}


def assert_equal_bits(
    specs: list[SignalSpec],
    recorded: list[QuestionRecord],
    twins: Mapping[str, Callable[[LoopView], float]] = TWIN_OF,
) -> None:
    traces = to_trace_set(recorded)
    slow = [twin(spec, twins[spec.name]) for spec in specs]
    computed = [replace(spec, own_settings=True) for spec in specs]  # not read from the record
    columns = zip(signal_columns(traces, computed), signal_columns(traces, slow), strict=True)
    for spec, (found, wanted) in zip(specs, columns, strict=True):
        np.testing.assert_array_equal(found, wanted, err_msg=spec.name)


def _read(*ids: str) -> Round:
    return Round(answer="", passages=tuple(Passage(id=name, text="Oslo") for name in ids))


# a word in more passages of a question that is not compared than of one that is
_ONE_ROUND_OF_MANY = [
    QuestionRecord(question=Question(id=f"q{number}", text="?"), gold=Gold(), rounds=of_question)
    for number, of_question in enumerate([(_read("1", "2", "3", "4"),), (_read("1"), _read("2"))])
]


@example(_ONE_ROUND_OF_MANY)
@given(records())
@settings(max_examples=examples(60), deadline=None)
def test_every_signal_equals_its_twin(recorded: list[QuestionRecord]) -> None:
    assert_equal_bits([*IN_COLUMNS, OWN_PHRASES], recorded)


_meant = sample_lists.flatmap(lambda drawn: st.tuples(st.just(drawn), clusters(drawn)))


@given(st.lists(_meant, min_size=1, max_size=4))
@settings(max_examples=examples(60), deadline=None)
def test_signals_over_clusters_by_meaning(
    meant: list[tuple[tuple[str, ...] | None, tuple[int, ...]]],
) -> None:
    rounds = tuple(
        Round(answer="", samples=samples, sample_clusters=clusters) for samples, clusters in meant
    )
    record = QuestionRecord(question=Question(id="q", text="?"), gold=Gold(), rounds=rounds)
    twins = {
        "normalized_entropy": lambda view: normalized_entropy(view, "embedding"),
        "top_cluster_confidence": lambda view: top_cluster_confidence(view, "embedding"),
    }
    specs = [entropy_signal("embedding"), top_cluster_signal("embedding")]
    assert_equal_bits(specs, [record], twins)
