"""Tokens of a state's texts: which are read together, and what is cut to fit the window."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import chain, islice
from typing import Any

from suffice.errors import UsageError
from suffice.policies.stop_rag.settings import MIN_WINDOW, Mode
from suffice.policies.stop_rag.states import StateTexts

_AT_ONCE = 500  # trajectories
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Tokens:
    """One text for the encoder: ids, and where question and documents lie in them, as (start, stop).

    ``words`` numbers the words of the question from 0, and those of the documents from 0; tokens of
    one word share its number, special tokens have -1.
    """

    ids: tuple[int, ...]
    types: tuple[int, ...]
    question: tuple[int, int]
    document: tuple[int, int]
    words: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A question or documents as ids, with the number of each token's word."""

    ids: tuple[int, ...]
    words: tuple[int, ...]

    def cut(self, length: int) -> Piece:
        """Its first tokens."""
        return Piece(self.ids[:length], self.words[:length])


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """What did not fit the window."""

    states: int = 0
    states_cut: int = 0
    documents: int = 0
    documents_cut: int = 0
    questions: int = 0
    questions_cut: int = 0

    def __add__(self, other: Truncation) -> Truncation:
        return Truncation(
            **{
                field.name: getattr(self, field.name) + getattr(other, field.name)
                for field in fields(self)
            }
        )

    @property
    def share(self) -> float:
        """The share of states that lost documents or parts of them; 0 without states."""
        return self.states_cut / self.states if self.states else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """States of many trajectories as tokens."""

    texts: tuple[Tokens, ...]
    reads: tuple[tuple[tuple[int, ...], ...], ...]
    documents: tuple[tuple[int, ...], ...]
    truncation: Truncation


