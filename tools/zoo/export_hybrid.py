"""The trained hybrid as GGUF tensors and metadata: architecture qwen35, MTP layers as the blocks after the trunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import gguf
from torch import Tensor

from tools.zoo.hybrid import HybridShape

State = Mapping[str, Tensor]


def tensors(trunk: State, mtp: Sequence[State], shape: HybridShape) -> Iterator[tuple[str, Tensor]]:
    """Weights by GGUF name; matrices of the convolution and of the decays stay float."""
    yield "token_embd.weight", trunk["embed.weight"]
    yield "output_norm.weight", trunk["norm.weight"]
    for i in range(shape.layers):
        yield from _block(f"blk.{i}.", part(trunk, f"blocks.{i}."))
    for i, layer in enumerate(mtp, shape.layers):
        yield from _block(f"blk.{i}.", part(layer, "block."))
        names = {"eh_proj": "eh_proj", "enorm": "enorm", "hnorm": "hnorm", "shared_head_norm": "norm"}
        yield from ((f"blk.{i}.nextn.{name}.weight", layer[f"{own}.weight"]) for name, own in names.items())


def part(state: State, prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in state.items() if name.startswith(prefix)}


def _block(prefix: str, block: State) -> Iterator[tuple[str, Tensor]]:
    gate, up = block["gate_up.weight"].chunk(2)
    named = {
        "attn_norm.weight": block["mixer_norm.weight"],
        "post_attention_norm.weight": block["ffn_norm.weight"],
        "ffn_gate.weight": gate,
        "ffn_up.weight": up,
        "ffn_down.weight": block["down.weight"],
    }
    mixer = part(block, "mixer.")
    named |= _delta(mixer) if "a_log" in mixer else _attention(mixer)
    yield from ((prefix + name, t) for name, t in named.items())


def _attention(mixer: State) -> dict[str, Tensor]:
    names = {"attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_output": "out"}
    names |= {"attn_q_norm": "q_norm", "attn_k_norm": "k_norm"}
    return {f"{name}.weight": mixer[f"{own}.weight"] for name, own in names.items()}


def _delta(mixer: State) -> dict[str, Tensor]:
    names = {"attn_qkv": "qkv", "attn_gate": "z", "ssm_beta": "beta", "ssm_alpha": "alpha", "ssm_out": "out"}
    return {f"{name}.weight": mixer[f"{own}.weight"] for name, own in names.items()} | {
        "ssm_norm.weight": mixer["norm.weight"],
        "ssm_conv1d.weight": mixer["conv"][:, 0],
        "ssm_a": -mixer["a_log"].exp(),
        "ssm_dt.bias": mixer["dt"],
    }


def add_metadata(writer: gguf.GGUFWriter, shape: HybridShape, nextn: int) -> None:
    """Add metadata of an architecture with gated delta nets and an MTP layer."""
    blocks = shape.layers + nextn
    writer.add_array(
        "qwen35.attention.recurrent_layers", [i < shape.layers and not shape.full(i) for i in range(blocks)]
    )
    writer.add_uint32("qwen35.full_attention_interval", shape.interval)
    writer.add_uint32("qwen35.nextn_predict_layers", nextn)
    writer.add_rope_dimension_count(shape.head)
    third = -(-shape.head // 6)
    writer.add_rope_dimension_sections([third, third, shape.head // 2 - 2 * third, 0])
    writer.add_ssm_conv_kernel(shape.kernel)
    writer.add_ssm_state_size(shape.state)
    writer.add_ssm_group_count(shape.key_heads)
    writer.add_ssm_time_step_rank(shape.value_heads)
    writer.add_ssm_inner_size(shape.value_width)
