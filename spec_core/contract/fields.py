"""Fields of sequences, parts and steps, for the core alone: they are sealed while the hook of a plugin runs."""

from __future__ import annotations

from types import MemberDescriptorType
from typing import Any

write = object.__setattr__
"""Set a field, also of an object that is sealed: ``write(part, "draft", draft)``."""


def field_of(item: Any, name: str) -> Any:
    """The value of a field itself; plugins read a copy of what could be changed."""
    for cls in type(item).__mro__:
        if type(field := cls.__dict__.get(name)) is MemberDescriptorType:
            return field.__get__(item)
    return getattr(item, name)


class ReadOnlyList(list[Any]):
    """A list that raises TypeError when it is changed. The core appends with ``list.extend``."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("the core's own list cannot be changed by a plugin: change a copy, list(...)")

    append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self),)


class ReadOnlyDict(dict[Any, Any]):
    """A dict that raises TypeError when it is changed."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("the core's own dict cannot be changed by a plugin: change a copy, dict(...)")

    clear = pop = popitem = setdefault = update = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)
