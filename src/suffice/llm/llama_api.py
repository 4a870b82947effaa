"""The llama.cpp that the package xllamacpp brings: its server, and its C interface to a model.

Of the latter only what decoding needs. The layouts are those of the exact version that the extra
``embedded`` pins; the parameters' defaults are compared with what that version has before any is written.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice._optional import require
from suffice.errors import BackendError, UsageError

BATCH = 512
"""Tokens of one decoding at most."""
SEQUENCES = 64
"""Sequences that one context can tell apart."""

Column = tuple[int, int, int, bool]
"""A token to evaluate, its position, its sequence, and whether its logits are wanted."""

_INTS_AT_FIRST = (512, 2048, 512, 1)  # n_ctx, n_batch, n_ubatch, n_seq_max
_THREADS_AT, _THREADS = 7, (4, 4)  # n_threads, n_threads_batch
_SWITCHES_AT = 136
_SWITCHES = (
    b"\x00\x01\x01\x01\x01\x00"  # embeddings, offload, no_perf, op_offload, swa_full, unified
)
_NO_ROOM = 1


class _Parameters(ctypes.Structure):
    """A structure of parameters by value; larger than any of them, which calls do not mind."""

    _fields_ = (("content", ctypes.c_uint8 * 512),)


class _Batch(ctypes.Structure):
    _fields_ = (
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.c_void_p),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.c_void_p),
        ("n_seq_id", ctypes.c_void_p),
        ("seq_id", ctypes.c_void_p),
        ("logits", ctypes.c_void_p),
    )


class _TokenArray(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("selected", ctypes.c_int64),
        ("sorted", ctypes.c_bool),
    )


_TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
_LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_silent = _LOG(lambda _level, _text, _data: None)

_POINTER, _INT, _BOOL, _TEXT = ctypes.c_void_p, ctypes.c_int32, ctypes.c_bool, ctypes.c_char_p
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "llama_backend_init": (None, ()),
    "llama_log_set": (None, (_LOG, _POINTER)),
    "llama_model_default_params": (_Parameters, ()),
    "llama_context_default_params": (_Parameters, ()),
    "llama_model_load_from_file": (_POINTER, (_TEXT, _Parameters)),
    "llama_model_free": (None, (_POINTER,)),
    "llama_model_get_vocab": (_POINTER, (_POINTER,)),
    "llama_model_is_recurrent": (_BOOL, (_POINTER,)),
    "llama_model_is_hybrid": (_BOOL, (_POINTER,)),
    "llama_model_has_encoder": (_BOOL, (_POINTER,)),
    "llama_model_chat_template": (_TEXT, (_POINTER, _TEXT)),
    "llama_init_from_model": (_POINTER, (_POINTER, _Parameters)),
    "llama_free": (None, (_POINTER,)),
    "llama_get_memory": (_POINTER, (_POINTER,)),
    "llama_memory_seq_cp": (None, (_POINTER, _INT, _INT, _INT, _INT)),
    "llama_memory_seq_rm": (_BOOL, (_POINTER, _INT, _INT, _INT)),
    "llama_decode": (_INT, (_POINTER, _Batch)),
    "llama_get_logits_ith": (ctypes.POINTER(ctypes.c_float), (_POINTER, _INT)),
    "llama_vocab_n_tokens": (_INT, (_POINTER,)),
    "llama_vocab_is_eog": (_BOOL, (_POINTER, _INT)),
    "llama_vocab_bos": (_INT, (_POINTER,)),
    "llama_vocab_eos": (_INT, (_POINTER,)),
    "llama_vocab_get_text": (_TEXT, (_POINTER, _INT)),
    "llama_tokenize": (_INT, (_POINTER, _TEXT, _INT, _POINTER, _INT, _BOOL, _BOOL)),
    "llama_token_to_piece": (_INT, (_POINTER, _INT, _POINTER, _INT, _INT, _BOOL)),
    "llama_sampler_apply": (None, (_POINTER, ctypes.POINTER(_TokenArray))),
    "llama_sampler_accept": (None, (_POINTER, _INT)),
    "llama_sampler_clone": (_POINTER, (_POINTER,)),
    "llama_sampler_free": (None, (_POINTER,)),
}
# C++, and so by its mangled name: a sampler that holds a text to a grammar of llguidance
_GRAMMAR = "_Z22llama_sampler_init_llgPK11llama_vocabPKcS3_"
_loading = threading.Lock()


@contextmanager
def sleeping_threads() -> Iterator[None]:
    """While the library is loaded: its threads are to sleep when they wait for each other.

    The OpenMP runtime reads this once. Threads that spin instead take the processor from the very thread
    they wait for wherever another program runs.
    """
    kept = os.environ.get("OMP_WAIT_POLICY")
    if kept is not None:
        yield
        return
    os.environ["OMP_WAIT_POLICY"] = "passive"
    try:
        yield
    finally:
        del os.environ["OMP_WAIT_POLICY"]


def xllamacpp(purpose: str) -> Any:
    """The package, loaded so that its threads sleep while they wait."""
    with _loading, sleeping_threads():
        return require("xllamacpp", extra="embedded", purpose=purpose)


def processors() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _library() -> Any:
    package = xllamacpp("The embedded model")
    try:
        library = ctypes.CDLL(package.xllamacpp.__file__)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, list(arguments)
        grammar = getattr(library, _GRAMMAR)
        grammar.restype, grammar.argtypes = _POINTER, [_POINTER, _TEXT, _TEXT]
    except (AttributeError, OSError) as error:
        raise BackendError(_unknown(package, str(error))) from error
    defaults = bytes(library.llama_context_default_params().content)
    first = struct.unpack_from("<4i", defaults)
    threads = struct.unpack_from("<2i", defaults, 4 * _THREADS_AT)
    switches = defaults[_SWITCHES_AT : _SWITCHES_AT + len(_SWITCHES)]
    if (first, threads, switches) != (_INTS_AT_FIRST, _THREADS, _SWITCHES):
        raise BackendError(_unknown(package, "its parameters lie otherwise"))
    library.llama_log_set(_silent, None)
    library.llama_backend_init()
    return library


def _unknown(package: Any, why: str) -> str:
    return (
        f"the installed xllamacpp {getattr(package, '__version__', '(unknown)')} is not the one that this "
        f"version of Suffice knows ({why}); install that: pip install 'suffice[embedded]'"
    )


class LlamaModel:
    """Weights and vocabulary; contexts may share them. :meth:`close` it after its contexts."""

    def __init__(self, path: Path) -> None:
        self._api = _library()
        with _loading:
            self._pointer = self._api.llama_model_load_from_file(
                os.fsencode(path), self._api.llama_model_default_params()
            )
        if not self._pointer:
            raise BackendError(
                f"llama.cpp could not load {str(path)!r}. Check that the file is complete, and that "
                "llama.cpp knows its architecture"
            )
        recurrent = self._api.llama_model_is_recurrent, self._api.llama_model_is_hybrid
        if any(is_so(self._pointer) for is_so in (*recurrent, self._api.llama_model_has_encoder)):
            self.close()
            raise UsageError(
                f"{str(path)!r} holds a recurrent or an encoder model, whose samples cannot share a "
                "prompt; serve it with llama-server and name its URL: --llm http://..."
            )
        self.vocabulary = self._api.llama_model_get_vocab(self._pointer)
        self.size = int(self._api.llama_vocab_n_tokens(self.vocabulary))
        self._pieces: dict[int, bytes] = {}

    @property
    def chat_template(self) -> str | None:
        """The template of the file, in Jinja; ``None``: it has none."""
        template = self._api.llama_model_chat_template(self._pointer, None)
        return None if template is None else template.decode("utf-8", errors="replace")

    @property
    def begin(self) -> str:
        """How the token that begins a text is written; may be empty."""
        return self._written(self._api.llama_vocab_bos(self.vocabulary))

    @property
    def end(self) -> str:
        """How the token that ends a text is written; may be empty."""
        return self._written(self._api.llama_vocab_eos(self.vocabulary))

    def tokenize(self, text: str, *, begins: bool = True) -> list[int]:
        """The tokens of a text, special ones read as such; ``begins``: with what begins a text."""
        content = text.encode("utf-8", errors="replace")
        room = len(content) + 8
        tokens = (ctypes.c_int32 * room)()
        count = self._api.llama_tokenize(
            self.vocabulary, content, len(content), tokens, room, begins, True
        )
        if count < 0:
            raise BackendError(f"llama.cpp could not tokenize a prompt of {len(text)} characters")
        return list(tokens[:count])

    def piece(self, token: int) -> bytes:
        """What a token adds to a text; nothing for those that only end or mark one."""
        piece = self._pieces.get(token)
        if piece is None:
            buffer = ctypes.create_string_buffer(512)
            count = self._api.llama_token_to_piece(
                self.vocabulary, token, buffer, len(buffer), 0, False
            )
            piece = self._pieces[token] = buffer.raw[: max(count, 0)]
        return piece

    def ends(self, token: int) -> bool:
        """Whether a text is over at this token."""
        return bool(self._api.llama_vocab_is_eog(self.vocabulary, token))

    def context(self, *, tokens: int, threads: int) -> LlamaContext:
        """Room to decode in; ``tokens`` is what all its sequences hold together."""
        parameters = self._api.llama_context_default_params()
        struct.pack_into("<4i", parameters.content, 0, tokens, BATCH, BATCH, SEQUENCES)
        struct.pack_into("<2i", parameters.content, 4 * _THREADS_AT, threads, threads)
        parameters.content[_SWITCHES_AT + 5] = 1  # sequences share what they have in common
        with _loading:
            pointer = self._api.llama_init_from_model(self._pointer, parameters)
        if not pointer:
            raise BackendError(
                f"llama.cpp could not make room for n_ctx={tokens}; check that there is memory for it, "
                "or lower EmbeddedSettings(n_ctx=)"
            )
        return LlamaContext(self._api, pointer, self.size)

    def grammar(self, text: str) -> Grammar | None:
        """What holds a text to a grammar in llguidance's Lark; ``None``: llama.cpp cannot read it."""
        pointer = getattr(self._api, _GRAMMAR)(self.vocabulary, b"lark", text.encode())
        return Grammar(self._api, pointer) if pointer else None

    def close(self) -> None:
        """Free the weights."""
        if self._pointer:
            self._api.llama_model_free(self._pointer)
        self._pointer = None

    def _written(self, token: int) -> str:
        text = b"" if token < 0 else self._api.llama_vocab_get_text(self.vocabulary, token)
        return (text or b"").decode("utf-8", errors="replace")


