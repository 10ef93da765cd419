"""Writes the prompts that the zoo ships, from held-out text: ``python -m tools.zoo.prompts --out DIR``."""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

from spec_zoo import HERE
from spec_zoo.texts import data
from spec_zoo.texts.prompts import makers
from tokenizers import Tokenizer

SHIPPED = 10
"""Number of prompts of each family in the shipped set."""
MANY = 50
"""Number of prompts of each family in the large set."""
MAX_TOKENS = 340


def prompts(tokenizer: Tokenizer, each: int, seed: int) -> Iterator[dict[str, str]]:
    """``each`` prompts of every family from held-out text; the same seed gives the same ones."""
    for family, make in makers(random.Random(seed), data.split_files()[1], data.prose()[1]).items():
        texts: list[str] = []
        while len(texts) < each:
            text = make()
            if 30 <= len(tokenizer.encode(text).ids) <= MAX_TOKENS and text not in texts:
                texts.append(text)
        yield from (
            {"id": f"{family.replace(' ', '-')}-{i}", "family": family, "prompt": t} for i, t in enumerate(texts)
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where the tokenizer was trained")
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.out / "tokenizer.json"))
    for name, each, seed in (("prompts.jsonl", SHIPPED, 7), ("prompts-200.jsonl", MANY, 8)):
        lines = [json.dumps(p, ensure_ascii=False) for p in prompts(tokenizer, each, seed)]
        (HERE / name).write_text("\n".join(lines) + "\n", "utf-8")
        print(f"{name}: {len(lines)} prompts")


if __name__ == "__main__":
    main()
