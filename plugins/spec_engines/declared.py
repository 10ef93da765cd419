"""What an adapter declares about its engine, for the documentation and for tests."""

from __future__ import annotations

import attrs


@attrs.frozen
class Engine:
    """What another engine serves; each field is a sentence or a few words for a table.

    scheme: of ``load``, or the engine's name. extra: of the installation. models: what it loads. devices: where it
    runs. logits, hidden: what plugins can read. trees: whether drafts may branch. recurrent: how recurrent state is
    rolled back. weights: which weights draft heads get. rules: acceptance rules. exact: whether rows have equal bits.
    target: whether it is a target of this project's loop; else methods run inside its own.
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
    target: bool = True
