"""The viewer on a port of this machine."""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from suffice.errors import UsageError
from suffice.view.app import Shown, viewer_app

_ADDRESS = "127.0.0.1"


class _Server(uvicorn.Server):
    """Ends what pages follow when it is ended itself."""

    def __init__(self, shown: Shown, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._shown = shown

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """At an interrupt."""
        self._shown.ended = True
        super().handle_exit(sig, frame)


def listen(shown: Shown, port: int, up: Callable[[str], None]) -> None:
    """Answer on a port of the loopback address until an interrupt; ``up`` is told where.

    Raises
    ------
    UsageError
        When the port is taken.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((_ADDRESS, port))
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"port {port} of {_ADDRESS} cannot be listened on ({error}); choose another with --port N, "
                "0 takes any that is free"
            ) from error
        server = _Server(
            shown,
            uvicorn.Config(
                viewer_app(shown),
                log_level="warning",
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_graceful_shutdown=3,
                h11_max_incomplete_event_size=32 * 1024,
            ),
        )
        up(f"http://{_ADDRESS}:{listening.getsockname()[1]}/")
        server.run(sockets=[listening])
