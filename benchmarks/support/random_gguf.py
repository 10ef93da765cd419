"""Writes a qwen3 model with random weights as a GGUF file, to time forwards of any size and weight type.

    python benchmarks/support/random_gguf.py --size 0.6b --type Q4_K FILE

90m: 12 layers of 768, vocabulary 20,000. 0.6b and 8b: the shapes of Qwen3-0.6B and Qwen3-8B, the second
one 4 GB as Q4_K. vocabulary: one small layer, with the numbers of tokens and merges of Qwen3, to time the start of a
program. Matrices and the tied embedding table have the given type, norms are ones. A matrix repeats a few thousand
random blocks; a forward reads all of it.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

import gguf
import numpy as np

SHAPES: dict[str, dict[str, int]] = {
    "90m": {"layers": 12, "width": 768, "ff": 2048, "heads": 12, "kv_heads": 4, "head": 64, "vocab": 20_000},
    "vocabulary": {"layers": 1, "width": 256, "ff": 256, "heads": 2, "kv_heads": 1, "head": 128, "vocab": 151_936},
    "0.6b": {"layers": 28, "width": 1024, "ff": 3072, "heads": 16, "kv_heads": 8, "head": 128, "vocab": 151_936},
    "8b": {"layers": 36, "width": 4096, "ff": 12_288, "heads": 32, "kv_heads": 8, "head": 128, "vocab": 151_936},
}
MERGES = {"vocabulary": 151_387}
"""Number of merges; other sizes have one."""
CONTEXT = 4096
PART = 4096
"""Number of random blocks; a matrix repeats them."""


def q8_0(draw: np.random.Generator) -> np.ndarray:
    """d | 32 int8, weights of about 0.02."""
    return np.concatenate([halves(draw, 2.7e-4), draw.integers(0, 256, (PART, 32), np.uint8)], axis=1)


def q4_k(draw: np.random.Generator) -> np.ndarray:
    """d | dmin | 12 bytes of scales | 128 of nibbles."""
    codes = draw.integers(0, 256, (PART, 140), np.uint8)
    return np.concatenate([halves(draw, 1.3e-4), halves(draw, 9.7e-4), codes], axis=1)


def q6_k(draw: np.random.Generator) -> np.ndarray:
    """192 bytes of six-bit codes | 16 scales | d."""
    codes, scales = draw.integers(0, 256, (PART, 192), np.uint8), draw.integers(1, 9, (PART, 16), np.uint8)
    return np.concatenate([codes, scales, halves(draw, 2.5e-4)], axis=1)


def halves(draw: np.random.Generator, about: float) -> np.ndarray:
    """uint8 [PART, 2], float16 numbers."""
    return (draw.uniform(0.5, 1.5, (PART, 1)) * about).astype(np.float16).view(np.uint8)


BLOCKS = {"Q8_0": (q8_0, 32), "Q4_K": (q4_k, 256), "Q6_K": (q6_k, 256)}
"""Functions that draw blocks of a type, and the number of weights of a block."""


def matrix(kind: str, blocks: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """uint8 [rows, bytes of a row]"""
    count = rows * columns // BLOCKS[kind][1]
    return np.resize(blocks, (count, blocks.shape[1])).reshape(rows, -1)


def matrices(s: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Outputs and inputs of every matrix by its name."""
    shapes = {"token_embd.weight": (s["vocab"], s["width"])}
    q, kv = s["heads"] * s["head"], s["kv_heads"] * s["head"]
    for i in range(s["layers"]):
        shapes |= {f"blk.{i}.attn_q.weight": (q, s["width"]), f"blk.{i}.attn_output.weight": (s["width"], q)}
        shapes |= {f"blk.{i}.attn_{name}.weight": (kv, s["width"]) for name in "kv"}
        shapes |= {f"blk.{i}.ffn_{name}.weight": (s["ff"], s["width"]) for name in ("gate", "up")}
        shapes[f"blk.{i}.ffn_down.weight"] = (s["width"], s["ff"])
    return shapes


def norms(s: dict[str, int]) -> dict[str, int]:
    """Widths of every norm by its name."""
    widths = {"output_norm.weight": s["width"]}
    for i in range(s["layers"]):
        widths |= {f"blk.{i}.attn_norm.weight": s["width"], f"blk.{i}.ffn_norm.weight": s["width"]}
        widths |= {f"blk.{i}.attn_q_norm.weight": s["head"], f"blk.{i}.attn_k_norm.weight": s["head"]}
    return widths


def describe(writer: Any, s: dict[str, int], merges: int) -> None:
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(s["width"])
    writer.add_block_count(s["layers"])
    writer.add_feed_forward_length(s["ff"])
    writer.add_head_count(s["heads"])
    writer.add_head_count_kv(s["kv_heads"])
    writer.add_key_length(s["head"])
    writer.add_value_length(s["head"])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_vocab_size(s["vocab"])
    add_tokenizer(writer, s["vocab"], merges)


def add_tokenizer(writer: Any, vocab: int, merges: int) -> None:
    """Bytes, merged pairs, and meaningless names: both programs require a token list, but nothing is tokenised."""
    letters = [chr(code) for code in (*range(33, 127), *range(161, 173), *range(174, 256))]
    letters += [chr(256 + i) for i in range(256 - len(letters))]
    pairs = merge_pairs(letters, merges)
    known = [*letters, *(left + right for left, right in pairs)]
    tokens = [*known, *(f"<{i}>" for i in range(len(known), vocab))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * vocab)
    writer.add_token_merges([f"{left} {right}" for left, right in pairs])
    writer.add_eos_token_id(vocab - 1)
    writer.add_bos_token_id(vocab - 1)
    writer.add_add_bos_token(False)


def merge_pairs(letters: list[str], count: int) -> list[tuple[str, str]]:
    """Pairs of earlier tokens; each pair makes a new token of at most 16 letters; the first pair is ``a b``."""
    rng, known, pairs = random.Random(0), [*letters, "ab"], [("a", "b")]
    seen = set(known)
    while len(pairs) < count:
        left, right = rng.choice(known), rng.choice(known)
        if len(left + right) <= 16 and left + right not in seen:
            pairs.append((left, right))
            known.append(left + right)
            seen.add(left + right)
    return pairs


def write(path: Path, size: str, kind: str) -> None:
    shape, draw = SHAPES[size], np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "qwen3")
    describe(writer, shape, MERGES.get(size, 1))
    blocks = BLOCKS[kind][0](draw)
    for name, width in norms(shape).items():
        writer.add_tensor(name, np.ones(width, np.float32))
    for name, (rows, columns) in matrices(shape).items():
        matrix_bytes = matrix(kind, blocks, rows, columns)
        writer.add_tensor(name, matrix_bytes, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--size", choices=SHAPES, default="90m")
    parser.add_argument("--type", choices=BLOCKS, default="Q8_0")
    args = parser.parse_args()
    write(args.path, args.size, args.type)


if __name__ == "__main__":
    main()
