"""Pictures of a request: data in the request itself. Nothing is fetched."""

from __future__ import annotations

import base64
import binascii
import re

from spec_serve.errors import ApiError

DATA = re.compile(r"data:image/[a-z.+-]{1,20};base64,", re.IGNORECASE)
EXAMPLE = "data:image/png;base64,..."


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
