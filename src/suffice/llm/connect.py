"""Connection to a model by name, with its replies cached on disk."""

from __future__ import annotations

import glob
import hashlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, Self

from suffice.contracts import ChatModel, Completion, Generation, GenerationRequest
from suffice.errors import BackendError, DataError, UsageError
from suffice.llm.embedded import EmbeddedModel, EmbeddedSettings
from suffice.llm.endpoint import OpenAISettings
from suffice.llm.openai_compatible import OpenAICompatibleModel
from suffice.llm.wire import Closable, schema_text
from suffice.trace.durable import Shard
from suffice.trace.engines import FileKind
from suffice.trace.rounds.records import Token, known_sum, record_of_document
from suffice.trace.store import Store

_REPLIES = ".replies"
_KIND = FileKind(
    name="cache of replies",
    tables="""
CREATE TABLE calls (id INTEGER PRIMARY KEY, cost TEXT NOT NULL);
CREATE TABLE samples (
    key TEXT NOT NULL, sample INTEGER NOT NULL, call INTEGER NOT NULL, completion TEXT NOT NULL,
    PRIMARY KEY (key, sample)) WITHOUT ROWID
""",
    application=0x53554646,  # SUFF
    remedy="delete it: the model can give its replies again",
    again="; then run the same command again: what is finished is kept",
)
_COUNTS = ("prompt_tokens", "cached_tokens", "completion_tokens", "latency_s")
_Row = tuple[int, str]


def request_key(request: GenerationRequest, *, model: str, endpoint: str, api: str) -> str:
    """Return the SHA-256 of all inputs of a reply except the number of samples, as 64 hex digits."""
    asked = asdict(replace(request, json_schema=None, tell=None))
    del asked["n"], asked["tell"]
    if request.json_schema is None:
        del asked["json_schema"]  # a request without one keeps the key it had before there were any
    else:
        asked["json_schema"] = schema_text(request.json_schema)
    identity = {"api": api, "endpoint": endpoint, "model": model, "request": asked}
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


class CachedModel(Closable):
    """Cache a model's replies in a file; a :class:`suffice.contracts.ChatModel`.

    Every sample has its own row. A request for five samples after three draws the missing two. If a seed is
    set, it is then ``seed + 3``, so samples are never copies of each other. Requests without a seed are
    cached too: a repeated request gives the same texts.

    A cached reply carries the usage and latency of its calls: the sum if the samples come from several
    calls, the whole call's if fewer samples are requested than it drew.

    Safe under threads and processes of one machine: if two miss the same sample at once, the first to write
    wins, and both return its text.
    """

    name: str
    api: Literal["chat", "completion"]

    def __init__(self, model: ChatModel, path: str | Path) -> None:
        self._model, self._store = model, Store(path, stays=True, kind=_KIND)
        with self._store.transaction():
            pass

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the wrapped model."""
        return getattr(vars(self)["_model"], name)

    @property
    def endpoint(self) -> str:
        """Return the wrapped model's endpoint; empty: none."""
        return str(getattr(self._model, "endpoint", ""))

    @property
    def model(self) -> ChatModel:
        return self._model

    def generate(self, request: GenerationRequest) -> Generation:
        """Return the completions, from the file if it holds them."""
        key = request_key(request, model=self.name, endpoint=self.endpoint, api=self.api)
        with self._store.transaction() as database:
            rows = _rows(database, key, request.n)
            if len(rows) == request.n:
                return _reply(database, rows)
        have = len(rows)
        seed = None if request.seed is None else request.seed + have
        drawn = self._model.generate(replace(request, n=request.n - have, seed=seed))
        if len(drawn.completions) != request.n - have:
            raise BackendError(
                f"model {self.name!r} gave {len(drawn.completions)} texts where {request.n - have} "
                "were asked for"
            )
        with self._store.transaction() as database:
            _write(database, key, have, drawn)
            return _reply(database, _rows(database, key, request.n))

    def close(self) -> None:
        self._store.disconnect()
        close = getattr(self._model, "close", None)
        if callable(close):
            close()


