"""What is said to a client that asked for what it cannot have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

from suffice.errors import BackendError, SufficeError, UsageError, struck

_MOST_LETTERS = 2_000  # of a message


class Refusal(Exception):  # noqa: N818 - reads as what it is
    """A request that is answered with an error, in the form that OpenAI's clients read."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers
        self._error = {
            "message": struck(message)[:_MOST_LETTERS],
            "type": kind,
            "param": param,
            "code": code,
        }

    @property
    def document(self) -> dict[str, Any]:
        """The body."""
        return {"error": self._error}

    def reply(self) -> JSONResponse:
        """The response."""
        return JSONResponse(self.document, self.status, headers=self.headers)


def refusal_of(error: SufficeError) -> Refusal:
    """The refusal that an error of this package is; a defect says no more than that it is one."""
    if isinstance(error, BackendError):
        return Refusal(502, str(error), kind="upstream_error", code="model_failed")
    if isinstance(error, UsageError | ValueError):  # DataError is a ValueError
        return Refusal(400, str(error))
    return Refusal(500, "the service failed; its log says where", kind="server_error")
