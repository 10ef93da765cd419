"""Refusals in the form of OpenAI's API: ``{"error": {"message", "type", "param", "code"}}``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spec_core import PluginError, SpecError, UsageError

TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
"""Kinds of refusal by HTTP status; other 4xx are ``invalid_request_error``, 5xx ``server_error``."""


class ApiError(Exception):
    """An answer that is a refusal.

    status: of HTTP. param: the field of the request it is about. code: a word for programs. kind: where the status
    does not say it. more: other fields of the error.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        kind: str = "",
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = dict(headers or {})
        self.kind = kind or ("server_error" if status >= 500 else TYPES.get(status, "invalid_request_error"))
        self.more = dict(more or {})

    @property
    def body(self) -> dict[str, Any]:
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code, **self.more}
        return {"error": error}


def api_error_of(error: BaseException) -> ApiError:
    """The error sent to a client: a user's mistake in full, of a failure only what failed, never a traceback."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, UsageError):
        return ApiError(400, f"{error.reason}; {error.hint}")
    if isinstance(error, PluginError):
        return ApiError(
            500, f"plugin {error.plugin!r} failed in {error.hook}; the server's log says more", code="plugin"
        )
    if isinstance(error, SpecError):
        return ApiError(500, error.reason, code="generation")
    return ApiError(500, f"the text could not be generated: {type(error).__name__}; the server's log says more")
