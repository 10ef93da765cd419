"""Limits of what the pictures of one prompt may cost."""

from __future__ import annotations

from time import monotonic

import attrs

from spec_core.errors import UsageError


@attrs.define
class PictureBudget:
    """Pixels, rows and seconds that the pictures of one prompt may take together; an image encoder takes from it.

    The seconds begin when it is made. taken_pixels, taken_rows: what the pictures so far have taken.
    """

    pixels: float = float("inf")
    rows: float = float("inf")
    seconds: float = float("inf")
    taken_pixels: int = attrs.field(default=0, init=False)
    taken_rows: int = attrs.field(default=0, init=False)
    _begun: float = attrs.field(factory=monotonic, init=False)

    @property
    def free_pixels(self) -> float:
        return self.pixels - self.taken_pixels

    def take_pixels(self, count: int) -> None:
        """Raise UsageError where fewer pixels are left."""
        self.taken_pixels += count
        if self.taken_pixels > self.pixels:
            raise UsageError(
                f"the pictures of the prompt have {self.taken_pixels} pixels or more",
                hint=f"give smaller ones: at most {self.pixels} together",
            )

    def take_rows(self, count: int) -> None:
        """Raise UsageError where the rows of the pictures alone are more than a prompt may have."""
        self.taken_rows += count
        if self.taken_rows > self.rows:
            raise UsageError(
                f"the pictures of the prompt become {self.taken_rows} tokens or more",
                hint=f"give fewer or smaller ones: a prompt has at most {self.rows}",
            )

    def check_time(self) -> None:
        """Raise UsageError where the time is over."""
        if monotonic() - self._begun > self.seconds:
            raise UsageError(
                f"the pictures of the prompt took more than {self.seconds:g} seconds", hint="give fewer or smaller ones"
            )
