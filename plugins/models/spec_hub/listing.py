"""The files of a repository as a hub lists them, read with limits of bytes and of values."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any

from spec_core.toolkit import JsonLimits
from spec_hub.remote_file import HubError

BYTES_MAX = 32 << 20
"""Bytes of a listing, unpacked: 100,000 files take 25 MB."""
LIMITS = JsonLimits(containers=300_000, values=2_000_000, texts=1_500_000)
PACKED = ("gzip", "deflate")
HINT = "do not use this repository"


def read_listing(response: Any, where: str) -> Any:
    """The value of a response. where: its repository. Raises HubError for one that is too large."""
    data = b"".join(_unpack(response.iter_raw(), str(response.headers.get("content-encoding") or ""), where))
    try:
        LIMITS.check(data)
    except ValueError as error:
        raise HubError(f"the listing of {where} has {error}", hint=HINT) from error
    return json.loads(data)


def _unpack(chunks: Iterable[bytes], encoding: str, where: str) -> Iterable[bytes]:
    """The bytes of a response, no more of them than a listing may have."""
    if encoding not in ("", "identity", *PACKED):
        raise HubError(f"the listing of {where} is packed as {encoding[:40]!r}", hint="check HF_ENDPOINT")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32) if encoding in PACKED else None
    size = 0
    for chunk in chunks:
        data = chunk if unpacker is None else unpacker.decompress(chunk, BYTES_MAX + 1 - size)
        size += len(data)
        if size > BYTES_MAX:
            raise HubError(f"the listing of {where} has more than {BYTES_MAX >> 20} MiB", hint=HINT)
        yield data
