"""Diagnostics of a trace set: parts, draws, drift, concentration, what is skipped."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from suffice.errors import UsageError
from suffice.evaluation.diagnose.signal_checks import Rows, figures_of
from suffice.evaluation.diagnose.signal_diagnostics import diagnose
from suffice.evaluation.settings import DiagnosisSettings
from suffice.measures.scores import score_rounds
from suffice.signals.signal_table import signal_table
from suffice.stats.auroc import auroc
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import QuestionRecord

FEW = DiagnosisSettings(resamples=50)


def uneven_records(n_questions: int = 40, *, splits: bool = True) -> list[QuestionRecord]:
    rng = np.random.default_rng(3)
    made = []
    for number in range(n_questions):
        n_rounds = int(rng.integers(1, 4))
        answers = [str(rng.choice(["Oslo", "Rome", ""])) for _ in range(n_rounds)]
        record = make_record(
            f"q{number:02d}",
            answers,
            gold=["Oslo"] if number % 7 else [],
            margins=[float(rng.random()) + 0.3 * (answer == "Oslo") for answer in answers],
            split=("tune" if number % 2 else "eval") if splits else None,
        )
        kind = "bridge" if number % 3 else None
        rounds = tuple(
            replace(each, verbalized_confidence=5.0 if t else 4.0)
            for t, each in enumerate(record.rounds)
        )
        made.append(replace(record, question=replace(record.question, type=kind), rounds=rounds))
    return made


def test_each_figure_is_that_of_its_rows() -> None:
    traces = to_trace_set(uneven_records())
    found = diagnose(traces, FEW)
    assert [*found.parts] == ["tune", "eval"]
    by_name = {each["name"]: each for each in found.signals}
    for split in ("tune", "eval"):
        part = traces.only_split(split)
        (em,) = score_rounds(part, ["em"])
        for name in ("answer_token_margin", "answer_stable", "abstained"):
            values = signal_table(part, [name]).signal(name)
            on = by_name[name]["parts"][split]
            sign = -1.0 if name == "abstained" else 1.0
            usable = ~np.isnan(values) & ~np.isnan(em)
            right = em[usable] == 1.0
            assert on["auroc"].estimate == pytest.approx(auroc(sign * values[usable], right))
            assert on["d_signed"].estimate == pytest.approx(
                figures_of(
                    Rows(values=values[usable], right=right, questions=np.arange(len(right)))
                )[0]
            )
            assert on["defined"] == pytest.approx(
                (~np.isnan(values)).sum() / part.exists.sum(), abs=1e-12
            )
            for number, one in enumerate(on["rounds"]):
                rows = usable[:, number]
                assert one["right"] == int((em[rows, number] == 1.0).sum())
                assert one["wrong"] == int((em[rows, number] == 0.0).sum())
            bridge = np.array([each.type == "bridge" for each in part.questions])
            rows_of_type = usable & bridge[:, None]
            assert on["types"]["bridge"]["right"] == int((em[rows_of_type] == 1.0).sum())
            assert set(on["types"]) == {"bridge"}
        told = found.parts[split]
        assert told["questions"] == 20
        assert told["labelled"] == sum(bool(gold.answers) for gold in part.gold)
        assert told["rounds"] == part.table.num_rows


def test_eval_draws_are_those_of_a_replay_and_tune_draws_are_others() -> None:
    """One row a question: AUROC of the questions that default_rng(42) draws."""
    traces = to_trace_set(uneven_records())
    labelled = traces.take(np.array([bool(gold.answers) for gold in traces.gold]))
    settings = DiagnosisSettings(signals=("answer_token_margin",), resamples=60, seed=42)
    (signal,) = diagnose(labelled, settings).signals
    for split, seed in (("eval", 42), ("tune", 43)):
        part = labelled.only_split(split)
        values = signal_table(part, ["answer_token_margin"]).signal("answer_token_margin")[:, 0]
        right = score_rounds(part, ["em"])[0][:, 0] == 1.0
        n = part.n_questions
        drawn = np.random.default_rng(seed).integers(0, n, size=(60, n))
        has = ~np.isnan(values)
        slow = [auroc(values[rows[has[rows]]], right[rows[has[rows]]]) for rows in drawn]
        low, high = np.percentile([each for each in slow if not math.isnan(each)], [2.5, 97.5])
        first = signal["parts"][split]["rounds"][0]["auroc"]
        if low == high:  # of few questions that all agree
            assert (first.estimate, first.low, first.high) == (low, None, None)
            assert "alike" in (first.reason or "")
        else:
            assert (first.low, first.high) == pytest.approx((low, high), abs=1e-12)


def test_concentration_in_nats() -> None:
    made = uneven_records()
    found = diagnose(to_trace_set(made), FEW)
    confidence = next(each for each in found.signals if each["name"] == "verbalized_confidence")
    tune = [record for record in made if record.question.split == "tune"]
    fives = sum(len(record.rounds) - 1 for record in tune)
    total = sum(len(record.rounds) for record in tune)
    share = fives / total
    concentration = confidence["parts"]["tune"]["concentration"]
    assert concentration is not None
    expected = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert concentration["entropy_nats"] == pytest.approx(expected)
    assert concentration["mode_share"] == max(share, 1 - share)
    assert concentration["mode"] == (5.0 if share > 0.5 else 4.0)
    margins = next(each for each in found.signals if each["name"] == "answer_token_margin")
    assert margins["parts"]["tune"]["distinct"] > 12
    assert margins["parts"]["tune"]["concentration"] is None


def test_wrong_settings_are_refused() -> None:
    traces = to_trace_set(uneven_records())
    with pytest.raises(UsageError, match="unknown signal 'nothing'"):
        diagnose(traces, DiagnosisSettings(signals=("nothing",)))
    with pytest.raises(UsageError, match="needs column samples"):
        diagnose(traces, DiagnosisSettings(signals=("self_consistency",)))
    with pytest.raises(UsageError, match="both 'tune'"):
        DiagnosisSettings(eval_split="tune")
    with pytest.raises(UsageError, match="no signal is named"):
        DiagnosisSettings(signals=())
    with pytest.raises(UsageError, match="at least 1"):
        DiagnosisSettings(resamples=0)
    with pytest.raises(UsageError, match="holds no question"):
        diagnose(traces.take(np.zeros(40, bool)))
