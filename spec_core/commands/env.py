"""``spec env``: what runs here, for a bug report."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

import click

from spec_core.commands import common

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


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def env(as_json: bool) -> None:
    """Print versions, device, threads, kernels and plugins."""
    body = environment()
    if as_json:
        click.echo(common.as_json(body))
        return
    for name, value in body.items():
        text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
        click.echo(f"{name:12}{text}")


def environment() -> dict[str, Any]:
    """Facts that a number or a bug depends on."""
    import torch

    from spec_core.discovery import discover
    from spec_core.hookspecs import CONTRACT

    cuda = torch.cuda.is_available()
    return {
        "contract": ".".join(map(str, CONTRACT)),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "device": torch.cuda.get_device_name() if cuda else _cpu(),
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()}",
        "dtype": "bfloat16" if cuda else "float32",
        "blas": "mkl" if torch.backends.mkl.is_available() else "other",
        "simd": torch.backends.cpu.get_cpu_capability(),
        "kernels": "reference (plain torch); quantised blocks become floats at load",
        "plugins": {entry.name: entry.kind for entry in discover()},
    }


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
        return platform.processor() or "cpu"
