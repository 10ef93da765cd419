"""Tokens of a sequence: a list that only the core changes."""

from __future__ import annotations

from typing import Any, NoReturn


class TokenList(list[int]):
    """A list whose methods that change it raise TypeError, since a plugin that changed it would change the text.

    The core uses ``list.extend(tokens, ...)``; a slice is an ordinary list.
    """

    __slots__ = ()

    def _refuse(self, *args: Any, **keywords: Any) -> NoReturn:
        raise TypeError("the tokens of a sequence are the core's; propose a draft, or copy the list to change it")

    append = extend = insert = pop = remove = clear = sort = reverse = _refuse  # type: ignore[assignment]
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)
