"""Whatever is read of a model, a user or a file is read in time that grows with its length."""

from __future__ import annotations

import difflib
import gc
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from time import process_time

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from studies.hidden_constraints.checker import plan_steps
from studies.hidden_constraints.judge import read_verdict
from tests.properties import examples

from suffice import scoring
from suffice.contracts import MAX_REPLY_LETTERS
from suffice.costs.prices import parse_prices
from suffice.datasets.files import parse_column_map
from suffice.errors import SufficeError
from suffice.loops.calls import parse_reply
from suffice.loops.follow_up import parse_verdict
from suffice.loops.planning.parsing import parse_candidate, parse_plan, parse_yes_no
from suffice.loops.prompts import render_prompt
from suffice.loops.react import parse_action
from suffice.options import read_grid, read_names
from suffice.policies.policy_file import load_policy
from suffice.policies.rules.language import parse as parse_rule
from suffice.results.markup import element, visible
from suffice.results.table import Column, Table
from suffice.retrieval.corpus import read_corpus
from suffice.signals.abstained import ABSTENTION_PHRASES, abstaining, ready
from suffice.signals.answer_stability import MAX_COMPARED, matching_characters
from suffice.signals.asking.judge_support import parse_rating, render_judge_prompt
from suffice.signals.known_signals import SIGNALS
from suffice.signals.samples import MarkerDetector
from suffice.trace.rounds.records import LoopView, Passage, Round, Token, TopToken


def _view(text: str) -> LoopView:
    """Two rounds in which everything that a signal may read is that text, or nearly."""
    passages = (Passage(id="1", title=text, text=text, score=1.0), Passage(id="2", text=text[::-1]))
    top = (TopToken(text, -0.1), TopToken("B", -2.0))
    rounds = [
        Round(
            answer=answer,
            response=f"Answer:{text}",
            query=answer,
            tokens=tuple(Token(part, -0.1, top) for part in ("Answer", ":", text)),
            passages=passages[:number],
            samples=(text, text[1:], f"{text}x"),
            candidate_scores=(1.0, 0.5),
        )
        for number, answer in ((1, text), (2, f"{text[1:]}z"))
    ]
    return LoopView(text, tuple(rounds))


def _signals(text: str) -> None:
    view = _view(text)
    for spec in SIGNALS.values():
        if spec.asking is None:
            spec(view)


def _printed(text: str) -> None:
    columns = (Column(name="name"), Column(name=text))
    table = Table(name="told", title=text, columns=columns, rows=[(text, text)], notes=[text])
    for form in (table.csv, table.markdown, table.latex, table.text):
        form()


READERS: Mapping[str, Callable[[str], object]] = {
    "plan": parse_plan,
    "candidate": parse_candidate,
    "yes or no": parse_yes_no,
    "steps": plan_steps,
    "action": parse_action,
    "reply": parse_reply,
    "rating": parse_rating,
    "verdict": parse_verdict,
    "judge": read_verdict,
    "rule": parse_rule,
    "prices": parse_prices,
    "names": read_names,
    "grid": read_grid,
    "columns": lambda text: parse_column_map(text, ("id", "text")),
    "scores": lambda text: [score(text, [text[:-1]]) for score in (scoring.f1, scoring.accuracy)],
    "similarity": lambda text: matching_characters(text, f"{text[1:]}z"),
    "abstention": lambda text: abstaining(pa.array([text]), ready(ABSTENTION_PHRASES)),
    "abstention phrase": lambda text: ready((text,)),
    "conflict": lambda text: MarkerDetector().contradictions([(text, text[1:])]),
    "prompt": lambda text: render_prompt(text, _view(text).current.passages or (), api="chat"),
    "judge's prompt": lambda text: render_judge_prompt(_view(text), api="completion"),
    "visible": visible,
    "markup": lambda text: element("p", text, title=text),
    "table": _printed,
    "signals": _signals,
}
SECONDS = 0.5
COPIES = {"table": 20, "signals": 10, "prompt": 10, "judge's prompt": 10}
"""How often a reader reads or writes its text: it gets one as much shorter."""


def _seconds(reader: Callable[[str], object], text: str) -> float:
    gc.disable()
    start = process_time()
    with suppress(SufficeError, ValueError):
        reader(text)
    took = process_time() - start
    gc.enable()
    return took


def _least_seconds(name: str, text: str, *, over: float) -> float:
    """Of one reading; of three where the first took longer than ``over``."""
    reader = READERS[name]
    first = _seconds(reader, text)
    return first if first <= over else min(first, *(_seconds(reader, text) for _ in range(2)))


