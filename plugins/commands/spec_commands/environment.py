"""Versions and hardware that a measurement or a bug may depend on."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from importlib import metadata
from typing import Any

from spec_core.commands import read_entry_points
from spec_core.errors import FOREIGN

PACKAGES = (
    "spec-core",
    "torch",
    "triton",
    "transformers",
    "pluggy",
    "attrs",
    "cattrs",
    "gguf",
    "safetensors",
    "tokenizers",
)
FACTS = "spec_core.environment_info"
"""Entry points of functions without arguments; each returns a text that is shown under the entry point's name."""


def environment() -> dict[str, Any]:
    """Facts that a measurement or a bug may depend on."""
    import torch

    from spec_core import CONTRACT

    cuda = torch.cuda.is_available()
    return {
        "contract": ".".join(map(str, CONTRACT)),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "cpu": _cpu(),
        "simd": torch.backends.cpu.get_cpu_capability(),
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()}",
        "dtype": "bfloat16" if cuda else "float32",
        "blas": "mkl" if torch.backends.mkl.is_available() else "other",
        **facts(read_entry_points(group=FACTS)),
        "plugins": installed_plugins(),
    }


def facts(points: Iterable[metadata.EntryPoint]) -> dict[str, str]:
    """Facts that packages report. One that fails is shown with its error: it may be the reason for the bug report."""
    return {point.name: _fact(point) for point in points}


def _fact(point: metadata.EntryPoint) -> str:
    try:
        return point.load()()
    except FOREIGN as error:
        return f"unknown: {type(error).__name__}: {error}"


def installed_plugins() -> list[str]:
    """Every installed plugin except commands: name, kind, distribution and version."""
    from spec_core.commands import discover_plugins

    return [f"{e.name} ({e.kind}, {e.distribution} {e.version})" for e in discover_plugins() if e.kind != "command"]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
