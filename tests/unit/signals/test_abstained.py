"""Answers that say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffice.errors import DataError, UsageError
from suffice.signals.abstained import ABSTAINED, ABSTENTION_PHRASES, abstained_signal, read_phrases
from suffice.trace.rounds.records import LoopView, Round


def view(answer: str) -> LoopView:
    return LoopView("q", (Round(answer=answer),))


@pytest.mark.parametrize(
    "answer",
    [
        *("", "  ", "the", "...", "Unknown", "Not mentioned.", "N/A", "None", "NOT  provided"),
        *("No answer found.", "I could not find that in the documents.", "I don't know."),
        *("Unknown (the country is not given)", "Unknown. No page tells.", "No, it is unknown."),
        *("There is no information about the mill.", "Its owner is not mentioned in the text"),
        *(
            "The documents don't say.",
            "I'm sorry, but I cannot tell.",
            "not in the given text. However",
        ),
    ],
)
def test_abstentions(answer: str) -> None:
    assert ABSTAINED(view(answer)) == 1.0


@pytest.mark.parametrize(
    "answer",
    [
        *(
            "no",
            "No.",
            "yes",
            "0",
            "unknown soldier",
            "not",
            "nan",
            "A",
            "(a)",
            "Unknown Pleasures",
        ),
        *("I Don't Know How She Does It", "None of the above", "no one", "Not in Nottingham"),
        "Oslo. (Note: the year is not mentioned in the text.)",
    ],
)
def test_answers(answer: str) -> None:
    assert ABSTAINED(view(answer)) == 0.0


def test_the_list_can_be_another() -> None:
    own = abstained_signal(["I do not know!"])
    assert own.name == "abstained"
    assert [own(view(each)) for each in ("I do not know", "none", "")] == [1.0, 0.0, 1.0]
    without_none = abstained_signal(phrase for phrase in ABSTENTION_PHRASES if phrase != "none")
    assert without_none(view("None")) == 0.0
    assert without_none(view("N/A")) == 1.0


@pytest.mark.parametrize("phrase", ["no", "No.", "the no"])
def test_no_is_refused(phrase: str) -> None:
    with pytest.raises(UsageError, match='"no"'):
        abstained_signal([phrase])
    with pytest.raises(UsageError, match='"no"'):
        abstained_signal(["unknown", phrase])


def test_the_usual_list_is_normalised_and_without_no() -> None:
    assert "no" not in ABSTENTION_PHRASES
    assert all(ABSTAINED(view(phrase.strip("."))) == 1.0 for phrase in ABSTENTION_PHRASES)
    assert abstained_signal(ABSTENTION_PHRASES)(view(ABSTENTION_PHRASES[0])) == 1.0


def test_a_phrase_may_stand_for_how_an_answer_begins_or_ends() -> None:
    own = abstained_signal(["no page on ...", "... left open", "nix"])
    answers = (
        "No page on mills",
        "no pages on mills",
        "That is left open.",
        "left open it is",
        "Nix!",
    )
    assert [own(view(answer)) for answer in answers] == [1.0, 0.0, 1.0, 0.0, 1.0]


def test_phrases_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "phrases.txt"
    file.write_text("# ours\n\n nix \nno page on ...\n", encoding="utf-8")
    assert read_phrases(file) == ("nix", "no page on ...")
    for text, said in (("# none\n", "holds no phrase"), ("...\n", "holds no word")):
        file.write_text(text, encoding="utf-8")
        with pytest.raises((DataError, UsageError), match=said):
            read_phrases(file)
    with pytest.raises(DataError, match="cannot be read"):
        read_phrases(tmp_path / "missing.txt")
