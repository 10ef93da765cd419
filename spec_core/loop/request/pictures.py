"""Pictures of a prompt: rows of the target take their place before anything else is checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from spec_core.contract.request import Request
from spec_core.contract.target import Target
from spec_core.contract.target_parts import image_encoder
from spec_core.errors import UsageError
from spec_core.loop.request.checks import TEXTLESS, kind


def read_pictures(request: Request, target: Target) -> Request:
    """The request with token ids and embeddings for its pictures; the request itself, if it has none.

    Raises UsageError for a target without an image encoder, and for pictures that it cannot read.
    """
    prompt, pictures = take_pictures(request.prompt)
    pictures += picture_list(request.images)
    if not pictures:
        return request
    if request.embeds or request.encoded is not None:
        raise UsageError("pictures and embeds are both given", hint="give the rows of the pictures as embeds too")
    if not isinstance(prompt, (str, list)) or (prompt and isinstance(prompt, list) and isinstance(prompt[0], int)):
        raise UsageError("pictures are given with token ids", hint="give a text or messages")
    if (encoder := image_encoder(target)) is None:
        raise UsageError(
            f"the prompt has pictures, and {target.info.name} reads text alone",
            hint="leave them out, or use the Hugging Face directory of a model with a vision part",
        )
    encoded = encoder.encode_prompt(prompt, pictures)
    return attrs.evolve(request, prompt=encoded.tokens, encoded=encoded, images=())


def picture_list(images: Any) -> list[Any]:
    """The pictures of a request as a list. Raises UsageError."""
    if isinstance(images, (*TEXTLESS, str, Mapping)) or not isinstance(images, Iterable):
        raise UsageError(f"images is {kind(images)}", hint="give a list of pictures")
    return list(images)


def take_pictures(prompt: Any) -> tuple[Any, list[Any]]:
    """The prompt without the contents of its pictures, and the pictures, in their order."""
    pictures: list[Any] = []
    if not isinstance(prompt, (list, tuple)) or not any(isinstance(message, Mapping) for message in prompt):
        return prompt, pictures
    return [_without_pictures(message, pictures) for message in prompt], pictures


def _without_pictures(message: Any, pictures: list[Any]) -> Any:
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, (list, tuple)) or not any(_is_picture(part) for part in content):
        return message
    parts = []
    for at, part in enumerate(content):
        if _is_picture(part):
            if "image" not in part:
                raise UsageError(f"part {at + 1} of a message is an image without a picture", hint=EXAMPLE)
            pictures.append(part["image"])
        parts.append({"type": "image"} if _is_picture(part) else part)
    return {**message, "content": parts}


def _is_picture(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "image"


EXAMPLE = 'give it as {"type": "image", "image": "photo.jpg"}'
