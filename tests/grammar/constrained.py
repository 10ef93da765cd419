"""Shared parts of the tests of structured output: schemas, models and plain constrained texts."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

pytest.importorskip("llguidance", reason="needs the extra grammar")

from spec_grammar import JsonSchema

from spec_core import Request, Run, Sampling, Target, load
from tests.support.small_models import tiny_gguf, tiny_hybrid

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["alpha", "beta", "gamma"]},
        "tags": {"type": "array", "items": {"enum": ["x", "yy"]}, "maxItems": 2},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
PROMPT = "def add(a, b):\n"


@cache
def model(kind: str = "dense") -> Target:
    path = tiny_hybrid(context=256, mtp=False) if kind == "hybrid" else tiny_gguf(context=256)
    return load(path, dtype="float32", device="cpu")


def requests(count: int = 4, **more: Any) -> list[Request]:
    """Every second one greedy, each with its own seed; schemas with and without free whitespace."""
    return [
        Request(
            PROMPT * (1 + i % 2),
            max_tokens=90,
            seed=i,
            sampling=Sampling(temperature=0.9 * (i % 2)),
            **{"constraint": JsonSchema(PERSON, compact=i < 2), "name": f"c{i}", **more},
        )
        for i in range(count)
    ]


def plain(target: Target, asked: list[Request]) -> list[tuple[list[int], str]]:
    """Tokens and reasons of plain constrained decoding, each request alone."""
    results = [Run(target, reuse=False).generate(request, methods=None).result for request in asked]
    return [(r.tokens, r.finish_reason) for r in results]


def valid(text: str, schema: Any) -> bool:
    """Whether a text is valid by another implementation than the one that made the grammar."""
    import jsonschema

    try:
        jsonschema.validate(json.loads(text), schema, cls=jsonschema.Draft202012Validator)
    except jsonschema.ValidationError:
        return False
    return True
