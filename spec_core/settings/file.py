"""Settings from a file. Relative paths in it are relative to the file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spec_core.errors import UsageError, error_message
from spec_core.settings.environment import CONFIG
from spec_core.settings.named import format_method, parse_method

SCHEME = re.compile(r"[A-Za-z][\w.+-]+:")


def settings_file(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Path | None:
    """The settings file: ``path``, else $SPEC_CONFIG, else ./spec.toml if it exists, else None."""
    if named := path or (environ or {}).get(CONFIG):
        return Path(named)
    return file if (file := Path("spec.toml")).exists() else None


def read_file(path: Path | None = None, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Settings of the settings file; relative paths are resolved. Raises UsageError for a file that cannot be read."""
    file = settings_file(path, environ)
    if file is None:
        return {}
    try:
        return resolve_paths(tomllib.loads(file.read_text(encoding="utf-8")), file.parent)
    except (OSError, ValueError, RecursionError) as error:  # an int of thousands of digits raises a plain ValueError
        raise UsageError(
            f"{file}: {error_message(error)}", hint="fix the file; `spec settings --toml` prints one that works"
        ) from error


def resolve_paths(table: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A file's table with relative paths resolved against its folder: model, NAME=FILE, and ``file`` of a plugin."""
    resolved = dict(table)
    if isinstance(model := resolved.get("model"), str):
        resolved["model"] = _resolve_path(model, folder)
    methods = resolved.get("methods")
    if isinstance(methods, str):
        methods = methods.split(",")
    if isinstance(methods, list):
        resolved["methods"] = [_resolve_file(m, folder) if isinstance(m, str) else m for m in methods]
    for name, own in resolved.items():
        if isinstance(own, Mapping) and isinstance(file := own.get("file"), str):
            resolved[name] = {**own, "file": _resolve_path(file, folder)}
    return resolved


def _resolve_file(spec: str, folder: Path) -> str:
    """Resolve the path of a plugin as named in the file, or of every plugin of a chain."""
    return "+".join(_resolve_method(one, folder) for one in spec.split("+"))


def _resolve_method(spec: str, folder: Path) -> str:
    name, own = parse_method(spec)
    return format_method(
        name, {key: _resolve_path(value, folder) if key == "file" else value for key, value in own.items()}
    )


def _resolve_path(path: str, folder: Path) -> str:
    """Resolve one path; a location with a scheme, such as zoo:pico, is left to its loader."""
    here = folder / path
    return str(here) if here.exists() or not SCHEME.match(path) else path
