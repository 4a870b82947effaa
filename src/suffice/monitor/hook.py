"""Alarms posted to one configured address."""

from __future__ import annotations

import ipaddress
import logging
from urllib.parse import urlsplit

from suffice._optional import require
from suffice._version import VERSION
from suffice.errors import BackendError, UsageError, struck, without_credentials
from suffice.monitor.production import Alarm

_TIMEOUT_S = 5.0


class WebHook:
    """Posts every alarm as JSON to one URL, which never leads elsewhere."""

    def __init__(self, url: str) -> None:
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
        self._url = url
        # what stands behind the host may be a secret, as in the hooks of chat services
        self._shown = f"{parts.scheme}://{host}/..."

    def send(self, alarm: Alarm) -> None:
        """Post it; one that is not taken is for the next look."""
        agent = {"User-Agent": f"suffice/{VERSION}"}
        try:
            # no proxy of the environment: the address that was configured and no other
            with self._httpx.Client(headers=agent, timeout=_TIMEOUT_S, trust_env=False) as client:
                reply = client.post(self._url, json=alarm.to_json())
        except self._httpx.TransportError as error:
            said = struck(str(error).replace(self._url, self._shown))
        else:
            if reply.is_success:
                return
            said = f"status {reply.status_code}" + " (a redirect)" * reply.is_redirect
        raise BackendError(f"the web hook {self._shown} did not take an alarm: {said:.200}")


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
