"""Options made from settings fields say what the fields say, and give the settings back."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest

from suffice.cli.settings_options import add_settings, given_options, read_settings
from suffice.costs.usage import CostModel
from suffice.errors import UsageError
from suffice.options import Option


def halves(text: str) -> tuple[float, ...]:
    if ":" not in text:
        raise ValueError(f"must be A:B, found {text!r}")
    return tuple(float(part) for part in text.split(":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    how: Annotated[Literal["slow", "fast"], Option(help="how it goes")] = "slow"
    gears: Annotated[
        int, Option(help="of a fast one", metavar="N", at_least=1, goes_with=("how", "fast"))
    ] = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    share: Annotated[float, Option(help="a share of 10%", metavar="S")] = 0.5
    limit: Annotated[int | None, Option(help="at most", at_least=0)] = None
    names: Annotated[tuple[str, ...], Option(help="several")] = ("a", "b")
    rules: Annotated[tuple[str, ...], Option(help="one by one", repeats=True)] = ()
    pair: Annotated[tuple[float, ...] | None, Option(help="two", parse=halves)] = None
    match: Annotated[float | None, Option(help="least F1", name="match-f1")] = None
    loud: Annotated[bool, Option(help="say more")] = False
    kept: Annotated[bool, Option(help="throw away")] = True
    inner: Inner = field(default_factory=Inner)
    cost_model: CostModel = field(default_factory=CostModel)
    split: str = "tune"


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_settings(parser, Settings)
    return parser.parse_args(words)


def test_nothing_given_is_the_default() -> None:
    assert read_settings(parsed(), Settings) == Settings()
    assert given_options(parsed(), Settings) == {}


def test_every_kind_of_field() -> None:
    arguments = parsed(
        *("--share", "0.25", "--limit", "0", "--names", "x,y", "--rules", "a > 1", "--rules", "b"),
        *("--pair", "1:2", "--match-f1", "0.5", "--loud", "--no-kept", "--how", "fast"),
        *("--gears", "3", "--energy", "prompt=1"),
    )
    found = read_settings(arguments, Settings, split="eval")
    assert found == Settings(
        share=0.25,
        limit=0,
        names=("x", "y"),
        rules=("a > 1", "b"),
        pair=(1.0, 2.0),
        match=0.5,
        loud=True,
        kept=False,
        inner=Inner(how="fast", gears=3),
        cost_model=found.cost_model,
        split="eval",
    )
    assert found.cost_model != CostModel()
    assert given_options(parsed("--match-f1", "0.5"), Settings) == {"match_f1": 0.5}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--share", "nan"], "'nan'"),
        (["--limit", "-1"], "found -1"),
        (["--how", "well"], "'slow'"),
        (["--pair", "3"], "must be A:B, found '3'"),
        (["--names", ""], "separated"),
    ],
)
def test_what_cannot_be_read_is_said(words: list[str], said: str) -> None:
    with pytest.raises(argparse.ArgumentError, match=said):
        parsed(*words)


def test_an_option_that_goes_with_another_is_refused_alone() -> None:
    with pytest.raises(UsageError, match="--gears"):
        read_settings(parsed("--gears", "3"), Settings)


def test_some_fields_can_be_left_to_the_caller() -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_settings(parser, Settings, without=("share", "cost_model"))
    add_settings(parser, Settings, only=("share", "limit"))  # what is there is not added again
    with pytest.raises(argparse.ArgumentError, match="must be a finite number"):
        parser.parse_known_args(["--share", "x"])
    arguments, unknown = parser.parse_known_args(["--energy", "prompt=1", "--limit", "3"])
    assert unknown == ["--energy", "prompt=1"]
    assert read_settings(arguments, Settings) == Settings(limit=3)


def test_a_type_nobody_can_read_is_the_programmers_mistake() -> None:
    @dataclass(frozen=True)
    class Odd:
        when: Annotated[complex, Option(help="?")] = 1j

    globals()["Odd"] = Odd
    with pytest.raises(TypeError, match="--when"):
        add_settings(argparse.ArgumentParser(), Odd)
