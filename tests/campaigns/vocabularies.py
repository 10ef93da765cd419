"""Tokenizers of GGUF files against the package ``tokenizers`` with the same models' tokenizer.json, on random texts.

``python tests/campaigns/vocabularies.py [FAMILY ...] [--texts N] [--seed S]``: folders of golden vectors. Ids must be
equal, with names of special tokens as tokens and as text.
"""

from __future__ import annotations

import argparse
import sys

from tests.support.random_texts import different_texts

FAMILIES = "gemma2 gemma3 gemma4-e glm4moe gpt-oss kimi-linear lfm2 llama mistral qwen2 qwen3 qwen35 qwen3next".split()
"""Without Phi's, whose golden vocabulary matches ``</s>`` in another way than the published one."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=FAMILIES)
    parser.add_argument("--texts", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    differ = 0
    for family in options.families:
        different = different_texts(family, options.texts, options.seed)
        differ += len(different)
        print(f"{family}: {options.texts} texts, {len(different)} differ", *map(repr, different[:5]), sep="\n  ")
    return differ > 0


if __name__ == "__main__":
    sys.exit(main())
