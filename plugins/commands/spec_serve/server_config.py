"""Server-wide configuration: run, model name, limits, settings."""

from __future__ import annotations

import json
import re
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attrs
from spec_commands.json_text import format_json

from spec_core import Run, Target
from spec_core.commands import Settings
from spec_serve.settings import ServeSettings

FOLDERS = re.compile(r"(?<![\w.~])(?:[A-Za-z]:)?[\\/](?:[^\\/,=]+[\\/])*")
"""Folders of an absolute path, also after the name of a scheme or method."""


def name_of_model(location: str) -> str:
    """The name of a model without folders of this machine: a file's or directory's own, else its location."""
    _, colon, rest = location.partition(":")
    for path in (location, rest if colon and Path(rest).is_absolute() else ""):
        if path and Path(path).exists():
            return Path(path).resolve().name
    return location


def without_folders(value: Any) -> Any:
    """A setting whose absolute paths are file names."""
    if isinstance(value, (list, tuple)):
        return [without_folders(one) for one in value]
    if isinstance(value, dict):
        return {name: without_folders(one) for name, one in value.items()}
    return FOLDERS.sub("", value) if isinstance(value, str) else value


@attrs.frozen(slots=False)
class ServerConfig:
    """Server-wide configuration. model: its name in the API. settings: all that were resolved."""

    run: Run
    model: str
    limits: ServeSettings
    settings: Settings

    @cached_property
    def template_defaults(self) -> dict[str, Any]:
        """Variables of the chat template where a request says nothing."""
        return json.loads(self.limits.chat_template_kwargs or "{}")  # type: ignore[no-any-return]

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the answering system: it changes with the model, its settings and this program."""
        settings = format_json(self.settings.as_json())
        text = "\0".join((version("spec-core"), self.target.info.vocab_id or "", settings))
        return f"b{sha256(text.encode()).hexdigest()[:12]}"

    @property
    def target(self) -> Target:
        return self.run.target

    @property
    def context(self) -> int:
        return self.target.info.context
