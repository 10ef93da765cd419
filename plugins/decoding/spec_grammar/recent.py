"""Compiled grammars of recent requests, since many requests of a server have the same schema."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import attrs

KEPT_MAX = 32


@attrs.define(eq=False)
class Recent:
    """The last grammars of every tokenizer. May be used from several threads."""

    _of: WeakKeyDictionary[Any, OrderedDict[bytes, Any]] = attrs.field(factory=WeakKeyDictionary)
    _lock: Lock = attrs.field(factory=Lock)

    def get(self, tokenizer: Any, text: str) -> Any:
        """The compiled grammar of this text, None where it is not there."""
        key = _key(text)
        with self._lock:
            kept = self._of.get(tokenizer)
            if kept is None or key not in kept:
                return None
            kept.move_to_end(key)
            return kept[key]

    def add(self, tokenizer: Any, text: str, ready: Any) -> None:
        with self._lock:
            kept = self._of.setdefault(tokenizer, OrderedDict())
            kept[_key(text)] = ready
            while len(kept) > KEPT_MAX:
                kept.popitem(last=False)


def _key(text: str) -> bytes:
    return sha256(text.encode()).digest()


RECENT = Recent()
