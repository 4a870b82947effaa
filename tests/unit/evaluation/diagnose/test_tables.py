"""The diagnosis as people read it."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import drawn_records, eval_and_tune, with_rounds

from suffice.evaluation.diagnose.diagnosis import Diagnosis, diagnosis
from suffice.evaluation.settings import DiagnosisSettings
from suffice.stats.auroc import USES
from suffice.testing.traces import to_trace_set

RULE = "answer_stable and calibrated(answer_token_margin) > 0.2"


def found(
    signals: tuple[str, ...] | None = None, *, split: bool = True, rules: tuple[str, ...] = (RULE,)
) -> Diagnosis:
    drawn = drawn_records(
        40, ["Oslo", "Rome", "unknown"], seed=0, split=eval_and_tune if split else lambda _: None
    )
    made = []
    for number, record in enumerate(drawn):
        kind = "comparison" if number < 12 else "bridge\u202e"
        question = replace(record.question, type=kind)
        made.append(replace(with_rounds(record, verbalized_confidence=5.0), question=question))
    settings = DiagnosisSettings(signals=signals, resamples=30, rules=rules)
    return diagnosis(to_trace_set(made), settings)


def test_the_verdict_comes_first_and_the_most_useful_signals_after_it() -> None:
    result = found()
    table = result.named("signals")
    assert result.text().startswith(
        f"What are the signals worth here? {result.signals.verdict}"[:70]
    )
    uses, areas = table.data()["use"], table.data()["eval: auroc"]
    assert uses == sorted(uses, key=USES.index)
    assert set(uses) > {"useful", "uninformative"}
    useful = [float(area or 0) for area, use in zip(areas, uses, strict=True) if use == "useful"]
    assert useful == sorted(useful, reverse=True)
    for name, use, low, high in zip(
        *(table.data()[key] for key in ("signal", "use", "eval: auroc_low", "eval: auroc_high")),
        strict=True,
    ):
        if low is not None:
            assert (use == "uninformative") == (low <= 0.5 <= high), name
    assert f"{uses.count('uninformative')} uninformative" in result.signals.verdict
