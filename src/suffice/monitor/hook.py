"""Alarms told to others: a line of JSON each, and a POST to one configured address."""

from __future__ import annotations

import http.client
import ipaddress
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from suffice._version import VERSION
from suffice.errors import BackendError, UsageError, struck, without_credentials
from suffice.monitor.aspects import Alarm

TIMEOUT_S = 5.0
TRIES = 4
_FIRST_PAUSE_S = 0.5
_GIVEN_UP = frozenset({400, 401, 403, 404, 405, 410, 413, 415, 422})  # another try says the same


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: what was configured is where alarms go."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


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
        self._url, self._pause = url, pause
        # what stands behind the host may be a secret, as in the hooks of chat services
        self._shown = f"{parts.scheme}://{host}/..."
        # no proxy of the environment: the address that was configured and no other
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())

    def send(self, alarm: Alarm) -> None:
        """Post it; tried a few times with growing pauses."""
        body = json.dumps(alarm.to_json(), allow_nan=False).encode()
        for attempt in range(TRIES):
            last = attempt == TRIES - 1
            try:
                self._post(body)
            except urllib.error.HTTPError as error:
                error.close()
                said = f"status {error.code}" + " (a redirect)" * (300 <= error.code < 400)
                last = last or error.code in _GIVEN_UP or 300 <= error.code < 400
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", error)
                said = struck(str(reason).replace(self._url, self._shown))
            else:
                return
            if last:
                raise BackendError(f"the web hook {self._shown} did not take an alarm: {said:.200}")
            self._pause(_FIRST_PAUSE_S * 2.0**attempt)

    def _post(self, body: bytes) -> None:
        request = urllib.request.Request(  # noqa: S310 - its scheme was checked
            self._url,
            data=body,
            headers={"Content-Type": "application/json", "User-Agent": f"suffice/{VERSION}"},
            method="POST",
        )
        with self._opener.open(request, timeout=TIMEOUT_S):
            pass


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
