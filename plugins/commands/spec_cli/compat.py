"""``spec compat``: would this run? From metadata only: no weights are read and no accelerator is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from spec_commands import common
from spec_commands.help import Command
from spec_commands.printing import print_line

if TYPE_CHECKING:
    from spec_core import Target
    from spec_core.commands import PluginInstance, Settings

MEMORY = ("weight_bytes", "row_bytes")
"""Optional facts of a target about its memory: bytes of all weights, and of one token in a sequence's cache."""
NEEDED = ("final", "trees", "logits", "all_logits", "constraints", "predictions")
"""Fields of Needs that are true or false."""


@click.command(cls=Command)
@common.options(common.MODEL, common.METHODS)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def compat(as_json: bool, **flags: Any) -> int:
    """Check target and plugins from metadata: what each owns, needs and refuses."""
    settings = common.settings_of(flags)
    target = common.describe_model(settings).target
    chosen, refused = inspect_plugins(target, settings)
    body = {"target": facts(target), "plugins": [answer(c) for c in chosen], "refused": refused}
    print_line(common.as_json(body) if as_json else "\n".join(lines(body)))
    return 2 if refused else 0


def inspect_plugins(target: Target, settings: Settings) -> tuple[list[PluginInstance], dict[str, str] | None]:
    """Every plugin with its answer, or all refusals in one."""
    from spec_core.commands import check_plugins
    from spec_core.errors import Refused

    settings_by_plugin = common.plugin_settings(settings)
    try:
        chosen = check_plugins(
            target, settings["methods"], settings["rule"], settings["rollback"], settings_by_plugin, settings["control"]
        )
    except Refused as error:
        return [], {"reason": error.reason, "hint": error.hint}
    common.check_used(settings, [c.name for c in chosen])
    return chosen, None


def answer(plugin: PluginInstance) -> dict[str, Any]:
    compat = plugin.compat
    return {
        "name": plugin.name,
        "owns": sorted(compat.owns),
        "needs": describe_needs(compat.needs),
        "drafts": sorted(plugin.proposals),
        "judges": None if compat.judges is None else sorted(compat.judges),
        "lossy": compat.lossy,
        "steers": compat.steers,
        "request_values": sorted(compat.request_values),
        "hooks": sorted(plugin.hooks),
        "notes": list(compat.notes),
    }


def describe_needs(needs: Any) -> list[str]:
    """Outputs that the plugin needs of every forward, in words."""
    outputs = [f"hidden {' '.join(map(str, sorted(needs.hidden)))}"] if needs.hidden else []
    outputs += [name for name in NEEDED if getattr(needs, name)]
    outputs += [f"weights {' '.join(sorted(needs.weights))}"] if needs.weights else []
    return outputs + ([f"trace of {needs.trace}"] if needs.trace else [])


def facts(target: Target) -> dict[str, Any]:
    info = target.info
    names = ("name", "family", "vocab", "width", "layers", "context", "dtype", "device", "trees")
    plain = {name: getattr(info, name) for name in names}
    sizes = {name: size for name in MEMORY if (size := getattr(info, name)) is not None}
    if (rows := info.rows_bytes(info.context)) is not None:
        sizes["rows_bytes"] = rows
    return plain | {"states": sorted(info.states)} | sizes


def lines(body: dict[str, Any]) -> list[str]:
    t = body["target"]
    out = [
        f"{t['name']}: {t['family']}, {t['layers']} layers of {t['width']}, vocabulary {t['vocab']}",
        f"  context {t['context']}, {t['dtype']} on {t['device']}, state: {', '.join(t['states'])}",
    ]
    out += memory(t) + [describe_plugin(plugin) for plugin in body["plugins"]]
    if refused := body["refused"]:
        out += ["refused:", *(f"  {line}" for line in refused["reason"].split("\n")), f"  {refused['hint']}"]
    return out


def memory(target: dict[str, Any]) -> list[str]:
    if any(key not in target for key in ("weight_bytes", "rows_bytes")):
        return []
    weights, rows = target["weight_bytes"] / 2**20, target["rows_bytes"] / 2**20
    return [f"  weights {weights:.1f} MiB, cache of a sequence {rows:.1f} MiB at full context"]


def describe_plugin(plugin: dict[str, Any]) -> str:
    parts = [f"{what} {', '.join(plugin[what])}" for what in ("owns", "needs", "drafts", "judges") if plugin[what]]
    parts += [f"{what}: {plugin[what]}" for what in ("lossy", "steers") if plugin[what]]
    parts += plugin["notes"]
    return f"{plugin['name']}: {'; '.join(parts) or 'needs nothing'}"
