"""Prompts with pictures of a Hugging Face directory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.util import find_spec
from math import isqrt, prod
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import attrs
import torch
from torch import Tensor

from spec_core import EncodedPrompt, PicturedPrompt, UsageError
from spec_core.errors import SpecError, message
from spec_core.toolkit import PictureBudget
from spec_targets.tokenizer.base import Tokenizer

if TYPE_CHECKING:
    from PIL.Image import Image

    from spec_targets.pictures.processors import Processor
    from spec_targets.pictures.tower import Tower

NEEDED = ("transformers", "PIL")
KEPT = 64
"""Pictures whose rows are kept: every turn of a chat brings the pictures of the turns before."""
KEPT_BYTES = 128 << 20
"""Bytes of rows that are kept."""
PIXEL_BYTES = 64
"""Bytes that a pixel takes while its picture is decoded, cut into patches of float32, and read by the tower."""


@attrs.frozen
class SeenPicture:
    """text: what stands for the picture in a prompt, with a token for each of its rows. rows: [n, D].

    added: [n, D] for each layer that adds some. grid: rows and columns of its blocks, None where they are in a line.
    """

    text: str
    rows: Tensor
    added: tuple[Tensor, ...] = ()
    grid: tuple[int, int] | None = None

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in (self.rows, *self.added))


@attrs.define(eq=False)
class HfImageEncoder:
    """``target.image_encoder`` of a directory. ``load``, or the first picture, reads tower and processor.

    width: of a row. mutual: rows of one run attend to each other in both directions.
    """

    directory: Path
    tokenizer: Tokenizer
    width: int
    mutual: bool = False
    _lock: Lock = attrs.field(factory=Lock, init=False)
    _parts: tuple[Processor, Tower] | None = attrs.field(default=None, init=False)
    _seen: OrderedDict[bytes, SeenPicture] = attrs.field(factory=OrderedDict, init=False)

    def load(self) -> None:
        """Import transformers, and read the tower and the processor. Raises UsageError, LoadError."""
        with self._lock:
            self._read_parts()

    def memory(self, pixels: int) -> int:
        """Bytes of the weights in float32, of the rows that are kept, and of a prompt of this number of pixels."""
        from spec_targets.pictures.tower import tower_tensors

        weights = sum(4 * prod(tensor.shape) for tensor in tower_tensors(self.directory).values())
        return weights + KEPT_BYTES + pixels * PIXEL_BYTES

    def encode_prompt(
        self,
        prompt: str | Sequence[Mapping[str, Any]],
        pictures: Sequence[Any],
        budget: PictureBudget | None = None,
        /,
        **keywords: Any,
    ) -> EncodedPrompt:
        """Token ids and rows. keywords: of the chat template. Raises UsageError, see ``ImageEncoder``."""
        from spec_targets.pictures.pictures import read_pictures

        budget = budget or PictureBudget()
        with self._lock:
            processor, tower = self._read_parts()
            images, seen = [], []
            for image in read_pictures(list(pictures), budget):
                images.append(image)
                seen.append(self._see(image, f"picture {len(images)}", budget))
        filler = Filler(processor.picture_token, [picture.text for picture in seen])
        if isinstance(prompt, str):
            text = prompt if processor.picture_token in prompt else f"{processor.standing * len(seen)}\n{prompt}"
            tokens = self.tokenizer.encode(filler.fill(text), special=True)
        else:
            tokens = self.tokenizer.encode_chat(prompt, expand=filler.fill, **keywords)
        filler.check()
        encoded = with_rows(tokens, seen, tower.row_token, self.mutual)
        return attrs.evolve(encoded, pictured=PicturedPrompt(prompt, tuple(images), keywords))

    def _see(self, image: Image, where: str, budget: PictureBudget) -> SeenPicture:
        """What a picture is in a prompt; one that was seen before is not read again."""
        hasher = sha256(repr(image.size).encode())
        hasher.update(image.tobytes())
        key = hasher.digest()
        if key in self._seen:
            budget.take_rows(len(self._seen[key].rows))
        else:
            self._seen[key] = self._look(image, where, budget)
        self._seen.move_to_end(key)
        picture = self._seen[key]
        while len(self._seen) > KEPT or sum(seen.nbytes for seen in self._seen.values()) > KEPT_BYTES:
            self._seen.popitem(last=False)
        return picture

    def _look(self, image: Image, where: str, budget: PictureBudget) -> SeenPicture:
        processor, tower = self._read_parts()
        try:
            budget.take_rows(known := processor.row_count(image))
            inputs, text = processor.read(image)
            picture = tower.read(inputs, budget.check_time)
        except SpecError:
            raise
        except Exception as error:  # processors raise many kinds for sizes that they do not take
            size = f"{image.width} x {image.height}"
            raise UsageError(
                f"{where} has {size} pixels, which the model cannot read: {message(error)[:200]}",
                hint="give a picture of another size",
            ) from error
        budget.take_rows(len(picture.rows) - known)
        if (width := picture.rows.shape[1]) != self.width:
            raise UsageError(
                f"{self.directory.name}: rows of pictures have {width} numbers, rows of tokens {self.width}",
                hint="its config and its tensors do not belong together; get the model again",
            )
        return SeenPicture(text, picture.rows, picture.added, grid_of(inputs, len(picture.rows)))

    def _read_parts(self) -> tuple[Processor, Tower]:
        """The processor and the tower."""
        if self._parts is None:
            if missing := [name for name in NEEDED if find_spec(name) is None]:
                raise UsageError(
                    f"pictures need {' and '.join(missing)}", hint="pip install 'spec-core[vision]', or give no picture"
                )
            from spec_targets.pictures.processors import read_config, read_processor
            from spec_targets.pictures.tower import read_tower

            config = read_config(self.directory)
            self._parts = read_processor(self.directory, config), read_tower(self.directory, config)
        return self._parts


@attrs.define
class Filler:
    """Puts the text of each picture in its place. place: the text of a place; texts: of the pictures, in order."""

    place: str
    texts: list[str]
    places: int = 0

    def fill(self, text: str) -> str:
        first, *others = text.split(self.place)
        pieces = [first]
        for piece in others:
            pieces += [self.texts[self.places] if self.places < len(self.texts) else "", piece]
            self.places += 1
        return "".join(pieces)

    def check(self) -> None:
        """Raise UsageError if there were more places or fewer than pictures."""
        if self.places != len(self.texts):
            raise UsageError(
                f"the prompt's places for pictures: {self.places}, pictures: {len(self.texts)}",
                hint=f"write {self.place} where each picture belongs, or give messages with a part for each picture",
            )


def grid_of(inputs: Mapping[str, Any], rows: int) -> tuple[int, int] | None:
    """Rows and columns of a picture's blocks, from the patches of a processor that says them."""
    patches = inputs.get("image_grid_thw")
    if patches is None:
        return None
    _, height, width = patches[0].tolist()
    merge = isqrt(height * width // rows)
    return height // merge, width // merge


def with_rows(tokens: list[int], pictures: list[SeenPicture], row_token: int, mutual: bool) -> EncodedPrompt:
    """The prompt with a row at every token that stands for one. Raises UsageError if the numbers differ."""
    places = [at for at, token in enumerate(tokens) if token == row_token]
    rows = [row for picture in pictures for row in picture.rows]
    if len(places) != len(rows):
        raise UsageError(
            f"the prompt has {len(places)} tokens for rows of pictures, the pictures have {len(rows)} rows",
            hint="leave the model's own token for a row of a picture out of the text",
        )
    chosen = set(places)
    ids = [-1 if at in chosen else token for at, token in enumerate(tokens)]
    grids = [picture.grid for picture in pictures if picture.grid is not None]
    added = [torch.cat(layers) for layers in zip(*(picture.added for picture in pictures), strict=True)]
    return EncodedPrompt(
        ids,
        dict(zip(places, rows, strict=True)),
        blocks=runs(places) if mutual else (),
        positions=grid_positions(ids, grids) if grids else None,
        added=tuple(dict(zip(places, layer, strict=True)) for layer in added),
    )


def runs(places: list[int]) -> tuple[tuple[int, int], ...]:
    """(first, end) of neighbouring places."""
    known = set(places)
    firsts, ends = ([at for at in places if at + step not in known] for step in (-1, 1))
    return tuple((first, end + 1) for first, end in zip(firsts, ends, strict=True))


def grid_positions(tokens: list[int], grids: list[tuple[int, int]]) -> Tensor:
    """[3, tokens] int64: time, height and width of every row; text goes on after a picture's longer side."""
    pieces: list[Tensor] = []
    at, place = 0, 0
    pictures = iter(grids)
    while at < len(tokens):
        if tokens[at] >= 0:
            pieces.append(torch.full((3, 1), place))
            at, place = at + 1, place + 1
            continue
        height, width = next(pictures)
        grid = torch.stack(torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")).flatten(1)
        pieces.append(place + torch.cat([torch.zeros(1, height * width, dtype=torch.int64), grid]))
        at, place = at + height * width, place + max(height, width)
    return torch.cat(pieces, 1)
