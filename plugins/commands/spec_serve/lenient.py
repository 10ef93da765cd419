"""A server that ignores fields which it does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from spec_serve.strict_model import IGNORED


@attrs.define(eq=False)
class Lenient:
    """An ASGI application around another one, in which unknown fields are ignored, with one warning each."""

    app: Callable[..., Any]
    ignored: set[str] = attrs.field(factory=set)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        IGNORED.set(self.ignored)
        await self.app(scope, receive, send)
