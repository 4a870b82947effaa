"""What "the same answer" is: a form that neither case, composition nor the script of a mark changes."""

from __future__ import annotations

import string
import unicodedata
from decimal import Decimal, InvalidOperation
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.commands import run_json
from tests.properties import examples

import suffice
from suffice.scoring import answer_form
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.writer import write_traces

_ASCII = (
    *("a", "an", "the", "A", "e", "E", "x", "c", "0", "00", "000", "5", "12", "345", "1e", "1,"),
    *(
        "-",
        "-",
        "- ",
        ".",
        ",",
        "'",
        "+",
        "#",
        "$",
        "<",
        ">",
        "/",
        "^",
        "%",
        "(",
        ")",
        "_",
        "*",
        "!",
    ),
    *(" ", " ", "\t", "\n"),
)
_BEYOND = (
    *("é", "e\u0301", "ß", "İ", "ς", "ﬁ", "क", "ि", "東", "٣", "३", "５", "²", "½", "₂", "①", "€"),
    *("\u2212", "–", "—", "’", "´", "。", "，", "、", "٫", "،", "«", "¿"),
    *("\u00a0", "\u202f", "\u3000", "\u200b", "\ufeff", "\ufe0f", "\u00ad"),
)
plain = st.lists(st.sampled_from(_ASCII), max_size=9).map("".join)
texts = st.lists(st.sampled_from(_ASCII + _BEYOND), max_size=9).map("".join) | st.text(max_size=8)


def _other_number(char: str) -> bool:
    """Whether NFKC makes a digit, a sign or a blank of it: 10² turns into 102."""
    made = unicodedata.normalize("NFKC", char)
    return made != char and made[0] in " 0123456789+\u2212()="


@given(text=texts)
@settings(max_examples=examples(2000), deadline=None)
def test_neither_case_nor_composition_counts(text: str) -> None:
    form = answer_form(text)
    assert answer_form(form) == form
    assert answer_form(text.casefold()) == answer_form(text.lower()) == form
    compatible = ("NFKC", "NFKD") if not any(map(_other_number, text)) else ()
    for how in ("NFC", "NFD", *compatible):
        assert answer_form(unicodedata.normalize(how, text)) == form


_SCRIPTS = {
    "-": "\u2212–‐－",
    "'": "’ʼ′",
    ",": "，",
    ".": "．",
    "/": "⁄∕",
    "+": "＋",
    "#": "＃",
    "$": "＄",
    "(": "（",
    **{
        digit: "".join(chr(zero + int(digit)) for zero in (0x660, 0x966, 0xFF10))
        for digit in string.digits
    },
}


@given(text=plain, data=st.data())
@settings(max_examples=examples(500), deadline=None)
def test_marks_and_digits_of_another_script_are_those_of_ascii(
    text: str, data: st.DataObject
) -> None:
    """Also with characters that have no width between any two others."""
    dressed = [
        data.draw(st.sampled_from(["", "", "\u200b", "\u00ad"]))
        + data.draw(st.sampled_from(char + _SCRIPTS.get(char, "")))
        for char in text
    ]
    assert answer_form("".join(dressed)) == answer_form(text)


# --- a slow twin for ASCII, mark by mark ----------------------------------------------------------
def _slow_number(text: str) -> str | None:
    """A text that is one number, in plain decimals."""
    body = text.removeprefix("-")
    if body.endswith(".") or any(char not in string.digits + "." for char in body):
        return None
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    shortest = format(value, "f")
    shortest = shortest.rstrip("0").rstrip(".") if "." in shortest else shortest
    return shortest if value else "0"