class Tokenizer:
    """Makes the encoder's input of states, from any tokenizer of transformers. Threads take turns.

    The question is kept whole where it leaves room for a quarter of the window, else cut to three
    quarters; then the document is cut (``separate``), or the newest documents that fit are kept whole
    (``joined``; if not even the newest fits it is cut).
    """

    def __init__(self, tokenizer: Any, *, window: int, mode: Mode) -> None:
        if window < MIN_WINDOW:
            raise UsageError(
                f"the window must be at least {MIN_WINDOW} tokens, found {window}; choose a larger "
                "window or another encoder"
            )
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._special = sorted(set(tokenizer.all_special_tokens), key=len, reverse=True)
        self.window = window
        self.mode = mode
        self._first, self._middle, self._last, self._types = _template(tokenizer)
        if mode == "joined" and not self._middle:
            raise UsageError(
                "this encoder's tokenizer has no separator token; use mode 'separate' or another encoder"
            )

    def pieces(self, texts: Sequence[str]) -> list[Piece]:
        """Tokens of each text without special tokens, whose names in a text are blanked out."""
        if not texts:
            return []
        plain = []
        for original in texts:
            text = original
            for name in self._special:
                text = text.replace(name, " ")
            plain.append(text)
        fast = bool(self._tokenizer.is_fast)
        with self._lock:
            encoded = self._tokenizer(
                plain, add_special_tokens=False, return_offsets_mapping=fast, verbose=False
            )
        if not fast:  # then every token is a word
            return [Piece(tuple(ids), tuple(range(len(ids)))) for ids in encoded["input_ids"]]
        return [
            Piece(tuple(ids), _word_numbers(text, offsets))
            for text, ids, offsets in zip(
                plain, encoded["input_ids"], encoded["offset_mapping"], strict=True
            )
        ]

    def encode(self, states: Iterable[StateTexts]) -> Encoded:
        """Tokens of all states of these trajectories; some texts at a time are held beside them."""
        places: dict[Tokens, int] = {}
        reads, counts, cut = [], [], Truncation()
        rest = iter(states)
        while batch := list(islice(rest, _AT_ONCE)):
            words = sorted(
                {text for state in batch for text in (state.question, *state.seen(10**9))}
            )
            pieces = dict(zip(words, self.pieces(words), strict=True))
            for state in batch:
                texts, lost = self._trajectory(state, pieces)
                reads.append(
                    tuple(
                        tuple(places.setdefault(text, len(places)) for text in one) for one in texts
                    )
                )
                counts.append(tuple(len(state.seen(t)) for t in range(1, state.n_rounds + 1)))
                cut += lost
        return Encoded(
            texts=tuple(places), reads=tuple(reads), documents=tuple(counts), truncation=cut
        )

    def pair(self, question: str, document: str) -> Tokens:
        """Question and one document."""
        first, second = self.pieces([question, document])
        return self._pair(first, second)[0]

    def joint(self, question: str, documents: Sequence[str]) -> Tokens:
        """Question and documents in one text."""
        first, *rest = self.pieces([question, *documents])
        return self._joint(first, rest)[0]

    def _trajectory(
        self, states: StateTexts, pieces: dict[str, Piece]
    ) -> tuple[list[list[Tokens]], Truncation]:
        """The texts of every state, and what was cut."""
        question = pieces[states.question]
        asked = Truncation(
            questions=1, questions_cut=int(len(question.ids) > self._question_room())
        )
        if self.mode == "joined":
            joint = [
                self._joint(question, [pieces[text] for text in states.seen(t)])
                for t in range(1, states.n_rounds + 1)
            ]
            lost = Truncation(states=len(joint), states_cut=sum(cut for _, cut in joint))
            return [[tokens] for tokens, _ in joint], asked + lost
        pairs = [
            [self._pair(question, pieces[text]) for text in added] for added in states.documents
        ]
        cuts = [sum(cut for _, cut in added) for added in pairs]
        lost = Truncation(
            states=len(pairs),
            states_cut=sum(any(cuts[:t]) for t in range(1, len(cuts) + 1)),
            documents=sum(map(len, pairs)),
            documents_cut=sum(cuts),
        )
        flat = [[tokens for tokens, _ in added] for added in pairs]
        return [list(chain.from_iterable(flat[:t])) for t in range(1, len(flat) + 1)], asked + lost

    def _question_room(self) -> int:
        return self._room() - self.window // 4

    def _room(self, *taken: Piece) -> int:
        """Tokens left beside the special ones and these."""
        special = len(self._first) + len(self._middle) + len(self._last)
        return self.window - special - sum(len(piece.ids) for piece in taken)

    def _pair(self, question: Piece, document: Piece) -> tuple[Tokens, bool]:
        """A pair within the window, and whether its document was cut."""
        question = question.cut(self._question_room())
        room = self._room(question)
        return self._built(question, document.cut(room)), len(document.ids) > room

    def _joint(self, question: Piece, documents: Sequence[Piece]) -> tuple[Tokens, bool]:
        """Question and the newest documents that fit, in order, and whether anything was lost."""
        question = question.cut(self._question_room())
        room = self._room(question)
        kept: list[Piece] = []
        for document in reversed(documents):
            room -= len(document.ids) + bool(kept)
            if room < 0:
                alone = [] if kept else [document.cut(self._room(question))]
                return self._built(question, self._joined([*kept, *alone])), True
            kept.insert(0, document)
        return self._built(question, self._joined(kept)), False

    def _joined(self, documents: Sequence[Piece]) -> Piece:
        """Documents with a separator between each two."""
        ids: list[int] = []
        words: list[int] = []
        for number, document in enumerate(documents):
            if number:
                ids.append(self._middle[-1])
                words.append(-1)
            start = max(words, default=-1) + 1
            ids += document.ids
            words += [start + word for word in document.words]
        return Piece(tuple(ids), tuple(words))

    def _built(self, question: Piece, document: Piece) -> Tokens:
        start = len(self._first)
        middle = start + len(question.ids)
        second = middle + len(self._middle)
        end = second + len(document.ids)
        one, two = self._types
        no_word = (-1,)
        return Tokens(
            ids=(*self._first, *question.ids, *self._middle, *document.ids, *self._last),
            types=(one,) * second + (two,) * (end - second + len(self._last)),
            question=(start, middle),
            document=(second, end),
            words=(
                *no_word * len(self._first),
                *question.words,
                *no_word * len(self._middle),
                *document.words,
                *no_word * len(self._last),
            ),
        )


def _word_numbers(text: str, offsets: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The word each token belongs to; what is no letter or digit is a word of its own."""
    word_at = {}
    for number, match in enumerate(_WORD.finditer(text)):
        word_at.update(dict.fromkeys(range(*match.span()), number))
    numbers: dict[tuple[bool, int], int] = {}
    result = []
    for place, (_, stop) in enumerate(offsets):
        word = word_at.get(stop - 1)
        key = (False, place) if word is None else (True, word)
        result.append(numbers.setdefault(key, len(numbers)))
    return tuple(result)


def _template(
    tokenizer: Any,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, int]]:
    """Special tokens before, between and after two texts, and the texts' types."""
    pair = tokenizer("a", "a", return_special_tokens_mask=True)
    ids, special = list(pair["input_ids"]), list(pair["special_tokens_mask"])
    alone = len(tokenizer("a", add_special_tokens=False)["input_ids"])
    first = special.index(0)
    last = len(ids) - special[::-1].index(0)
    types = pair.get("token_type_ids", [0] * len(ids))
    return (
        tuple(ids[:first]),
        tuple(ids[first + alone : last - alone]),
        tuple(ids[last:]),
        (int(types[first]), int(types[last - 1])),
    )
