"""Settings from SPEC_* variables."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from spec_core.sampling import instruction_set
from spec_core.settings.tables import core_fields

PREFIX = "SPEC_"
CONFIG = "SPEC_CONFIG"
"""Names the settings file where it is not ./spec.toml."""
OURS = (CONFIG, "SPEC_DEBUG", instruction_set.VARIABLE)
"""Variables that the program reads and that are no settings."""
NEAR = 0.8
"""Similarity above which an unknown variable gives a warning."""


def from_environment(environ: Mapping[str, str], plugins: Iterable[str]) -> dict[str, str]:
    """SPEC_DRAFT_MAX -> draft_max; SPEC_MY_ECHO__P_MIN -> my-echo.p_min. Unknown variables are skipped."""
    plugins = tuple(plugins)
    names = {variable: _setting_of(variable, plugins) for variable in environ if variable.startswith(PREFIX)}
    return {name: environ[variable] for variable, name in names.items() if name is not None}


def _setting_of(variable: str, plugins: Iterable[str]) -> str | None:
    """The setting that a variable sets, or None if it sets none."""
    plugin, dunder, key = variable.removeprefix(PREFIX).partition("__")
    if not dunder:
        return plugin.lower() if plugin.lower() in core_fields() else None
    owner = next((name for name in plugins if _env_name(name) == plugin), None)
    return f"{owner}.{key.lower()}" if owner else None


def _env_name(name: str) -> str:
    return name.upper().replace("-", "_")


def find_misspelt(environ: Mapping[str, str], plugins: Iterable[str]) -> dict[str, str]:
    """{variable: known name}: ignored variables whose name is a near miss of a known one."""
    plugins = tuple(plugins)
    core = [*map(_env_name, core_fields()), *(own.removeprefix(PREFIX) for own in OURS)]
    near_misses = {}
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in OURS or _setting_of(variable, plugins):
            continue
        owner, dunder, key = variable.removeprefix(PREFIX).partition("__")
        known = [*map(_env_name, plugins)] if dunder else core
        if near := difflib.get_close_matches(owner, known, n=1, cutoff=NEAR):
            near_misses[variable] = PREFIX + near[0] + dunder + key
    return near_misses
