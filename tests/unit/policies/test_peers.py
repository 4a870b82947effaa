"""Answer convergence and EarlyEval against their sources' rules, windows, and the calibrated limit."""

from __future__ import annotations

import numpy as np
import pytest
from tests.builders import of_rounds

from suffice.errors import SufficeWarning, UsageError
from suffice.measures.measures import Measures
from suffice.policies.fitting import fit_data, out_of_fold
from suffice.policies.registry import fit_method, unfitted_policy
from suffice.policies.rules.language import first_round, parse
from suffice.policies.rules.policy import Rule
from suffice.signals.signal_table import first_stops, signal_table
from suffice.stats.maps import fit_platt
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import QuestionRecord, Round, Token

LONG = " ".join(f"w{number}" for number in range(19))
# the round after which the rule of ACS, transcribed from its released code, stops (theta 0.995, epsilon
# 0.05, window 3; the last round where it does not), and the answers: 20 words (L) or 2 (S), the last of
# which is named, and -logprobs
STOPS = [
    "6: Sb 0.001, Sb 0, Sb 0.02, Sb 0, unknown 0.001, Sb 0.004 0.02",
    "4: Sb 0.02, Sb 0.004, Sb 0 0, Sb 0.004, Sb 0.001, Sa 0.02 0",
    "5: Lb 0, Lb 0.001, Lb 0.02, Lb 0.001 0, Lc 0.001",
    "4: Lc 0.001, unknown 0.004 0.02, La 0, La 0.001 0.02",
    "7: La 0.001, La 0.02, La 0 0, Lc 0.02, Lc 0, Lb 0.004, La 0.004",
    "3: Lb 0, Lb 0.001 0, Lb 0.004 0, unknown 0.004, Lc 0.02",
    "3: Sb 0.001, Sb 0.001, Sb 0.004, Sb 0.001 0.001, Sb 0",
    "6: Sa 0, Sa 0.02 0.001, Sa 0.02 0.004, Sa 0.004, Sa 0.004, Sa 0.004 0.004, Sa 0.004",
    "4: unknown 0.02 0.001, Sa 0.001, Sa 0.004 0.004, Sa 0.004, Sb 0.004 0.004",
    "3: Sb 0.001, Sb 0, Sb 0.001, Sc 0.004 0, Sc 0 0.02",
]


def answered(told: str) -> Round:
    text, *numbers = told.split()
    base = {"L": f"{LONG} ", "S": "harbour "}.get(text[0], "")
    tokens = tuple(Token(token="t", logprob=-float(number)) for number in numbers)
    return Round(answer=f"{base}{text[-1]}" if base else text, tokens=tokens)


@pytest.mark.parametrize("case", STOPS)
def test_answer_convergence_stops_as_its_source_says(case: str) -> None:
    stop, answers = case.split(": ")
    policy = unfitted_policy("acs")
    assert isinstance(policy, Rule)
    traces = of_rounds(*map(answered, answers.split(", ")))
    assert first_stops(policy, signal_table(traces, policy.specs)).tolist() == [int(stop)]


def test_answer_convergence_takes_its_numbers() -> None:
    assert unfitted_policy("acs-2") is None
    rounds = [answered("Sa 0")] * 9
    looser = fit_method("acs", of_rounds(*rounds), "published", theta=0.9, window=2)
    assert isinstance(looser, Rule)
    assert looser.rule.startswith("stable_for(answer_likelihood >= 0.9 and not abstained, 2)")


# --- windows ----------------------------------------------------------------------------------------
def test_a_rule_says_how_long_it_has_to_hold() -> None:
    values = [1.0, 1.0, np.nan, 1.0, 1.0, 1.0, 0.0]
    traces = of_rounds(*(Round(answer="a", signals={"mine": value}) for value in values))
    policy = Rule("stable_for(mine, 2)", own_signals=("mine",))
    fires = policy.fires(signal_table(traces, policy.specs))
    assert fires.tolist() == [[False, True, False, False, True, True, False]]
    mean = Rule("mean_of(mine, 2) < 1", own_signals=("mine",))
    assert mean.fires(signal_table(traces, mean.specs))[0].tolist() == [False] * 6 + [True]


@pytest.mark.parametrize(
    "text", ["stable_for(a, 3)", "not stable_for(round >= 2 and a > 1, 2)", "mean_of(1 - a, 2) > 0"]
)
def test_a_window_is_printed_as_it_is_read(text: str) -> None:
    assert str(parse(text)) == text


def test_a_window_is_not_met_before_its_length() -> None:
    assert first_round(parse("stable_for(round >= 2, 3)")) == 4


@pytest.mark.parametrize(
    "text",
    ["stable_for(a)", "stable_for(a, 0)", "stable_for(a, 2.5)", "mean_of(a) > 1", "since_lowest(a, 2) > 1"],
)  # fmt: skip
def test_a_window_without_its_length_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)


# --- the calibrated limit ---------------------------------------------------------------------------
def succeeding(first_right: list[int], n_rounds: int = 6) -> list[QuestionRecord]:
    """Questions that are right from a round on (0: never)."""
    return [
        make_record(
            f"q{number}",
            ["Oslo" if 0 < first <= t else "Bergen" for t in range(1, n_rounds + 1)],
            gold=["Oslo"],
            split="tune",
        )
        for number, first in enumerate(first_right)
    ]


def test_the_limit_is_the_order_statistic_of_the_successes() -> None:
    lengths = [1] * 10 + [2] * 5 + [3] * 3 + [5]
    record = to_trace_set(succeeding([*lengths, 0, 0]))
    policy = fit_method("calibrated-limit", record, "published", alpha=0.1)
    assert isinstance(policy, Rule)
    # k = ceil((19 + 1) (1 - 0.1)) = 18, the 18th smallest of the 19 lengths
    assert policy.rule == "round >= 3"
    assert (policy.fitted_on["successes"], policy.fitted_on["rank"]) == (19, 18)


