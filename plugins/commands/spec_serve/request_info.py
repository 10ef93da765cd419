"""Where a request came from: its id, route, client and trace, for the log and spans."""

from __future__ import annotations

import ipaddress
import re
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

import attrs
from starlette.datastructures import Headers

HEADER = "x-request-id"
ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)


@attrs.frozen
class RequestInfo:
    """request_id: of the header ``X-Request-Id``, or a new one. route: path. client: IP address, empty if unknown.

    traceparent, tracestate: headers of W3C Trace Context; empty without one.
    """

    request_id: str = ""
    route: str = ""
    client: str = ""
    traceparent: str = ""
    tracestate: str = ""


NO_REQUEST = RequestInfo()
REQUEST_INFO: ContextVar[RequestInfo] = ContextVar("request_info", default=NO_REQUEST)
"""The HTTP request that is being answered."""


def request_info(scope: Any) -> RequestInfo:
    """What the log and spans say about an HTTP request."""
    headers = Headers(scope=scope)
    request_id, parents = headers.get(HEADER, ""), headers.getlist("traceparent")
    return RequestInfo(
        request_id if ID.fullmatch(request_id) else uuid4().hex,
        scope["path"][:100],
        _address(scope.get("client")),
        parents[0] if len(parents) == 1 else "",
        ",".join(headers.getlist("tracestate")),
    )


def _address(client: Any) -> str:
    """The IP address of a client; a proxy may write anything."""
    try:
        return str(ipaddress.ip_address(client[0]))
    except (TypeError, ValueError, LookupError):
        return ""
