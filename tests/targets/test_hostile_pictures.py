"""Pictures of strangers: refused with the reason, or decoded as a viewer shows them, in a process with limits."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

PIL = pytest.importorskip("PIL")
from PIL import Image  # noqa: E402
from spec_targets.pictures import pictures  # noqa: E402
from spec_targets.pictures.decode import PIXELS_MAX  # noqa: E402

from spec_core import UsageError  # noqa: E402

RED = (255, 0, 0)


def file_of(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def plain(size=(6, 4), colour=RED) -> Image.Image:
    return Image.new("RGB", size, colour)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, body: bytes, depth: int = 8, colour: int = 2) -> bytes:
    """A PNG file with any header."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def text_bomb() -> bytes:
    """A PNG whose compressed comment grows to 64 MiB."""
    whole = file_of(plain())
    comment = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(64 << 20), 9))
    return whole[:33] + comment + whole[33:]


def animation(kind: str) -> bytes:
    frames = [plain(colour=(i, 0, 0)) for i in (0, 80, 160)]
    return file_of(frames[0], kind, save_all=True, append_images=frames[1:])


REFUSED = {
    "no picture": (b"hello", "is none of PNG, JPEG, WEBP"),
    "nothing": (b"", "is none of"),
    "gif": (file_of(plain(), "GIF"), "is none of"),
    "bmp": (file_of(plain(), "BMP"), "is none of"),
    "tiff": (file_of(plain(), "TIFF"), "is none of"),
    "svg": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is none of"),
    "many pixels": (png(70_000, 70_000, zlib.compress(bytes(100))), "70000 x 70000 pixels, at most"),
    "one row of many": (png(PIXELS_MAX + 1, 1, zlib.compress(bytes(100))), "pixels, at most"),
    "one row": (png(1_000, 2, zlib.compress(bytes(100))), "one side is more than 200 times the other"),
    "one column": (png(1, 100_000, zlib.compress(bytes(100))), "one side is more than 200 times the other"),
    "no data": (png(100, 100, b""), "it is damaged"),
    "too little data": (png(5_000, 5_000, zlib.compress(bytes(100))), "it is damaged"),
    "no deflate": (png(10, 10, b"abc"), "it is damaged"),
    "truncated png": (file_of(Image.effect_noise((200, 200), 90))[:-500], "it is damaged"),
    "truncated jpeg": (file_of(Image.effect_noise((200, 200), 90), "JPEG")[:900], "it is damaged"),
    "truncated webp": (file_of(Image.effect_noise((200, 200), 90), "WEBP")[:200], "cannot be read"),
    "comment that grows": (text_bomb(), "it is damaged"),
    "animated png": (animation("PNG"), "animation of 3 pictures"),
    "animated webp": (animation("WEBP"), "animation of 3 pictures"),
    "large file": (b"\x89PNG" + bytes(pictures.BYTES_MAX), "has more than 32 MiB"),
}


@pytest.mark.parametrize("data, reason", REFUSED.values(), ids=REFUSED)
def test_it_is_refused_and_the_next_one_is_read(data, reason):
    with pytest.raises(UsageError, match=reason):
        pictures.read_picture(data, "picture 1")

    assert pictures.read_picture(file_of(plain()), "picture 2").getpixel((0, 0)) == RED


def picture_to_turn() -> bytes:
    """Red on the left as stored; to be turned by 90 degrees to the right, which puts it on top."""
    image = Image.new("RGB", (8, 8), "white")
    image.paste(RED, (0, 0, 4, 8))
    exif = Image.Exif()
    exif[0x0112] = 6
    return file_of(image, "PNG", exif=exif)


SHOWN = {
    "palette": (file_of(plain().convert("P")), RED),
    "grey": (file_of(Image.new("L", (6, 4), 128)), (128, 128, 128)),
    "two colours": (file_of(Image.new("1", (6, 4), 1)), (255, 255, 255)),
    "sixteen bits": (file_of(Image.fromarray(np.full((4, 6), 0x8000, np.uint16))), (128, 128, 128)),
    "transparent": (file_of(Image.new("RGBA", (6, 4), (255, 0, 0, 0))), (255, 255, 255)),
    "half transparent": (file_of(Image.new("RGBA", (6, 4), (255, 0, 0, 128))), (255, 127, 127)),
    "four inks": (file_of(Image.new("CMYK", (16, 16), (0, 0, 0, 0)), "JPEG"), (255, 255, 255)),
    "turned": (picture_to_turn(), RED),
    "one pixel": (file_of(plain((1, 1))), RED),
    "large": (file_of(plain((5_000, 5_000))), RED),
}


@pytest.mark.parametrize("data, colour", SHOWN.values(), ids=SHOWN)
def test_it_is_read_as_it_is_shown(data, colour):
    image = pictures.read_picture(data, "picture 1")

    assert (image.mode, image.getpixel((image.width - 1, 0))) == ("RGB", colour)


def test_a_file_an_array_and_an_image_are_the_same_picture(tmp_path):
    image = Image.effect_noise((30, 20), 90).convert("RGB")
    path = tmp_path / "a.png"
    image.save(path)
    ways = [path, str(path), path.read_bytes(), np.asarray(image), image]

    assert {pictures.read_picture(way, "picture").tobytes() for way in ways} == {image.tobytes()}


@pytest.mark.parametrize(
    "picture, reason",
    [
        (Path("/nowhere/a.png"), "/nowhere/a.png: No such file"),
        (np.zeros((4, 4), np.uint8), r"an array \[4, 4\] of uint8"),
        (np.zeros((4, 4, 3), np.float32), "of float32"),
        (np.zeros((0, 4, 3), np.uint8), r"an array \[0, 4, 3\]"),
        (7, "is of type int"),
    ],
)
def test_what_is_no_picture_is_refused_by_its_kind(picture, reason):
    with pytest.raises(UsageError, match=reason):
        pictures.read_picture(picture, "picture 1")


def test_there_is_a_largest_number_of_pictures():
    with pytest.raises(UsageError, match="the prompt has 65 pictures"):
        pictures.read_pictures([plain()] * 65)
