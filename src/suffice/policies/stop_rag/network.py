"""The value network: an encoder with two heads, one for stopping and one for going on.

In mode ``joined``, as published, a state is one text, and the heads read the mean of its tokens. In mode
``separate`` the network reads each document together with the question. It keeps the mean of the tokens,
features of single tokens, and how well the document matches the question's words, with even and with
learned weights. A state is the mean, the maximum and the sum over its documents. The matching is fixed,
since a few hundred questions cannot teach it. The weights of the words are learned.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache, lru_cache, partial
from typing import Any

from suffice.errors import DataError, UsageError
from suffice.policies.stop_rag.encoder import (
    Batch,
    TextEncoder,
    Tokenizer,
    Tokens,
    read_tensors,
    safetensors,
    torch,
)
from suffice.policies.stop_rag.states import StateTexts, texts_of_view
from suffice.policies.stop_rag.stop_rag_settings import Mode, TrainSettings
from suffice.signals.known_signals import Q_CONT, Q_STOP, SignalSpec
from suffice.stats.fields import Fields
from suffice.stats.units import Array
from suffice.trace.rounds.records import LoopView

MATCHES = 10  # numbers a pair gets at each depth
_LOWEST = 3  # the question's tokens, or words, that are matched worst
_FOUND = 0.95  # a cosine from which a word counts as found


def mean_vector(vectors: Any, mask: Any) -> Any:
    """Return the mean over the masked tokens, (P, width); 0 without any."""
    kept = mask.unsqueeze(-1)
    return (vectors * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1)


def matches(vectors: Any, batch: Batch) -> tuple[Any, Any]:
    """Return how well the document matches the question, (P, 10), and each token's word, (P, L); else 0.

    With b_i the best cosine of question token i with a document token, and w_j the lowest b of the
    tokens of word j: of b and of w the mean, the mean of the three lowest and the mean of (1 - .)^2; the
    share of w above 0.95; the cosine of the two parts' mean vectors; and with question and document
    exchanged the mean of w and the share above 0.95. Words matter because a long name is many tokens.
    The match of a question's token is the w of its word.
    """
    question, document = batch.question, batch.document
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    cosines = torch.matmul(unit, unit.transpose(1, 2))
    best = cosines.masked_fill(~document.unsqueeze(1), -1.0).amax(dim=-1)  # (P, L)
    back = cosines.masked_fill(~question.unsqueeze(1), -1.0).amax(dim=-1)
    words, known = _by_word(best, batch.words, question)
    back_words, back_known = _by_word(back, batch.words, document)
    parts = torch.nn.functional.cosine_similarity(
        mean_vector(vectors, question), mean_vector(vectors, document), dim=-1
    )
    features = torch.stack(
        [
            *_spread(best, question),
            *_spread(words, known),
            _share(words, known),
            parts,
            _spread(back_words, back_known)[0],
            _share(back_words, back_known),
        ],
        dim=-1,
    )
    both = (question.any(dim=1) & document.any(dim=1)).unsqueeze(-1)
    by_token = words.gather(1, batch.words.clamp(min=0)) * question
    return features * both, by_token * both


def _by_word(values: Any, words: Any, part: Any) -> tuple[Any, Any]:
    """Return the lowest value of each word's tokens, (P, W), and which words exist."""
    there = part & (words >= 0)
    count = int(words.max()) + 1 if words.numel() else 0
    lowest = torch.full((len(values), max(1, count)), 2.0, dtype=values.dtype, device=values.device)
    lowest = lowest.scatter_reduce(
        1, words.clamp(min=0), values.masked_fill(~there, 2.0), reduce="amin"
    )
    return lowest, lowest < 1.5


