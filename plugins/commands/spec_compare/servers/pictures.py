"""Pictures of messages as requests carry them: inside the request, as data."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from spec_commands.prompts import Prompt

from spec_core.errors import UsageError, error_message

KINDS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"RIFF": "webp"}
"""First bytes of a picture, and its type."""
LARGEST = 20 << 20
"""Max bytes of a picture."""


def send_pictures(prompt: Prompt) -> Prompt:
    """The prompt with ``image_url`` parts in place of pictures in files. Raises UsageError."""
    if isinstance(prompt.given, str) or not prompt.given or isinstance(prompt.given[0], int):
        return prompt
    return attrs.evolve(prompt, given=[_message(prompt.id, message) for message in prompt.given])


def _message(where: str, message: Mapping[str, Any]) -> Mapping[str, Any]:
    content = message.get("content")
    return message if not isinstance(content, list) else {**message, "content": [_part(where, p) for p in content]}


def _part(where: str, part: Any) -> Any:
    if not isinstance(part, Mapping) or part.get("type") != "image" or not isinstance(part.get("image"), str):
        return part
    path = Path(part["image"])
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"prompt {where!r}: the picture {path}: {error_message(error)}", hint="check --prompts"
        ) from error
    kind = next((kind for start, kind in KINDS.items() if data.startswith(start)), None)
    if kind is None or len(data) > LARGEST:
        raise UsageError(
            f"prompt {where!r}: {path} is no picture of at most {LARGEST >> 20} MB", hint="use PNG, JPEG or WEBP files"
        )
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{b64encode(data).decode()}"}}
