"""A head in a GGUF file in llama.cpp's format: architectures ``eagle3`` and ``dflash``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs
from spec_kernels.ops.dequant import TYPES
from torch import Tensor

from spec_core.errors import UsageError
from spec_targets.architectures.by_name import find_divisions
from spec_targets.architectures.config import Config
from spec_targets.architectures.heads import tensors
from spec_targets.architectures.heads.block_facts import (
    block_facts,
    layer_ids,
    selector_facts,
    sequential_facts,
    sizes_of,
)
from spec_targets.architectures.heads.check import check_tensors
from spec_targets.architectures.heads.checkpoint import HeadCheckpoint
from spec_targets.architectures.heads.dialects import LLAMACPP, LLAMACPP_BLOCKS, TRAINED_HERE, Dialect
from spec_targets.architectures.heads.head import Head, HeadKind
from spec_targets.architectures.heads.hf_head import inputs_of, is_tied
from spec_targets.architectures.heads.stated_sizes import ACTIVATIONS, VOCAB_MAX
from spec_targets.architectures.heads.tensors import HeadTensors
from spec_targets.architectures.keys import Keys, name_of
from spec_targets.formats.gguf import GgufFile
from spec_targets.formats.texts import Texts
from spec_targets.tokenizer.gguf_vocabulary import from_gguf as tokenizer_of

NORM_OF_ENCODER = {"eagle3": "input_norm.weight", "dflash": "hidden_norm.weight"}
"""Meaning of ``enc.output_norm.weight``: before ``fc`` in one kind, after it in the other."""
NEUTRAL = {"attention.value_scale": 1.0, "logit_scale": 1.0, "final_logit_softcapping": 0.0}
"""Optional factors, with their neutral value; other values are not supported."""
NEUTRAL_EAGLE3 = {"attention.sliding_window": 0, "embedding_scale": 1.0}
"""Functions of feed-forward layers, by their names in files."""


def open_tensors(file: GgufFile, kind: str, heads: tuple[int, int]) -> HeadTensors:
    """Tensors of a file. heads: of queries and keys. Raises UsageError for a type that is not read."""
    where, encoder = file.path.name, NORM_OF_ENCODER[kind]
    stored = {encoder if name == "enc.output_norm.weight" else name: tensor for name, tensor in file.tensors.items()}
    if len(stored) != len(file.tensors):
        raise UsageError(
            f"{where}: 'enc.output_norm.weight' and {encoder!r} are one tensor, both are there",
            hint="use another head",
        )
    for name, tensor in file.tensors.items():
        if tensor.type not in TYPES and name != "d2t":
            raise UsageError(
                f"{where}: tensor {name!r} is of type {tensor.type}, which is not supported",
                hint=f"convert the head to one of {', '.join(TYPES)}",
            )
    pairs = dict(zip(("attn_q.", "attn_k."), heads, strict=True)) if kind == "eagle3" else {}
    return HeadTensors(where, stored, pairs)


def from_gguf(file: GgufFile) -> HeadCheckpoint:
    """Description and tensors. Raises UsageError for anything missing, damaged or unsupported."""
    where, kind = file.path.name, file.metadata["general.architecture"]
    keys = Keys(file, kind)
    config = _config(file, keys)
    try:
        attrs.evolve(config, vocab=config.vocab or VOCAB_MAX).check(where)
    except UsageError as error:
        raise UsageError(error.reason, hint="convert the head again, or use another") from error
    source = open_tensors(file, kind, (config.heads, config.kv_heads))
    _check_neutral(keys, where, NEUTRAL | NEUTRAL_EAGLE3 if kind == "eagle3" else NEUTRAL)
    head = _head(file, keys, config, source)
    check_tensors(head, source)
    has = "tokenizer.ggml.model" in file.metadata
    words = tokenizer_of(file.metadata, where, divisions=find_divisions(file.metadata)) if has else None
    return HeadCheckpoint(head, source, words, file.path)


def _config(file: GgufFile, keys: Keys) -> Config:
    """Sizes, checked as in any decoder."""
    width, heads = keys.get("embedding_length", kind=int), keys.get("attention.head_count", kind=int)
    head = keys.get("attention.key_length", width // max(1, heads), int)
    return Config(
        arch="llama" if keys.arch == "eagle3" else "qwen3",
        name=name_of(file),
        layers=keys.get("block_count", kind=int),
        width=width,
        heads=heads,
        kv_heads=keys.get("attention.head_count_kv", heads, int),
        head=head,
        ff=keys.get("feed_forward_length", kind=int),
        vocab=_vocab(file, keys),
        context=keys.get("context_length", kind=int),
        eps=float(keys.get("attention.layer_norm_rms_epsilon")),
        rope_base=float(keys.get("rope.freq_base", 10000.0)),
        rotary_dim=head,
        scaling=keys.scaling(),
    )


def _partial(keys: Keys, head: int) -> tuple[float, list[str]]:
    """The share of a head that rotates as stated, and a note where it is not all: converters copy it from the target's
    config, and no training reads it."""
    rotated = keys.get("rope.dimension_count", head, int)
    if rotated == head:
        return 1.0, []
    return rotated / head, [f"rope.dimension_count {rotated} ignored: its training rotates all {head} of a head"]


def _check_neutral(keys: Keys, where: str, neutral: Mapping[str, float]) -> None:
    for key, value in neutral.items():
        if (stored := keys.get(key, value)) != value:
            raise UsageError(f"{where}: {keys.arch}.{key} = {stored} is not supported", hint="use another head")


def _vocab(file: GgufFile, keys: Keys) -> int:
    """Tokens of the target: stated, in the tokenizer of the file, or rows of a tensor; 0: not known."""
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    rows = (file.tensors.get(name) for name in ("token_embd.weight", "markov_w1.weight"))
    stored = next((tensor.shape[0] for tensor in rows if tensor is not None and len(tensor.shape) == 2), 0)
    return keys.get("vocab_size", len(tokens) if isinstance(tokens, Texts) else stored, int)


def _head(file: GgufFile, keys: Keys, c: Config, head_tensors: HeadTensors) -> Head:
    output, dialect = head_tensors.shape("output.weight"), _dialect(file, keys)
    rows = output[0] if output else c.vocab
    if rows < 1 and output:
        raise UsageError(f"{head_tensors.where}: 'output.weight' has no rows", hint=tensors.DAMAGED)
    target_width = keys.get("target_hidden_size", c.width, int)
    d2t, note = tensors.mapping(head_tensors, rows, c.vocab, dialect.offsets)
    partial, partial_note = _partial(keys, c.head)
    tied, ids = is_tied(head_tensors, dialect, {}), _ids(file, keys.arch)
    own = ["no output matrix: logits by its own embedding, as llama.cpp ties it"] if tied else []
    return Head(
        kind=_kind(keys.arch, head_tensors),
        name=c.name,
        producer=dialect.name,
        target_width=target_width,
        inputs=inputs_of(head_tensors, target_width, keys.arch),
        draft_vocab=rows,
        divisors=_divisors(head_tensors, c.head),
        d2t=d2t,
        ids=ids,
        certain=True,
        paper=keys.arch == "eagle3",
        normed=dialect.normed,
        last=ids is None and head_tensors.shape("fc.weight") is None,
        tied=tied,
        partial=partial,
        projected=head_tensors.shape("fc.weight") is not None,
        repairs=(*partial_note, *([note] if note else []), *own),
        norm_before_residual=keys.get("norm_before_residual", False, bool),
        norm_before_fc=head_tensors.shape("input_norm.weight") is not None,
        **sizes_of(c, head_tensors),
        **({} if keys.arch == "eagle3" else _blocks(file, keys, c) | _sequential(file, keys, c, head_tensors)),
        anchor=keys.get("sample_from_anchor", False, bool),
    )


def _dialect(file: GgufFile, keys: Keys) -> Dialect:
    """Of ``spec train``, which says so or writes no type of file as converters do; else llama.cpp's."""
    ours = f"{keys.arch}.final_norm" in file.metadata or "general.file_type" not in file.metadata
    return TRAINED_HERE if ours else LLAMACPP if keys.arch == "eagle3" else LLAMACPP_BLOCKS


