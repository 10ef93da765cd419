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
    """Services of another engine; each field is a sentence or a few words for a table.

    scheme: of ``load``, or the engine's name. extra: of the installation. models: what it loads. devices: where it
    runs. logits, hidden: what plugins can read. trees: whether drafts may branch. recurrent: how recurrent state is
    rolled back. cache: which models show keys and values to drafters. weights: which weights draft heads get. rules:
    acceptance rules. exact: whether rows have equal bits. serves: what plugins get, as keywords of
    ``spec_core.host.Serves``; where a sentence above names a condition, some models lack it. target: whether it is a
    target of this project's loop; else methods run inside its own. skipped: {check of ``TargetConformance``: why it is
    skipped}.
    """

    scheme: str
    extra: str
    models: str
    devices: str
    logits: str
    hidden: str
    trees: str
    recurrent: str
    weights: str
    rules: str
    exact: str
    serves: Mapping[str, Any]
    cache: str = "no"
    target: bool = True
    skipped: Mapping[str, str] = attrs.field(factory=dict)