def _spread(values: Any, there: Any) -> list[Any]:
    """Return mean, mean of the three lowest, and mean of (1 - value)^2 of existing values, each (P,)."""
    count = there.sum(dim=1).clamp(min=1)
    low = values.masked_fill(~there, 2.0).topk(min(_LOWEST, values.shape[1]), largest=False).values
    low = torch.where(low > 1.5, torch.zeros_like(low), low)
    kept = values.masked_fill(~there, 1.0)
    return [
        values.masked_fill(~there, 0.0).sum(dim=1) / count,
        low.sum(dim=1) / count.clamp(max=_LOWEST),
        (1.0 - kept).square().sum(dim=1) / count,
    ]


def _share(values: Any, there: Any) -> Any:
    count = there.sum(dim=1).clamp(min=1)
    return ((values > _FOUND) & there).sum(dim=1) / count


_LOOKS = 8  # ways of weighing the question's words that are learned
_SPOTS = 16  # learned things that a single token of a document may show
_COUNT_SCALE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkShape:
    """Sizes of a network: with its weights they build it again."""

    mode: Mode
    window: int
    frozen: int | None
    head_width: int
    reader_width: int


class QNetwork:
    """A network with two values of a state, of stopping and of going on, as tensors."""

    def __init__(self, encoder: TextEncoder, shape: NetworkShape, *, dropout: float = 0.0) -> None:
        self.encoder = encoder
        self.shape = shape
        self.tokenizer: Tokenizer = Tokenizer(
            encoder.tokenizer, window=shape.window, mode=shape.mode
        )
        separate = shape.mode == "separate"
        read = encoder.width + (2 * (MATCHES + _LOOKS) + _SPOTS if separate else 0)
        parts: dict[str, Any] = {}
        if separate:
            parts["looks"] = torch.nn.Linear(encoder.width, _LOOKS)
            parts["spots"] = torch.nn.Linear(encoder.width, _SPOTS)
            parts["reader"] = torch.nn.Sequential(
                torch.nn.Linear(read, shape.reader_width), torch.nn.SiLU()
            )
        seen = 3 * shape.reader_width + 1 if separate else read
        for name in ("stop", "cont"):
            parts[name] = torch.nn.Sequential(
                torch.nn.Linear(seen, shape.head_width),
                torch.nn.SiLU(),
                torch.nn.Dropout(dropout),
                torch.nn.Linear(shape.head_width, 1),
            )
        self.heads: Any = torch.nn.ModuleDict(parts).to(encoder.device).eval()
        self.centre: Any = torch.zeros(read, device=encoder.device)
        self.spread: Any = torch.ones(read, device=encoder.device)

    @property
    def reads_alike(self) -> bool:
        """Whether training leaves the encoder unchanged, so that its vectors can be kept."""
        return self.shape.frozen is not None and not self.parameters()[0]

    def features(self, batch: Batch, tokens: Any) -> Any:
        """Return features of texts, (P, F), from their tokens' vectors (P, L, width)."""
        mean = mean_vector(tokens, batch.mask)
        if self.shape.mode == "joined":
            return mean
        matched = [
            matches(vectors, batch) for vectors in (self.encoder.word_vectors(batch), tokens)
        ]
        weights = self.heads["looks"](tokens).masked_fill(~batch.question.unsqueeze(-1), -1e4)
        weights = torch.softmax(weights, dim=1)  # (P, L, looks)
        looks = [(weights * by_token.unsqueeze(-1)).sum(dim=1) for _, by_token in matched]
        spots = self.heads["spots"](tokens).masked_fill(~batch.document.unsqueeze(-1), -torch.inf)
        spots = torch.where(batch.document.any(dim=1, keepdim=True), spots.amax(dim=1), 0.0)
        return torch.cat([mean, *(whole for whole, _ in matched), *looks, spots], dim=-1)

    def read(self, features: Any) -> Any:
        """Return the reader's output for features of texts, (P, R)."""
        scaled = (features - self.centre) / self.spread
        return self.heads["reader"](scaled) if self.shape.mode == "separate" else scaled

    def pool(self, read: Any, members: Any, documents: Any) -> Any:
        """Return states (S, X) from texts (P, R)."""
        if self.shape.mode == "joined":
            return read[members[:, 0]]
        there = (members >= 0).unsqueeze(-1)
        if not len(read):
            read = torch.zeros((1, self.shape.reader_width), device=documents.device)
        texts = read[members.clamp(min=0)] * there  # (S, M, R)
        count = there.sum(dim=1)  # (S, 1)
        total = texts.sum(dim=1)
        highest = texts.masked_fill(~there, -torch.inf).amax(dim=1)
        highest = torch.where(count > 0, highest, torch.zeros_like(highest))
        seen = documents.unsqueeze(-1) / _COUNT_SCALE
        return torch.cat([total / count.clamp(min=1), highest, total / _COUNT_SCALE, seen], dim=-1)

    def values(self, states: Any) -> tuple[Any, Any]:
        """Return the values of stopping and of going on, each (S,)."""
        return self.heads["stop"](states)[:, 0], self.heads["cont"](states)[:, 0]

    def encode(self, texts: Sequence[Tokens]) -> Any:
        """Return the reader's output for texts, (P, R)."""
        batch = self.encoder.batch(texts)
        return self.read(self.features(batch, self.encoder.tokens(batch)))

    def set_scale(self, features: Any) -> None:
        """Standardize features by the spread of these, (P, F); ``joined`` keeps them unchanged."""
        if self.shape.mode == "separate" and len(features) > 1:
            self.centre = features.mean(dim=0)
            spread = features.std(dim=0)
            self.spread = torch.where(spread > 1e-4, spread, torch.ones_like(spread))

    def parameters(self) -> tuple[list[Any], list[Any]]:
        body = [
            parameter for parameter in self.encoder.body.parameters() if parameter.requires_grad
        ]
        return body, list(self.heads.parameters())

    def tensors(self) -> dict[str, Any]:
        tensors = {f"heads.{name}": tensor for name, tensor in self.heads.state_dict().items()}
        tensors |= {
            f"encoder.{name}": tensor.detach()
            for name, tensor in self.encoder.body.named_parameters()
            if tensor.requires_grad
        }
        return tensors | {"centre": self.centre, "spread": self.spread}

    def load_tensors(self, tensors: Mapping[str, Any]) -> None:
        own = self.tensors()
        wrong = sorted(
            name
            for name in {*own, *tensors}
            if name not in own
            or name not in tensors
            or own[name].shape != tensors[name].shape
            or not bool(torch.isfinite(tensors[name]).all())
        )
        if wrong:
            raise DataError(f"not the weights of this network: {', '.join(wrong[:3])}")
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(tensors[name])


