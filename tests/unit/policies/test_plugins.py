"""Policies and signals of another package: what they may read, and what their failures look like."""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.builders import written_traces
from tests.commands import run
from tests.every_policy import policies
from tests.packages import install

import suffice
from suffice.contracts import Explanation, Facts, LoopNeeds, PolicyTable
from suffice.errors import DataError, UsageError
from suffice.monitor.production import Production
from suffice.signals import known_signals, plugins
from suffice.signals.columns.rounds import RoundColumns
from suffice.signals.known_signals import SIGNALS, SignalSpec, resolve
from suffice.testing.conformance import check_policy
from suffice.testing.traces import make_record, random_records, to_trace_set
from suffice.trace.rounds.records import Round

Mask = NDArray[np.bool_]
RECORDS = [
    make_record(f"q{n:02d}", [str(n * t % 3) for t in range(1, 6)], gold=["0"]) for n in range(30)
]
TRACES = to_trace_set(RECORDS)
replay = partial(suffice.replay, TRACES, resamples=5)


@dataclass(eq=False)
class Mine:
    """A policy of somebody else, that decides by a function of a table of ``answer_stable``."""

    decide: Callable[[NDArray[np.float64]], Any]

    kind: ClassVar[str] = "mine"
    preset: ClassVar[str | None] = None
    needs: ClassVar[LoopNeeds] = LoopNeeds(answers=True)
    facts: ClassVar[Facts] = Facts(summary="mine")
    signals: ClassVar[tuple[str, ...]] = ("answer_stable",)
    specs: ClassVar[tuple[SignalSpec, ...]] = (resolve("answer_stable"),)

    def fires(self, table: PolicyTable) -> Any:
        return self.decide(table.signal("answer_stable"))

    def explain(self, table: PolicyTable, question: int, round_number: int) -> Explanation:
        return Explanation(reason="", values={})

    def document(self) -> dict[str, Any]:
        return {"mine": True}


class Leaving(BaseException):
    """As some frameworks' own, that no except Exception catches."""


def leave() -> None:
    raise Leaving


def stable(values: NDArray[np.float64]) -> Mask:
    return np.asarray(values == 1.0)


def ever(values: NDArray[np.float64]) -> Mask:
    """Where the answer is stable now or later."""
    return np.asarray(np.logical_or.accumulate(stable(values)[:, ::-1], 1)[:, ::-1])


def at_the_end(values: NDArray[np.float64]) -> Mask:
    fires = stable(values)
    fires[:, -1] = True
    return fires


def nearly_at_the_end(values: NDArray[np.float64]) -> Mask:
    fires = np.zeros(values.shape, bool)
    fires[:, 3:] = values.shape[1] > 4
    return fires


def above_the_median(values: NDArray[np.float64]) -> Mask:
    shares = np.nanmean(np.where(np.isnan(values), 0.0, values), axis=1)
    return np.asarray(stable(values) & (shares > np.median(shares))[:, None])


def as_the_question_before(values: NDArray[np.float64]) -> Mask:
    return np.roll(stable(values), 1, axis=0)


def only_among_many(values: NDArray[np.float64]) -> Mask:
    return stable(values) if len(values) > 1 else np.zeros(values.shape, bool)


def hasty_alone(values: NDArray[np.float64]) -> Mask:
    return np.ones(values.shape, bool) if values.shape == (1, 2) else stable(values)


def by_chance(values: NDArray[np.float64]) -> Mask:
    return np.random.default_rng().random(values.shape) < 0.3


def by_a_fixed_seed(values: NDArray[np.float64]) -> Mask:
    return np.random.default_rng(0).random(values.shape) < 0.3


_CALLS = itertools.count()


def by_earlier_calls(values: NDArray[np.float64]) -> Mask:
    return np.full(values.shape, next(_CALLS) % 2 == 0)


def written(values: NDArray[np.float64]) -> Mask:
    values *= 2.0
    return stable(values / 2.0)


UNLIKE_LIVE = (
    ever,
    at_the_end,
    nearly_at_the_end,
    above_the_median,
    as_the_question_before,
    only_among_many,
    hasty_alone,
    by_chance,
    by_a_fixed_seed,
    by_earlier_calls,
)
NO_MASKS: dict[str, Callable[[NDArray[np.float64]], Any]] = {
    "halves": lambda values: stable(values) * 0.5,
    "below zero": lambda values: -stable(values).astype(int),
    "bytes": lambda values: stable(values).astype(np.uint8),
    "not a number": lambda values: np.where(stable(values), 1.0, np.nan),
    "objects": lambda values: stable(values).astype(object),
    "a column more": lambda values: np.hstack([stable(values), stable(values)[:, :1]]),
    "a row less": lambda values: stable(values)[:-1],
    "one row": lambda values: stable(values)[0],
    "turned": lambda values: stable(values).T,
    "a list": lambda values: stable(values).tolist(),
    "a ragged list": lambda values: [[True], [True, False]],
    "masked": lambda values: np.ma.masked_invalid(values) == 1.0,
    "nothing": lambda values: None,
    "an error": lambda values: dict[str, int]()["labelled"],
    "an exit": lambda values: sys.exit(3),
    "no Exception": lambda values: leave(),
    "a written table": lambda values: values.fill(0.0),
}


