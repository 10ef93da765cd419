"""The keys that clients may send: from a setting, and from a file."""

from __future__ import annotations

import hmac
from pathlib import Path

import attrs

from spec_core import UsageError
from spec_core.errors import why
from spec_serve.settings import ServeSettings

BYTES_MAX = 1 << 20


@attrs.frozen
class Keys:
    """Keys, each of them accepted. None of them is shown."""

    keys: tuple[bytes, ...] = attrs.field(default=(), repr=False)

    def has(self, given: bytes) -> bool:
        """Whether this is one of them. Takes as long for every wrong key."""
        return any([hmac.compare_digest(given, key) for key in self.keys])

    def __bool__(self) -> bool:
        return bool(self.keys)


def keys_of(limits: ServeSettings) -> Keys:
    """The keys of the settings. Raises UsageError for a file that has none."""
    own = (limits.api_key.encode(),) if limits.api_key is not None else ()
    return Keys(own + (_read(Path(limits.api_key_file)) if limits.api_key_file is not None else ()))


def _read(path: Path) -> tuple[bytes, ...]:
    """Read a key from every line that is not empty and does not begin with #."""
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX)
    except OSError as error:
        raise UsageError(f"--api-key-file {path} cannot be read: {why(error)}", hint="name a text file") from error
    lines = [line.strip() for line in data.splitlines()]
    keys = tuple(line for line in lines if line and not line.startswith(b"#"))
    if not keys:
        raise UsageError(f"--api-key-file {path} has no key", hint="write one key in every line")
    return keys