def build_network(encoder: TextEncoder, settings: TrainSettings) -> QNetwork:
    """Return an untrained network; its heads draw on the global generator of PyTorch."""
    trained, frozen = settings.trained_layers, encoder.train_only(settings.trained_layers)
    shape = NetworkShape(
        mode=settings.mode,
        window=encoder.window(settings.window, settings.mode),
        frozen=None if trained is None else frozen,
        head_width=settings.head_width
        or (4 * encoder.width if settings.mode == "joined" else max(1, encoder.width // 3)),
        reader_width=settings.reader_width,
    )
    return QNetwork(encoder, shape, dropout=settings.dropout)


# --- in a policy: loaded when it first decides ----------------------------------------------------
_KEPT = 4096  # texts of a few dozen to a thousand numbers each


class TextScorer:
    """The values of a loop's states. Threads take turns.

    Every text goes through the encoder alone, in float32 and without padding, so that its numbers do not
    depend on other texts. Results are kept: in mode ``separate`` a further round costs its own documents
    only.
    """

    def __init__(self, network: QNetwork) -> None:
        self.network = network
        network.heads.eval()
        self._lock = threading.Lock()
        self._read = lru_cache(_KEPT)(self._encode)  # from memory where it was read before

    def score(self, view: LoopView) -> tuple[float, float]:
        """Return the values of stopping and of going on after the view's last round, float32 numbers."""
        return self.score_texts(texts_of_view(view), len(view.rounds))

    def score_texts(self, states: StateTexts, number: int) -> tuple[float, float]:
        documents = states.seen(number)
        separate = self.network.shape.mode == "separate"
        texts = [(text,) for text in documents] if separate else [documents]
        network = self.network
        with self._lock, torch.inference_mode():
            read = [self._read(states.question, text) for text in texts]
            device = network.encoder.device
            stacked = (
                torch.stack(read)
                if read
                else torch.zeros((0, network.shape.reader_width), device=device)
            )
            members = torch.arange(max(1, len(read)), device=device).unsqueeze(0)
            if not read:
                members = members - 1
            seen = torch.tensor([float(len(documents))], device=device)
            stop, cont = network.values(network.pool(stacked, members, seen))
            return float(stop[0]), float(cont[0])

    def _encode(self, question: str, documents: tuple[str, ...]) -> Any:
        return self.network.encode(self.network.tokenizer.read(question, documents))[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextModel:
    """A network over texts in a policy, built on its first decision."""

    encoder: str
    encoder_sha256: str
    shape: NetworkShape
    data: bytes = field(repr=False)
    specs: tuple[SignalSpec, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ready = cache(lambda: TextScorer(self.network()))  # built when it is first asked
        # signals of this network's own: a recorded one may be another network's
        specs = (
            SignalSpec(
                name=named.name,
                summary=named.summary,
                needs=("passages",),
                answers=False,
                compute=partial(_value, ready, which),
                own_settings=True,
            )
            for which, named in enumerate((Q_STOP, Q_CONT))
        )
        object.__setattr__(self, "specs", tuple(specs))

    @classmethod
    def of(cls, network: QNetwork) -> TextModel:
        tensors = {name: tensor.cpu().contiguous() for name, tensor in network.tensors().items()}
        return cls(
            encoder=network.encoder.name,
            encoder_sha256=network.encoder.identity,
            shape=network.shape,
            data=safetensors("torch").save(tensors),
        )

    @property
    def summary(self) -> str:
        return f"the encoder {self.encoder} over question and documents"

    def values(self, columns: Mapping[str, Array]) -> tuple[Array, Array]:
        """Return its two signals, which are the values."""
        return columns[Q_STOP.name], columns[Q_CONT.name]

    def to_json(self) -> dict[str, Any]:
        return {
            "features": "text",
            "encoder": self.encoder,
            "encoder_sha256": self.encoder_sha256,
            "shape": asdict(self.shape),
            "weights_sha256": hashlib.sha256(self.data).hexdigest(),
        }

    @classmethod
    def read(cls, part: Fields, data: bytes) -> TextModel:
        shape = part.of("shape", dict) or {}
        names = {size.name for size in fields(NetworkShape)}
        if set(shape) != names:
            raise DataError(f"must hold {', '.join(sorted(names))}", column=part.column("shape"))
        part.need("encoder", "encoder_sha256")
        return cls(
            encoder=part.of("encoder", str),
            encoder_sha256=part.of("encoder_sha256", str),
            shape=NetworkShape(**shape),
            data=data,
        )

    def weights(self) -> bytes:
        return self.data

    def network(self) -> QNetwork:
        encoder = TextEncoder.load(self.encoder)
        if encoder.identity != self.encoder_sha256:
            raise UsageError(
                f"the encoder {self.encoder!r} is not the one the policy was trained on: its weights or "
                "vocabulary differ; install that one, or fit again"
            )
        frozen = self.shape.frozen
        encoder.train_only(None if frozen is None else encoder.depth - frozen)
        network = QNetwork(encoder, self.shape)
        network.load_tensors(read_tensors("torch", self.data))
        return network


def _value(ready: Callable[[], TextScorer], which: int, view: LoopView) -> float:
    return ready().score(view)[which]