@pytest.mark.parametrize("decide", UNLIKE_LIVE, ids=lambda decide: decide.__name__)
def test_a_policy_that_reads_what_no_live_loop_knows_is_refused(decide: Any) -> None:
    with pytest.raises(UsageError, match="live loop") as refused:
        replay([Mine(decide)])
    assert "mine" in str(refused.value)
    with pytest.raises(DataError, match="live loop"):
        check_policy(Mine(decide), RECORDS)


@pytest.mark.parametrize("wrong", NO_MASKS.values(), ids=NO_MASKS)
def test_what_is_no_mask_of_the_table_is_refused_in_replay_and_live(wrong: Any) -> None:
    with pytest.raises(UsageError, match="mine policy"):
        replay([Mine(wrong)])
    controller = suffice.Controller(Mine(wrong))
    if wrong not in (NO_MASKS["a row less"], NO_MASKS["turned"]):  # of one cell these are masks
        with pytest.raises(DataError, match="mine policy"):
            controller.observe(Round(answer="a"))


@pytest.mark.parametrize("wrong", [*NO_MASKS.values(), *UNLIKE_LIVE, written])
def test_monitor_refuses_it_too(wrong: Any) -> None:
    with pytest.raises(DataError, match="mine"):
        Production(Mine(wrong)).read([(TRACES, TRACES.question_ids)])
    Production(Mine(stable)).read([(TRACES, TRACES.question_ids)])


def test_its_confidence_may_not_look_ahead() -> None:
    class Sure(Mine):
        def confidence(self, table: PolicyTable) -> NDArray[np.float64]:
            return np.repeat(table.signal("answer_stable")[:, -1:], table.n_rounds, axis=1)

    with pytest.raises(UsageError, match="confidence after round"):
        replay([Sure(stable)])


def test_one_that_keeps_its_contract_is_replayed() -> None:
    compared = replay([Mine(stable), "fixed-5"])
    assert compared.policies[0].kind == "mine"
    check_policy(Mine(stable), RECORDS)


def test_choose_refuses_it_where_it_was_named() -> None:
    traces = to_trace_set(random_records(40, seed=3))
    with pytest.raises(UsageError, match="live loop"):
        suffice.choose(traces, policies=[Mine(ever)], family="fixed", resamples=10)


def test_all_questions_are_read_up_to_2000() -> None:
    """One question in 2,000 shows it, by its only stable answer."""
    answers = [["a", "b", "c"]] * 1_999 + [["a", "b", "b"]]
    traces = to_trace_set(
        [make_record(f"q{n:04d}", given, gold=["b"]) for n, given in enumerate(answers)]
    )
    with pytest.raises(UsageError, match="'q1999'"):
        suffice.replay(traces, [Mine(ever)])


def test_those_of_the_package_pay_for_no_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_loops", lambda *_: pytest.fail("checked"))
    replay(["fixed-2", *policies()], rules=["answer_stable"], strict=False)
    codes = filter(None, map(plugins.code_of, SIGNALS.values()))
    assert not any(map(plugins.is_foreign, codes))


# --- signals -------------------------------------------------------------------------------------
@pytest.fixture
def _forgotten() -> Iterator[None]:
    yield
    known_signals._OWN.clear()


def rounds_of_the_record(rounds: RoundColumns) -> NDArray[np.float64]:
    return rounds.traces.last_rounds[rounds.question].astype(np.float64)


def number_of_the_question(rounds: RoundColumns) -> NDArray[np.float64]:
    return rounds.question.astype(np.float64)


def too_short(rounds: RoundColumns) -> NDArray[np.float64]:
    return np.zeros(rounds.n_rows + 1)


def of_texts(rounds: RoundColumns) -> Any:
    return ["much"] * rounds.n_rows


@pytest.mark.parametrize(
    "columns",
    [rounds_of_the_record, number_of_the_question, too_short, of_texts],
    ids=lambda columns: columns.__name__,
)
def test_a_signal_over_columns_that_no_live_loop_knows_is_refused(columns: Any) -> None:
    class Reading(Mine):
        signals: ClassVar = (columns.__name__,)
        specs: ClassVar = (SignalSpec(summary="", columns=columns),)

        def fires(self, table: PolicyTable) -> Any:
            return table.signal(columns.__name__) > 3

    with pytest.raises(suffice.SufficeError, match=columns.__name__):
        replay([Reading(stable)])


