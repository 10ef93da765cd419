"""The entry point by which SGLang finds this project's methods."""

from __future__ import annotations

from spec_engines.sglang import check_installed


def register() -> None:
    """Add the algorithm to SGLang's. SGLang calls it in every process, by the entry point of this package."""
    check_installed()
    from spec_engines.sglang import interface

    interface.register_algorithm()
