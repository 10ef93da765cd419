"""Tiny random models of transformers, saved as directories that our targets read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

CLASSES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
    "qwen3moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM"),
}
"""Names: the classes themselves take seconds to import."""
NEWER = {
    "glm4moe": ("Glm4MoeConfig", "Glm4MoeForCausalLM"),
    "qwen3next": ("Qwen3NextConfig", "Qwen3NextForCausalLM"),
    "qwen35": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM"),
    "qwen35moe": ("Qwen3_5MoeTextConfig", "Qwen3_5MoeForCausalLM"),
    "lfm2": ("Lfm2Config", "Lfm2ForCausalLM"),
    "lfm2moe": ("Lfm2MoeConfig", "Lfm2MoeForCausalLM"),
    "kimi-linear": ("KimiLinearConfig", "KimiLinearForCausalLM"),
    "deepseek3": ("DeepseekV3Config", "DeepseekV3ForCausalLM"),
    "deepseek2-lite": ("DeepseekV2Config", "DeepseekV2ForCausalLM"),
    "muse_glimmer": ("MuseGlimmerConfig", "MuseGlimmerForConditionalGeneration"),
    "lfm3": ("Lfm3Config", "Lfm3ForCausalLM"),
    "laguna": ("LagunaConfig", "LagunaForCausalLM"),
    "glm5_next": ("Glm5NextConfig", "Glm5NextForConditionalGeneration"),
    "olmo-hybrid": ("OlmoHybridConfig", "OlmoHybridForCausalLM"),
    "glm4moelite": ("Glm4MoeLiteConfig", "Glm4MoeLiteForCausalLM"),
    **dict.fromkeys(
        ("granitehybrid", "granitehybrid-dense"), ("GraniteMoeHybridConfig", "GraniteMoeHybridForCausalLM")
    ),
    "falcon-h1": ("FalconH1Config", "FalconH1ForCausalLM"),
    "ministral3": ("Ministral3Config", "Ministral3ForCausalLM"),
    **dict.fromkeys(
        ("nemotron_h", "nemotron_h_moe", "nemotron_h_moe-latent"), ("NemotronHConfig", "NemotronHForCausalLM")
    ),
    **dict.fromkeys(("gemma4-e", "gemma4-k", "gemma4-moe"), ("Gemma4TextConfig", "Gemma4ForCausalLM")),
}
"""Names of classes that older releases of transformers lack."""
WINDOWED = {
    "mistral": ("MistralConfig", "MistralForCausalLM"),
    "phi3": ("Phi3Config", "Phi3ForCausalLM"),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM"),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM"),
    "gpt-oss": ("GptOssConfig", "GptOssForCausalLM"),
}
"""Classes of models in which some or all blocks have a window."""
SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "decoder_sparse_step": 1}
DELTA = {
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 4,
}
SHARED = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 24,
}
CONVOLVED = {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]}
LAYERED = {
    "num_hidden_layers": 3,
    "layer_types": ["sliding_attention", "full_attention", "full_attention"],
    "sliding_window": 9,
    "head_dim": 12,
    "global_head_dim": 20,
    "hidden_size_per_layer_input": 0,
}
SHARING = {"num_kv_shared_layers": 1, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 96}
KEYS_AS_VALUES = {"attention_k_eq_v": True, "num_global_key_value_heads": 1}
FEW_OF_MANY = {"enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 16}
FEW_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "num_dense_layers": 1}
GLM = {
    "num_hidden_layers": 3,
    "first_k_dense_replace": 1,
    "head_dim": 16,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "routed_scaling_factor": 1.5,
    "num_mtp_layers": 0,
}
LATENT = {
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "linear_head_dim": 8,
    "linear_num_heads": 4,
    "kv_lora_rank": 12,
    "qk_rope_head_dim": 6,
    "qk_nope_head_dim": 10,
    "num_key_value_heads": 4,
    "v_head_dim": 14,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
    "rms_norm_eps": 1e-6,
}
STREAMED = {key: value for key, value in LATENT.items() if key != "num_local_experts"} | {
    "qk_rope_head_dim": 0,
    "q_lora_rank": 20,
    "n_routed_experts": 6,
    "n_shared_experts": 1,
    "linear_conv_kernel_dim": 4,
    "index_head_dim": 12,
    "index_n_heads": 24,
    "index_kpool": 4,
    "index_topk": 16,
    "swiglu_limit": 0.5,
}
SCANNED = {
    "num_hidden_layers": 3,
    "layer_types": ["mamba", "attention", "mamba"],
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 16,
}
MINISTRAL = {
    "head_dim": 16,
    "pad_token_id": None,
    "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16,
        "llama_4_scaling_beta": 0.4, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32.0, "beta_slow": 1.0,
    },
}  # fmt: skip
MORE: dict[str, dict[str, Any]] = {
    "granitehybrid": SCANNED | {"num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 16},
    "granitehybrid-dense": SCANNED | {"num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 32},
    "qwen3moe": EXPERTS,
    "glm4moe": GLM,
    "qwen3next": DELTA | SHARED,
    "qwen35": DELTA,
    "qwen35moe": DELTA | SHARED,
    "ministral3": MINISTRAL,
    "lfm2": CONVOLVED | {"block_multiple_of": 16},
    "lfm2moe": CONVOLVED | FEW_EXPERTS,
    "kimi-linear": LATENT,
    "glm5_next": STREAMED,
    "gemma4-e": LAYERED | SHARING | {"use_double_wide_mlp": True},
    "gemma4-k": LAYERED | KEYS_AS_VALUES,
    "gemma4-moe": LAYERED | FEW_OF_MANY,
    "deepseek2-lite": {
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "n_shared_experts": 1,
        "q_lora_rank": None,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 12,
        "v_head_dim": 8,
        "first_k_dense_replace": 1,
        "num_key_value_heads": 4,
    },
    "lfm3": {
        "num_hidden_layers": 3,
        "layer_types": ["conv", "full_attention", "sliding_attention"],
        "sliding_window": 9,
        "pad_token_id": None,
    },
    "olmo-hybrid": {key: value for key, value in DELTA.items() if key != "head_dim"} | {"pad_token_id": None},
}
TOWER = {
    "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_hidden_layers": 1, "patch_size": 2,
    "layer_types": ["full_attention"], "max_position_embeddings": 16, "pos_emb_height": 4, "pos_emb_width": 4,
}  # fmt: skip
"""The vision tower of a model whose class has one; text does not use it."""
TOWERS: dict[str, dict[str, Any]] = {
    "muse_glimmer": TOWER,
    "glm5_next": {
        "depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 20, "out_hidden_size": 20, "patch_size": 2,
        "image_size": 8, "projection_intermediate_size": 24,
    },
}  # fmt: skip
LESS_ONE = ("qwen3next", "qwen35", "qwen35moe", "gemma2", "gemma3", "muse_glimmer")
"""Families that store norm weights less 1, those after gated delta nets excepted."""

CALM = {"embed_tokens": 2.0, "conv1d": 1.0, "conv.conv": 1.0, "lm_head": 0.25}
"""Standard deviations of matrices of the newer families; of others it is 0.18."""


def classes(arch: str) -> tuple[Any, Any]:
    """Classes of a config and of a model; None for one that this release of transformers lacks."""
    config, model_class = (CLASSES | NEWER | WINDOWED)[arch]
    return getattr(transformers, config, None), getattr(transformers, model_class, None)


def model(arch: str, seed: int = 0, **config: Any) -> transformers.PreTrainedModel:
    """A float32 model whose logits are of size 1, biases and norm weights included in the randomness."""
    torch.manual_seed(seed)
    make_config, make = classes(arch)
    sizes = SIZES | MORE.get(arch, {}) | config
    nested = {"text_config": sizes, "vision_config": TOWERS[arch]} if arch in TOWERS else sizes
    built = make(make_config(**nested, attn_implementation="eager")).eval()
    built.config._experts_implementation = "eager"
    for name, parameter in built.named_parameters():
        randomise(arch, name, parameter.data)
    for name, buffer in built.named_buffers():
        if name.endswith(("e_score_correction_bias", "expert_bias")):
            buffer.normal_(0.0, 0.25)
    return built


def randomise(arch: str, name: str, tensor: torch.Tensor) -> None:
    """A gated delta net normalises differences of its state: what is less calm enlarges rounding a thousand times."""
    mean = float("norm" in name and (arch not in LESS_ONE or "linear_attn" in name))
    if name.endswith("A_log"):
        tensor.uniform_(0.02, 8.0).log_()
    elif name.endswith("dt_bias"):
        tensor.normal_(-2.0, 1.5)
    elif arch in CLASSES or tensor.dim() == 1:
        tensor.normal_(mean, 0.25)
    else:
        tensor.normal_(0.0, next((std for part, std in CALM.items() if part in name), 0.18))


def save(model: transformers.PreTrainedModel, directory: Path, **options: Any) -> Path:
    model.save_pretrained(directory, **options)
    return directory


@torch.no_grad()
def logits(model: transformers.PreTrainedModel, tokens: list[int]) -> torch.Tensor:
    """[T, V] float32"""
    return model(torch.tensor([tokens])).logits[0].float()