@pytest.mark.usefixtures("_forgotten")
def test_a_function_that_remembers_or_draws_is_refused() -> None:
    seen: list[str] = []

    @suffice.signal(answers=False)
    def questions_so_far(question: str, rounds: Sequence[Round]) -> float:
        seen.append(question)
        return len({*seen})

    @suffice.signal(answers=False)
    def drawn(question: str, rounds: Sequence[Round]) -> float:
        return random.random()

    @suffice.signal(answers=False)
    def length(question: str, rounds: Sequence[Round]) -> float:
        return len(rounds)

    for name in ("questions_so_far", "drawn"):
        for rule in (f"{name} > 0.5", f"mean_of({name}, 2) > 0.5"):
            seen.clear()
            with pytest.raises(suffice.SufficeError, match=name):
                replay(rules=[rule])
    replay(rules=["length > 2", "mean_of(length, 2) > 2"])


# --- packages ------------------------------------------------------------------------------------
@pytest.fixture
def traces(tmp_path: Path) -> str:
    return str(written_traces(tmp_path, random_records(40, seed=3)))


def broken(site: Path, old: str, new: str) -> None:
    """The toy method with a line changed."""
    install(site, "toy = toy_stopping:METHOD")
    module = site / "toy_stopping.py"
    text = module.read_text(encoding="utf-8")
    assert old in text
    module.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize(
    "line",
    ["raise RuntimeError('no driver')", "import sys; sys.exit(3)", "1 / 0", "import absent_x"],
)
def test_a_package_that_cannot_be_imported_disables_itself(
    site: Path, traces: str, line: str
) -> None:
    broken(site, "METHOD = Toy()", line)
    listed = run("policies")
    assert (listed.returncode, listed.stdout.count("toy")) == (0, 0)
    warned = [line for line in listed.stderr.splitlines() if "toy-stopping" in line]
    assert len(warned) == len(listed.stderr.splitlines()) == 1
    chosen = run("choose", traces, "--family", "fixed", "--bootstrap", "5", "--out", site / "out")
    assert chosen.returncode == 0
    named = run("fit", "toy", traces, "--out", site / "toy.json")
    assert (named.returncode, "toy-stopping" in named.stderr) == (2, True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('presets = ("corrected",)', "presets = ()"),
        ("return ToySettings", "return None"),
        ("return ToySettings", "raise KeyError('settings')"),
    ],
)
def test_a_method_that_breaks_its_contract_disables_itself(site: Path, old: str, new: str) -> None:
    broken(site, old, new)
    listed = run("policies")
    assert listed.returncode == 0
    assert len([line for line in listed.stderr.splitlines() if "toy-stopping" in line]) == 1


WRONG = [
    ("chosen = measures.only_split(split)", "chosen = measures.tune"),
    (
        'return table.signal("overlap") >= self.least',
        'return table.signal("overlap")[:, ::-1] >= 0',
    ),
    ('return table.signal("overlap") >= self.least', 'return table.signal("overlap") * 1.0'),
    ('return table.signal("overlap") >= self.least', "return table.nothing"),
    ("return LoopNeeds()", "return LoopNeeds(passages=True)"),
    ("return Facts(summary=", "return Facts(sumary="),
    ("def document(self)", "def documents(self)"),
    ("return ToyPolicy(least=least, preset=preset, fitted_on=fitted_on)", "return None"),
]


FITTING = ("chosen =", "return LoopNeeds()", "return ToyPolicy(", "def document")


@pytest.mark.parametrize(("old", "new"), WRONG, ids=[new for _, new in WRONG])
def test_a_failure_of_a_package_is_one_line_with_its_name(
    site: Path, traces: str, old: str, new: str
) -> None:
    broken(site, old, new)
    named = site / "named.json"
    content = {"suffice_policy": 1, "kind": "toy", "preset": "corrected", "least": 0.5}
    named.write_text(json.dumps(content), encoding="utf-8")
    quick = ("--family", "fixed", "--max-loss", "0.1", "--bootstrap", "5", "--out", site / "out")
    for done in (
        run("fit", "toy", traces, "--out", site / "toy.json"),
        run("replay", traces, "--policy", "toy", "--bootstrap", "5"),
        run("choose", traces, "--policy", "toy", *quick),
        *([run("monitor", traces, "--policy", named)] if not old.startswith(FITTING) else []),
    ):
        assert done.returncode == 2, done
        assert "toy-stopping" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_file_that_its_package_cannot_read_is_named(site: Path, traces: str) -> None:
    broken(site, 'least=fields.number("least")', 'least=document["most"]')
    assert run("fit", "toy", traces, "--out", site / "toy.json").returncode == 0
    done = run("replay", traces, "--policy", site / "toy.json", "--policy", "fixed-2")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert all(part in done.stderr for part in ("toy.json", "toy-stopping", "KeyError"))


def test_a_watched_loop_goes_on_without_it(tmp_path: Path) -> None:
    watch = suffice.Watch(Mine(NO_MASKS["an error"]), mode="live", max_rounds=2)
    with watch.question("?") as loop:
        with pytest.warns(suffice.SufficeWarning, match="mine policy"):
            loop.observe(answer="a")
        loop.observe(answer="a")
    assert (loop.stopped_by, watch.counts.failed_decisions) == ("budget", 2)
