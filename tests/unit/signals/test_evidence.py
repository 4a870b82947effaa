"""Whether the answer's words stand in what was read, and answers that say nothing."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from suffice.errors import DataError, UsageError
from suffice.signals.abstained import ABSTAINED, ABSTENTION_PHRASES, abstained_signal, read_phrases
from suffice.signals.evidence import ANSWER_IN_EVIDENCE, ANSWER_IN_EVIDENCE_PUBLISHED
from suffice.signals.known_signals import SignalSpec
from suffice.trace.rounds.records import LoopView, Passage, Round


def value(
    answer: str, *rounds: tuple[str | None, ...] | None, of: SignalSpec = ANSWER_IN_EVIDENCE
) -> float:
    records = [
        Round(
            answer="",
            passages=None
            if texts is None
            else tuple(Passage(id=f"{number}-{i}", text=text) for i, text in enumerate(texts)),
        )
        for number, texts in enumerate(rounds)
    ]
    records[-1] = Round(answer=answer, passages=records[-1].passages)
    return of(LoopView("q", tuple(records)))


@pytest.mark.parametrize(
    ("answer", "text", "expected"),
    [
        ("The Tempest", "He wrote a Tempest.", 1.0),  # articles and punctuation go on both sides
        ("know", "Nobody can know", 1.0),  # at the end
        ("now", "Nobody can know", 0.0),  # the published substring would find it
        ("New York", "York is new", 0.0),  # order counts
        ("New York", "the new York Times", 1.0),
        ("1983", "founded in 1983.", 1.0),
        ("1983", "founded in 19834", 0.0),
        ("A.J. Burnett", "pitcher AJ Burnett", 1.0),
    ],
)
def test_whole_words_in_order(answer: str, text: str, expected: float) -> None:
    assert value(answer, (text,)) == expected


@pytest.mark.parametrize("answer", ["yes", "No.", "", "the", "?"])
def test_undefined_for_yes_no_and_empty_answers(answer: str) -> None:
    assert math.isnan(value(answer, ("yes no the know",)))


def published(answer: str, *rounds: tuple[str | None, ...] | None) -> float:
    return value(answer, *rounds, of=ANSWER_IN_EVIDENCE_PUBLISHED)


@pytest.mark.parametrize(
    ("answer", "text", "expected"),
    [
        ("no", "Nobody can know", 1.0),  # no word ends
        ("yes", "Nobody can know", 0.0),
        ("", "Nobody can know", 0.0),
        ("the", "the end", 0.0),  # an article alone is nothing
        ("A-ha", "the band Aha", 1.0),  # "ha": articles go before punctuation, and "aha" has it
        ("1983", "founded in 19834", 1.0),
        ("New York", "York is new", 0.0),
    ],
)
def test_published_is_a_substring_in_its_own_normal_form(
    answer: str, text: str, expected: float
) -> None:
    assert published(answer, (text,)) == expected


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
        *("no", "No.", "yes", "0", "unknown soldier", "not", "nan", "A"),
        *("(a)", "Unknown Pleasures"),
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