def test_too_few_successes_give_no_limit() -> None:
    with pytest.warns(SufficeWarning):
        policy = fit_method("calibrated-limit", to_trace_set(succeeding([1] * 18)), "published")
    assert isinstance(policy, Rule)
    assert policy.rule == "round >= 6"


# --- EarlyEval --------------------------------------------------------------------------------------
# how many steps in a row, from which step on, and the step after which decide_dual of EarlyEval's released
# code stops (levels 0.95; the last where it does not), and what its two classifiers say in each step
PAIRS = [
    "2 0 2: 0.97 0.02, 0.97 0.02, 0.96 0.02, 0.2 0.94, 0.95 0.04, 0.5 0.5, 0.97 0.04",
    "1 0 1: 0.97 0.04, 0.5 0.5, 0.95 0.02, 0.9 0.02, 0.5 0.97",
    "2 0 5: 0.2 0.5, 0.2 0.94, 0.5 0.94, 0.5 0.5, 0.5 0.97",
    "1 0 2: 0.5 0.5, 0.95 0.04, 0.9 0.02, 0.2 0.94, 0.9 0.04, 0.95 0.02, 0.5 0.97",
    "2 0 4: 0.9 0.04, 0.9 0.04, 0.95 0.02, 0.97 0.02, 0.9 0.04, 0.5 0.1",
    "2 3 5: 0.96 0.02, 0.95 0.04, 0.9 0.02, 0.95 0.02, 0.96 0.02",
    "1 0 1: 0.5 0.95, 0.97 0.02, 0.2 0.5, 0.2 0.99, 0.96 0.04, 0.96 0.04",
    "2 3 5: 0.2 0.5, 0.97 0.02, 0.2 0.99, 0.95 0.02, 0.9 0.04",
    "1 0 2: 0.9 0.04, 0.5 0.97, 0.2 0.5, 0.95 0.04, 0.9 0.04, 0.5 0.99",
    "2 0 3: 0.9 0.04, 0.97 0.04, 0.96 0.04, 0.97 0.04, 0.2 0.94",
]


@pytest.mark.parametrize("case", PAIRS)
def test_a_pair_of_levels_stops_as_its_source_says(case: str) -> None:
    stated, said = case.split(": ")
    window, first, stop = map(int, stated.split())
    pairs = [
        dict(zip(("win", "lose"), map(float, one.split()), strict=True)) for one in said.split(", ")
    ]
    from_first = [f"stable_for(round >= {first} and {name} >= 0.95, {window})" for name in pairs[0]]
    policy = Rule(" or ".join(from_first), own_signals=tuple(pairs[0]))
    traces = of_rounds(*(Round(answer="a", signals=pair) for pair in pairs))
    assert first_stops(policy, signal_table(traces, policy.specs)).tolist() == [stop]


def foretelling(count: int = 60) -> list[QuestionRecord]:
    """Questions whose last answer is right if ``mine`` is high; the first is right in every third."""
    draws = np.random.default_rng(3)
    made = []
    for number in range(count):
        luck = draws.uniform()
        answers = [
            "Oslo" if number % 3 == 0 else "Bergen",
            "Oslo" if draws.uniform() < luck else "Bergen",
        ]
        signals = [{"mine": luck}] * 2
        made.append(
            make_record(f"q{number:02d}", answers, gold=["Oslo"], split="tune", signals=signals)
        )
    return made


def test_early_eval_foretells_the_last_answer() -> None:
    record = to_trace_set(foretelling())
    policy = fit_method("early-eval", record, "published", signal="mine", success=0.8, failure=0.7)
    assert isinstance(policy, Rule)
    assert policy.rule == "calibrated(mine, end) >= 0.8 or calibrated(mine, end) <= 0.3"
    table = signal_table(record, policy.specs)
    fires = policy.fires(table)
    for row, question in enumerate(foretelling()):
        right = [float(one.rounds[-1].answer == "Oslo") for one in foretelling()]
        luck = [one.rounds[0].signals["mine"] for one in foretelling()]
        success = fit_platt(luck, right).predict([question.rounds[0].signals["mine"]])[0]
        assert fires[row].tolist() == [success >= 0.8 or 1 - success >= 0.7] * 2
    assert policy.confidence(table) is None  # what it foretells is not this answer
    with pytest.raises(UsageError, match="agreement"):
        fit_method("early-eval", Measures.of(record).by("agreement"), "published", signal="mine")


def test_early_eval_takes_its_levels_from_the_record() -> None:
    """The cheapest of all pairs within one standard error of the best."""
    record = to_trace_set(foretelling())
    policy = fit_method("early-eval", record, "corrected", signal="mine")
    data = fit_data(record, ("mine",))
    levels = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
    now, end = (out_of_fold(data, key)[:, 0] for key in ("mine", "mine, end"))
    f1, rules = data.outcomes.f1, {}
    for success in levels:
        for failure in levels:
            early = (now >= success) | (end <= float(f"{1 - failure:g}"))
            scores = np.where(early, f1[:, 0], f1[:, 1])
            error = scores.std(ddof=1) / np.sqrt(len(scores))
            text = f"calibrated(mine) >= {success:g} or calibrated(mine, end) <= {1 - failure:g}"
            rules[text] = (scores.mean(), error, 2 - early.mean())
    best, error, _ = max(rules.values(), key=lambda one: one[0])
    close = {text: one for text, one in rules.items() if one[0] >= best - error}
    assert isinstance(policy, Rule)
    assert close[policy.rule][2] == min(one[2] for one in close.values())
