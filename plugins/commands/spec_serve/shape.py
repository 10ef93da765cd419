"""Limits of a request's JSON that are checked before it is read, and large bodies that are read in a thread.

A text of megabytes costs little until it is tokenized; a hundred thousand messages cost seconds in every layer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from spec_core.toolkit import JsonLimits
from spec_serve.stream import ClientDisconnected, run_until_disconnect

PARTS_MAX = 20_000
"""Objects and lists of a body, nested ones included."""
KEYS_MAX = 100_000
"""Keys of all objects of a body."""
TEXTS_MAX = 150_000
"""Texts of a body, keys included."""
VALUES_MAX = 1 << 20
"""Values of a body, token ids included."""
ENTRIES_MAX = 16_384
"""Entries of a field that is no list of token ids."""
KEY_MAX = 4_096
"""Characters of a key."""
SHORT_BODY = 1 << 14
"""Bytes of a body that is read in the event loop; longer ones are read in a thread."""
LIMITS = JsonLimits(PARTS_MAX, VALUES_MAX, TEXTS_MAX)
READ_AT_ONCE = 2
"""Bodies that are read in threads at once: each takes many times its size."""
_READING: RunVar[CapacityLimiter] = RunVar("reading")
BODY_BYTES: ContextVar[int] = ContextVar("body_bytes", default=0)
"""Bytes of the body of the request: no work for it is in proportion to more."""


class Unfit(HTTPException):
    """A body that does not fit its fields. errors: of pydantic."""

    def __init__(self, errors: list[Any]) -> None:
        super().__init__(400)
        self.errors = errors


def check_shape(body: Any) -> None:
    """Raise HTTPException for a body of too many parts. The cost is in proportion to the limit, not to the body."""
    waiting, parts, keys = [body], 0, 0
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            keys += len(part)
            if keys > KEYS_MAX:
                raise HTTPException(400, f"the body has more than {KEYS_MAX} keys")
            if any(len(key) > KEY_MAX for key in part):
                raise HTTPException(400, f"the body has a key of more than {KEY_MAX} characters")
            waiting += [inner for inner in part.values() if isinstance(inner, (dict, list))]
        else:
            waiting += [inner for inner in part if isinstance(inner, (dict, list))]
        parts += 1
        if parts + len(waiting) > PARTS_MAX:
            raise HTTPException(400, f"the body has more than {PARTS_MAX} objects and lists")


def check_counts(data: bytes) -> None:
    """Raise HTTPException for a body of too many parts, before it is read."""
    if data.count(b'":') - data.count(b'\\":') > KEYS_MAX:
        raise HTTPException(400, f"the body has more than {KEYS_MAX} keys")
    try:
        LIMITS.check(data)
    except ValueError as error:
        raise HTTPException(400, f"the body has {error}") from error


def read_body(data: bytes) -> Any:
    """The JSON of a body. Raises HTTPException for one of too many parts, JSONDecodeError for what is no JSON."""
    check_counts(data)
    body = json.loads(data)
    if isinstance(body, (dict, list)):
        check_shape(body)
    return body


def read_model(data: bytes, model: type[BaseModel]) -> BaseModel:
    """The body as an object of its route. Raises Unfit too."""
    body = read_body(data)
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise Unfit(list(error.errors(include_url=False))) from error


class CheckedRequest(Request):
    """A request whose JSON has a bounded number of parts. model: of its body, None for a route without one."""

    model: type[BaseModel] | None = None

    async def json(self) -> Any:
        data = await self.body()
        if len(data) <= SHORT_BODY or self.model is None:
            return read_body(data)
        return await to_thread.run_sync(read_model, data, self.model, limiter=_reading_limiter())


def _reading_limiter() -> CapacityLimiter:
    """The limiter of the running event loop."""
    limiter = _READING.get(None)
    if limiter is None:
        _READING.set(limiter := CapacityLimiter(READ_AT_ONCE))
    return limiter


class CheckedRoute(APIRoute):
    """A route that checks the shape of a body before its fields, and stops when the client leaves."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        model = _model_of(self)

        async def handle(request: Request) -> Response:
            checked = CheckedRequest(request.scope, request.receive)
            checked.model = model
            try:
                BODY_BYTES.set(len(await checked.body()))  # what follows it is the end of the connection
                return await run_until_disconnect(request.receive, handler(checked))
            except (ClientDisconnected, ClientDisconnect):  # what waited for a thread holds no memory any more
                return Response(status_code=499)

        return handle


def _model_of(route: APIRoute) -> type[BaseModel] | None:
    """The class of the body of a route."""
    kinds = [field.field_info.annotation for field in route.dependant.body_params]
    return kinds[0] if len(kinds) == 1 and isinstance(kinds[0], type) and issubclass(kinds[0], BaseModel) else None
