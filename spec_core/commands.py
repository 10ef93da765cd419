"""What a command of ``spec``, or another program, uses beside ``spec_core``: plugins, settings, checks before a run.

To look plugins up: ``discover`` lists those that are installed, ``find`` finds one by name, ``imported`` imports it,
``hooks_of`` lists its hooks. To read settings: ``resolve`` merges flags, environment and file (``read_file``) into
``Settings``; ``name_of`` and ``parsed`` read ``NAME:key=value``; ``core_fields`` are the core's own. Before a run:
``check`` asks the plugins without reading weights, ``construct`` makes one with its settings, ``prompt_tokens`` checks
a prompt.

Importing this module imports no torch; ``Chosen``, ``Generation``, ``Logprob``, ``check``, ``construct`` and
``prompt_tokens`` do when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from spec_core import prepare
from spec_core.assembly.discovery import GROUPS, PLUGIN_KINDS, Entry, discover, find, imported
from spec_core.assembly.hooks import hooks_of
from spec_core.settings.environment import misspelt
from spec_core.settings.file import read_file
from spec_core.settings.named import chain, joined, name_of, parsed
from spec_core.settings.resolve import DEFAULT, FLAG, Setting, Settings, resolve
from spec_core.settings.tables import LoadSettings, core_fields

if TYPE_CHECKING:
    from spec_core.assembly.assemble import check as check
    from spec_core.assembly.construct import Chosen as Chosen
    from spec_core.assembly.construct import construct as construct
    from spec_core.loop.generation import Generation as Generation
    from spec_core.loop.request.admission import prompt_tokens as prompt_tokens
    from spec_core.sampling.logprob import Logprob as Logprob

_WHERE = {
    "Chosen": "assembly.construct",
    "Generation": "loop.generation",
    "Logprob": "sampling.logprob",
    "check": "assembly.assemble",
    "construct": "assembly.construct",
    "prompt_tokens": "loop.request.admission",
}

__all__ = [
    "DEFAULT",
    "FLAG",
    "GROUPS",
    "PLUGIN_KINDS",
    "Chosen",
    "Entry",
    "Generation",
    "LoadSettings",
    "Logprob",
    "Setting",
    "Settings",
    "chain",
    "check",
    "construct",
    "core_fields",
    "discover",
    "find",
    "hooks_of",
    "imported",
    "joined",
    "misspelt",
    "name_of",
    "parsed",
    "prompt_tokens",
    "read_file",
    "resolve",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'spec_core.commands' has no attribute {name!r}")
    prepare()
    value = getattr(importlib.import_module(f"spec_core.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
