"""Limits of a JSON text of a stranger, checked before it is read: a value of two bytes takes Python a hundred."""

from __future__ import annotations

import attrs


@attrs.frozen
class JsonLimits:
    """How much a JSON text may have. containers: objects and lists. values: counted by its commas.

    texts: strings, keys included.
    """

    containers: int
    values: int
    texts: int

    def check(self, data: bytes) -> None:
        """Raise ValueError, with what there is too much of as the end of a sentence. Nothing is read.

        Signs within texts do not count; a text that is not JSON may be refused for its signs.
        """
        if self._fits(data):
            return
        plain = data.replace(b"\\\\", b"").replace(b'\\"', b"")
        if plain.count(b'"') > 2 * self.texts:
            raise ValueError(f"more than {self.texts} texts")
        outside = b"".join(plain.split(b'"')[::2])
        if outside.count(b"[") + outside.count(b"{") > self.containers:
            raise ValueError(f"more than {self.containers} objects and lists")
        if outside.count(b",") > self.values:
            raise ValueError(f"more than {self.values} values")

    def _fits(self, data: bytes) -> bool:
        """Whether all signs are few, within texts or not: most texts need no closer look."""
        few = data.count(b"[") + data.count(b"{") <= self.containers and data.count(b",") <= self.values
        return few and data.count(b'"') <= 2 * self.texts
