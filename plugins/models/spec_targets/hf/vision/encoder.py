"""Prompts with pictures of a Hugging Face directory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import attrs
from torch import Tensor

from spec_core import EncodedPrompt, UsageError
from spec_targets.tokenizer.base import Tokenizer

if TYPE_CHECKING:
    from PIL.Image import Image

    from spec_targets.hf.vision.tower import Tower

NEEDED = ("transformers", "PIL")
KEPT = 64
"""Pictures whose rows are kept: every turn of a chat brings those of the turns before."""


@attrs.frozen
class SeenPicture:
    """text: what stands for the picture in a prompt, with a token for each of its rows. rows: [n, D]."""

    text: str
    rows: Tensor


@attrs.define(eq=False)
class HfImageEncoder:
    """``target.image_encoder`` of a directory. Tower and processor are read at the first picture.

    width: of a row. mutual: rows of one run attend to each other in both directions.
    """

    directory: Path
    tokenizer: Tokenizer
    width: int
    mutual: bool = False
    _lock: Lock = attrs.field(factory=Lock, init=False)
    _parts: tuple[Any, Tower] | None = attrs.field(default=None, init=False)
    _seen: OrderedDict[bytes, SeenPicture] = attrs.field(factory=OrderedDict, init=False)

    def encode_prompt(
        self, prompt: str | Sequence[Mapping[str, Any]], pictures: Sequence[Any], **keywords: Any
    ) -> EncodedPrompt:
        """Token ids and rows. keywords: of the chat template. Raises UsageError, see ``ImageEncoder``."""
        from spec_targets.hf.vision.pictures import read_pictures

        images = read_pictures(list(pictures))
        with self._lock:
            seen = [self._see(image) for image in images]
            processor, tower = self._read_parts()
        filler = Filler(processor.image_token, [picture.text for picture in seen])
        if isinstance(prompt, str):
            text = prompt if processor.image_token in prompt else f"{processor.image_token * len(seen)}\n{prompt}"
            tokens = self.tokenizer.encode(filler.fill(text), special=True)
        else:
            tokens = self.tokenizer.encode_chat(prompt, expand=filler.fill, **keywords)
        filler.check()
        return with_rows(tokens, [row for picture in seen for row in picture.rows], tower.row_token, self.mutual)

    def _see(self, image: Image) -> SeenPicture:
        """What a picture is in a prompt; one that was seen before is not read again."""
        key = sha256(repr(image.size).encode() + image.tobytes()).digest()
        if key not in self._seen:
            self._seen[key] = self._look(image)
            if len(self._seen) > KEPT:
                self._seen.popitem(last=False)
        self._seen.move_to_end(key)
        return self._seen[key]

    def _look(self, image: Image) -> SeenPicture:
        processor, tower = self._read_parts()
        inputs = processor(text=processor.image_token, images=[image], return_tensors="pt")
        rows = tower.rows(inputs)
        if rows.shape[1] != self.width:
            raise UsageError(
                f"{self.directory.name}: rows of pictures have {rows.shape[1]} numbers, those of tokens {self.width}",
                hint="its config and its tensors do not belong together; get the model again",
            )
        ids = inputs["input_ids"][0].tolist()
        text = processor.tokenizer.decode(ids[1:] if ids[:1] == [processor.tokenizer.bos_token_id] else ids)
        return SeenPicture(text, rows)

    def _read_parts(self) -> tuple[Any, Tower]:
        """The processor and the tower."""
        if self._parts is None:
            if missing := [name for name in NEEDED if find_spec(name) is None]:
                raise UsageError(
                    f"pictures need {' and '.join(missing)}", hint="pip install 'spec-core[vision]', or give no picture"
                )
            from transformers import AutoProcessor

            from spec_targets.hf.vision.tower import read_tower

            try:
                processor = AutoProcessor.from_pretrained(self.directory, backend="pil")
            except (OSError, ValueError, KeyError, ImportError) as error:
                raise UsageError(
                    f"{self.directory.name}: its processor cannot be read ({str(error)[:200]})",
                    hint="get its preprocessor_config.json and processor_config.json again",
                ) from error
            self._parts = processor, read_tower(self.directory)
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


def with_rows(tokens: list[int], rows: list[Tensor], row_token: int, mutual: bool) -> EncodedPrompt:
    """The prompt with a row at every token that stands for one. Raises UsageError if the numbers differ."""
    places = [at for at, token in enumerate(tokens) if token == row_token]
    if len(places) != len(rows):
        raise UsageError(
            f"the prompt has {len(places)} tokens for rows of pictures, the pictures have {len(rows)} rows",
            hint="leave the model's own token for a row of a picture out of the text",
        )
    chosen = set(places)
    ids = [-1 if at in chosen else token for at, token in enumerate(tokens)]
    return EncodedPrompt(ids, dict(zip(places, rows, strict=True)), runs(places) if mutual else ())


def runs(places: list[int]) -> tuple[tuple[int, int], ...]:
    """(first, end) of neighbouring places."""
    firsts = [at for at in places if at - 1 not in set(places)]
    ends = [at + 1 for at in places if at + 1 not in set(places)]
    return tuple(zip(firsts, ends, strict=True))
