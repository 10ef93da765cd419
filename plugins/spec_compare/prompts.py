"""Prompts with families, from a JSONL file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from spec_core.errors import UsageError, why

if TYPE_CHECKING:
    from spec_core import Target

EXAMPLE = 'write lines of {"id": "1", "family": "edit", "prompt": "..."}'


@attrs.frozen
class Prompt:
    """One text to continue."""

    id: str
    family: str
    text: str

    def seed(self, base: int) -> int:
        """A seed of its own, so that positions of two prompts are not correlated."""
        digest = hashlib.blake2b(f"{base}/{self.id}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little")


def read(path: Path, families: Iterable[str] = (), limit: int | None = None) -> list[Prompt]:
    """Prompts of a file, at most ``limit`` of each family. Raises UsageError naming the line that is wrong."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {why(error)}", hint="give a JSONL file of prompts") from error
    prompts = [_prompt(path, i, line) for i, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise UsageError(f"{path} has no prompts", hint=EXAMPLE)
    _check_ids(path, prompts)
    families = set(families)
    known = {p.family for p in prompts}
    if unknown := families - known:
        raise UsageError(f"{path.name} has no family {min(unknown)!r}", hint=f"families: {', '.join(sorted(known))}")
    return _limited([p for p in prompts if not families or p.family in families], limit)


def shipped(target: Target) -> Path:
    """Prompts that came with the model. Raises UsageError where there are none."""
    path = target.info.extras.get("prompts")
    if path is None:
        raise UsageError(f"{target.info.name} ships no prompts", hint="give some: --prompts FILE.jsonl")
    return Path(path)


def check_fit(prompts: list[Prompt], target: Target) -> None:
    """Every prompt must leave room to generate: said before the first is measured. Raises UsageError."""
    if target.tokenizer is None:
        raise UsageError(f"{target.info.name} has no tokenizer", hint="compare on a model that has one")
    for prompt in prompts:
        length = len(target.tokenizer.encode(prompt.text))
        if not 0 < length < target.info.context:
            raise UsageError(
                f"prompt {prompt.id!r} has {length} tokens, the context is {target.info.context}",
                hint="leave it out of --prompts, or load the model with a larger --context if it has one",
            )


def _prompt(path: Path, number: int, line: str) -> Prompt:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        at = f" at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        found = getattr(error, "msg", None) or str(error)
        raise UsageError(f"{path.name}, line {number} is no JSON: {found[:80]}{at}", hint=EXAMPLE) from error
    try:
        prompt = Prompt(str(entry.get("id", number)), str(entry.get("family", "all prompts")), entry["prompt"])
    except (KeyError, AttributeError) as error:
        raise UsageError(f"{path.name}, line {number}: no prompt", hint=EXAMPLE) from error
    if not isinstance(prompt.text, str):
        raise UsageError(f"{path.name}, line {number}: the prompt is no text", hint=EXAMPLE)
    return prompt


def _check_ids(path: Path, prompts: list[Prompt]) -> None:
    seen = set()
    for prompt in prompts:
        if prompt.id in seen:
            raise UsageError(f"{path.name} has two prompts with the id {prompt.id!r}", hint="give each its own id")
        seen.add(prompt.id)


def _limited(prompts: list[Prompt], limit: int | None) -> list[Prompt]:
    """The first ``limit`` of each family, in file order."""
    seen: dict[str, int] = {}
    kept = []
    for p in prompts:
        seen[p.family] = seen.get(p.family, 0) + 1
        if limit is None or seen[p.family] <= limit:
            kept.append(p)
    return kept
