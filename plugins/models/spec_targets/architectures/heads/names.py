"""Names of tensors in published heads' Hugging Face directories."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

EAGLE3 = (
    "LlamaForCausalLMEagle3", "Eagle3Speculator", "Eagle3DraftModel", "LlamaEagle3DraftModel", "Qwen3Eagle3DraftModel",
    "Eagle3LlamaForCausalLM", "PEagleSpeculator",
)  # fmt: skip
DFLASH = ("DFlashDraftModel", "DFlashSpeculator", "DFlash2DraftModel", "DFlash2Speculator")
EAGLE = re.compile(r"eagle(?!3)\w*(forcausallm|draftmodel|speculator)$|forcausallmeagle$|^eagle$")
"""Classes, in small letters, of heads of EAGLE-1 and EAGLE-2."""
UNREAD_PARTS = ("Vispec", "XPress", "MTPDraftModel")
"""Parts of classes of heads that are known and not read."""
GEMMA4 = "Gemma4DSparkModel"
MUSE = "MuseGlimmerAssistantModel"
DSPARK = ("Qwen3DSparkModel", "DSparkDraftModel", "DSparkSpeculator", "Lfm2DSparkDraftModel", GEMMA4)
ASSISTANTS = ("gemma4-assistant", "gemma4_assistant", "gemma4_mtp")
"""Architectures of GGUF files that hold an assistant; the first is llama.cpp's name."""
ASSISTANT_CLASSES = ("Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM")
NAMES = {
    "embed_tokens.weight": "token_embd.weight",
    "lm_head.weight": "output.weight",
    "norm.weight": "output_norm.weight",
    "input_norm.weight": "input_norm.weight",
    "hidden_norm.weight": "hidden_norm.weight",
    "fc.weight": "fc.weight",
    "fc.bias": "fc.bias",
    "markov_head.markov_w1.weight": "markov_w1.weight",
    "markov_head.markov_w2.weight": "markov_w2.weight",
    "confidence_head.proj.weight": "conf_proj.weight",
    "confidence_head.proj.bias": "conf_proj.bias",
    "markov_w1": "markov_w1.weight",
    "markov_w1.weight": "markov_w1.weight",
    "markov_w2": "markov_w2.weight",
    "markov_w2.weight": "markov_w2.weight",
    "confidence_proj.weight": "conf_proj.weight",
    "confidence_proj.bias": "conf_proj.bias",
    "encoder.fc.weight": "fc.weight",
    "encoder.output_norm_enc.weight": "hidden_norm.weight",
    "candidate_selector.predecessor_codebook": "selector_predecessor.weight",
    "candidate_selector.successor_codebook": "selector_successor.weight",
    "candidate_selector.hidden_projection.weight": "selector_hidden.weight",
    "transfer_codes": "transfer_codes.weight",
    "injection.message.weight": "transfer_message.weight",
    "injection.receiver_gate.weight": "transfer_gate.weight",
    "injection.predecessor_gate.weight": "transfer_gate_before.weight",
    "injection.bias": "transfer_gate.bias",
    "d2t": "d2t",
    "t2d": "t2d",
}
INJECTED = {"readouts": "transfer_read.weight", "writes": "transfer_write.weight"}
"""Matrices of a layer that messages between rows are read and written by."""
SEQUENTIAL = {
    "feature_mlp.0.": "feature_norm.", "feature_mlp.1.": "feature_mlp.up_proj.", "feature_mlp.3.":
    "feature_mlp.down_proj.", "mlp.0.": "mlp.up_proj.", "mlp.2.": "mlp.down_proj.",
}  # fmt: skip
"""Names in LiLiCorr as its training exports them, by numbers, and as engines have them."""
LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "attention_conv.base_kernel": "attn_conv_base",
    "attention_conv.kernel_projection.weight": "attn_conv_proj.weight",
    "mlp_conv.base_kernel": "ffn_conv_base",
    "mlp_conv.kernel_projection.weight": "ffn_conv_proj.weight",
    "hidden_norm.weight": "attn_norm_2.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.o_proj.bias": "attn_output.bias",
    "self_attn.attention_sink_bias": "attn_sinks.weight",
    "self_attn.sinks": "attn_sinks.weight",
    "self_attn.g_proj.weight": "attn_gate.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
} | {f"self_attn.{x}_proj.{kind}": f"attn_{x}.{kind}" for x in (*"qkv", "qkv") for kind in ("weight", "bias")}
POST_NORMS = LAYER | {
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
    "layer_scalar": "layer_output_scale.weight",
}
"""Names in heads with norms on both sides of a layer."""
OLD_NORMS = {"aux_norm_low": 0, "aux_norm_mid": 1, "aux_norm_high": 2}
"""Older names of ``fc_norm.I``."""
WRAPPERS = re.compile(r"^(?:module\.|draft_model\.|_orig_mod\.){0,3}(?:model\.)?")
"""Beginnings of names that wrappers of a training write."""
TARGETS_OWN = re.compile(r"verifier_.*|.*\.?rotary_emb\..*")
"""Copies of the target's tensors, which are not read."""


def layer_names(stored: Collection[str]) -> Mapping[str, str]:
    """Names in a layer of a directory with these tensors."""
    return POST_NORMS if any(name.endswith("pre_feedforward_layernorm.weight") for name in stored) else LAYER


def our_name(name: str, layer: Mapping[str, str] = LAYER) -> str:
    """Our name of a tensor in a published head; unknown names are returned unchanged. layer: names in a layer."""
    name = WRAPPERS.sub("", name)
    if name in NAMES:
        return NAMES[name]
    if match := re.fullmatch(r"(?:midlayer|layers\.([0-9]{1,9}))\.(.+)", name):
        return f"blk.{int(match[1] or 0)}.{layer.get(match[2], match[2])}"
    if match := re.fullmatch(r"(?:fc_norm|aux_hidden_norms)\.([0-9]{1,9})\.weight", name):
        return f"input_norm.{match[1]}.weight"
    if match := re.fullmatch(r"injection\.(readouts|writes)\.([0-9]{1,9})\.weight", name):
        return f"blk.{int(match[2])}.{INJECTED[match[1]]}"
    if name.startswith("lilicorr."):
        return next((name.replace(a, b) for a, b in SEQUENTIAL.items() if a in name), name)
    if (stem := name.removesuffix(".weight")) in OLD_NORMS:
        return f"input_norm.{OLD_NORMS[stem]}.weight"
    return name


def is_head(raw: Mapping[str, Any]) -> bool:
    """Whether config.json is that of a draft head, including kinds that are refused by name later."""
    names = raw.get("architectures")
    first = str(names[0]) if isinstance(names, list) and names else ""
    parts = ("DSpark", "DFlash", "agle3", "DSpine", "LiLiCorr", *UNREAD_PARTS)
    by_name = first in (*EAGLE3, *DFLASH, MUSE) or any(part in first for part in parts)
    return (
        by_name
        or EAGLE.search(first.lower()) is not None
        or "speculators_model_type" in raw
        or "draft_vocab_size" in raw
        or "dflash_config" in raw
    )


def is_assistant(raw: Mapping[str, Any]) -> bool:
    """Whether config.json is that of an assistant."""
    names = raw.get("architectures")
    return isinstance(names, list) and bool(names) and names[0] in ASSISTANT_CLASSES
