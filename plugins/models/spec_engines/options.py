"""Load options that an engine's targets do not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spec_core.errors import UsageError

KERNELS: dict[str, tuple[Any, ...]] = {"kernels": ("auto",), "activations": ("auto",)}
"""Settings of this project's own kernels: only their defaults are allowed."""


def check_options(scheme: str, options: Mapping[str, Any], allowed: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise UsageError for the first option with another value than the ``allowed`` ones; {name: values}."""
    for name, value in options.items():
        if value not in allowed.get(name, ()):
            raise UsageError(f"{name}={value} is not an option of {scheme}: targets", hint=f"leave {name} out")
