"""Random heads in files, for tiny targets, and checks that any head must pass in a run."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import torch
from safetensors.torch import load_file, save_file
from spec_targets.architectures.heads.lattice import Lattice
from spec_train.heads.export.write import write_head

from spec_core import Request, Run, Sampling, Target, load
from tests.support.small_heads import edit_config, train
from tests.support.small_models import (
    tiny_deepseek,
    tiny_gated,
    tiny_gemma4,
    tiny_gguf,
    tiny_hybrid,
    tiny_kimi,
    tiny_lfm2,
    tiny_scanned,
    tiny_streamed,
)
from tests.targets.gate import finish_checked

PATHS = {
    "dense": lambda: tiny_gguf(0, layers=4),
    "hybrid": lambda: tiny_hybrid(context=128),
    "lfm2": lambda: tiny_lfm2(context=128),
    "lfm2moe": lambda: tiny_lfm2(moe=True, context=128),
    "gemma4": lambda: tiny_gemma4(context=128),
    "kimi-linear": lambda: tiny_kimi(context=128),
    "granitehybrid": lambda: tiny_scanned("granitehybrid", context=128),
    "falcon-h1": lambda: tiny_scanned("falcon-h1", context=128),
    "nemotron_h_moe": lambda: tiny_scanned("nemotron_h_moe", context=128),
    "deepseek2": lambda: tiny_deepseek(context=128),
    "glm5-next": lambda: tiny_streamed(context=128),
    **{of: lambda of=of: tiny_gated(of, context=128) for of in ("olmo-hybrid", "lfm3", "muse_glimmer", "laguna")},
}
TARGETS = ("dense", "hybrid", "lfm2", "gemma4", "kimi-linear")
METHODS = {
    "eagle3": ("eagle3", {"p_min": 0.0}),
    "eagle3-tree": ("eagle3", {"p_min": 0.0, "draft_max": 3, "width": 3}),
    "eagle3-few-nodes": ("eagle3", {"p_min": 0.01, "width": 4, "nodes_max": 7}),
    "dflash": ("dflash", {"p_min": 0.0}),
    "dflash-short": ("dflash", {"p_min": 0.0, "draft_max": 2}),
    "dflash-sliding": ("dflash", {"p_min": 0.0}),
    "dflash-tree": ("dflash", {"p_min": 0.0, "width": 3, "nodes_max": 9}),
    "dspark": ("dspark", {"p_min": 0.0}),
    "dspark-bonus": ("dspark", {"p_min": 0.0}),
    "dflash2": ("dflash2", {"p_min": 0.0}),
    "dflash2-tree": ("dflash2", {"p_min": 0.0, "width": 3, "nodes_max": 9}),
    "dspine": ("dspine", {"p_min": 0.0}),
    "dspine-tree": ("dspine", {"p_min": 0.0, "width": 3, "nodes_max": 9}),
    "lilicorr": ("lilicorr", {"p_min": 0.0}),
    "lilicorr-tree": ("lilicorr", {"p_min": 0.0, "width": 3, "nodes_max": 9}),
    "dflash-gated": ("dflash", {"p_min": 0.0}),
    "dspark-tree": ("dspark", {"p_min": 0.0, "width": 4, "nodes_max": 12}),
}
"""A head's method and its settings, without the file."""
WINDOW = 5
"""Windows of a sliding layer: one ends inside the context, one inside the block."""


@cache
def tiny(of: str) -> Target:
    """Four blocks of width 32, 300 tokens."""
    return load(PATHS[of](), dtype="float32", device="cpu")


@cache
def head_file(kind: str, of: str, rows: int | None = None) -> Path:
    torch.manual_seed(0)
    path = Path(mkdtemp()) / f"{kind}.gguf"
    write_head(train(kind, tiny(of), rows), tiny(of), path, "gguf", "f32")
    return path


@cache
def sliding_file(of: str, rows: int | None = None) -> Path:
    """Of dflash: its first layer has a window, and is causal inside the block."""
    torch.manual_seed(0)
    path = Path(mkdtemp()) / "dflash"
    write_head(train("dflash", tiny(of), rows), tiny(of), path, "speculators", "f32")
    kinds = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW}
    return edit_config(path, lambda config: config["transformer_layer_config"].update(kinds))


