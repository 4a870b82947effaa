"""Alarms posted to one configured address."""

from __future__ import annotations

import ipaddress
import logging
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from suffice._optional import require
from suffice._version import VERSION
from suffice.errors import BackendError, UsageError, struck, without_credentials
from suffice.monitor.aspects import Alarm

_TIMEOUT_S = 5.0
_HEADERS = {"User-Agent": f"suffice/{VERSION}"}
_PAUSES_S = (0.5, 1.0, 2.0)  # between tries
_GIVEN_UP = frozenset({400, 401, 403, 404, 405, 410, 413, 415, 422})  # another try says the same


class WebHook:
    """Posts every alarm as JSON to one URL, which never leads elsewhere."""

    def __init__(self, url: str, *, pause: Callable[[float], None] = time.sleep) -> None:
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError as error:
            raise UsageError(f"the web hook is no URL: {error}") from error
        shown = without_credentials(url)
        if parts.scheme not in ("http", "https") or not host:
            raise UsageError(f"a web hook is an https URL, found {shown!r:.200}")
        if parts.scheme == "http" and not _is_here(host):
            raise UsageError(
                f"alarms go out by https only; http is for this machine (127.0.0.1), found {shown!r:.200}"
            )
        if parts.username or parts.password:
            raise UsageError("a web hook's URL holds no user and password; put a token in its path")
        self._httpx = require("httpx2", purpose="posting alarms to a web hook", extra="serve")
        # its log would tell the whole URL
        logging.getLogger("httpx2").addFilter(lambda record: host not in record.getMessage())
        self._url, self._pause = url, pause
        # what stands behind the host may be a secret, as in the hooks of chat services
        self._shown = f"{parts.scheme}://{host}/..."

    def send(self, alarm: Alarm) -> None:
        """Post it; tried a few times with growing pauses."""
        for pause in (*_PAUSES_S, None):
            try:
                # no proxy of the environment: the address that was configured and no other
                with self._httpx.Client(
                    headers=_HEADERS, timeout=_TIMEOUT_S, trust_env=False
                ) as client:
                    reply = client.post(self._url, json=alarm.to_json())
            except self._httpx.TransportError as error:
                said, final = struck(str(error).replace(self._url, self._shown)), False
            else:
                if reply.is_success:
                    return
                said = f"status {reply.status_code}" + " (a redirect)" * reply.is_redirect
                final = reply.is_redirect or reply.status_code in _GIVEN_UP
            if final or pause is None:
                raise BackendError(f"the web hook {self._shown} did not take an alarm: {said:.200}")
            self._pause(pause)


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
