"""The program of a process that decodes pictures of strangers. Run as a program, by its path.

A message is the number of pixels that the picture may have, and the bytes of a file. An answer is ``PICTURE``, width
and height, and the bytes of its pixels, red, green and blue, row by row; or ``FAILED`` and the reason in words. The
system ends the process when it uses too much.
"""

from __future__ import annotations

import io
import struct
import warnings

from PIL import Image, ImageOps, UnidentifiedImageError

from spec_core.toolkit import answer_messages

PICTURE = b"P"
FAILED = b"E"
SIZE = struct.Struct("<II")
FORMATS = ("PNG", "JPEG", "WEBP")
LIMIT = struct.Struct("<I")
PIXELS_MAX = 1 << 25
"""Pixels of a picture, 32 Mi: a photograph of a telephone has half of them."""
SIDES_MAX = 200
"""How many times longer one side may be than the other: what cuts a picture in patches refuses longer ones."""
REASON_MAX = 200


class Refusal(Exception):
    """Why a picture is not read, as the end of a sentence."""


def answer(message: bytes) -> bytes:
    try:
        picture = decode_picture(message[LIMIT.size :], *LIMIT.unpack_from(message))
    except Refusal as error:
        return FAILED + str(error).encode()
    except UnidentifiedImageError:
        return FAILED + f"it is none of {', '.join(FORMATS)}".encode()
    except MemoryError:
        return FAILED + b"it takes more memory than a picture may"
    except Exception as error:  # decoders raise many kinds for damaged files
        return FAILED + f"it is damaged ({str(error)[:REASON_MAX]})".encode("utf-8", "replace")
    return PICTURE + SIZE.pack(*picture.size) + picture.tobytes()


def decode_picture(data: bytes, pixels_max: int) -> Image.Image:
    """The picture in red, green and blue, upright, on white where it is transparent.

    Raises Refusal, or what decoders raise.
    """
    with Image.open(io.BytesIO(data), formats=FORMATS) as file:
        width, height = file.size
        if width * height > pixels_max:
            raise Refusal(f"it has {width} x {height} pixels, at most {pixels_max} are read")
        if max(width, height) > SIDES_MAX * min(width, height):
            raise Refusal(f"it has {width} x {height} pixels: one side is more than {SIDES_MAX} times the other")
        if (frames := getattr(file, "n_frames", 1)) > 1:
            raise Refusal(f"it is an animation of {frames} pictures: give one")
        file.load()
        return opaque_picture(eight_bits(ImageOps.exif_transpose(file)))


def eight_bits(picture: Image.Image) -> Image.Image:
    """The picture with 8 bits a value: pillow cuts larger ones off, where they should become darker."""
    if picture.mode.startswith("I"):
        return picture.convert("I").point(lambda value: value / 256).convert("L")
    return picture


def opaque_picture(picture: Image.Image) -> Image.Image:
    """The picture in RGB, on white where it is transparent."""
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    white = Image.new("RGBA", picture.size, "white")
    return Image.alpha_composite(white, picture.convert("RGBA")).convert("RGB")


if __name__ == "__main__":
    Image.init()  # imported before there are limits
    Image.MAX_IMAGE_PIXELS = None  # the limit is ours
    warnings.simplefilter("ignore")
    answer_messages(answer)
