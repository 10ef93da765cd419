"""Tiny random models of Gemma 4 and assistants for them, in directories."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
import transformers

from tests.support.small_models import tokenizer_json
from tests.targets.tiny import randomise, save

WIDTH, VOCAB, WINDOW = 32, 300, 5
"""The window is shorter than the texts, and than the longest drafts."""
ROPE = {
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
TEXT: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": 40, "num_attention_heads": 4,
    "num_key_value_heads": 1, "head_dim": 8, "global_head_dim": 16, "max_position_embeddings": 256,
    "sliding_window": WINDOW, "rope_parameters": ROPE, "pad_token_id": None, "bos_token_id": None,
    "eos_token_id": 297, "enable_moe_block": False,
}  # fmt: skip


CLUSTERS = 20
SOFT = 0.06
"""Factor of the last norm: texts at temperatures above 0 vary."""


def layer_types(pattern: str) -> list[str]:
    """Names of the blocks of a pattern of ``w``, with a window, and ``f``, without."""
    return ["sliding_attention" if letter == "w" else "full_attention" for letter in pattern]


@cache
def tiny_gemma4(shared: bool = True) -> Path:
    """A target. shared: two blocks read the cache of others, and each has an embedding; else keys are values."""
    more = {"num_kv_shared_layers": 2, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 8}
    keyed = {"num_kv_shared_layers": 0, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0}
    config = transformers.Gemma4TextConfig(
        **TEXT,
        **(more if shared else keyed),
        num_hidden_layers=5,
        layer_types=layer_types("wfwwf"),
        vocab_size_per_layer_input=VOCAB,
        final_logit_softcapping=30.0,
    )
    torch.manual_seed(0)
    model = transformers.Gemma4ForCausalLM(config)
    for name, parameter in model.named_parameters():
        randomise("gemma4", name, parameter.data)
    model.model.norm.weight.data.mul_(SOFT)
    directory = save(model, Path(mkdtemp()) / "gemma4")
    (directory / "tokenizer.json").write_text(tokenizer_json(), "utf-8")
    return directory


@cache
def tiny_assistant(shared: bool = True, ordered: bool = False, agrees: bool = True) -> Path:
    """An assistant of the target. agrees: it predicts the last token again, as the target often does."""
    text = {
        **TEXT, "num_hidden_layers": 4, "layer_types": layer_types("wwwf"), "num_kv_shared_layers": 4,
        "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0, "use_double_wide_mlp": False,
        "attention_k_eq_v": not shared, "final_logit_softcapping": None,
    }  # fmt: skip
    config = transformers.Gemma4AssistantConfig(
        text_config=transformers.Gemma4TextConfig(**text),
        backbone_hidden_size=WIDTH,
        use_ordered_embeddings=ordered,
        num_centroids=CLUSTERS,
        centroid_intermediate_top_k=6,
    )
    torch.manual_seed(1)
    model = transformers.Gemma4AssistantForCausalLM(config)
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point():
            randomise("gemma4", name, parameter.data)
    if agrees:
        target = transformers.Gemma4ForCausalLM.from_pretrained(tiny_gemma4(shared))
        model.model.embed_tokens.weight.data.copy_(target.model.embed_tokens.weight)
        model.model.norm.weight.data.copy_(target.model.norm.weight)
        model.pre_projection.weight.data.mul_(0.1)[:, :WIDTH] += torch.eye(WIDTH)
    if ordered:
        order = torch.randperm(VOCAB)
        model.masked_embedding.token_ordering.copy_(order)
        of_clusters = model.model.embed_tokens.weight.data[order].view(CLUSTERS, -1, WIDTH)
        model.masked_embedding.centroids.weight.data.copy_(of_clusters.mean(1))
    return save(model, Path(mkdtemp()) / "assistant")
