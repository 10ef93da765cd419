"""Pictures of requests: data in the request itself, nothing is fetched; and the memory that all of them may hold."""

from __future__ import annotations

import base64
import binascii
import re
from threading import Lock
from typing import Any
from weakref import finalize

import attrs

from spec_core import EncodedPrompt
from spec_core.toolkit import PictureBudget
from spec_serve.errors import ApiError

DATA = re.compile(r"data:image/[a-z.+-]{1,20};base64,", re.IGNORECASE)
EXAMPLE = "data:image/png;base64,..."
CHANNELS = 3
"""Bytes of a decoded pixel."""


def picture_of(url: str, where: str) -> bytes:
    """Bytes of the file in a ``data:`` URL. Raises ApiError."""
    head = DATA.match(url)
    if head is None:
        problem = f"a picture is {url[:40]!r}: addresses are not fetched, send it as {EXAMPLE}"
        raise ApiError(400, problem, where, "not_supported")
    try:
        return base64.b64decode(url[head.end() :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise ApiError(400, f"a picture is not base64: {error}", where) from error


@attrs.define(eq=False)
class PictureMemory:
    """Bytes that the pictures of all requests hold together, at most ``size``. Several threads may call it."""

    size: int
    held: int = attrs.field(default=0, init=False)
    _lock: Any = attrs.field(factory=Lock, init=False)

    def hold(self, encoded: EncodedPrompt, budget: PictureBudget) -> None:
        """Count the pixels and rows of a prompt as long as it exists. Raises ApiError where there is no room."""
        layers = (encoded.embeds, *encoded.added)
        size = CHANNELS * budget.taken_pixels + sum(row.nbytes for layer in layers for row in layer.values())
        if size > self.size:
            problem = f"the pictures of the request take {size >> 20} MiB, all of them together have {self.size >> 20}"
            raise ApiError(400, problem, "messages")
        with self._lock:
            if self.held + size > self.size:
                problem = "pictures of other requests take all memory for pictures; try again later"
                raise ApiError(429, problem, code="busy", headers={"Retry-After": "5"})
            self.held += size
        finalize(encoded, self._release, size)

    def _release(self, size: int) -> None:
        with self._lock:
            self.held -= size
