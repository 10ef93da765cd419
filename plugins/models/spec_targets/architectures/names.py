"""Names in Hugging Face checkpoints that most architectures share, by GGUF's names."""

from __future__ import annotations

from spec_targets.formats.stored_names import Name, stored_as

ENDS: dict[str, Name] = {
    "token_embd.weight": "embed_tokens.weight",
    "output_norm.weight": "norm.weight",
    "output.weight": stored_as("/lm_head.weight", "/language_model.lm_head.weight", "/diffusion_head.weight"),
    "output.bias": "/lm_head.bias",
}
_QKV: dict[str, Name] = {f"attn_{x}.{kind}": f"self_attn.{x}_proj.{kind}" for x in "qkv" for kind in ("weight", "bias")}
ATTENTION: dict[str, Name] = _QKV | {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_output.bias": "self_attn.o_proj.bias",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
}
MLP: dict[str, Name] = {f"ffn_{name}.weight": f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")}
EXPERTS: dict[str, Name] = {
    "ffn_gate_inp.weight": "mlp.gate.weight",
    "ffn_gate_exps.weight": "mlp.experts.{}.gate_proj.weight",
    "ffn_up_exps.weight": "mlp.experts.{}.up_proj.weight",
    "ffn_gate_up_exps.weight": "mlp.experts.gate_up_proj",
    "ffn_down_exps.weight": stored_as("mlp.experts.down_proj", "mlp.experts.{}.down_proj.weight"),
}
SHARED: dict[str, Name] = {
    f"ffn_{name}_shexp.weight": stored_as(
        f"mlp.shared_expert.{name}_proj.weight", f"mlp.shared_experts.{name}_proj.weight"
    )
    for name in ("gate", "up", "down")
}
SHARED["ffn_gate_inp_shexp.weight"] = "mlp.shared_expert_gate.weight"
DECODER: dict[str, Name] = ENDS | ATTENTION | {"ffn_norm.weight": "post_attention_layernorm.weight"} | MLP
"""A dense decoder with a norm before attention and one before the feed-forward layer."""
