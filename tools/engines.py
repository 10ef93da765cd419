"""The page that says what other engines serve, from the declarations of their adapters."""

from __future__ import annotations

from pathlib import Path

import attrs
from spec_engines import llamacpp, transformers, vllm
from spec_engines.declared import Engine

ADAPTERS = (transformers, llamacpp, vllm)
ROWS = {
    "models": "models",
    "devices": "devices",
    "logits": "logits",
    "hidden": "hidden states",
    "trees": "drafts that branch",
    "recurrent": "recurrent state",
    "weights": "weights for draft heads",
    "rules": "acceptance rules",
    "exact": "equal bits",
}
TEXT = Path(__file__).with_name("engines.md")


def engines() -> str:
    """The whole page: the text with the table in its place."""
    return TEXT.read_text("utf-8").replace("{table}", table([adapter.ENGINE for adapter in ADAPTERS]))


def table(declared: list[Engine]) -> str:
    """A column for each engine. Raises ValueError for a declaration that has no row."""
    if unknown := {field.name for field in attrs.fields(Engine)} - {"scheme", "extra", "target", *ROWS}:
        raise ValueError(f"no row of the table shows {', '.join(sorted(unknown))}")
    lines = [_line("", [_title(engine) for engine in declared]), "| --- " * (1 + len(declared)) + "|"]
    return "\n".join([*lines, *(_line(title, [getattr(e, name) for e in declared]) for name, title in ROWS.items())])


def _title(engine: Engine) -> str:
    """A target's scheme, or the name of an engine that owns its loop."""
    return f"`{engine.scheme}:`" if engine.target else engine.scheme


def _line(title: str, cells: list[str]) -> str:
    return f"| {title} | " + " | ".join(cells) + " |"
