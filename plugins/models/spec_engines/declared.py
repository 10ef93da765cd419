"""Declarations of an adapter about its engine, for the documentation and for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

MATRICES = ("token_embd.weight", "output.weight")
"""Embedding and output matrix by their GGUF names, which draft heads use."""

OWN_LOOP = {
    "logits": True,
    "hidden": True,
    "final": True,
    "weights": MATRICES,
    "constraints": True,
    "predictions": True,
}
"""Services of a target that gives hidden states and matrices: its requests come from this project's loop."""


@attrs.frozen
class Engine:
    """Services of another engine; each field is a sentence or a few words for a table."""

    scheme: str
    """Scheme of ``load``, or the engine's name."""
    extra: str
    """Extra of the installation."""
    models: str
    """Models that it loads."""
    devices: str
    """Devices on which it runs."""
    logits: str
    """Logits that plugins can read."""
    hidden: str
    """Hidden states that plugins can read."""
    trees: str
    """Whether drafts may branch."""
    recurrent: str
    """How recurrent state is rolled back."""
    weights: str
    """Weights that draft heads get."""
    rules: str
    """Acceptance rules."""
    exact: str
    """Whether rows have equal bits."""
    serves: Mapping[str, Any]
    """What plugins get, as keywords of ``spec_core.host.Serves``; where a sentence above names a condition, some models
    lack it."""
    cache: str = "no"
    """Models that show keys and values to drafters."""
    target: bool = True
    """Whether it is a target of this project's loop; else methods run inside its own."""
    skipped: Mapping[str, str] = attrs.field(factory=dict)
    """{check of ``TargetConformance``: why it is skipped}."""