class Grammar:
    """A text's place in a grammar."""

    def __init__(self, api: Any, pointer: int) -> None:
        self._api = api
        self._pointer = pointer

    def allowed(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """The logits, with negative infinity for tokens that cannot come next; (vocabulary,)."""
        data = np.empty(len(logits), dtype=_TOKEN_DATA)
        data["id"] = np.arange(len(logits))
        data["logit"] = logits
        data["p"] = 0
        array = _TokenArray(data.ctypes.data, len(data), -1, sorted=False)
        self._api.llama_sampler_apply(self._pointer, ctypes.byref(array))
        return data["logit"].copy()

    def accept(self, token: int) -> None:
        """The text goes on with this token."""
        self._api.llama_sampler_accept(self._pointer, token)

    def copy(self) -> Grammar:
        """Another text at the same place."""
        return Grammar(self._api, self._api.llama_sampler_clone(self._pointer))

    def __del__(self) -> None:
        self._api.llama_sampler_free(self._pointer)


class LlamaContext:
    """Evaluated tokens of up to :data:`SEQUENCES` sequences. For one thread at a time."""

    def __init__(self, api: Any, pointer: int, vocabulary: int) -> None:
        self._api = api
        self._pointer: int | None = pointer
        self._memory = api.llama_get_memory(pointer)
        self._vocabulary = vocabulary
        self._tokens = np.zeros(BATCH, dtype=np.int32)
        self._positions = np.zeros(BATCH, dtype=np.int32)
        self._ones = np.ones(BATCH, dtype=np.int32)
        self._sequences = np.zeros(BATCH, dtype=np.int32)
        self._wanted = np.zeros(BATCH, dtype=np.int8)
        self._addresses = self._sequences.ctypes.data + 4 * np.arange(BATCH, dtype=np.uint64)

    def decode(self, rows: Sequence[Column]) -> bool:
        """Evaluate tokens, at most :data:`BATCH`.

        False: there is no room, and nothing was done.
        """
        count = len(rows)
        columns = np.array(rows, dtype=np.int32).T
        self._tokens[:count], self._positions[:count], self._sequences[:count] = columns[:3]
        self._wanted[:count] = columns[3]
        batch = _Batch(
            count,
            self._tokens.ctypes.data,
            None,
            self._positions.ctypes.data,
            self._ones.ctypes.data,
            self._addresses.ctypes.data,
            self._wanted.ctypes.data,
        )
        status = self._api.llama_decode(self._pointer, batch)
        if status not in (0, _NO_ROOM):
            raise BackendError(f"llama.cpp failed to decode {count} tokens (status {status})")
        return bool(status == 0)

    def logits(self, row: int) -> NDArray[np.float32]:
        """Those of a row of the last decoding, (vocabulary,); overwritten by the next."""
        pointer = self._api.llama_get_logits_ith(self._pointer, row)
        return np.ctypeslib.as_array(pointer, (self._vocabulary,))

    def share(self, source: int, target: int, end: int) -> None:
        """Let ``target``, which is empty, hold what ``source`` holds before position ``end``."""
        self._api.llama_memory_seq_cp(self._memory, source, target, 0, end)

    def forget(self, sequence: int, start: int = 0) -> None:
        """Let a sequence hold nothing from position ``start`` on."""
        self._api.llama_memory_seq_rm(self._memory, sequence, start, -1)

    def close(self) -> None:
        """Free it; may be called twice."""
        if self._pointer:
            self._api.llama_free(self._pointer)
        self._pointer = None


def quiet_params(path: Path, *, threads: int, purpose: str) -> Any:
    """Parameters of a server of one GGUF file that prints nothing and takes any free port."""
    params = xllamacpp(purpose).CommonParams()
    params.model.path = str(path)
    params.model_alias = {path.stem}
    params.port = 0
    params.ui = False
    params.fit_params = False
    params.verbosity = -1  # nothing on stdout or stderr
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    return params


def start_server(params: Any, *, check: str) -> Any:
    """The server, its weights loaded; ``check`` says in errors what else to look at."""
    try:
        return xllamacpp("The embedded model").Server(params)
    except RuntimeError as error:
        raise BackendError(
            f"llama.cpp could not load {str(params.model.path)!r}: {error} Check that the file is complete, "
            f"that llama.cpp knows its architecture{check}"
        ) from error
