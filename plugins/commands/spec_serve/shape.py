"""Limits of a request's JSON that are checked before its fields are: work is in proportion to the number of its parts.

A text of megabytes costs little until it is tokenized; a hundred thousand messages cost seconds in every layer.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from spec_serve.stream import ClientDisconnected, run_until_disconnect

PARTS_MAX = 20_000
"""Objects and lists of a body, nested ones included."""
KEYS_MAX = 100_000
"""Keys of all objects of a body."""
ENTRIES_MAX = 16_384
"""Entries of a field that is no list of token ids."""
KEY_MAX = 4_096
"""Characters of a key."""


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
        elif part and not isinstance(part[0], int):  # a list of token ids has no parts, and may be long
            waiting += [inner for inner in part if isinstance(inner, (dict, list))]
        parts += 1
        if parts + len(waiting) > PARTS_MAX:
            raise HTTPException(400, f"the body has more than {PARTS_MAX} objects and lists")


class CheckedRequest(Request):
    """A request whose JSON has a bounded number of parts."""

    async def json(self) -> Any:
        data = await self.body()
        if data.count(b'":') - data.count(b'\\":') > KEYS_MAX:  # most of the work is to read them
            raise HTTPException(400, f"the body has more than {KEYS_MAX} keys")
        body = await super().json()
        if isinstance(body, (dict, list)):
            check_shape(body)
        return body


class CheckedRoute(APIRoute):
    """A route that checks the shape of a body before its fields, and stops when the client leaves."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            checked = CheckedRequest(request.scope, request.receive)
            try:
                await checked.body()  # what follows it is the end of the connection
                return await run_until_disconnect(request.receive, handler(checked))
            except (ClientDisconnected, ClientDisconnect):  # what waited for a thread holds no memory any more
                return Response(status_code=499)

        return handle
