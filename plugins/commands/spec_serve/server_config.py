"""Server-wide configuration: run, model name, limits, settings."""

from __future__ import annotations

import json
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import attrs

from spec_core import Run, Target
from spec_core.commands import Settings
from spec_serve.settings import ServeSettings


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
        settings = json.dumps(self.settings.as_json(), default=str)
        text = "\0".join((version("spec-core"), self.target.info.vocab_id or "", settings))
        return f"b{sha256(text.encode()).hexdigest()[:12]}"

    @property
    def target(self) -> Target:
        return self.run.target

    @property
    def context(self) -> int:
        return self.target.info.context
