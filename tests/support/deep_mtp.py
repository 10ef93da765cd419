"""Models with several layers that predict further.

Golden models whose further layers are drawn, and a random hybrid with its network.
"""

from __future__ import annotations

import json
import re
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import torch
from safetensors.torch import load_file, save_file
from spec_targets.formats.gguf import open_gguf
from torch import Tensor

from spec_core import load
from tests.support.golden import golden
from tests.support.small_models import tiny_gguf, tokenizer_json
from tests.targets.containers import Model, as_stored, open_model
from tools.zoo.export import write_hybrid
from tools.zoo.hybrid import Hybrid, HybridShape, Mtp

TRUNK = {"glm4moe": 3, "qwen3next": 4, "qwen35": 4}
"""Blocks of the golden models before their layer."""
COUNT_KEY = {"glm4moe": "num_nextn_predict_layers"}
"""What the number of layers is called in config.json; the others have ``mtp_num_hidden_layers``."""


@cache
def directory(arch: str, depths: int) -> Path:
    """The golden model of an architecture as a directory with ``depths`` layers: its own, then drawn ones."""
    source, path = golden(arch) / "hf", Path(mkdtemp()) / f"{arch}-{depths}"
    shutil.copytree(source, path)
    config = json.loads((path / "config.json").read_text())
    config["num_mtp_layers"] = config[COUNT_KEY.get(arch, "mtp_num_hidden_layers")] = depths
    (path / "config.json").write_text(json.dumps(config))
    tensors = load_file(path / "model.safetensors")
    torch.manual_seed(depths)
    for depth in range(1, depths):
        tensors |= {_deeper(name, depth, arch): _random_tensor(name, t) for name, t in _layer(tensors, arch)}
    save_file({name: t.contiguous() for name, t in tensors.items()}, path / "model.safetensors", {"format": "pt"})
    return path


def _layer(tensors: dict[str, Tensor], arch: str) -> list[tuple[str, Tensor]]:
    """Tensors that every layer has for itself."""
    prefix = f"model.layers.{TRUNK[arch]}." if arch == "glm4moe" else "mtp.layers.0."
    return [(name, t) for name, t in tensors.items() if name.startswith(prefix)]


def _deeper(name: str, depth: int, arch: str) -> str:
    first = TRUNK[arch] if arch == "glm4moe" else 0
    return re.sub(rf"layers\.{first}\.", f"layers.{first + depth}.", name, count=1)


def _random_tensor(name: str, value: Tensor) -> Tensor:
    """Other values of a similar size; matrices that are the trunk's stay."""
    if "embed_tokens" in name or "shared_head.head" in name:
        return value.clone()
    if value.ndim == 1:
        return value + 0.1 * torch.randn_like(value)
    return value[torch.randperm(len(value))] + 0.3 * value.std() * torch.randn_like(value)


@cache
def file(arch: str, depths: int, apart: bool = False) -> Path:
    """The same model as a GGUF file. apart: its layers alone, with the embedding and the output matrix."""
    whole = load(directory(arch, depths), weights=False)
    model, trunk = open_model(golden(arch) / "model-f32.gguf"), TRUNK[arch]
    layer = whole.next_token_layer
    for name in list(model.tensors):
        if name.startswith(f"blk.{trunk}.") or (apart and name.startswith("blk.")):
            del model.tensors[name]
    while layer is not None:
        model.tensors |= {name: _as_pairs(whole.weights.load(name)) for name in layer.names if name.startswith("blk.")}
        layer = layer.deeper
    _set_count(model, arch, trunk, depths)
    path = Path(mkdtemp()) / f"{'mtp-' if apart else ''}{arch}-{depths}.gguf"
    path.write_bytes(model.bytes())
    return path


def _as_pairs(value: Tensor) -> list[object]:
    return [tuple(value.shape), "F32", value.float().contiguous().numpy().tobytes()]


def _set_count(model: Model, arch: str, trunk: int, depths: int) -> None:
    model.pairs[f"{arch}.block_count"] = as_stored(trunk + depths)
    model.pairs[f"{arch}.nextn_predict_layers"] = as_stored(depths)
    for key, value in open_gguf(golden(arch) / "model-f32.gguf").metadata.items():
        if isinstance(value, list) and key.startswith(arch) and len(value) == trunk + 1:
            model.pairs[key] = as_stored([*value, *value[-1:] * (depths - 1)])


@cache
def hybrid(depths: int, context: int = 128) -> tuple[Path, Hybrid, list[Mtp]]:
    """A random qwen35 model in a file with ``depths`` layers, with its network and that of every layer."""
    torch.manual_seed(0)
    sizes = {"vocab": 300, "width": 32, "heads": 2, "kv_heads": 1, "head": 32, "ff": 64, "context": context}
    shape = HybridShape(**sizes, layers=3, interval=3, key_heads=1, value_heads=2, state=32)
    trunk, heads = Hybrid(shape), [Mtp(shape) for _ in range(depths)]
    with torch.no_grad():
        trunk.embed.weight.mul_(0.5)
        for block in (*trunk.blocks, *(head.block for head in heads)):
            block.mixer.out.weight.mul_(6)
            block.down.weight.mul_(6)
    path = Path(mkdtemp()) / f"deep-hybrid-{depths}.gguf"
    states = [head.state_dict() for head in heads]
    write_hybrid(path, path.stem, shape, trunk.state_dict(), states, json.loads(tokenizer_json(300)), "F32")
    return path, trunk, heads


@cache
def dense(depths: int) -> Path:
    """A random qwen3 model of one block with ``depths`` layers behind it: blocks of other random models."""
    model, width = open_model(tiny_gguf(0, layers=1)), 32
    numbers = torch.Generator().manual_seed(depths)
    for depth in range(depths):
        prefix, other = f"blk.{1 + depth}.", open_model(tiny_gguf(1 + depth, layers=1))
        model.tensors |= {
            name.replace("blk.0.", prefix): tensor
            for name, tensor in other.tensors.items()
            if name.startswith("blk.0.")
        }
        model.tensors[f"{prefix}nextn.eh_proj.weight"] = _as_pairs(
            torch.randn(width, 2 * width, generator=numbers) * 0.2
        )
        for norm in ("enorm", "hnorm", "shared_head_norm"):
            model.tensors[f"{prefix}nextn.{norm}.weight"] = _as_pairs(1 + 0.2 * torch.randn(width, generator=numbers))
    model.pairs["qwen3.block_count"] = as_stored(1 + depths)
    model.pairs["qwen3.nextn_predict_layers"] = as_stored(depths)
    path = Path(mkdtemp()) / f"deep-dense-{depths}.gguf"
    path.write_bytes(model.bytes())
    return path