class KeptReplies(CachedModel):
    def __init__(self, model: ChatModel, out: Path, shard: Shard | None = None) -> None:
        one_file = out.suffix == ".parquet"
        place = (
            out.with_name(f".{out.name}{_REPLIES}")
            if one_file
            else out / f"{_REPLIES}{'' if shard is None else f'-{shard.name}'}"
        )
        self._model, self._store = model, Store(place, stays=True, kind=_KIND)
        self._here_asked = threading.local()

    @contextmanager
    def until(self, whole: Callable[[], bool]) -> Iterator[Self]:
        """Return itself; at the end close the file, and delete it if all is ``whole``."""
        try:
            yield self
        finally:
            self._store.disconnect()
            if whole():
                self._delete()

    def generate(self, request: GenerationRequest) -> Generation:
        """Return the completions from the cache; start a new file if it is damaged."""
        key = request_key(request, model=self.name, endpoint=self.endpoint, api=self.api)
        vars(self._here_asked).setdefault("keys", []).append(key)
        try:
            return super().generate(request)
        except DataError:
            self._store.disconnect()
            self._delete()
            return super().generate(request)

    def asked(self) -> tuple[str, ...]:
        """Return the keys of this thread's requests since the last call."""
        return tuple(vars(self._here_asked).pop("keys", ()))

    def drop(self, keys: Iterable[str]) -> None:
        each = [(key,) for key in keys]
        if not each:
            return
        with self._store.transaction() as database:
            database.executemany(
                "DELETE FROM calls WHERE id IN (SELECT call FROM samples WHERE key = ?)", each
            )
            database.executemany("DELETE FROM samples WHERE key = ?", each)

    def _delete(self) -> None:
        """Delete the file; without a shard delete those of all shards, since none is at work now."""
        place = self._store.file
        for file in place.parent.glob(f"{glob.escape(place.name)}*"):
            file.unlink(missing_ok=True)


def _rows(database: sqlite3.Connection, key: str, n: int) -> list[_Row]:
    rows = database.execute(
        "SELECT sample, call, completion FROM samples WHERE key = ? AND sample < ? ORDER BY sample",
        (key, n),
    ).fetchall()
    return [(call, text) for at, (sample, call, text) in enumerate(rows) if at == sample]


def _reply(database: sqlite3.Connection, rows: list[_Row]) -> Generation:
    completions = tuple(_completion(json.loads(text)) for _, text in rows)
    calls = sorted({call for call, _ in rows})
    ask = "SELECT cost FROM calls WHERE id = ?"
    costs = [json.loads(database.execute(ask, (call,)).fetchone()[0]) for call in calls]
    sums = {name: known_sum([cost[name] for cost in costs]) for name in _COUNTS}
    return Generation(completions=completions, model=costs[0]["model"], **sums)


def _write(database: sqlite3.Connection, key: str, first: int, drawn: Generation) -> None:
    cost = {"model": drawn.model} | {name: getattr(drawn, name) for name in _COUNTS}
    call = database.execute("INSERT INTO calls (cost) VALUES (?)", (json.dumps(cost),)).lastrowid
    kept = 0
    for at, completion in enumerate(drawn.completions):
        kept += database.execute(
            "INSERT OR IGNORE INTO samples VALUES (?, ?, ?, ?)",
            (key, first + at, call, json.dumps(asdict(completion))),
        ).rowcount
    if not kept:
        database.execute("DELETE FROM calls WHERE id = ?", (call,))


def _completion(data: dict[str, Any]) -> Completion:
    tokens = data["tokens"]
    if tokens is not None:
        tokens = tuple(record_of_document(Token, one, column="tokens") for one in tokens)
    return Completion(**data | {"tokens": tokens})


def connect(
    llm: str,
    model: str | None = None,
    *,
    server: OpenAISettings | None = None,
    embedded: EmbeddedSettings | None = None,
    cache: str | Path | None = None,
) -> ChatModel:
    connected: ChatModel
    if llm == "embedded":
        connected = EmbeddedModel.load(model, settings=embedded)
    elif "," in llm:
        raise UsageError(
            f"--llm takes one server, found {llm!r}; put several behind a LiteLLM proxy and name its URL"
        )
    elif llm.startswith(("http://", "https://")):
        connected = OpenAICompatibleModel(llm, model, settings=server)
    else:
        raise UsageError(
            f"unknown language model {llm!r}; allowed are a server's base URL (http://... or "
            "https://...) and 'embedded'; the command line also takes 'scripted'"
        )
    return connected if cache is None else CachedModel(connected, cache)
