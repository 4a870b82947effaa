"""A server on this machine that answers as a test wants it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]
# status, headers, and a body: bytes as they are, anything else as JSON
Answer = tuple[int, dict[str, str], object]


def refuse(status: int, message: str = "no", **headers: str) -> Answer:
    return status, headers | {"retry-after-ms": "1"}, {"error": {"message": message}}


class Server:
    """``answer`` is called with each request's body; what was asked is kept."""

    def __init__(self, answer: Callable[[Body], Answer]) -> None:
        self.answer = answer
        self.bodies: list[Body] = []
        self.paths: list[str] = []
        self.keys: list[str] = []
        self.models: list[str] = ["only"]
        self.seen: list[dict[str, str]] = []  # headers of every request, names in small letters
        self.asked: list[str] = []  # path of every request
        self.redirect: tuple[int, str] | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def parse_request(self) -> bool:
                parsed = super().parse_request()
                if parsed:
                    outer.seen.append({name.lower(): value for name, value in self.headers.items()})
                    outer.asked.append(self.path)
                return parsed

            def do_GET(self) -> None:
                data = [{"id": name, "object": "model"} for name in outer.models]
                self.send(200, {}, {"object": "list", "data": data})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.bodies.append(body)
                outer.paths.append(self.path)
                outer.keys.append(self.headers["authorization"])
                self.send(*outer.answer(body))

            def send(self, status: int, headers: dict[str, str], content: object) -> None:
                if outer.redirect is not None:
                    status, headers["location"] = outer.redirect
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in {"content-type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Keep stderr quiet."""

        class Quiet(ThreadingHTTPServer):
            request_queue_size = 64

            def handle_error(self, request: object, client_address: object) -> None:
                """Clients of these tests hang up on purpose."""

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        self.thread = threading.Thread(
            target=self.http.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self.thread.start()

    def answers(self, *answers: Answer | Callable[[Body], Answer]) -> None:
        """Give these in order, the last one for ever."""
        left = list(answers)

        def answer(body: Body) -> Answer:
            current = left.pop(0) if len(left) > 1 else left[0]
            return current(body) if callable(current) else current

        self.answer = answer

    def contents(self, content: Callable[[Body], object]) -> None:
        """Accept every request and give this."""
        self.answer = lambda body: (200, {}, content(body))

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@contextmanager
def taking_posts(*statuses: int, location: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Answers with these statuses in turn, the last for good; what was posted."""
    headers = {"location": location} if location else {}
    server = Server(lambda _: (200, {}, b""))
    server.answers(*((status, dict(headers), b"") for status in statuses))
    try:
        yield f"http://127.0.0.1:{server.http.server_port}/hook/s3cret-t0ken", server.bodies
    finally:
        server.close()
