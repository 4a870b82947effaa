"""Signals of the evidence: whether it holds the answer, and how much of a round is repeated."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.contracts import Absence
from suffice.scoring import normalize_answer
from suffice.signals.answer_stability import as_published, no_new_passage, published_forms
from suffice.signals.columns.answer_columns import EUROPEAN, answer_forms, instead, normal_forms
from suffice.signals.columns.arrays import NONE, Texts
from suffice.signals.columns.rounds import (
    RoundColumns,
    by_appearance,
    codes_of_ids,
    listings,
    unrecorded_so_far,
)
from suffice.signals.known_signals import share, unrecorded
from suffice.stats.units import Array, Mask
from suffice.trace.rounds.records import Passage, Round, passage_text, passage_tokens, tokenize

Integers = NDArray[np.int64]

_MAX_CHARACTERS = 4_000
# by which chat templates end and begin turns
_TEMPLATE_MARK = re.compile(
    "<(?=[|｜]|/?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|think|tool_call|tool_response)>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT)\])"
)
# controls, overrides of writing direction, and the copies of ASCII that show nothing
_UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)


def one_line(text: str) -> str:
    """Put a foreign text on one line, so that it cannot imitate a prompt's own lines.

    It squeezes white space, cuts after 4,000 letters and removes invisible letters. It breaks the marks of
    chat templates by a blank. Servers read them anywhere in a prompt and would end the turn.
    """
    line = " ".join(text[:_MAX_CHARACTERS].split())
    if not line.isprintable():
        line = " ".join(_UNSEEN.sub("", line).split())
    return _apart(line)


def _apart(line: str) -> str:
    if "<" not in line and "[" not in line:
        return line
    return _TEMPLATE_MARK.sub(lambda match: f"{match[0]} ", line)


def passage_line(title: str, text: str) -> str:
    """Return ``[title] text``, both through :func:`one_line`."""
    return _apart(f"[{one_line(title)}] {one_line(text)}")


def evidence_text(passages: Iterable[Passage]) -> str:
    """Write the evidence for prompts, one passage per line; more passages only lengthen it."""
    lines = [passage_line(passage.title, passage.text or "") for passage in passages]
    return "\n".join(["Evidence:", *(lines or ["(no passage)"])])


def seen_passages(rounds: Iterable[Round]) -> dict[str, Passage] | None:
    """Return the passages of the rounds by id, first occurrence first; ``None`` if a round recorded none."""
    seen: dict[str, Passage] = {}
    for round_ in rounds:
        if round_.passages is None:
            return None
        for passage in round_.passages:
            seen.setdefault(passage.id, passage)
    return seen


PASSAGES_UNKNOWN = Absence(
    "a round's passages were not recorded",
    lambda view: seen_passages(view.rounds) is None,
    input="passages=...",
)
TEXT_UNKNOWN = Absence(
    "a passage was recorded without its text",
    lambda view: seen_texts(view.rounds) is None,
    input="passages=[suffice.Passage(id=..., text=...)]",
)
NO_ANSWER = Absence("the answer is empty", lambda view: not view.current.answer_text.strip())


def seen_texts(rounds: Iterable[Round]) -> list[str] | None:
    """Return title and text of the passages seen, in order; ``None`` if a text is unknown."""
    seen = seen_passages(rounds)
    if seen is None or not all(passage.text for passage in seen.values()):
        return None
    return [passage_text(passage) for passage in seen.values()]


# The passages of a question stand in one string, in which each of its different answers is looked for once,
# so that the place tells from which round on it is found.
NOT_EXTRACTIVE = frozenset({"", "yes", "no"})  # normalized answers that are not looked for


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """Hold the texts of all listed passages in order, (n_listings,), with their rows."""

    rows: Integers
    texts: Texts
    unknown: Mask
    """Rows up to which a passage was recorded without its text or a round without its passages, (n_rows,)."""


def _read(rounds: RoundColumns) -> _Read:
    lists = rounds.lists("passages")
    texts = lists.texts("text")
    untold = np.zeros(rounds.n_rows, bool)
    untold[lists.rows[texts.codes == NONE]] = True
    told = texts.codes != NONE
    unknown = unrecorded_so_far(rounds) | rounds.so_far(untold)
    return _Read(lists.rows[told], texts.take(told), unknown)


def answer_in_evidence(rounds: RoundColumns) -> Array:
    """Return 1.0 where a passage of rounds 1..t contains the answer's words in order, else 0.0.

    Paper 0; corrected. NaN for the answers yes, no and empty, and if it is not found but a text is unknown.
    """
    answers = rounds.texts("answer").mapped(normal_forms)
    extractive = pc.invert(pc.is_in(answers.distinct, pa.array(sorted(NOT_EXTRACTIVE))))
    wanted = answers.through(extractive.to_numpy(zero_copy_only=False), False)
    between_blanks = answers.mapped(lambda forms: _around(forms, " ", " "))
    # no form holds the end of a line, so no match runs from one passage into the next
    passages = rounds.once(_read).texts.mapped(
        lambda texts: _around(normal_forms(texts), " ", " \n")
    )
    return np.where(wanted, _found(rounds, between_blanks, wanted, passages), np.nan)


def answer_in_evidence_published(rounds: RoundColumns) -> Array:
    """Return answer in evidence as the published code computes it, 0.0 or 1.0 (paper 0; published)."""
    answers = rounds.once(published_forms)
    wanted = (answers.codes != NONE) & (answers.codes != answers.code_of(""))
    said = rounds.once(_read).texts.mapped(as_published)
    passages = said.mapped(
        lambda forms: pc.if_else(pc.equal(forms, ""), "", _around(forms, "", " "))
    )
    return _found(rounds, answers, wanted, passages)


def _around(texts: pa.Array, before: str, behind: str) -> pa.Array:
    return pc.binary_join_element_wise(before, texts, behind, "")


def _found(rounds: RoundColumns, answers: Texts, wanted: Mask, passages: Texts) -> Array:
    """Return 1 where the passages so far contain a wanted answer, else 0; NaN where texts are unknown."""
    read = rounds.once(_read)
    values = np.where(read.unknown, np.nan, 0.0)
    rows = np.flatnonzero(wanted[rounds.read_from :]) + rounds.read_from
    keys = rounds.question[rows] * (len(answers.distinct) + 1) + answers.codes[rows]
    pair, places = by_appearance(keys)
    first_rows = _first_rows(rounds, rows[places], answers, passages)
    values[rows[first_rows[pair] <= rows]] = 1.0
    return values


def _first_rows(rounds: RoundColumns, asked: Integers, answers: Texts, passages: Texts) -> Integers:
    """Return the row whose passages first contain each answer of the rows ``asked``, (n_asked,)."""
    read, spelt = rounds.once(_read), passages.distinct.to_pylist()
    of_question = np.searchsorted(
        rounds.question[read.rows], np.arange(rounds.traces.n_questions + 1)
    ).tolist()
    sought = answers.distinct.take(pa.array(answers.codes[asked])).to_pylist()
    first_rows = np.full(len(asked), rounds.n_rows)
    before, text, ends = -1, "", [0]
    for index, question in enumerate(rounds.question[asked].tolist()):
        first = of_question[question]
        if question != before:
            codes = passages.codes[first : of_question[question + 1]].tolist()
            parts = [spelt[code] for code in codes]
            before, text, ends = question, "".join(parts), [*accumulate(map(len, parts))]
        at = text.find(sought[index])
        if at >= 0:  # the passage in which the match ends
            first_rows[index] = read.rows[first + bisect_right(ends, at + len(sought[index]) - 1)]
    return first_rows


_SEPARATORS = r"[^\pL\pN_ ]+"
_AT_ONCE = 4_000  # passages, and those of the last question among them
_LOW_BITS = 28  # of a log that are summed apart, since 64 bits do not hold the whole


def overlap(rounds: RoundColumns) -> Array:
    """Return the token Jaccard of new and earlier passages, in [0, 1]; high: repetition (paper 0; published).

    NaN without earlier or new passages, or if a text is unknown.
    """
    return rounds.once(_overlaps)[0]


def overlap_idf(rounds: RoundColumns) -> Array:
    """Return :func:`overlap` with each token weighted by ln(N + 1) + 1 - ln(df + 1), N passages so far."""
    return rounds.once(_overlaps)[1]


def _overlaps(rounds: RoundColumns) -> tuple[Array, Array]:
    listed = rounds.once(listings)
    rows, total = listed.rows, np.cumsum(listed.new)
    seen = total - (total - listed.new)[rounds.first_row]
    titles, texts = (
        listed.lists.field(name).take(pa.array(listed.places)) for name in ("title", "text")
    )
    untold = np.zeros(rounds.n_rows, bool)
    untold[rows[~texts.is_valid().to_numpy(zero_copy_only=False)]] = True
    compared = ~unrecorded_so_far(rounds) & ~rounds.so_far(untold)
    compared &= (listed.new > 0) & (seen > listed.new)
    shared, read = np.zeros((2, rounds.n_rows, 2))
    first = 0
    while first < len(rows):
        # whole questions
        end = rounds.question[rows[min(first + _AT_ONCE, len(rows)) - 1]]
        last = int(np.searchsorted(rounds.question[rows], end, "right"))
        spelt = pc.binary_join_element_wise(
            *(pc.fill_null(part[first:last], "") for part in (titles, texts)), " "
        )
        _add_up(rounds, _words(spelt), rows[first:last], seen, (shared, read))
        first = last
    values = np.full(shared.shape, np.nan)
    defined = compared & (read[:, 0] > 0)
    values[defined] = shared[defined] / read[defined]
    return values[:, 0], values[:, 1]


def _words(texts: pa.Array) -> pa.ListArray:
    """Split texts into the words of :func:`suffice.trace.rounds.tokens.tokenize`, and empty words."""
    spelt = pc.replace_substring_regex(pc.utf8_lower(texts), _SEPARATORS, " ")
    others = pc.invert(pc.match_substring_regex(texts, EUROPEAN))
    spelt = instead(spelt, others, texts, lambda text: " ".join(tokenize(text)))
    return pc.split_pattern(spelt, " ")


def _add_up(
    rounds: RoundColumns,
    spelt: pa.ListArray,
    rows: Integers,
    seen: Integers,
    into: tuple[Array, Array],
) -> None:
    """Sum shared and read words into ``into``; ``spelt`` as listed in ``rows``, ``seen`` up to a row."""
    shared, read = into
    found = spelt.flatten()
    said = pc.not_equal(found, "").to_numpy(zero_copy_only=False)
    codes = found.dictionary_encode().indices.to_numpy().astype(np.int64)
    passage = np.repeat(np.arange(len(spelt)), np.diff(spelt.offsets.to_numpy()))
    # a word of a question, by the passages that hold it
    keys = rounds.question[rows[passage]] * (codes.max(initial=0) + 1) + codes
    keys = np.sort(keys[said] * len(spelt) + passage[said])
    keys = keys[np.diff(keys, prepend=-1) > 0]
    word, passage = np.divmod(keys, len(spelt))
    row = rows[passage] - rows[0]
    place, begins = np.arange(len(keys)), np.diff(word, prepend=-1) > 0
    frequency = place - np.maximum.accumulate(np.where(begins, place, 0)) + 1
    last = np.append((word[1:] > word[:-1]) | (row[1:] > row[:-1]), True)[: len(keys)]
    word, row, frequency = word[last], row[last], frequency[last]
    again = np.flatnonzero(np.diff(word, prepend=-1) == 0)
    # a word, and the high and low bits of its log, which sums of whole numbers keep exact
    logs = np.array([_log(df) for df in range(int(frequency.max(initial=0)) + 1)])
    parts = np.stack([np.ones_like(logs), logs >> _LOW_BITS, logs & (1 << _LOW_BITS) - 1])
    here = slice(int(rows[0]), int(rows[-1]) + 1)
    size, first = here.stop - here.start, np.maximum(rounds.first_row[here] - here.start, 0)
    added = parts[:, frequency]
    added[:, again] -= parts[:, frequency[again - 1]]
    new = np.stack([np.bincount(row, of, minlength=size) for of in added]).astype(np.int64)
    held = new.cumsum(axis=1)
    held -= (held - new)[:, first]
    repeated = parts[:, frequency[again]]
    both = np.stack([np.bincount(row[again], of, minlength=size) for of in repeated])
    about = np.array([math.log(count + 1) + 1 for count in seen[here].tolist()])
    for into_these, (count, high, low) in ((read, held), (shared, both)):
        into_these[here, 0] = count
        into_these[here, 1] = count * about - np.ldexp(np.ldexp(high * 1.0, _LOW_BITS) + low, -53)


def _log(df: int) -> int:
    """Return log(df + 1) in 2^-53, exactly."""
    return int(math.ldexp(math.log(df + 1), 53))


class _Following:
    """Give an overlap after each round of a running question, without reading earlier rounds again."""

    def __init__(self, *, idf: bool) -> None:
        self._idf, self._told = idf, True
        self._ids: set[str] = set()
        self._df: Counter[str] = Counter()
        self._logs = 0  # of all words, in 2^-53

    def __call__(self, held: Round) -> float:
        listed = reversed(held.passages or ())  # so that the first of an id counts
        new = {passage.id: passage for passage in listed if passage.id not in self._ids}
        self._told &= held.passages is not None and all(
            one.text is not None for one in new.values()
        )
        said = Counter(word for one in new.values() for word in {*passage_tokens(one)})
        again, before = said.keys() & self._df.keys(), bool(self._ids)
        self._logs += sum(_log(self._df[w] + n) - _log(self._df[w]) for w, n in said.items())
        self._ids |= new.keys()
        self._df.update(said)
        if not (self._told and new and before and self._df):
            return math.nan
        about = math.log(len(self._ids) + 1) + 1
        pairs = (again, sum(_log(self._df[word]) for word in again)), (self._df, self._logs)
        both, read = (
            len(words) * about - math.ldexp(float(logs), -53) if self._idf else len(words)
            for words, logs in pairs
        )
        return both / read


def new_passages(rounds: RoundColumns) -> Array:
    """Return the share of the round's distinct passages that are new by id, in [0, 1]; high: progress."""
    listed, refound = rounds.once(listings), rounds.lists("refound")
    ids = pa.concat_arrays([listed.lists.field("id"), refound.field("id")])
    codes = codes_of_ids(ids)
    keys = np.concatenate([listed.lists.rows, refound.rows]) * (int(codes.max(initial=0)) + 1)
    rows = np.unique(keys + codes) // (int(codes.max(initial=0)) + 1)
    found = np.bincount(rows, minlength=rounds.n_rows)
    recorded = listed.lists.valid
    unknown = unrecorded_so_far(rounds) & (listed.new > 0)
    values = np.zeros(rounds.n_rows)
    np.divide(listed.new, found, out=values, where=listed.new > 0)
    return np.where(recorded & ~unknown, values, np.nan)


