"""Macro means: the definition, shared questions drawn together, refusals."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pytest
from studies.tasr.__main__ import main
from studies.tasr.macro import macro_means
from tests.builders import written_traces

from suffice.errors import UsageError
from suffice.evaluation.replay.compare import Comparison, compare
from suffice.evaluation.settings import ComparisonSettings
from suffice.live.privacy import redact_traces
from suffice.stats import intervals as sums
from suffice.testing.traces import make_record, random_records, to_trace_set
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.trace_set import TraceSet

SETTINGS = ComparisonSettings(policies=("fixed-1", "fixed-2"), baseline="fixed-2", resamples=400)


def coin_traces(prefix: str, *, seed: int, count: int = 40, right: float = 0.5) -> TraceSet:
    generator = np.random.default_rng(seed)
    return to_trace_set(
        [
            make_record(
                f"{prefix}{number:03d}",
                ["yes it is" if generator.random() < right else "no" for _ in range(2)],
                gold=["yes it is"],
            )
            for number in range(count)
        ]
    )


def replayed(*sets: TraceSet) -> list[Comparison]:
    return [compare(each, SETTINGS) for each in sets]


def test_every_set_counts_the_same() -> None:
    sets = replayed(coin_traces("a", seed=1, count=80), coin_traces("b", seed=2, count=10))
    result = macro_means(sets)
    for number, policy in enumerate(result.policies):
        each = [comparison.result.policies[number] for comparison in sets]
        assert policy.score.estimate == pytest.approx(np.mean([one.f1 for one in each]))
        assert policy.other == pytest.approx(np.mean([one.em for one in each]))
        assert policy.mean_rounds == pytest.approx(np.mean([one.mean_rounds for one in each]))
        assert policy.by_set == pytest.approx([one.f1 for one in each])
    assert result.shared == 0
    assert result.policies[1].delta.low == result.policies[1].delta.high == 0.0


def test_shared_questions_are_one_observation() -> None:
    """The same answers twice say no more than once; other questions do."""
    first = coin_traces("a", seed=1)
    again = macro_means(replayed(first, first))
    alone = compare(first, SETTINGS).result.policies[0].interval
    assert alone is not None
    assert again.shared == 40
    width = again.policies[0].score.high - again.policies[0].score.low
    assert width == pytest.approx(alone.high - alone.low, rel=0.15)
    apart = macro_means(replayed(first, coin_traces("b", seed=1)))
    narrower = apart.policies[0].score.high - apart.policies[0].score.low
    assert narrower == pytest.approx(width / np.sqrt(2), rel=0.2)


def test_means_from_sums_have_the_intervals_of_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = coin_traces("a", seed=1, count=400)
    some = shared.take(np.arange(400) < 150)
    sets = replayed(shared, some, coin_traces("b", seed=2, count=300))
    resampled = macro_means(sets).policies[0]
    monkeypatch.setattr(sums, "SUMS_ABOVE", 50)
    summed = macro_means(sets).policies[0]
    for one, other in ((summed.score, resampled.score), (summed.delta, resampled.delta)):
        assert one.estimate == other.estimate
        width = other.high - other.low
        assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=0.15 * width)


def three_rounds(prefix: str, *, seed: int, count: int = 40) -> TraceSet:
    """Answers that are right more often later, and are repeated by chance."""
    generator = np.random.default_rng(seed)
    records = []
    for number in range(count):
        known = generator.random(3) < [0.3, 0.5, 0.8]
        records.append(
            make_record(
                f"{prefix}{number:03d}", ["no" if not k else "yes" for k in known], gold=["yes"]
            )
        )
    return to_trace_set(records)


ADAPTIVE = ComparisonSettings(
    policies=("fixed-1", "fixed-2", "fixed-3"), rules=("answer_stable",), resamples=300
)


def test_the_gain_over_fixed_budgets_is_that_of_each_set_averaged() -> None:
    """A twin in plain loops: the same questions drawn, each set's line made anew in every draw."""
    first, other = three_rounds("a", seed=1), three_rounds("b", seed=2, count=25)
    sets = [compare(each, ADAPTIVE) for each in (first, other)]
    found = macro_means(sets).policies[3].over_fixed
    assert found is not None

    def gain(comparison: Comparison, drawn: np.ndarray) -> float:
        at, score, own, spent = [], [], 0.0, 0.0
        for policy in comparison.result.policies:
            mean = float(np.mean(policy.at_stops.scores["f1"][drawn]))
            rounds = float(np.mean(policy.stops[drawn]))
            if policy.kind == "fixed":
                at.append(rounds)
                score.append(mean)
            else:
                own, spent = mean, rounds
        return own - float(np.interp(spent, at, score))

    everyone = [np.arange(comparison.result.questions) for comparison in sets]
    estimate = np.mean([gain(*pair) for pair in zip(sets, everyone, strict=True)])
    assert found.estimate == pytest.approx(estimate)
    rng = np.random.default_rng(5)
    draws = [
        np.mean(
            [
                gain(each, rng.choice(all_, len(all_)))
                for each, all_ in zip(sets, everyone, strict=True)
            ]
        )
        for _ in range(1500)
    ]
    low, high = np.percentile(draws, [2.5, 97.5])
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.12 * (high - low))


