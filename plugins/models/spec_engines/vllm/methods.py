"""Every installed method by name, for vLLM's ``custom_class``: ``spec_engines.vllm.methods.ngram``.

A dash in a name is written as an underscore: ``spec_engines.vllm.methods.draft_model``.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """A proposer class for one method. Raises AttributeError for a name that no method has."""
    from spec_core.commands import discover_plugins
    from spec_engines.vllm.proposer import Proposer

    installed = {entry.name.replace("-", "_"): entry.name for entry in discover_plugins() if entry.kind == "method"}
    if name not in installed:
        raise AttributeError(f"no method is called {name}; installed: {', '.join(sorted(installed))}")
    return type(name, (Proposer,), {"methods": (installed[name],)})
