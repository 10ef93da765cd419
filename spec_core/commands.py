"""Functions for commands of ``spec`` and for other programs: plugins, settings, checks before a run.

Plugins: ``discover`` lists the installed ones, ``find`` finds one by name, ``imported`` imports it,
``hooks_of`` lists its hooks. Settings: ``resolve`` merges flags, environment and file (``read_file``) into
``Settings``; ``anchored`` resolves the relative paths of a file's table; ``name_of`` and ``parsed`` read
``NAME:key=value``; ``core_fields`` are the core's own, ``configured`` gives the first parts of dotted settings. Before
a run: ``prepare`` checks it from metadata and gives what ``load`` makes a run of, ``check`` calls ``compat`` of the
plugins alone, ``construct`` makes a plugin with its settings, ``prompt_tokens`` checks a prompt.

Importing this module does not import torch; the first use of ``Chosen``, ``Generation``, ``Logprob``, ``check``,
``construct``, ``prepare`` or ``prompt_tokens`` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spec_core.assembly.discovery import GROUPS, PLUGIN_KINDS, Entry, configured, discover, find, imported
from spec_core.assembly.hooks import hooks_of
from spec_core.early import lazy
from spec_core.settings.environment import misspelt
from spec_core.settings.file import anchored, read_file
from spec_core.settings.named import chain, joined, name_of, parsed
from spec_core.settings.resolve import DEFAULT, FLAG, Setting, Settings, resolve
from spec_core.settings.tables import LoadSettings, core_fields

if TYPE_CHECKING:
    from spec_core.assembly.assemble import check as check
    from spec_core.assembly.construct import Chosen as Chosen
    from spec_core.assembly.construct import construct as construct
    from spec_core.assembly.prepare import Prepared as Prepared
    from spec_core.loop.generation import Generation as Generation
    from spec_core.loop.prepare import prepare as prepare
    from spec_core.loop.request.admission import prompt_tokens as prompt_tokens
    from spec_core.sampling.logprob import Logprob as Logprob

_WHERE = {
    "Chosen": "assembly.construct",
    "Generation": "loop.generation",
    "Logprob": "sampling.logprob",
    "Prepared": "assembly.prepare",
    "check": "assembly.assemble",
    "construct": "assembly.construct",
    "prepare": "loop.prepare",
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
    "Prepared",
    "Setting",
    "Settings",
    "anchored",
    "chain",
    "check",
    "configured",
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
    "prepare",
    "prompt_tokens",
    "read_file",
    "resolve",
]


__getattr__ = lazy(globals(), _WHERE)


def __dir__() -> list[str]:
    return __all__
