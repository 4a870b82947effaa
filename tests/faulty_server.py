"""A model server on this machine that misbehaves in a share of its calls, in every way we know of."""

from __future__ import annotations

import functools
import hashlib
import json
import random
import socket
import struct
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Body = dict[str, Any]
Reply = Callable[[Body], Any]


def said(body: Body) -> dict[str, Any]:
    """A reply made of the request alone, so that it is the same whenever it is asked for.

    Sample i of seed s is sample 0 of seed s + i; what it costs is what the prompt is long.
    """
    prompt = json.dumps(body.get("messages", body.get("prompt")), sort_keys=True)
    chat = "messages" in body
    choices = []
    for i in range(body.get("n", 1)):
        seed = body.get("seed", 0) + i if body.get("temperature") else 0
        digest = hashlib.sha256(f"{prompt}{seed}".encode()).digest()
        words = [f"w{byte % 7}" for byte in digest[:3]]
        choice: dict[str, Any] = {"index": i, "finish_reason": "stop"}
        text = " ".join(words)
        choice |= {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        if body.get("logprobs"):
            choice["logprobs"] = {
                "content": [_token(w, b) for w, b in zip(words, digest[3:6], strict=True)]
            }
        choices.append(choice)
    usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": 3 * len(choices)}
    return {"object": "chat.completion", "choices": choices, "usage": usage}


def _token(word: str, byte: int) -> dict[str, Any]:
    top = [{"token": word, "logprob": -byte / 100}, {"token": "x", "logprob": -byte / 50 - 1}]
    return {"token": word, "logprob": -byte / 100, "top_logprobs": top}


def vectors(body: Body) -> dict[str, Any]:
    """Eight numbers for every text, made of the text alone."""
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    digests = [hashlib.sha256(text.encode()).digest() for text in texts]
    rows = [[(byte - 127.5) / 128 for byte in digest[:8]] for digest in digests]
    return {"data": [{"index": i, "embedding": row} for i, row in enumerate(rows)]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """How long and how large faults are.

    ``retry_after_s`` may be a date; ``hang_s`` is also how long a drip goes on. The client should hang up
    before.
    """

    retry_after_s: float | str = 0.05
    hang_s: float = 30.0
    drip_s: float = 0.02
    giant_bytes: int = 300_000_000
    bomb_bytes: int = 300_000_000
    depth: int = 200_000


class Faults:
    """What a handler does instead of replying: each method is one fault, named as in :data:`FAULTS`."""

    def __init__(self, handler: _Handler, body: Body, reply: Any, amounts: Amounts) -> None:
        self.to = handler
        self.body = body
        self.reply = reply
        self.amounts = amounts

    def busy(self) -> None:
        self.to.send_json(429, {"error": {"message": "Rate limit reached"}})

    def busy_for(self) -> None:
        headers = {"retry-after": str(self.amounts.retry_after_s)}
        self.to.send_json(429, {"error": {"message": "Too many requests"}}, headers)

    def busy_for_days(self) -> None:
        self.to.send_json(429, {"error": {"message": "Slow down"}}, {"retry-after": "172800"})

    def error(self) -> None:
        self.to.send_json(500, {"error": {"message": "CUDA error: out of memory"}})

    def gateway(self) -> None:
        self.to.send_bytes(
            502, b"<html><h1>502 Bad Gateway</h1></html>", {"content-type": "text/html"}
        )

    def echo_key(self) -> None:
        heard = str(self.to.headers["authorization"])
        self.to.send_json(500, {"error": {"message": f"bad upstream, sent Authorization: {heard}"}})

    def hang(self) -> None:
        self.to.outer.gone.wait(self.amounts.hang_s)
        self.to.close_connection = True

    def drip(self) -> None:
        """The status and then a blank at a time: every read gets something, and the reply never ends."""
        self.to.begin(200, {"content-length": "100000000"})
        self._drop(b" ")

    def drip_head(self) -> None:
        self.to.wfile.write(b"HTTP/1.1 200 OK\r\nx-slow: ")
        self._drop(b"a")

    def _drop(self, byte: bytes) -> None:
        end = time.monotonic() + self.amounts.hang_s
        while time.monotonic() < end and not self.to.outer.gone.wait(self.amounts.drip_s):
            self.to.wfile.write(byte)
        self.to.close_connection = True

    def cut_body(self) -> None:
        """Less than the head promises."""
        data = json.dumps(self.reply).encode()
        self.to.begin(200, {"content-length": str(len(data))})
        self.to.wfile.write(data[: len(data) // 2])
        self.to.close_connection = True

    def cut_stream(self) -> None:
        """Chunks that stop without the last one."""
        data = self.to.written(200, self.reply)
        self.to.begin(200, {"transfer-encoding": "chunked", **self.to.kind})
        self.to.wfile.write(b"%x\r\n%s\r\n" % (len(data) // 2, data[: len(data) // 2]))
        self.to.close_connection = True

    def reset(self) -> None:
        """Nothing at all: the connection is torn down."""
        once = struct.pack("ii", 1, 0)
        self.to.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, once)
        self.to.close_connection = True

    def broken_json(self) -> None:
        self.to.send_bytes(200, json.dumps(self.reply).encode()[:-9], self.to.kind)

    def html(self) -> None:
        self.to.send_bytes(200, b"<html>Please sign in</html>", {"content-type": "text/html"})

    def empty(self) -> None:
        self.to.send_bytes(200, b"")

    def no_choices(self) -> None:
        self.to.send_json(200, self.reply | {"choices": [], "data": []})

    def choiceless(self) -> None:
        self.to.send_json(200, {"object": "error", "code": 50001, "message": "engine is dead"})

    def null_content(self) -> None:
        for choice in self.reply.get("choices", ()):
            choice.pop("text", None)
            choice["message"] = {"role": "assistant", "content": None}
        for row in self.reply.get("data", ()):
            row["embedding"] = None
        self.to.send_json(200, self.reply)

    def wrong_type(self) -> None:
        self.to.send_json(200, {"choices": {"0": "text"}, "data": "none", "usage": []})

    def number_content(self) -> None:
        for choice in self.reply.get("choices", ()):
            choice.update({"text": 12} if "text" in choice else {"message": {"content": 12}})
        for row in self.reply.get("data", ()):
            row["embedding"] = "1.5"
        self.to.send_json(200, self.reply)

    def too_few(self) -> None:
        for name in ("choices", "data"):
            if name in self.reply:
                self.reply[name] = self.reply[name][:-1]
        self.to.send_json(200, self.reply)

    def too_many(self) -> None:
        for name in ("choices", "data"):
            if name in self.reply:
                rows = self.reply[name]
                self.reply[name] = [*rows, {**rows[-1], "index": len(rows)}]
        self.to.send_json(200, self.reply)

    def nan_logprobs(self) -> None:
        for choice in self.reply.get("choices", ()):
            for token in (choice.get("logprobs") or {}).get("content", ()):
                token["logprob"] = float("nan")
        for row in self.reply.get("data", ()):
            row["embedding"] = [float("nan")] * len(row["embedding"])
        self.to.send_json(200, self.reply)

    def long_number(self) -> None:
        """Integers of 400 digits, which no float holds."""
        self.reply["created"] = 10**400
        for choice in self.reply.get("choices", ()):
            for token in (choice.get("logprobs") or {}).get("content", ()):
                token["logprob"] = -(10**400)
        for row in self.reply.get("data", ()):
            row["embedding"][0] = 10**400
        self.to.send_json(200, self.reply)

    def longer_number(self) -> None:
        """An integer of so many digits that Python reads none of it."""
        data = json.dumps(self.reply).encode()
        self.to.send_bytes(200, b'{"created": ' + b"9" * 5000 + b", " + data[1:])

    def deep(self) -> None:
        depth = self.amounts.depth
        self.to.send_bytes(200, b'{"choices": ' + b"[" * depth + b"]" * depth + b"}")

    def giant(self) -> None:
        """A whole reply with a text as long as nobody wants it."""
        head, tail = b'{"choices": [{"text": "', b'"}]}'
        chunk = b"a" * 65_536
        chunks = self.amounts.giant_bytes // len(chunk)
        length = len(head) + chunks * len(chunk) + len(tail)
        self.to.begin(200, {"content-length": str(length)})
        self.to.wfile.write(head)
        for _ in range(chunks):
            self.to.wfile.write(chunk)
        self.to.wfile.write(tail)

    def bomb(self) -> None:
        """Little to send and much to unpack."""
        self.to.send_bytes(200, _bomb(self.amounts.bomb_bytes), {"content-encoding": "gzip"})

    def _absurd_usage(self) -> None:
        self.reply["usage"] = {"prompt_tokens": 10**30, "completion_tokens": 10**400}
        self.to.send_json(200, self.reply)


@functools.cache
def _bomb(size: int) -> bytes:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    zeros = b" " * 1_000_000
    return b"".join(squeeze.compress(zeros) for _ in range(size // len(zeros))) + squeeze.flush()


FAULTS: tuple[str, ...] = tuple(
    name for name, value in vars(Faults).items() if callable(value) and not name.startswith("_")
)
"""Every fault after which the same call, made again, gives what it would have given."""
ABSURD_USAGE = "_absurd_usage"
"""A reply that is good but for its counts: these are unknown then."""


@dataclass(slots=True, kw_only=True)
class Misbehaviour:
    """Which calls fail, and how: a ``share`` of them, drawn by ``seed`` in the order in which they come.

    ``plan`` is what the first calls do, one name each, ``ok`` for a reply. ``listing``: the list of models
    fails too.
    """

    share: float = 0.3
    faults: Sequence[str] = FAULTS
    plan: Sequence[str] = ()
    seed: int = 0
    listing: bool = False
    amounts: Amounts = field(default_factory=Amounts)


class FaultyServer:
    """Answers ``/v1/chat/completions``, ``/v1/completions``, ``/v1/embeddings`` and ``/v1/models``.

    ``calls`` counts what it did by name, ``ok`` for replies; ``bodies`` are the requests it read.
    """

    def __init__(self, misbehaviour: Misbehaviour | None = None, *, reply: Reply = said) -> None:
        self.misbehaviour = misbehaviour or Misbehaviour()
        self.reply = reply
        self.calls: Counter[str] = Counter()
        self.bodies: list[Body] = []
        self.gone = threading.Event()
        self._lock = threading.Lock()
        self._random = random.Random(self.misbehaviour.seed)
        self._plan = list(self.misbehaviour.plan)
        self._port = 0
        self._start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def failed(self) -> int:
        return sum(count for name, count in self.calls.items() if name != "ok")

    def draw(self, *, fails: bool = True) -> str:
        """What the next call gets."""
        how = self.misbehaviour
        with self._lock:
            if not fails:
                name = "ok"
            elif self._plan:
                name = self._plan.pop(0)
            elif self._random.random() >= how.share:
                name = "ok"
            else:
                name = self._random.choices(list(how.faults))[0]
            self.calls[name] += 1
        return name

    @contextmanager
    def away(self) -> Iterator[None]:
        """It is dead meanwhile: connections are refused. It comes back at the same port."""
        self.close()
        try:
            yield
        finally:
            self._start()

    def close(self) -> None:
        self.gone.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        self.gone.clear()
        self._http = _Http(("127.0.0.1", self._port), _Handler)
        self._http.outer = self
        self._port = self._http.server_port
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()


class _Http(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    outer: FaultyServer

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients hang up on what it does."""


def _pieces(reply: Any) -> Iterator[str]:
    """A reply as a server streams it, the text of each choice word by word; what is no reply as it is."""
    choices = reply.get("choices") if isinstance(reply, dict) else None
    if not isinstance(choices, list):
        yield json.dumps(reply)
        return
    held = {name: value for name, value in reply.items() if name != "choices"}
    for choice in choices:
        text = (choice.get("message") or {}).get("content")
        for piece in text.split(" ") if isinstance(text, str) else [text]:
            said = f"{piece} " if isinstance(piece, str) else piece
            yield json.dumps({"choices": [{"index": 0, "delta": {"content": said}}]})
        end = {**choice, "delta": {}, "finish_reason": "stop"}
        yield json.dumps({**held, "choices": [{k: v for k, v in end.items() if k != "message"}]})
    if not choices:
        yield json.dumps(reply)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http
    streams = False

    @property
    def outer(self) -> FaultyServer:
        return self.server.outer

    def do_GET(self) -> None:
        models = {"object": "list", "data": [{"id": "only", "object": "model"}]}
        self._answer({}, models, fails=self.outer.misbehaviour.listing)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.outer.bodies.append(body)
        embeds = self.path.endswith("/embeddings")
        self.streams = bool(body.get("stream"))
        self._answer(body, vectors(body) if embeds else self.outer.reply(body))

    def _answer(self, body: Body, reply: Any, *, fails: bool = True) -> None:
        name = self.outer.draw(fails=fails)
        if name == "ok":
            self.send_json(200, reply)
        else:
            getattr(Faults(self, body, reply, self.outer.misbehaviour.amounts), name)()

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def send_bytes(
        self, status: int, data: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        self.begin(status, {"content-length": str(len(data)), **(headers or {})})
        self.wfile.write(data)

    def send_json(
        self, status: int, content: object, headers: Mapping[str, str] | None = None
    ) -> None:
        kind = self.kind if status == 200 else {}
        self.send_bytes(status, self.written(status, content), {**kind, **(headers or {})})

    @property
    def kind(self) -> Mapping[str, str]:
        """How a good reply says what it is."""
        return {"content-type": "text/event-stream"} if self.streams else {}

    def written(self, status: int, content: object) -> bytes:
        """JSON, or where a stream was asked for its events."""
        if not self.streams or status != 200:
            return json.dumps(content).encode()
        return "".join(f"data: {event}\n\n" for event in (*_pieces(content), "[DONE]")).encode()

    def log_message(self, *_: object) -> None:
        """Keep stderr quiet."""