def _kind(arch: str, tensors: HeadTensors) -> HeadKind:
    if arch == "eagle3":
        return "eagle3"
    if tensors.shape("selector_hidden.weight") is not None:
        return "dflash2"
    return "dflash" if tensors.shape("markov_w1.weight") is None else "dspark"


def _divisors(head_tensors: HeadTensors, head: int) -> Tensor | None:
    if (shape := head_tensors.shape("rope_freqs.weight")) is None:
        return None
    if shape != (head // 2,):
        raise UsageError(
            f"{head_tensors.where}: tensor 'rope_freqs.weight' has shape {list(shape)}, {[head // 2]} was needed",
            hint=tensors.DAMAGED,
        )
    return head_tensors.load("rope_freqs.weight")


def _ids(file: GgufFile, kind: str) -> tuple[int, ...] | None:
    listed = file.metadata.get(f"{kind}.target_layers")
    return None if listed is None else layer_ids(listed, f"{kind}.target_layers", file.path.name)


def _blocks(file: GgufFile, keys: Keys, c: Config) -> dict[str, Any]:
    """Fields that only a block drafter has."""
    window = keys.get("attention.sliding_window", 0, int)
    sliding = file.metadata.get(f"{keys.arch}.attention.sliding_window_pattern", [bool(window)] * c.layers)
    if not isinstance(sliding, list) or len(sliding) != c.layers or any(x not in (0, 1) for x in sliding):
        raise UsageError(
            f"{file.path.name}: {keys.arch}.attention.sliding_window_pattern is {str(sliding)[:60]!r}, "
            f"a yes or no for each of {c.layers} layers was needed",
            hint="convert the head again, or use another",
        )
    causal = keys.get("attention.causal", False, bool)
    return _layer_facts(keys) | block_facts(
        keys.get("block_size", kind=int),
        file.metadata.get("tokenizer.ggml.mask_token_id"),
        tuple(window if on else 0 for on in sliding),
        (causal,) * c.layers,
        (c.context, c.vocab),
        file.path.name,
    )


def _layer_facts(keys: Keys) -> dict[str, Any]:
    """Fields of layers that are not Qwen3's. Raises UsageError for an unknown activation or factor."""
    act = keys.get("hidden_activation", "silu", str)
    scales = {name: keys.number(key, default) for name, key, default in SCALES}
    if act not in ACTIVATIONS or not all(0 <= scale < math.inf for scale in scales.values()):
        raise UsageError(
            f"{keys.where}: its layers have the activation {act[:40]!r} and the factors {scales}; "
            f"{' or '.join(ACTIVATIONS)} and positive numbers were needed",
            hint="use another head",
        )
    return {
        "act": ACTIVATIONS[act],
        "post_norms": "blk.0.post_ffw_norm.weight" in keys.file.tensors,
        "own_values": "blk.0.attn_v.weight" in keys.file.tensors,
        **scales,
    }


SCALES = (("embed_scale", "embedding_scale", 1.0), ("scale", "attention.scale", 0.0))
"""Factors of embeddings and of scores: our names, files' names, and their defaults."""
OPTIONS = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
"""Sizes of convolutions and selector, as files state them."""


def _sequential(file: GgufFile, keys: Keys, c: Config, tensors: HeadTensors) -> dict[str, Any]:
    stated = {name: file.metadata.get(f"{keys.arch}.{name}") for name in OPTIONS}
    return sequential_facts(tensors, tensors.where) | selector_facts(tensors, c.width, stated, tensors.where)
