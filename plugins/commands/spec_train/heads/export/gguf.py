"""Writes a head as a GGUF file for llama.cpp, with the tokenizer of the target.

Models of the zoo are written with the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from torch import Tensor

from spec_core import Target
from spec_train.heads.export.trained import Trained
from spec_train.heads.shape import Shape

TYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16", "q8_0": "Q8_0"}
BLOCK = 32
"""Values in a block of Q8_0."""


def write_gguf(trained: Trained, target: Target, path: Path, kind: str) -> None:
    with open_writer(path, arch_of(trained.shape)) as writer:
        _add_metadata(writer, trained)
        add_tokenizer(writer, getattr(target.tokenizer, "gguf_keys", {}), trained.shape)
        add_tensors(writer, tensors(trained), TYPES[kind])


def arch_of(shape: Shape) -> str:
    """The architecture that llama.cpp gives to heads of this kind."""
    return "dflash" if shape.fills_blocks else shape.kind


@contextmanager
def open_writer(path: Path, arch: str) -> Iterator[gguf.GGUFWriter]:
    """A writer whose file is complete when the with block ends."""
    writer = gguf.GGUFWriter(path, arch)
    try:
        yield writer
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def add_sizes(writer: gguf.GGUFWriter, s: Any, blocks: int) -> None:
    """The metadata that every model has. s: context, width, ff, heads, kv_heads, head (width of an attention head),
    eps, rope_base and vocab."""
    writer.add_block_count(blocks)
    writer.add_context_length(s.context)
    writer.add_embedding_length(s.width)
    writer.add_feed_forward_length(s.ff)
    writer.add_head_count(s.heads)
    writer.add_head_count_kv(s.kv_heads)
    writer.add_key_length(s.head)
    writer.add_value_length(s.head)
    writer.add_layer_norm_rms_eps(s.eps)
    writer.add_rope_freq_base(s.rope_base)
    writer.add_vocab_size(s.vocab)


def _add_metadata(writer: gguf.GGUFWriter, trained: Trained) -> None:
    s = trained.shape
    writer.add_type("model")
    writer.add_name(trained.name)
    add_sizes(writer, s, s.layers)
    writer.add_rope_dimension_count(s.head)
    writer.add_array(f"{arch_of(s)}.target_layers", list(s.sources))
    writer.add_bool(f"{arch_of(s)}.final_norm", True)
    if not s.fills_blocks:
        writer.add_uint32("eagle3.target_hidden_size", s.target_width)
        writer.add_bool("eagle3.norm_before_residual", s.norm_before_residual)
        writer.add_bool("eagle3.norm_before_fc", s.norm_before_fc)
    else:
        writer.add_uint32("dflash.block_size", s.block)
        writer.add_uint32("tokenizer.ggml.mask_token_id", s.mask)
    if s.markov:
        writer.add_bool("dflash.sample_from_anchor", False)
        writer.add_bool("dflash.has_confidence_head", True)


def add_tokenizer(writer: gguf.GGUFWriter, metadata: Mapping[str, Any], shape: Shape) -> None:
    """The target's own tokenizer, key by key; the mask token of a head that fills blocks is its own."""
    for key, value in metadata.items():
        if key == "tokenizer.ggml.mask_token_id" and shape.fills_blocks:
            continue
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif value:
            writer.add_array(key, value)


def tensors(trained: Trained) -> Iterator[tuple[str, Tensor]]:
    """Weights with the names and row order of llama.cpp."""
    s = trained.shape
    rename = {"input_norm.weight": "enc.output_norm.weight", "hidden_norm.weight": "enc.output_norm.weight"}
    for name, tensor in trained.weights.items():
        rotary = not s.fills_blocks and any(part in name for part in ("attn_q.", "attn_k."))
        heads = s.heads if "attn_q." in name else s.kv_heads
        yield rename.get(name, name), interleave_rows(tensor, heads) if rotary else tensor
    if trained.d2t is not None:
        yield "d2t", trained.d2t


def interleave_rows(rows: Tensor, heads: int) -> Tensor:
    """Rows i and i + d/2 of an attention head become rows 2i and 2i + 1."""
    return rows.view(heads, 2, -1, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def add_tensors(writer: gguf.GGUFWriter, named: Iterable[tuple[str, Tensor]], kind: str) -> None:
    """Matrices in a type of GGUF, in Q8_0 only if rows are whole blocks and there are at least 32; vectors as float32,
    ids as int64."""
    for name, tensor in named:
        array = tensor.contiguous().numpy()
        if array.dtype == np.int64:
            writer.add_tensor(name, array)
            continue
        quantise = array.ndim > 1 and (kind != "Q8_0" or (array.shape[1] % BLOCK == 0 and len(array) >= BLOCK))
        stored = gguf.GGMLQuantizationType[kind if quantise else "F32"]
        writer.add_tensor(name, gguf.quants.quantize(array, stored), raw_dtype=stored)
