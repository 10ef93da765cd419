"""The prompts of a comparison, kept with its results: ``prompts.jsonl``, which `--prompts` reads too."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spec_commands import common
from spec_commands.prompts import Prompt

from spec_compare.inputs import sources
from spec_compare.inputs.conversation import PICTURE, Conversation, picture_of
from spec_compare.inputs.sized import KEY, SizedPrompt
from spec_compare.records.header import Header
from spec_core.errors import UsageError

NAME = "prompts.jsonl"


def write_prompts(folder: Path, prompts: Iterable[Prompt]) -> None:
    """Write the prompts. Raises UsageError if the file cannot be written."""
    lines = "".join(common.as_json(line_of(prompt)) + "\n" for prompt in prompts)
    try:
        common.write_file(folder / NAME, lines.encode())
    except OSError as error:
        raise common.write_error(folder, error) from error


def line_of(prompt: Prompt) -> dict[str, Any]:
    """A line of the file."""
    if isinstance(prompt, Conversation):
        picture = {} if (file := picture_of(prompt)) is None else {PICTURE: file}
        return {"id": prompt.id, "family": prompt.family, **picture, "turns": list(prompt.turns)}
    form = "prompt" if isinstance(prompt.given, str) else "tokens" if isinstance(prompt.given[0], int) else "messages"
    length = {KEY: prompt.length} if isinstance(prompt, SizedPrompt) else {}
    return {"id": prompt.id, "family": prompt.family, form: prompt.given, **length}


def read_prompts(folder: Path, header: Header) -> list[Prompt]:
    """The prompts of these results; none if they were not stored. Raises UsageError if they are not the header's."""
    if not (folder / NAME).exists():
        return []
    prompts = sources.source(folder / NAME, chat=False).prompts
    if prompts_sha256(prompts) != header.prompts.sha256:
        raise UsageError(
            f"{folder / NAME} has other prompts than the header of the results names",
            hint="remove it, or get the results again from their source",
        )
    return prompts


def prompts_sha256(prompts: Iterable[Prompt]) -> str:
    """SHA-256 of prompts: their ids, families and contents."""
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update((common.as_json([prompt.id, prompt.family, identifying_content(prompt)]) + "\n").encode())
    return digest.hexdigest()


def identifying_content(prompt: Prompt) -> Any:
    """Content that identifies a prompt, independent of the target."""
    if isinstance(prompt, SizedPrompt):
        return [prompt.length, prompt.given]
    if isinstance(prompt, Conversation):
        return [*prompt.turns, *([] if (file := picture_of(prompt)) is None else [Path(file).name])]
    return prompt.given