@cache
def spark_file(of: str, rows: int | None = None, bonus: bool = False) -> Path:
    """Of dspark: a dflash head with random Markov matrices and a confidence head.

    bonus: the first row predicts nothing, and confidence reads states alone.
    """
    torch.manual_seed(0)
    target, rank, path = tiny(of), 6, Path(mkdtemp()) / "dspark"
    write_head(train("dflash", target, rows), target, path, "speculators", "f32")
    vocab, width = target.info.vocab, target.info.width
    tensors = load_file(path / "model.safetensors") | {
        "markov_head.markov_w1.weight": torch.randn(vocab, rank),
        "markov_head.markov_w2.weight": torch.randn(rows or vocab, rank),
        "confidence_head.proj.weight": torch.randn(1, width + (0 if bonus else rank)) / 3,
        "confidence_head.proj.bias": torch.ones(1),
    }
    save_file(tensors, path / "model.safetensors")
    stated = {"speculators_model_type": "dspark", "architectures": ["DSparkSpeculator"], "markov_rank": rank}
    return edit_config(path, lambda config: config.update(stated, sample_from_anchor=not bonus))


@cache
def selector_file(of: str, rows: int | None = None) -> Path:
    """Of dflash2: a dflash head with random convolutions and a selector."""
    torch.manual_seed(0)
    target, rank, path = tiny(of), 6, Path(mkdtemp()) / "dflash2"
    write_head(train("dflash", target, rows), target, path, "speculators", "f32")
    vocab, width, taps, group = target.info.vocab, target.info.width, 2, 8
    tensors = load_file(path / "model.safetensors") | {
        "candidate_selector.predecessor_codebook": torch.randn(vocab, rank),
        "candidate_selector.successor_codebook": torch.randn(vocab, rank),
        "candidate_selector.hidden_projection.weight": torch.randn(rank, width),
    }
    for name in (f"layers.{i}.{part}" for i in (0, 1) for part in ("attention_conv", "mlp_conv")):
        tensors[f"{name}.base_kernel"] = torch.rand(2, taps, width)
        tensors[f"{name}.kernel_projection.weight"] = torch.randn(2 * taps * width // group, width) / 9
    save_file(tensors, path / "model.safetensors")
    sizes = {"conv_kernel_size": taps, "conv_group_size": group, "selector_rank": rank, "selector_top_k": 5}
    stated = {"speculators_model_type": "dflash2", "architectures": ["DFlash2Speculator"], **sizes}
    return edit_config(path, lambda config: config.update(stated))


@cache
def gated_file(of: str, rows: int | None = None) -> Path:
    """Of dflash in Laguna's layout: gates of attention heads, two in the first layer and four in the second."""
    torch.manual_seed(0)
    target, path = tiny(of), Path(mkdtemp()) / "gated"
    write_head(train("dflash", target, rows), target, path, "z-lab", "f32")
    tensors, width, heads = load_file(path / "model.safetensors"), target.info.width, (2, 4)
    for i, count in enumerate(heads):
        attention = f"layers.{i}.self_attn."
        q, k, v = (tensors.pop(f"{attention}{x}_proj.weight") for x in "qkv")
        dim = len(q) // 2
        q = torch.randn(count * dim, width) / 6
        tensors |= {f"{attention}qkv_proj.weight": torch.cat([q, k, v])}
        tensors |= {f"{attention}o_proj.weight": torch.randn(width, count * dim) / 6}
        tensors |= {f"{attention}g_proj.weight": torch.randn(count, width)}
    tensors |= {f"aux_hidden_norms.{i}.weight": torch.rand(width) + 0.5 for i in range(2)}
    save_file({name: t.contiguous() for name, t in tensors.items()}, path / "model.safetensors")
    stated = {"architectures": ["DFlashLagunaForCausalLM"], "gating": "per-head", "sliding_windows": [WINDOW, None]}
    return edit_config(path, lambda config: config.update(stated, num_attention_heads_per_layer=list(heads)))


@cache
def spine_file(of: str, rows: int | None = None) -> Path:
    """Of dspine: a causal dflash head with random codes and messages."""
    torch.manual_seed(0)
    target, rank, size, path = tiny(of), 6, 5, Path(mkdtemp()) / "dspine"
    write_head(train("dflash", target, rows), target, path, "z-lab", "f32")
    width = target.info.width
    tensors = load_file(path / "model.safetensors") | {
        "transfer_codes": torch.nn.functional.normalize(torch.randn(target.info.vocab, rank)),
        "transfer_ready": torch.tensor(True),
        "injection.bias": torch.randn(size),
        **{f"injection.{name}.weight": torch.randn(size, rank) for name in ("message", "receiver_gate")},
        "injection.predecessor_gate.weight": torch.randn(size, rank),
        **{f"injection.readouts.{i}.weight": torch.randn(rank, width) for i in (0, 1)},
        **{f"injection.writes.{i}.weight": torch.randn(width, size) for i in (0, 1)},
    }
    save_file(tensors, path / "model.safetensors")
    stated = {"architectures": ["DSpineDraftModel"], "is_causal": True, "dspine_config": {"top_k": 5}}
    return edit_config(path, lambda config: config.update(stated))


@cache
def lattice_file(of: str, rows: int | None = None) -> Path:
    """Of lilicorr: a dflash head with random layers over four candidates of each row."""
    torch.manual_seed(0)
    target, path = tiny(of), Path(mkdtemp()) / "lilicorr"
    write_head(train("dflash", target, rows), target, path, "z-lab", "f32")
    lattice, tensors = Lattice(8, 1, 2, 16, 5, 1e-6, 10.0), load_file(path / "model.safetensors")
    block = json.loads((path / "config.json").read_text())["block_size"]
    shapes = lattice.tensor_shapes(target.info.width, block, 4)
    tensors |= {name: torch.randn(shape) / shape[-1] ** 0.5 for name, shape in shapes.items()}
    save_file(tensors, path / "model.safetensors")
    numbers = {"num_heads": 2, "vector_eps": 1e-6, "logit_scale": 10.0, "candidate_topk": 4}
    stated = {f"lilicorr_{name}": value for name, value in numbers.items()}

    def change(config):
        config["dflash_config"] |= stated
        config["architectures"] = ["LiLiCorrDraftModel"]

    return edit_config(path, change)


def requests(temperature: float) -> list[Request]:
    sampling = Sampling(temperature=temperature)
    return [Request([3 * i + 1, 4, i + 9], max_tokens=20, seed=i, sampling=sampling, name=f"{i}") for i in range(5)]


def method(name: str, of: str, rows: int | None = None) -> tuple[str, dict]:
    """One of METHODS with a random head. rows: of its logits, where it drafts part of the vocabulary."""
    kind, settings = METHODS[name]
    others = {"dflash2": selector_file, "dspine": spine_file, "lilicorr": lattice_file}
    if kind in others or name.endswith("gated"):
        file = others.get(kind, gated_file)(of, rows)
    elif kind == "dspark":
        file = spark_file(of, rows, name.endswith("bonus"))
    else:
        file = sliding_file(of, rows) if name.endswith("sliding") else head_file(kind, of, rows)
    return kind, {"file": str(file), **settings}


@cache
def plain(of: str, temperature: float) -> list[list[int]]:
    """The texts of the requests without any method."""
    return [Run(tiny(of)).generate(r).result.tokens for r in requests(temperature)]


def check_lossless(name: str, of: str, rows: int | None, temperature: float, slots: int, **more) -> list:
    """Every text is the plain one of its seed, and so is the state behind every step; returns the steps."""
    run, steps = Run(tiny(of), [method(name, of, rows)], max_sequences=slots, **more), []
    run.observe(steps.append)
    assert [result.tokens for result in finish_checked(run, requests(temperature))] == plain(of, temperature)
    assert sum(p.drafted for step in steps for p in step.parts)
    return steps
