"""A prompt with pictures, as a user gave it and as a target reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from torch import Tensor


@attrs.frozen(eq=False)
class PicturedPrompt:
    """A prompt with pictures before it was encoded. prompt: a text, or messages with parts ``{"type": "image"}``.

    pictures: decoded, in the order of their places, as ``ImageEncoder`` takes them. keywords: of the chat template.
    """

    prompt: Any
    pictures: tuple[Any, ...]
    keywords: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(eq=False)
class EncodedPrompt:
    """A prompt with pictures as one target reads it; its ``image_encoder`` makes it, ``Request.encoded`` takes it.

    tokens: ids, -1 where a row is given. embeds: {position: [D]}, rows of the pictures.
    blocks: (first, end) of rows that attend to each other in both directions; each is evaluated in one forward.
    positions: [axes, tokens] int64 of the model's rotation, where they are not 0, 1, 2, ...; None if they are.
        Generated tokens go on after the largest.
    added: for each of the first blocks of layers {position: [D]}, added to the row after that block.
    pictured: what it was made from, for drafters that read pictures themselves.
    """

    tokens: list[int]
    embeds: Mapping[int, Tensor]
    blocks: tuple[tuple[int, int], ...] = ()
    positions: Tensor | None = None
    added: tuple[Mapping[int, Tensor], ...] = ()
    pictured: PicturedPrompt | None = None

    def block_at(self, position: int) -> tuple[int, int] | None:
        """The block that holds this position."""
        return next(((first, end) for first, end in self.blocks if first <= position < end), None)

    def part_end(self, start: int, end: int) -> int:
        """End of a part of the prompt that begins at ``start``: ``end``, unless it would divide or join a block."""
        if (block := self.block_at(start)) is not None:
            return block[1]
        return min([end, *(first for first, _ in self.blocks if first > start)])