def query_repeats(rounds: RoundColumns) -> Array:
    """Return 1.0 where an earlier round sent the same normalized query, else 0.0; NaN in round 1."""
    queries = rounds.texts("query").mapped(answer_forms)
    keys = rounds.question * (len(queries.distinct) + 1) + queries.codes + 1
    number, places = by_appearance(keys)
    unsent = queries.codes == NONE
    unsent_before = rounds.before(rounds.so_far(unsent), False)
    repeats = np.where(unsent_before, np.nan, 0.0)
    repeats[places[number] < np.arange(rounds.n_rows)] = 1.0
    repeats[unsent | rounds.first] = np.nan
    return repeats


_NOT_COMPARED = (
    PASSAGES_UNKNOWN,
    Absence("there is no earlier passage", lambda view: not seen_passages(view.rounds[:-1])),
    Absence(
        "the round added no new passage",
        lambda view: no_new_passage(view.current, view.rounds[:-1]),
        "record with --corpus pooled, or use new_passages, which is 0 there",
    ),
    TEXT_UNKNOWN,
    Absence("the passages hold no word", lambda _: True),
)
_overlap = partial(share, needs=("passages",), answers=False, undefined=_NOT_COMPARED)
OVERLAP = _overlap(
    summary="share of words that new and earlier passages have in common",
    columns=overlap,
    running=partial(_Following, idf=False),
)
OVERLAP_IDF = _overlap(
    summary="share of words that new and earlier passages have in common, weighted by rarity",
    columns=overlap_idf,
    running=partial(_Following, idf=True),
)
_UNREAD = Absence(
    "the answer is not found, and a passage was recorded without its text or a round without its passages",
    lambda _: True,
)
ANSWER_IN_EVIDENCE = share(
    summary="1 if a passage contains the answer's words in order",
    needs=("passages",),
    columns=answer_in_evidence,
    undefined=(
        Absence(
            "the answer is yes, no or empty, or the letter A",
            lambda view: normalize_answer(view.current.answer_text) in NOT_EXTRACTIVE,
        ),
        _UNREAD,
    ),
    binary=True,
)
ANSWER_IN_EVIDENCE_PUBLISHED = share(
    summary="1 if the passages contain the answer letter by letter, as published",
    needs=("passages",),
    columns=answer_in_evidence_published,
    undefined=(_UNREAD,),
    binary=True,
    variant_of="answer_in_evidence",
)
NEW_PASSAGES = share(
    summary="share of the round's passages that are new",
    needs=("passages",),
    reads=("refound",),
    answers=False,
    direction="low",
    columns=new_passages,
    undefined=(
        unrecorded("passages", "the round's passages were"),
        Absence(
            "an earlier round's passages were not recorded",
            lambda view: seen_passages(view.rounds[:-1]) is None,
        ),
    ),
)
QUERY_REPEATS = share(
    summary="1 if an earlier round sent the same query",
    needs=("query",),
    answers=False,
    columns=query_repeats,
    undefined=(
        unrecorded("query", "the round's query was"),
        Absence("there is no earlier query", lambda view: view.previous is None),
        Absence("an earlier round's query was not recorded", lambda _: True),
    ),
    binary=True,
)
