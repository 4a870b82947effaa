"""Options made from settings fields say what the fields say, and give the settings back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest

from suffice.cli import parser
from suffice.cli.parser import Given, annotated_option, command, field_options, make_app
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
    gears: Annotated[int, Option(help="of a fast one", metavar="N", at_least=1)] = 5


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
    half: Annotated[float | None, Option(help="?", bare=0.5)] = None
    inner: Inner = field(default_factory=Inner)
    cost_model: CostModel = field(default_factory=CostModel)
    split: str = "tune"


def parsed(*words: str) -> Given:
    taken: list[Given] = []

    @command(*field_options(Settings))
    def run(given: Given) -> int:
        taken.append(given)
        return 0

    app = make_app("suffice", "")
    app.default(run)
    parser.run(app, words)
    return taken[0]


def test_nothing_given_is_the_default() -> None:
    given = parsed("--names", "a,b")
    assert given.settings(Settings) == Settings()
    assert given.of(Settings) == {"names": ("a", "b")}


def test_every_kind_of_field() -> None:
    given = parsed(
        *("--share", "0.25", "--limit", "0", "--names", "x,y", "--rules", "a > 1", "--rules", "b"),
        *("--pair", "1:2", "--match-f1", "0.5", "--loud", "--no-kept", "--how", "fast"),
        *("--gears", "3", "--charge", "published", "--half", "2"),
    )
    found = given.settings(Settings)
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
        half=2.0,
    )
    assert found.cost_model != CostModel()
    assert parsed("--match-f1", "0.5").of(Settings) == {"match_f1": 0.5}
    assert parsed("--half").settings(Settings).half == 0.5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--share", "nan"], "'nan'"),
        (["--limit", "-1"], "found -1"),
        (["--how", "well"], "'slow' or 'fast'"),
        (["--pair", "3"], "must be A:B, found '3'"),
        (["--names", ""], "separated"),
        (["--shar", "1"], "Did you mean --share"),
        (["--share"], "--share requires"),
        (["one"], "one"),
    ],
)
def test_what_cannot_be_read_is_said(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parsed(*words)


def test_a_type_nobody_can_read_is_the_programmers_mistake() -> None:
    option = annotated_option("when", Annotated[complex, Option(help="?")], 1j)
    with pytest.raises(TypeError, match="--when"):
        option.read("1")  # type: ignore[union-attr]