def test_the_same_set_twice_gains_no_certainty_and_fixed_budgets_gain_nothing() -> None:
    one = compare(three_rounds("a", seed=3), ADAPTIVE)
    again = macro_means([one, one])
    apart = macro_means([one, compare(three_rounds("b", seed=3), ADAPTIVE)])
    twice, once = again.policies[3].over_fixed, apart.policies[3].over_fixed
    assert twice is not None
    assert once is not None
    assert twice.estimate == pytest.approx(once.estimate)
    assert twice.high - twice.low > 1.2 * (once.high - once.low)
    assert [policy.over_fixed for policy in again.policies[:3]] == [None] * 3
    rules = ComparisonSettings(
        policies=("oracle-f1",), rules=("answer_stable",), baseline="oracle-f1"
    )
    without = macro_means([compare(three_rounds(each, seed=4), rules) for each in "ab"])
    assert [policy.over_fixed for policy in without.policies] == [None, None]


def test_one_id_with_two_texts_is_two_questions() -> None:
    records = list(coin_traces("a", seed=1).records())
    other = [
        dataclasses.replace(
            each, question=dataclasses.replace(each.question, text=f"{each.question.text} again")
        )
        for each in records
    ]
    assert macro_means(replayed(to_trace_set(records), to_trace_set(other))).shared == 0


def test_questions_of_redacted_records_are_known_by_their_ids(tmp_path: Path) -> None:
    """The key of each redaction is thrown away, so that equal texts have other names in each record."""
    whole, redacted = coin_traces("a", seed=1), []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        source = written_traces(tmp_path / name, list(whole.records()))
        redact_traces(source, tmp_path / f"{name}.parquet")
        redacted.append(read_traces(tmp_path / f"{name}.parquet"))
    assert redacted[0].questions[0].text != redacted[1].questions[0].text
    by_score = dataclasses.replace(SETTINGS, metric="score")
    found = macro_means([compare(each, by_score) for each in redacted])
    assert found.shared == 40
    plain = macro_means(replayed(whole, whole))
    assert found.policies[0].score == plain.policies[0].score


def test_a_question_of_two_sets_is_one_under_any_name() -> None:
    records = random_records(30, seed=4)

    def named(suffixes: str) -> Comparison:
        made = [
            dataclasses.replace(
                record,
                question=dataclasses.replace(record.question, id=f"{record.question.id}{suffix}"),
            )
            for record in records
            for suffix in suffixes
        ]
        asked = ComparisonSettings(rules=("overlap < 0.5",), policies=("fixed-1", "fixed-3"))
        return compare(to_trace_set(made), asked)

    sets = [named("a"), named("b")]
    together, alone = macro_means(sets), macro_means([sets[0], sets[0]])
    assert together.shared == together.labelled[0] == together.labelled[1] > 10
    again = macro_means([named("abc"), sets[0]])
    assert again.labelled[0] == 3 * again.labelled[1]
    for found in (together, again):
        for one, other in zip(found.policies, alone.policies, strict=True):
            ends = [one.score.estimate, one.score.low, one.score.high]
            assert ends == pytest.approx(
                [other.score.estimate, other.score.low, other.score.high], abs=1e-9
            )


def test_what_has_no_score_is_refused() -> None:
    """Of loops that are asked at their end, earlier stops are not scored."""
    records = []
    for record in random_records(20):
        *before, last = record.rounds
        unasked = (dataclasses.replace(each, answer=None, tokens=None) for each in before)
        records.append(dataclasses.replace(record, rounds=(*unasked, last)))
    comparison = compare(to_trace_set(records), ComparisonSettings(policies=("fixed-1", "fixed-3")))
    with pytest.raises(UsageError, match="no score is known of fixed-1"):
        macro_means([comparison, comparison])


def test_the_command_prints_the_means_of_its_records(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    paths = []
    for seed in (1, 2, 3):
        (tmp_path / str(seed)).mkdir()
        paths.append(str(written_traces(tmp_path / str(seed), random_records(30, seed=seed))))
    assert main([*paths, "--bootstrap", "20", "--json"]) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert [each["traces"] for each in document["sets"]] == paths
    for policy in document["policies"]:
        assert policy["f1"] == pytest.approx(np.mean(policy["set_f1"]))
    assert main([*paths, "--bootstrap", "20", "--format", "csv"]) == 0
    first = capsys.readouterr().out.split("\n\n")[0]
    rows = list(csv.DictReader(io.StringIO(first)))
    gains = [policy["over_fixed"] for policy in document["policies"]]
    assert [row["over_fixed"] != "" for row in rows] == [gain is not None for gain in gains]
    assert main(paths[:1]) == 2
