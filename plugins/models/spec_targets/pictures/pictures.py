"""Pictures as users give them: files, bytes, arrays and pillow's images, each as pillow's RGB image."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from spec_core.errors import UsageError, error_message
from spec_core.toolkit import LimitedProcess, PictureBudget, ProcessEnded
from spec_targets.pictures.decode import LIMIT, PICTURE, PIXELS_MAX, SIZE

PROGRAM = Path(__file__).with_name("decode.py")
BYTES_MAX = 32 << 20
"""Bytes of a file."""
PICTURES_MAX = 64
"""Pictures of a prompt."""
MEMORY = 512 << 20
"""Bytes that the process may grow by for one picture."""
HINT = "give a PNG, JPEG or WEBP file, its bytes, an array [height, width, 3] of uint8, or an image of pillow"
decoder = LimitedProcess(["-P", str(PROGRAM)], cpu_seconds=10.0, memory=MEMORY, seconds=60.0)
atexit.register(decoder.kill)


def read_pictures(pictures: list[Any], budget: PictureBudget | None = None) -> Iterator[Image.Image]:
    """The pictures of a prompt, decoded one after the other. Raises UsageError."""
    if len(pictures) > PICTURES_MAX:
        raise UsageError(f"the prompt has {len(pictures)} pictures", hint=f"give at most {PICTURES_MAX}")
    return (read_picture(picture, f"picture {number}", budget) for number, picture in enumerate(pictures, 1))


def read_picture(picture: Any, where: str, budget: PictureBudget | None = None) -> Image.Image:
    """A picture. where: its name in errors. budget: of the prompt, None is none. Raises UsageError."""
    budget = budget or PictureBudget()
    budget.check_time()
    if isinstance(picture, (str, Path)):
        image = decode_safely(file_bytes(Path(picture)), f"{where}, {picture},", budget.free_pixels)
    elif isinstance(picture, (bytes, bytearray)):
        image = decode_safely(bytes(picture), where, budget.free_pixels)
    else:
        image = picture.convert("RGB") if isinstance(picture, Image.Image) else from_array(picture, where)
    budget.take_pixels(image.width * image.height)
    return image


def file_bytes(path: Path) -> bytes:
    """Bytes of a file, one more than are allowed if it has more."""
    try:
        with path.open("rb") as file:
            return file.read(BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error_message(error)}", hint=HINT) from error


def decode_safely(data: bytes, where: str, pixels_max: float = PIXELS_MAX) -> Image.Image:
    """A picture from the bytes of its file, decoded in a process with limits. Raises UsageError."""
    if len(data) > BYTES_MAX:
        raise UsageError(f"{where} has more than {BYTES_MAX >> 20} MiB", hint="give a smaller file")
    try:
        answer = memoryview(decoder.call(LIMIT.pack(int(min(PIXELS_MAX, pixels_max))) + data))
    except ProcessEnded as error:
        raise UsageError(f"{where} cannot be decoded: {error}", hint=HINT) from error
    if answer[:1] != PICTURE:
        raise UsageError(f"{where} cannot be read: {bytes(answer[1:]).decode('utf-8', 'replace')}", hint=HINT)
    size = SIZE.unpack_from(answer, 1)
    return Image.frombytes("RGB", size, answer[1 + SIZE.size :])


def from_array(picture: Any, where: str) -> Image.Image:
    """A picture from an array or tensor of pixels. Raises UsageError."""
    array = picture.cpu().numpy() if isinstance(picture, Tensor) else picture
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{where} is of type {type(picture).__name__}", hint=HINT)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise UsageError(f"{where} is an array {list(array.shape)} of {array.dtype}", hint=HINT)
    return Image.fromarray(np.ascontiguousarray(array))