def _without_commas(text: str) -> str:
    """Part members in brackets by blanks, and leave out the commas of 1,000, not those of 1,000,5."""
    opening = min((at for at, char in enumerate(text) if char in "([{"), default=len(text))
    closing = max((at for at, char in enumerate(text) if char in ")]}"), default=-1)
    text = "".join(
        " "
        if char == "," and opening < at < closing and text[at - 1] in ")]}" + string.digits
        else char
        for at, char in enumerate(text)
    )
    found, at = "", 0
    while at < len(text):
        behind = found[-1:].isdigit() or (found[-1:] in [*".,'"] and found[-2:-1].isdigit())
        end = at
        while end < len(text) and (text[end].isdigit() or text[end] == ","):
            end += 1
        run = text[at:end].rstrip(",")
        end = at + len(run)
        first, *others = run.split(",")
        part = text[end + 1 :] if text[end : end + 1] == "." else ""
        after = part.lstrip(string.digits) if part[:1].isdigit() else text[end:]
        more = after[:1] in [*".,'"] and after[1:2].isdigit()
        more = more and (after[0] != "." or part[:1].isdigit())
        grouped = 0 < len(first) < 4 and first[0] != "0" and not behind and not more
        if others and grouped and all(len(group) == 3 for group in others):
            found, at = found + "".join((first, *others)), end
        else:
            found, at = found + text[at], at + 1
    return found


def slow_form(text: str) -> str:
    text = _without_commas(text.lower().strip())
    for sign in "<>":
        at = 0
        while (at := text.find(sign, at) + 1) > 0:
            rest = text[at:].lstrip()
            if rest != text[at:] and rest.lstrip("$.")[:1].isdigit():
                text = text[:at] + rest
    rest = text[1:].lstrip()
    if text.startswith("-") and rest != text[1:] and rest.lstrip("$.")[:1].isdigit():
        text = f"-{rest}"
    kept, at = "", 0
    while at < len(text):
        end = at
        while end < len(text) and text[end] in string.punctuation:
            end += 1
        if end == at:
            kept, at = kept + text[at], at + 1
            continue
        kept += _slow_run(text[:at], text[at:end], text[end:])
        at = end
    words = kept.split()
    form = " ".join(word for word in words if word not in ("a", "an", "the"))
    if words == ["a"]:
        return "a"
    number = _slow_number(form)
    return form if number is None else number


def _slow_run(before: str, run: str, after: str) -> str:
    last, following = before[-1:], after[:1]
    if last.isdigit() and following.isdigit():
        return run
    word = last.isalnum()
    if run == "-" and word:
        exponent = last == "e" and before[-2:-1].isdigit() and following.isdigit()
        hanging = last.isalpha() and (not following or following.isspace())
        return "-" if exponent or hanging else ""
    behind = ""
    while word and run[len(behind) : len(behind) + 1] in ("+", "#"):
        behind += run[len(behind)]
    if not following.isdigit():
        return behind
    signs = [c for n, c in enumerate(run) if c in "<>" or (c == "-" and not (word and n == 0))]
    point = run.endswith(".") and not run.endswith("..") and (not word or len(run) > 1)
    sign = "".join(signs) + "." * point
    return behind + (" " if word and sign else "") + sign


@given(text=plain)
@settings(max_examples=examples(3000), deadline=None)
def test_the_quick_way_for_ascii_gives_the_form_of_a_slow_one(text: str) -> None:
    assert answer_form(text) == slow_form(text)


