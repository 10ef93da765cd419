"""The keys that clients may send: from a setting, and from a file."""

from __future__ import annotations

import codecs
import hmac
from pathlib import Path

import attrs

from spec_core import UsageError
from spec_core.errors import error_message
from spec_serve.settings import ServeSettings

BYTES_MAX = 1 << 20
OTHER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Beginnings of files that are not UTF-8."""


@attrs.frozen
class Keys:
    """Keys, each of them accepted. None of them is shown."""

    keys: tuple[bytes, ...] = attrs.field(default=(), repr=False)

    def has(self, candidate: bytes) -> bool:
        """Whether this is one of them. Takes as long for every wrong key."""
        return any([hmac.compare_digest(candidate, key) for key in self.keys])

    def __bool__(self) -> bool:
        return bool(self.keys)


def keys_of(settings: ServeSettings) -> Keys:
    """The keys of the settings. Raises UsageError for a file that has none."""
    own = (settings.api_key.encode(),) if settings.api_key is not None else ()
    return Keys(own + (_read(Path(settings.api_key_file)) if settings.api_key_file is not None else ()))


def _read(path: Path) -> tuple[bytes, ...]:
    """Read a key from every line that is not empty and does not begin with #."""
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(
            f"--api-key-file {path} cannot be read: {error_message(error)}", hint="name a text file"
        ) from error
    if len(data) > BYTES_MAX:
        raise UsageError(f"--api-key-file {path} has more than {BYTES_MAX} bytes", hint="name a file of keys alone")
    if data.startswith(OTHER_MARKS) or b"\0" in data:
        raise UsageError(f"--api-key-file {path} is not UTF-8 text", hint="save it as UTF-8, a key in every line")
    lines = [line.strip() for line in data.removeprefix(codecs.BOM_UTF8).splitlines()]
    keys = tuple(line for line in lines if line and not line.startswith(b"#"))
    if not keys:
        raise UsageError(f"--api-key-file {path} has no key", hint="write one key in every line")
    return keys
