"""Tiny random models in real files, made once per session: for tests that need a file, not a good model."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import torch
from spec_zoo.texts.tokens import train_tokenizer

from tests.targets import gated, kimi, latent, layered, scanned, streamed
from tests.targets.convolved import write_gguf
from tests.targets.tiny import model
from tools.zoo.export import write, write_hybrid
from tools.zoo.hybrid import Hybrid, HybridShape, Mtp
from tools.zoo.model import Model, Shape

TEXTS = ["def add(a, b):\n    return a + b\n", "the quick brown fox jumps over the lazy dog. ", "x = [1, 2, 3]\n"] * 20


@cache
def tokenizer_json(vocab: int = 300, salt: str = "") -> str:
    return train_tokenizer([*TEXTS, salt * 50], vocab).to_str()


@cache
def tiny_gguf(
    seed: int = 0,
    layers: int = 2,
    width: int = 32,
    vocab: int = 300,
    salt: str = "",
    context: int = 256,
    kind: str = "Q8_0",
) -> Path:
    """A random qwen3 model of ``vocab`` tokens in a GGUF file; another salt gives another vocabulary."""
    torch.manual_seed(seed)
    shape = Shape(vocab=vocab, width=width, layers=layers, heads=2, kv_heads=1, head=32, ff=64, context=context)
    model = Model(shape)
    with torch.no_grad():
        model.embed.weight.mul_(12)
    path = Path(mkdtemp()) / f"tiny-{seed}.gguf"
    write(path, f"tiny-{seed}", shape, model.state_dict(), json.loads(tokenizer_json(vocab, salt)), kind)
    return path


@cache
def tiny_hybrid(
    seed: int = 0, vocab: int = 300, mtp: bool = True, context: int = 256, kind: str = "Q8_0", small: bool = False
) -> Path:
    """A random qwen35 model of two gated delta nets and two attention layers, with a random MTP layer after them.

    small: half of the heads, and one attention layer.
    """
    torch.manual_seed(seed)
    heads, more = (1, {"layers": 3, "interval": 3}) if small else (2, {"layers": 4})
    sizes = {"vocab": vocab, "width": 32, "heads": 2, "kv_heads": 1, "head": 32, "ff": 64, "context": context}
    shape = HybridShape(**sizes, **more, key_heads=heads, value_heads=2 * heads, state=32)
    trunk, head = Hybrid(shape), Mtp(shape)
    with torch.no_grad():
        trunk.embed.weight.mul_(0.5)
        for block in (*trunk.blocks, head.block):
            block.mixer.out.weight.mul_(6)
            block.down.weight.mul_(6)
    path = Path(mkdtemp()) / f"tiny-hybrid-{seed}.gguf"
    tokenizer = json.loads(tokenizer_json(vocab))
    layers = [head.state_dict()] if mtp else []
    write_hybrid(path, path.stem, shape, trunk.state_dict(), layers, tokenizer, kind)
    return path


@cache
def tiny_lfm2(seed: int = 0, moe: bool = False, context: int = 256, kind: str = "Q8_0") -> Path:
    """A random model of two short convolutions and two attention layers in turn, of 300 tokens."""
    family, kinds = "lfm2moe" if moe else "lfm2", ["conv", "full_attention"] * 2
    sizes = {"vocab_size": 300, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 4}
    sizes |= {"intermediate_size": 96, "max_position_embeddings": context, "tie_word_embeddings": False}
    network = model(family, seed, **sizes, layer_types=kinds)
    return write_gguf(network, family, Path(mkdtemp()) / f"tiny-{family}-{seed}.gguf", kind, tokenizer_json())


@cache
def tiny_gemma4(family: str = "gemma4-e", context: int = 256, kind: str = "Q8_0") -> Path:
    """A random model of one of layered.FAMILIES, of 300 tokens: the first and third block have a window of 9, the last
    of gemma4-e reads the cache of the second."""
    sizes = {"vocab_size": 300, "num_hidden_layers": 4, "max_position_embeddings": context}
    sizes |= {"layer_types": [layered.LOCAL, layered.FULL] * 2, "pad_token_id": None}
    sizes |= {"vocab_size_per_layer_input": 300} if family == "gemma4-e" else {}
    network = layered.scale_blocks(model(family, 0, **sizes), 0)
    network.model.embed_tokens.weight.data.mul_(0.25)
    path = Path(mkdtemp()) / f"tiny-{family}.gguf"
    return layered.write_gguf(network, family, path, kind, tokenizer_json())


@cache
def tiny_kimi(context: int = 256, kind: str = "Q8_0") -> Path:
    """A random model of two blocks with KDA and two with latent attention in turn, of 300 tokens."""
    sizes = {"vocab_size": 300, "num_hidden_layers": 4, "max_position_embeddings": context, "kv_lora_rank": 32}
    kinds = {"layer_types": [kimi.KDA, kimi.FULL] * 2, "mlp_layer_types": kimi.dense_first(1, 4)}
    network = model("kimi-linear", 0, **sizes, **kinds)
    path = Path(mkdtemp()) / "tiny-kimi-linear.gguf"
    return kimi.write_gguf(network, "kimi-linear", path, kind, tokenizer_json())


@cache
def tiny_streamed(context: int = 256, kind: str = "Q8_0") -> Path:
    """A random model of glm5_next, of 300 tokens: two blocks with delta nets, and two with attention, whose index
    chooses 16 positions; the second reads that of the first."""
    sizes = {"vocab_size": 300, "num_hidden_layers": 4, "max_position_embeddings": context, "kv_lora_rank": 32}
    kinds = {"layer_types": [kimi.KDA, kimi.FULL, kimi.FULL, kimi.KDA], "mlp_layer_types": kimi.dense_first(1, 4)}
    network = model(streamed.GLM, 0, **sizes, **kinds, indexer_types=["full", "full", "shared", "full"])
    path = Path(mkdtemp()) / "tiny-glm5-next.gguf"
    return streamed.write_gguf(network, streamed.GLM, path, kind, tokenizer_json())


@cache
def tiny_scanned(family: str, context: int = 256, kind: str = "Q8_0") -> Path:
    """A random model of one of scanned.FAMILIES, of 300 tokens and at least two blocks with Mamba-2 and two with
    attention; that of Nemotron with experts has a block that predicts further."""
    sizes = {"vocab_size": 300, "max_position_embeddings": context, "hidden_size": 32, "num_attention_heads": 2}
    sizes |= {"num_key_value_heads": 1, "intermediate_size": 32, "tie_word_embeddings": False}
    mamba = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 24, "mamba_d_conv": 4}
    own = {"mamba_num_heads": 4, "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 24, "time_step_min": 1e-30}
    turns, moe = [scanned.SCAN, scanned.FULL] * 2, family == "nemotron_h_moe"
    branch = [scanned.EXPERTS if moe else scanned.DENSE]
    more = {
        scanned.GRANITE: {
            "layer_types": turns,
            "num_hidden_layers": 4,
            "num_local_experts": 4,
            "attention_multiplier": 0.2,
        }
        | {"shared_intermediate_size": 32, "logits_scaling": 2.0, "residual_multiplier": 0.6, **mamba},
        scanned.FALCON: {"num_hidden_layers": 4, "mamba_d_ssm": 64, "head_dim": 16, **mamba},
        scanned.NEMOTRON: {"layers_block_type": [*turns, *branch, *turns[:1]], "head_dim": 16, **own}
        | {"moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 32, "n_routed_experts": 4},
    }[family.removesuffix("_moe")]
    network = model(family, 0, **sizes, **more)
    path = Path(mkdtemp()) / f"tiny-{family}.gguf"
    return scanned.write_gguf(network, family, path, kind, tokenizer_json(), nextn=moe)


@cache
def tiny_deepseek(context: int = 256, kind: str = "Q8_0") -> Path:
    """A random model of four blocks with latents whose shared numbers rotate, of 300 tokens, and a block that predicts
    further."""
    sizes = {"vocab_size": 300, "num_hidden_layers": 4, "max_position_embeddings": context, "hidden_size": 32}
    sizes |= {"kv_lora_rank": 32, "q_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 16}
    sizes |= {"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1}
    sizes |= {"num_key_value_heads": 4, "pad_token_id": None, "n_group": 1, "topk_group": 1}
    network = model(latent.FLASH, 0, **sizes, **latent.feed_forward(latent.FLASH, 1, 4))
    path = Path(mkdtemp()) / "tiny-deepseek2.gguf"
    return latent.write_gguf(network, latent.FLASH, path, kind, tokenizer_json(), nextn=True)


@cache
def tiny_gated(family: str, context: int = 256) -> Path:
    """A random model of one of gated.FAMILIES, of 300 tokens and four blocks, as a directory: windows of 9, and a
    block of each kind."""
    kinds = {
        gated.MUSE: [gated.LOCAL, gated.FULL] * 2,
        gated.LAGUNA: [gated.FULL, *[gated.LOCAL] * 3],
        gated.LFM3: ["conv", gated.FULL, "conv", gated.LOCAL],
        gated.OLMO: ["linear_attention", gated.FULL] * 2,
    }[family]
    sizes = {"vocab_size": 300, "num_hidden_layers": 4, "layer_types": kinds, "max_position_embeddings": context}
    sizes |= {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}
    sizes |= {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    if family == gated.OLMO:
        sizes |= {"rope_parameters": {"rope_type": "default", "rope_theta": None}}
    else:
        sizes |= {"head_dim": 8, "sliding_window": 9}
    if family == gated.LAGUNA:
        sizes |= {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
        sizes |= {"shared_expert_intermediate_size": 16, "num_attention_heads_per_layer": [4, 6, 6, 4]}
    if family == gated.MUSE:
        sizes |= {"layer_rope_theta": [1e4, 0] * 2, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    folder = Path(mkdtemp()) / f"tiny-{family}"
    model(family, 0, **sizes).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tokenizer_json())
    return folder
