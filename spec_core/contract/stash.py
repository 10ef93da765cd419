"""What plugins keep about a sequence."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

T = TypeVar("T")


class StashKey(Generic[T]):
    """A key made by the plugin that owns the entry; no other plugin has the same one.

    Make it a field of the *instance* (``attrs.field(factory=StashKey, init=False)``): two instances may run together.
    """

    __slots__ = ()


class Stash:
    """What plugins keep about a sequence: a dict by StashKey. It is dropped with its slot: nothing to clean up."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[StashKey[Any], Any] = {}

    def __getitem__(self, key: StashKey[T]) -> T:
        return self._values[key]

    def __setitem__(self, key: StashKey[T], value: T) -> None:
        self._values[key] = value

    def __delitem__(self, key: StashKey[T]) -> None:
        del self._values[key]

    def __contains__(self, key: StashKey[Any]) -> bool:
        return key in self._values

    def get(self, key: StashKey[T], default: T | None = None) -> T | None:
        return self._values.get(key, default)

    def setdefault(self, key: StashKey[T], default: T) -> T:
        return self._values.setdefault(key, default)
