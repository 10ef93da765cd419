"""Functions for commands of ``spec`` and for other programs: plugins, settings, checks before a run.

Plugins: ``discover_plugins`` lists the installed ones, ``find_plugin`` finds one by name, ``import_plugin`` imports it,
``hooks_of`` lists its hooks, ``read_entry_points`` gives the entry points of any group. Settings: ``resolve_layers``
merges flags, environment and file (``read_file`` of ``settings_file``) into ``Settings``; ``resolve_paths`` resolves
the relative paths of a file's table; ``name_of`` and ``parse_method`` read ``NAME:key=value``; ``core_fields`` are the
core's own, ``setting_owners`` gives the first parts of dotted settings.
Before a run: ``prepare`` checks it from metadata and gives what ``load`` makes a run of, ``check_plugins`` calls
``compat`` of the plugins alone, ``construct_plugin`` makes a plugin with its settings, ``prompt_tokens`` checks a
prompt. A program calls
``call_before_torch`` first, for settings of libraries that torch loads.

Importing this module does not import torch; the first use of ``Generation``, ``Logprob``, ``PluginInstance``,
``check_plugins``, ``construct_plugin``, ``prepare`` or ``prompt_tokens`` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spec_core.assembly.discovery import (
    GROUPS,
    PLUGIN_KINDS,
    Entry,
    discover_plugins,
    find_plugin,
    import_plugin,
    setting_owners,
)
from spec_core.assembly.hooks import hooks_of
from spec_core.installed import InstalledWarning, read_entry_points
from spec_core.lazy import importer
from spec_core.settings.environment import find_misspelt
from spec_core.settings.file import read_file, resolve_paths, settings_file
from spec_core.settings.named import format_method, name_of, parse_method, split_methods
from spec_core.settings.resolve import DEFAULT, FLAG, Setting, Settings, resolve_layers
from spec_core.settings.tables import LoadSettings, TextSettings, core_fields

if TYPE_CHECKING:
    from spec_core.assembly.assemble import check_plugins as check_plugins
    from spec_core.assembly.construct import PluginInstance as PluginInstance
    from spec_core.assembly.construct import construct_plugin as construct_plugin
    from spec_core.lazy import call_before_torch as call_before_torch
    from spec_core.loop.generation import Generation as Generation
    from spec_core.loop.prepare import prepare as prepare
    from spec_core.loop.prepared import Prepared as Prepared
    from spec_core.loop.request.admission import prompt_tokens as prompt_tokens
    from spec_core.sampling.logprob import Logprob as Logprob

_WHERE = {
    "Generation": "spec_core.loop.generation",
    "Logprob": "spec_core.sampling.logprob",
    "PluginInstance": "spec_core.assembly.construct",
    "Prepared": "spec_core.loop.prepared",
    "check_plugins": "spec_core.assembly.assemble",
    "construct_plugin": "spec_core.assembly.construct",
    "call_before_torch": "spec_core.lazy",
    "prepare": "spec_core.loop.prepare",
    "prompt_tokens": "spec_core.loop.request.admission",
}

__all__ = [
    "DEFAULT",
    "FLAG",
    "GROUPS",
    "PLUGIN_KINDS",
    "Entry",
    "Generation",
    "InstalledWarning",
    "LoadSettings",
    "Logprob",
    "PluginInstance",
    "Prepared",
    "Setting",
    "Settings",
    "TextSettings",
    "call_before_torch",
    "check_plugins",
    "construct_plugin",
    "core_fields",
    "discover_plugins",
    "find_misspelt",
    "find_plugin",
    "format_method",
    "hooks_of",
    "import_plugin",
    "name_of",
    "parse_method",
    "prepare",
    "prompt_tokens",
    "read_entry_points",
    "read_file",
    "resolve_layers",
    "resolve_paths",
    "setting_owners",
    "settings_file",
    "split_methods",
]


__getattr__ = importer(globals(), _WHERE)


def __dir__() -> list[str]:
    return __all__
