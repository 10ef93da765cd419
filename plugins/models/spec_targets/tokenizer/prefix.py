"""The space that some vocabularies write before a text: with it for a whole text, without it for a part of one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
from tokenizers import Tokenizer as Backend
from tokenizers import normalizers, pre_tokenizers

SPACES = ("▁", " ")
BARE = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": None,
    "post_processor": None,
    "decoder": None,
    "model": {"type": "BPE", "vocab": {}, "merges": []},
}
"""A tokenizer of no tokens, as tokenizer.json holds it."""


@attrs.frozen
class Steps:
    """Changes to a text before it is divided into tokens."""

    normalizer: normalizers.Normalizer | None
    pre_tokenizer: pre_tokenizers.PreTokenizer | None

    @classmethod
    def of(cls, backend: Backend) -> Steps:
        return cls(backend.normalizer, backend.pre_tokenizer)

    def put_into(self, backend: Backend) -> None:
        backend.normalizer = self.normalizer
        backend.pre_tokenizer = self.pre_tokenizer


def steps_of_part(raw: Mapping[str, Any]) -> Steps | None:
    """The steps of a tokenizer.json without a space before the text; None if it adds none."""
    steps = {name: raw.get(name) for name in ("normalizer", "pre_tokenizer")}
    bare = {name: _without_prefix(step) for name, step in steps.items()}
    return None if bare == steps else Steps.of(Backend.from_str(json.dumps({**BARE, **bare})))


def _without_prefix(step: Any) -> Any:
    """A step as JSON, without the space; None if nothing is left of it."""
    if not isinstance(step, dict):
        return step
    kind = step.get("type")
    for inner in ("normalizers", "pretokenizers"):
        if kind == "Sequence" and isinstance(step.get(inner), list):
            left = [_without_prefix(each) for each in step[inner]]
            return {**step, inner: [each for each in left if each is not None]}
    if kind == "Prepend" and step.get("prepend") in SPACES:
        return None
    if kind == "Metaspace":
        return {**step, "prepend_scheme": "never", "add_prefix_space": False}
    return {**step, "add_prefix_space": False} if kind == "ByteLevel" else step
