"""MiniMax-M2: experts chosen by sigmoid scores in every block, and norms over all heads of q, and of k, together.

The first ``rotary_dim`` numbers of a head rotate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Attend, Op, Store

from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.names import ATTENTION, ENDS
from spec_targets.formats.stored_names import Name, stored_as

NAMES: dict[str, Name] = {
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate_inp.weight": stored_as("block_sparse_moe.gate.weight", "mlp.gate.weight"),
    "exp_probs_b.bias": stored_as("block_sparse_moe.e_score_correction_bias", "mlp.e_score_correction_bias"),
    "ffn_gate_exps.weight": stored_as("block_sparse_moe.experts.{}.w1.weight"),
    "ffn_up_exps.weight": stored_as("block_sparse_moe.experts.{}.w3.weight"),
    "ffn_down_exps.weight": stored_as("block_sparse_moe.experts.{}.w2.weight", "mlp.experts.down_proj"),
    "ffn_gate_up_exps.weight": "mlp.experts.gate_up_proj",
}


def from_gguf(keys: Keys) -> Config:
    return keys.decoder(experts=keys.experts(sigmoid=True))


def from_hf(json: ConfigJson) -> Config:
    json.refuse(
        use_qk_norm=(True, None),
        qk_norm_type=("per_layer", None),
        scoring_func=("sigmoid", None),
        shared_intermediate_size=(0, None),
        attn_type_list=(None, [1] * json.layers()),
    )
    more: dict[str, Any] = {"rotary_dim": json.integer("rotary_dim")} if "rotary_dim" in json.raw else {}
    experts, width = json.experts(sigmoid=True, normalise=True), json.integer("intermediate_size")
    return json.decoder(experts=experts, expert_ff=width, nextn=0, **more)


def block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    heads = b.shape.heads
    yield b.norm("x", "h", "attn_norm.weight")
    yield b.projection(("q", "k", "v"), biases=False)
    yield b.norm("q", "q", "attn_q_norm.weight", heads.q_width)
    yield b.norm("k", "k", "attn_k_norm.weight", heads.kv_width)
    yield from b.rotation("q")
    yield from b.rotation("k")
    yield Store("k", "v", heads, b.layer)
    yield Attend("q", "a", heads, b.layer)
    yield b.onto("a", "attn_output", (c.width, heads.q_width), residual=True)
    yield b.norm("x", "h", "ffn_norm.weight")
    if c.experts is None:
        yield from b.mlp(c.ff)
    else:
        yield from b.mixture(c.experts, c.expert_ff)


MINIMAX_M2 = Family(
    name="minimax-m2",
    classes=("MiniMaxM2ForCausalLM",),
    model_types=("minimax_m2",),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=ENDS | ATTENTION | NAMES,
)
