"""Prompts with families, from a JSONL file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import attrs

from spec_core.errors import UsageError


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
        raise UsageError(f"{path}: {error}", mend="give a JSONL file of prompts") from error
    prompts = [_prompt(path, i, line) for i, line in enumerate(lines, 1) if line.strip()]
    known = {p.family for p in prompts}
    if unknown := set(families) - known:
        raise UsageError(f"{path.name} has no family {min(unknown)!r}", mend=f"families: {', '.join(sorted(known))}")
    wanted = [p for p in prompts if not families or p.family in families]
    if not wanted:
        raise UsageError(f"{path} has no prompts", mend='write lines of {"id", "family", "prompt"}')
    return _limited(wanted, limit)


def _prompt(path: Path, number: int, line: str) -> Prompt:
    try:
        entry = json.loads(line)
        return Prompt(str(entry.get("id", number)), str(entry.get("family", "all")), entry["prompt"])
    except (ValueError, KeyError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"{path.name}, line {number}: no prompt", mend='write {"id": "1", "family": "edit", "prompt": "..."}'
        ) from error


def _limited(prompts: list[Prompt], limit: int | None) -> list[Prompt]:
    """The first ``limit`` of each family, in file order."""
    seen: dict[str, int] = {}
    kept = []
    for p in prompts:
        seen[p.family] = seen.get(p.family, 0) + 1
        if limit is None or seen[p.family] <= limit:
            kept.append(p)
    return kept
