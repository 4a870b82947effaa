"""Shards on a Ray cluster: an executor over Ray tasks.

A task carries a function's name and the description of a shard, never a record. The workers read the files
themselves, so every machine needs the files under the same path, and this version installed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from suffice._optional import require
from suffice._version import VERSION
from suffice.errors import BackendError, UsageError, first_line

Result = TypeVar("Result")

ANSWERS_S = 30.0
"""Seconds within which a cluster must answer."""
REPLACED = 3
"""How often a worker that dies is replaced and its shard done again."""


def ray_address(text: str) -> str:
    """Return an address for Ray; empty: ``RAY_ADDRESS``, a cluster on this machine, or a new one."""
    if text not in {"", "auto", "local"} and _host_and_port(text) is None:
        raise UsageError(
            f"a Ray cluster is HOST:PORT, ray://HOST:PORT, auto (one that runs on this machine) or local (a "
            f"new one), found {text!r}; with no address write --ray last"
        )
    return text


def _host_and_port(address: str) -> tuple[str, int] | None:
    try:
        place = urlsplit(f"//{address.removeprefix('ray://')}")
        host, port = place.hostname, place.port
    except ValueError:
        return None
    return (host, port) if host and port and not place.path else None


class RayExecutor(Executor):
    """Run functions as tasks of a Ray cluster; a dead worker's task runs again on another."""

    def __init__(self, address: str = "") -> None:
        self._ray = require("ray", purpose="a Ray cluster", extra="ray")
        self._connected_here = not self._ray.is_initialized()
        if self._connected_here:
            _connect(self._ray, ray_address(address))
        self._task = self._ray.remote(num_cpus=1, max_retries=REPLACED)(_called)
        self._under_way: dict[Future[Any], Any] = {}
        self._closed = False
        self._folder = str(Path.cwd())
        self.count: int = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._check_version()

    def submit(
        self, function: Callable[..., Result], /, *arguments: Any, **named: Any
    ) -> Future[Result]:
        """Submit a call and return its future; the workers must be able to import the function."""
        if self._closed:
            raise RuntimeError("the executor was shut down")
        reference = self._task.remote(self._folder, function, arguments, named)
        future: Future[Result] = Future()
        future.set_running_or_notify_cancel()
        self._under_way[future] = reference
        reference.future().add_done_callback(lambda ended: self._end(future, ended))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """Disconnect from the cluster; end one that was started here."""
        self._closed = True
        under_way = dict(self._under_way)
        for future, reference in under_way.items():
            if cancel_futures:
                self._ray.cancel(reference, force=True)
            elif wait:
                future.exception()
        if self._connected_here:
            self._connected_here = False
            self._ray.shutdown()

    def __exit__(self, *raised: object) -> None:
        """Disconnect; after an interrupt, do not wait for running tasks."""
        self.shutdown(cancel_futures=raised[0] is KeyboardInterrupt)

    def _end(self, future: Future[Any], ended: Future[Any]) -> None:
        self._under_way.pop(future, None)
        error = ended.exception()
        if error is None:
            future.set_result(ended.result())
        else:
            future.set_exception(self._error(error))

    def _error(self, error: BaseException) -> BaseException:
        raised = self._ray.exceptions
        if isinstance(error, raised.RayTaskError):
            return error.cause if isinstance(error.cause, BaseException) else error
        if isinstance(
            error, raised.WorkerCrashedError | raised.OutOfMemoryError | raised.NodeDiedError
        ):
            return BackendError(
                f"workers of the Ray cluster died {REPLACED + 1} times over one shard: "
                f"{first_line(error)}; where memory is short, write the record in smaller files or row "
                "groups, or give Ray fewer workers a machine: ray start --num-cpus N"
            )
        return error

    def _check_version(self) -> None:
        try:
            there = self.submit(_version).result(ANSWERS_S)
        except TimeoutError:
            why = f"took no task within {ANSWERS_S:g} seconds: all are busy or none is there; ray status"
        except (ImportError, RuntimeError, BackendError, self._ray.exceptions.RayError) as error:
            why = f"cannot import suffice: {first_line(error)}"
        else:
            if there == VERSION:
                return
            why = f"have suffice {there}, this is {VERSION}"
        self.shutdown(cancel_futures=True)
        raise BackendError(
            f"workers of the Ray cluster {why}; on every machine of it: pip install suffice=={VERSION}"
        )


def _called(
    folder: str, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]
) -> Any:
    """Call it in the folder of the command, so that relative paths mean the same."""
    with suppress(OSError):
        os.chdir(folder)
    return function(*arguments, **named)


def _version() -> str:
    return VERSION


def _connect(ray: Any, address: str) -> None:
    stated = address or os.environ.get("RAY_ADDRESS", "")
    new = {"include_dashboard": False} if stated in {"", "local"} else {}
    try:
        if (place := _host_and_port(stated)) is not None:  # where nobody listens Ray waits long
            socket.create_connection(place, timeout=10.0).close()
        ray.init(address=address or None, log_to_driver=False, logging_level="ERROR", **new)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise BackendError(
            f"a Ray cluster at {stated or 'this machine'} was not joined: {first_line(error)}; start one "
            "with: ray start --head --port 6379, and name it: --ray HOST:6379; or leave the address away for "
            "workers of this machine. A cluster with a token wants RAY_AUTH_MODE=token, and the token in "
            "RAY_AUTH_TOKEN or ~/.ray/auth_token"
        ) from error