@pytest.mark.parametrize("name", READERS)
def test_the_worst_texts_are_read_soon(name: str) -> None:
    texts = hostile_texts(2_000, all_of_them=False)
    slow = {kind for kind, text in texts.items() if _seconds(READERS[name], text) > SECONDS}
    assert not slow


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_every_hostile_text_is_read_within_half_a_second(name: str) -> None:
    slow = {}
    for kind, text in hostile_texts(MAX_REPLY_LETTERS // COPIES.get(name, 1)).items():
        seconds = _least_seconds(name, text, over=SECONDS)
        if seconds > SECONDS:
            slow[kind] = round(seconds, 2)
    assert not slow


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_four_times_the_length_takes_four_times_the_time(name: str) -> None:
    copies = COPIES.get(name, 1)
    quarter, whole = (hostile_texts(length // copies) for length in (20_000, 80_000))
    grown = {}
    for kind, text in whole.items():
        seconds = _least_seconds(name, text, over=0.05)
        if seconds > 0.05:
            before = _least_seconds(name, quarter[kind], over=0)
            if seconds > 8 * before:
                grown[kind] = before, seconds
    assert not grown


@pytest.mark.parametrize("ending", [".md", ".txt", ".jsonl"])
def test_files_of_hostile_texts_are_read_soon(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"file{ending}"
    for kind, text in hostile_texts(20_000, all_of_them=False).items():
        file.write_text(f"# {text}", encoding="utf-8", errors="surrogatepass")
        assert _seconds(read_corpus, file) < SECONDS, kind  # type: ignore[arg-type]
        assert _seconds(load_policy, file) < SECONDS, kind  # type: ignore[arg-type]


@given(st.text("ab", min_size=1, max_size=40), st.text("abc", max_size=40))
def test_similarity_is_that_of_difflib(one: str, other: str) -> None:
    for times in (1, 3):
        texts = one * times, f"{other}{one[:5]}" * times
        ratio = difflib.SequenceMatcher(None, *texts, autojunk=False).ratio()
        assert matching_characters(*texts) == ratio


def test_similarity_reads_a_stated_part_of_an_answer() -> None:
    same = "ab" * (MAX_COMPARED // 2)
    assert matching_characters(f"{same}x", f"{same}y") == 1.0


PIECES = st.sampled_from(
    [*'{}[]()"\'`,:;\\/#*+-=&|<>“”’\n\t 1a', '"plan"', '"constraints"', "decisions", "WILL", "1) ", "2) ",
     "//", "/*", "*/", "```", '"""', "true", "None", "&quot;", "\\u12", "\\ud800", "</think>", "Step 1:",
     "{'a': ["]
)  # fmt: skip
REPLIES = st.one_of(
    st.text(max_size=300),
    st.text(alphabet=st.characters(), max_size=50),
    st.lists(PIECES, max_size=80).map("".join),
)
WORDS = st.text(alphabet="abc _-.é\"'\\\n", max_size=30).map(lambda text: f"w{text}w")


@settings(max_examples=examples(400), deadline=None)
@given(REPLIES)
def test_any_reply_is_read_or_is_a_failure(text: str) -> None:
    found = parse_plan(text)
    assert (found.parsed is None) == (found.failure is not None) == (not found.plan)
    json.dumps(
        [found.plan, found.constraints, [each.reason for each in found.decisions]],
        ensure_ascii=False,
    ).encode()
    step = parse_candidate(text)
    assert step == " ".join(step.split())
    assert len(step) <= 400
    assert parse_yes_no(text) in (True, False, None)
    assert all(each == " ".join(each.split()) != "" for each in plan_steps(text))


@given(
    st.lists(WORDS, max_size=3, unique=True),
    st.lists(st.tuples(WORDS, st.booleans(), WORDS), max_size=3),
    WORDS,
    st.sampled_from([None, 2]),
)
def test_right_json_is_read_as_json_and_in_a_fence_to_the_same(
    constraints: list[str], decisions: list[tuple[str, bool, str]], plan: str, indent: int | None
) -> None:
    said = {
        "constraints": constraints,
        "decisions": [
            {"constraint": name, "decision": "WILL_ENFORCE" if will else "CANNOT_ENFORCE", "reason": why}
            for name, will, why in decisions
        ],
        "plan": plan,
    }  # fmt: skip
    text = json.dumps(said, indent=indent)
    found, fenced = parse_plan(text), parse_plan(f"Here:\n```json\n{text}\n```\n")
    assert (found.parsed, fenced.parsed) == ("json", "repaired")
    assert found.plan == fenced.plan == plan
    assert found.constraints == fenced.constraints
    assert found.decisions == fenced.decisions
    assert [each.enforced for each in found.decisions] == [will for _, will, _ in decisions]


_PIECES = (
    *".,;:=-><#*_`|'\"\\/()[]{}0a",
    *(" ", "\n", "\r", "\t", "\r\n", " \n", "\x00"),
    *("\u2028", "\ud800", "İ", "Σ", "a\u0301", "\u202e", "😀"),
    *("1. ", "1) ", "1.1", "2) 1) ", "e9", "-1 ", "x.x", "a, ", "a: ", "(a) ", "the ", "n't ", "not ", "- "),
    *("{'a': 'b\\", "{'a':", '{"plan":"', '["a", ', '":', '",', '" ', '"\n', "'a' + ", '"""'),
    *("{}", "((", "\\u12"),
    *("//", "/*", "*/", "&quot;", "```", "~~~\n", "# ", "\n- ", "\n\n", "https://"),
    *("Action", "Action:", "Action\n", "action 1 ", "next action ", "Thought: ", "\nobservation", "Search["),
    *("Search ", "Finish ", "Answer:", "\nanswer", "Confidence:", "Rating: ", "<STOP>", "Decision:", "yes/"),
    *("step 1: ", "the proposed ", "will enforce ", "and ", "not (", "calibrated(", "1 < "),
    *("</think>", "\x1b[31m", "a b "),
)  # fmt: skip
_FRAMES = (
    ("Action:", "x"),
    ("Action: Search\nAction Input:", "!"),
    ("{'plan': '", "'}"),
    ("```json\n", "]"),
    ("Answer:", "Action: Search[a]"),
    ("Rating: 1", "!"),
)
_WORST = ("{'a': 'b\\", ".", "\n", " ", "1. ", "İ")


def hostile_texts(length: int, *, all_of_them: bool = True) -> Mapping[str, str]:
    """Texts of about that many letters, by what they repeat: each alone and in a frame."""
    pieces = _PIECES if all_of_them else _WORST
    texts = {repr(piece): (piece * (length // len(piece) + 1))[:length] for piece in pieces}
    framed = {
        f"{head!r} {name} {tail!r}": f"{head}{text}{tail}"
        for (name, text), (head, tail) in zip(texts.items(), cycle(_FRAMES), strict=False)
    }
    return {**texts, **framed}
