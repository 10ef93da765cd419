"""Transformers' processors of pictures: what a tower reads, and the text that stands for a picture in a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import transformers

from spec_core.errors import LoadError, message

if TYPE_CHECKING:
    from PIL.Image import Image

GRID = ("qwen3_vl",)
"""Values of ``model_type`` whose whole processor needs more packages, for videos."""
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")


class Processor(Protocol):
    """picture_token: the word of a picture in a prompt. standing: what is written for a picture without one."""

    @property
    def picture_token(self) -> str: ...
    @property
    def standing(self) -> str: ...

    def row_count(self, image: Image) -> int:
        """Rows that a picture will have, where that is known before it is read; else 0."""

    def read(self, image: Image) -> tuple[Mapping[str, Any], str]:
        """Inputs of a tower, and the text of it: a token for each row, and what is between them."""


@attrs.frozen
class WholeProcessor:
    """The processor of a directory."""

    processor: Any

    @property
    def picture_token(self) -> str:
        return str(self.processor.image_token)

    @property
    def standing(self) -> str:
        return self.picture_token

    def row_count(self, image: Image) -> int:
        return 0  # its parts have a size that the model says, not the picture

    def read(self, image: Image) -> tuple[Mapping[str, Any], str]:
        inputs = self.processor(text=self.picture_token, images=[image], return_tensors="pt")
        words = self.processor.tokenizer
        ids = inputs["input_ids"][0].tolist()
        return inputs, words.decode(ids[1:] if ids[:1] == [words.bos_token_id] else ids)


@attrs.frozen
class GridProcessor:
    """Pictures as a grid of patches; ``merge`` x ``merge`` of them become a row."""

    pictures: Any
    merge: int
    picture_token: str = "<|image_pad|>"
    standing: str = "<|vision_start|><|image_pad|><|vision_end|>"

    def row_count(self, image: Image) -> int:
        patches = self.pictures.get_number_of_image_patches(image.height, image.width)
        return int(patches) // self.merge**2

    def read(self, image: Image) -> tuple[Mapping[str, Any], str]:
        inputs = self.pictures(images=[image], return_tensors="pt")
        return inputs, self.picture_token * (int(inputs["image_grid_thw"].prod()) // self.merge**2)


def read_config(directory: Path) -> Any:
    """The config of a directory as transformers reads it. Raises LoadError for one that they refuse."""
    try:
        return transformers.AutoConfig.from_pretrained(directory)
    except Exception as error:  # transformers raise many kinds for a damaged file
        raise _load_error(directory / "config.json", "the config of its vision part", error) from error


def read_processor(directory: Path, config: Any) -> Processor:
    """The processor of a directory, with pillow alone. Raises LoadError for a damaged one."""
    try:
        if config.model_type not in GRID:
            return WholeProcessor(transformers.AutoProcessor.from_pretrained(directory, backend="pil"))
        pictures = transformers.AutoImageProcessor.from_pretrained(directory, backend="pil")
        return GridProcessor(pictures, int(config.vision_config.spatial_merge_size))
    except Exception as error:
        files = [directory / name for name in PROCESSOR_FILES if (directory / name).exists()]
        raise _load_error((files or [directory])[0], "its processor of pictures", error) from error


def _load_error(file: Path, what: str, error: Exception) -> LoadError:
    return LoadError(
        f"{file}: transformers cannot read {what}: {type(error).__name__}: {message(error)[:200]}",
        hint="get the file again, or serve the model's text alone from a GGUF file",
    )