# --- what answers are the same --------------------------------------------------------------------
NFD = unicodedata.normalize("NFD", "Bogotá")
SAME = [
    *(("Bogotá", NFD), ("O’Neill", "O'Neill"), ("O´Neill", "O'Neill"), ("东京。", "东京")),
    *(("Lina\u200b Perez", "Lina Perez"), ("می\u200cخواهم", "میخواهم"), ("1914–1918", "1914-1918")),
    *(("Straße", "STRASSE"), ("ΣΊΣΥΦΟΣ", "σίσυφος"), ("３．５", "3.5"), ("٣٫٥", "3.5"), ("❤️", "❤")),
    *(
        ("−5", "-5"),
        ("- 5", "-5"),
        ("-$5", "-5"),
        ("-0", "0"),
        ("+5", "5"),
        ("(5)", "5"),
        ("5.", "5"),
    ),
    *(
        ("3.50", "3.5"),
        ("$3.50", "3.50"),
        ("1,000", "1000"),
        ("12,345,678.90", "12345678.9"),
        ("1’000", "1'000"),
        ("١٬٠٠٠", "1000"),
    ),
    *(("(3, 4)", "(3,4)"), ("(3,\n4)", "(3,4)"), ("[(1,-2),(3,4)]", "[(1, -2), (3, 4)]")),
    *(("007", "7"), (".5", "0.50"), ("$5", "5"), ("5 %", "5"), ("the 7", "7")),
    *(
        ("½", "1/2"),
        ("3½", "3 1/2"),
        ("10²", "10^2"),
        ("1,000 people", "1000 people"),
        ("(A)", "a"),
    ),
]
APART = [
    *(("1,5", "1.5"), ("1,5", "15"), ("1,10", "1,1"), ("1,50", "1,5"), ("1,000", "1.000")),
    *(("[0,10]", "[0,1]"), ("(2,30)", "(2,3)"), ("(1,100)", "(1100)"), ("[0,10]", "[010]")),
    *(("1.000.000", "1000000"), ("1'000", "1000"), ("1\u202f000", "1000"), ("1.000,5", "1000.5")),
    *(("1,00,000", "100000"), ("1,000,5", "10005"), ("1,000,5", "1000.5"), ("3,50", "3,5")),
    *(("-5", "5"), ("- 5", "5"), ("—5", "5"), ("x=-5", "x=5"), ("-$5", "$5"), ("$-5", "$5")),
    *(
        ("18.0", "180"),
        ("3.5", "35"),
        ("٣٫٥", "٣٥"),
        (".5", "5"),
        ("$.50", "$50"),
        ("US$.50", "US$50"),
    ),
    *(
        ("1e-3", "1e3"),
        ("1e3", "1000"),
        ("1/2", "12"),
        ("12:30", "1230"),
        ("1914-1918", "19141918"),
        ("2-0", "20"),
    ),
    *(("10²", "102"), ("10^2", "102"), ("3½", "31/2"), ("1,2,3", "123"), ("1.0.1", "101")),
    *(("<5", ">5"), ("< 5", "> 5"), ("GPT-3.5", "GPT-35"), ("Python 3.10", "Python 3.1")),
    *(
        ("C++", "C#"),
        ("C++", "C"),
        ("C#", "C"),
        ("A+", "A"),
        ("A-", "A"),
        ("O+", "O-"),
        ("$5", "€5"),
    ),
    *(("की", "कि"), ("だ", "た"), ("كتاب", "كتب"), ("é", "e"), ("ñ", "n"), ("A", "B")),
]


@pytest.mark.parametrize("kind", ["live", "replayed"])
def test_the_same_answers_repeat_and_others_do_not(kind: str, tmp_path: Path) -> None:
    """Live as in replay; without a repetition the loop runs to its end."""
    stops = [2] * len(SAME) + [3] * len(APART)
    rounds = [(*pair, "something else") for pair in (*SAME, *APART)]
    if kind == "replayed":
        records = [make_record(f"q{n:03}", answers) for n, answers in enumerate(rounds)]
        write_traces(to_trace_set(records), tmp_path / "t.parquet")
        path = ("replay", tmp_path / "t.parquet", "--stop-when", "answer_repeats", "--per-question")
        (policy,) = [one for one in run_json(*path)["policies"] if one["name"] == "answer_repeats"]
        assert [policy["rounds"][f"q{n:03}"] for n in range(len(stops))] == stops
        return
    watch = suffice.Watch("answer_repeats", mode="live", max_rounds=3)
    found = []
    for number, answers in enumerate(rounds):
        with watch.question(f"q{number}") as loop:
            for answer in answers:
                loop.observe(passages=[answer], answer=answer)
                if loop.stopped_by:
                    break
        found.append(len(loop.rounds))
    assert found == stops
