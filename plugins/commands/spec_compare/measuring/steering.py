"""Rules that steer the text: their contenders are compared with plain decoding under the same rule."""

from __future__ import annotations

from collections.abc import Hashable

import attrs
from spec_commands import common
from spec_commands.common import Settings

from spec_core import Target
from spec_core.commands import parse_method


def name_of_rule(settings: Settings) -> str:
    """The name of the settings' rule; empty where there is none."""
    return parse_method(settings["rule"])[0] if settings["rule"] else ""


@attrs.define(eq=False)
class Steering:
    """Rules that steer the text: contenders are compared with plain decoding under theirs. rules: {key: whether}."""

    rules: dict[Hashable, bool] = attrs.field(factory=dict)

    def is_steered(self, settings: Settings, target: Target) -> bool:
        """Whether the settings' rule steers the text."""
        if not settings["rule"]:
            return False
        key = self.key(settings)
        if key not in self.rules:
            with common.run_of(target, settings, [], max_sequences=1) as run:
                self.rules[key] = run.stats.steers is not None
        return self.rules[key]

    def key(self, settings: Settings) -> Hashable:
        """The settings' rule with its own settings."""
        own = {name: settings[name] for name in settings.table if name.startswith(f"{name_of_rule(settings)}.")}
        return settings["rule"], repr(sorted(own.items()))
