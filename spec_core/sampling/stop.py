"""The end of a sequence, and its visible text.

Decided token by token, from committed text only: a rejected draft can neither end a sequence nor add to its text.
"""

from __future__ import annotations

from typing import Any

import attrs

from spec_core.sampling.given import ints, strings


@attrs.frozen
class Stop:
    """Token ids that end a sequence and are not shown, and texts that end it and are removed."""

    tokens: frozenset[int] = attrs.field(default=frozenset(), converter=ints)
    texts: tuple[str, ...] = attrs.field(default=(), converter=strings)


@attrs.define(eq=False)
class Text:
    """The text of a running sequence. Holds back an end that may be the beginning of a stop text.

    decoder: an incremental decoder with ``put(id) -> str`` and ``end() -> str``.
    fresh: pieces that were not taken yet; pieces of a failed step are never taken. shown: pieces that were taken.
    unsearched: number of tokens at the beginning in whose text no stop text is searched.
    """

    decoder: Any
    stops: tuple[str, ...] = ()
    held: str = ""
    shown: list[str] = attrs.field(factory=list)
    fresh: list[str] = attrs.field(factory=list)
    stopped: bool = False
    unsearched: int = 0

    def put(self, token: int) -> bool:
        """Add a token; True if a stop text is complete. ``take()`` returns the visible text."""
        self.unsearched -= 1
        if not self.stops or self.unsearched >= 0:  # no text is held back
            self.fresh.append(self.decoder.put(token))
            return False
        self.fresh.append("")
        self.held += self.decoder.put(token)
        return self._release(final=False)

    def end(self) -> None:
        """End the text: release what was held back, unless a stop text removed it."""
        if not self.stopped:
            self.held += self.decoder.end()
            self._release(final=True)

    def take(self) -> list[str]:
        """Text completed since the last call: one piece per token."""
        fresh, self.fresh = self.fresh, []
        self.shown += fresh
        return fresh

    @property
    def whole(self) -> str:
        return "".join(self.shown)

    def _release(self, final: bool) -> bool:
        places = [at for stop in self.stops if (at := self.held.find(stop)) >= 0]
        if places:
            self._show(self.held[: min(places)])
            self.held = ""
            self.stopped = True
            return True
        keep = 0 if final else self._doubtful()
        visible, self.held = self.held[: len(self.held) - keep], self.held[len(self.held) - keep :]
        self._show(visible)
        return False

    def _show(self, text: str) -> None:
        if text:
            self.fresh[-1:] = [(self.fresh or [""])[-1] + text]

    def _doubtful(self) -> int:
        """Length of the longest suffix of the held text that begins a stop text."""
        longest = max((len(stop) - 1 for stop in self.stops), default=0)
        for n in range(min(longest, len(self.held)), 0, -1):
            if any(stop.startswith(self.held[-n:]) for stop in self.stops):
                return n
        return 0
