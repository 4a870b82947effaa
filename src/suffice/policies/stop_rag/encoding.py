"""Tokens of a state's texts: which are read together, and what is cut to fit the window."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suffice.errors import UsageError
from suffice.policies.stop_rag.settings import MIN_WINDOW, Mode
from suffice.policies.stop_rag.states import StateTexts

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """States of many trajectories as tokens; ``truncation`` counts what did not fit the window."""

    texts: tuple[Tokens, ...]
    reads: tuple[tuple[tuple[int, ...], ...], ...]
    documents: tuple[tuple[int, ...], ...]
    truncation: Mapping[str, int]


class Tokenizer:
    """Makes the encoder's input of states, by a tokenizer of transformers. Threads take turns.

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
        if mode == "joined" and not tokenizer.sep_token:
            raise UsageError(
                "this encoder's tokenizer has no separator token; use mode 'separate' or another encoder"
            )
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._special = sorted(set(tokenizer.all_special_tokens), key=len, reverse=True)
        self._room = window - tokenizer.num_special_tokens_to_add(pair=True)
        self._question_room = self._room - window // 4
        self.window = window
        self.mode = mode

    def encode(self, states: Iterable[StateTexts]) -> Encoded:
        """Tokens of all states of these trajectories, equal texts once."""
        places: dict[Tokens, int] = {}
        reads, counts, cut = [], [], Counter[str](dict.fromkeys(_CUT, 0))
        for state in states:
            seen = [state.seen(t) for t in range(1, state.n_rounds + 1)]
            asked, lost = self._asked(state.question)
            if self.mode == "joined":
                read = [self._joint(asked, documents) for documents in seen]
                states_cut = [any_cut for _, any_cut in read]
                texts = [[tokens] for tokens, _ in read]
            else:
                pairs = self._pairs(asked, seen[-1]) if seen else []
                flags = [was_cut for _, was_cut in pairs]
                states_cut = [any(flags[: len(documents)]) for documents in seen]
                texts = [[tokens for tokens, _ in pairs[: len(documents)]] for documents in seen]
                cut.update(documents=len(pairs), documents_cut=sum(flags))
            cut.update(
                states=len(seen), states_cut=sum(states_cut), questions=1, questions_cut=int(lost)
            )
            reads.append(
                tuple(tuple(places.setdefault(one, len(places)) for one in of) for of in texts)
            )
            counts.append(tuple(map(len, seen)))
        return Encoded(
            texts=tuple(places), reads=tuple(reads), documents=tuple(counts), truncation=dict(cut)
        )

    def read(self, question: str, documents: Sequence[str]) -> list[Tokens]:
        """Question and each document, or all in one text, as the mode has it."""
        asked, _ = self._asked(question)
        if self.mode == "joined":
            return [self._joint(asked, documents)[0]]
        return [tokens for tokens, _ in self._pairs(asked, documents)]

    def _asked(self, question: str) -> tuple[str, bool]:
        """The question as far as it is read, and whether it was cut."""
        plain = self._plain(question)
        offsets = self._tokens([plain])["offset_mapping"][0]
        if len(offsets) <= self._question_room:
            return plain, False
        return plain[: offsets[self._question_room - 1][1]], True

    def _pairs(self, asked: str, documents: Sequence[str]) -> list[tuple[Tokens, bool]]:
        """Pairs within the window, and whether their documents were cut."""
        if not documents:
            return []
        texts = list(map(self._plain, documents))
        encoded = self._tokens([asked] * len(texts), texts, max_length=self.window)
        return [
            (_tokens(encoded, number, (asked, text)), bool(encoded.encodings[number].overflowing))
            for number, text in enumerate(texts)
        ]

    def _joint(self, asked: str, documents: Sequence[str]) -> tuple[Tokens, bool]:
        """Question and the newest documents that fit, in order, and whether anything was lost."""
        texts = list(map(self._plain, documents))
        question, *sizes = map(len, self._tokens([asked, *texts])["input_ids"])
        room, kept = self._room - question, 0
        for size in reversed(sizes):
            room -= size + bool(kept)
            if room < 0:
                break
            kept += 1
        shown = texts[len(texts) - max(1, kept) :] if texts else []
        joined = f"{self._tokenizer.sep_token} ".join(shown)
        encoded = self._tokens([asked], [joined], max_length=self.window)
        return _tokens(encoded, 0, (asked, joined)), kept < len(texts)

    def _plain(self, text: str) -> str:
        """A text in which the names of special tokens are blanked out."""
        for name in self._special:
            text = text.replace(name, " ")
        return text

    def _tokens(self, *texts: list[str], max_length: int | None = None) -> Any:
        with self._lock:
            return self._tokenizer(
                *texts,
                add_special_tokens=max_length is not None,
                truncation=False if max_length is None else "only_second",
                max_length=max_length,
                return_offsets_mapping=True,
                verbose=False,
            )


_CUT = ("states", "states_cut", "documents", "documents_cut", "questions", "questions_cut")


def _tokens(encoded: Any, number: int, texts: tuple[str, str]) -> Tokens:
    """One of the texts that a tokenizer encoded."""
    ids, offsets = encoded["input_ids"][number], encoded["offset_mapping"][number]
    of_text = encoded.sequence_ids(number)
    words, spans = [-1] * len(ids), list[tuple[int, int]]()
    for part, text in enumerate(texts):
        here = [place for place, owner in enumerate(of_text) if owner == part]
        for place, word in zip(here, _word_numbers(text, [offsets[p] for p in here]), strict=True):
            words[place] = word
        end = here[-1] + 1 if here else spans[-1][1] + 1 if spans else 0
        spans.append((here[0] if here else end, end))
    types = encoded["token_type_ids"][number] if "token_type_ids" in encoded else [0] * len(ids)
    return Tokens(tuple(ids), tuple(types), spans[0], spans[1], tuple(words))


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
