"""Heads of pico with a planted fault in their files: what trainers, converters and people get wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import torch
from spec_train.command import train as train_head
from spec_train.heads.export.trained import Trained
from spec_train.heads.export.write import write_head
from spec_train.heads.shape import Shape

from spec_core import load
from tests.support.small_heads import edit_config, edit_tensors

LAYOUTS = {"eagle3": "safeailab", "dflash": "z-lab", "dspark": "speculators"}
IDS = ("eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids")
SHORT = ("--generate", "100", "--held-out", "4", "--batch", "4", "--threads", "1", "--minutes", "0.5")
"""A training of half a minute."""


def write_healthy(kind: str, folder: Path) -> Path:
    """The head of pico as a directory; a DSpark head is trained from its DFlash head."""
    if kind == "dspark":
        out = folder / "healthy"
        words = [kind, "-m", "zoo:pico", "--head", "zoo:pico-dflash", *SHORT, "--format", LAYOUTS[kind]]
        train_head.main([*words, "--out", str(out)], standalone_mode=False)
        return out
    file: Any = load(f"zoo:pico-{kind}", weights=False)
    target, head = load("zoo:pico", weights=False), file.head
    weights = {name: file.tensor(name).float() for name in file.names}
    trained = Trained(Shape.of(head, head.sources(target.info.layers)), weights, head.d2t, f"pico-{kind}")
    write_head(trained, target, folder / "healthy", LAYOUTS[kind], "f32")
    return folder / "healthy"


def plant(healthy: Path, fault: str) -> Path:
    """A copy with a fault of FAULTS."""
    path = copytree(healthy, healthy.parent / fault)
    config, tensors, _ = (FAULTS | BLOCK_FAULTS)[fault]
    if config is not None:
        edit_config(path, config)
    if tensors is not None:
        edit_tensors(path, tensors)
    assert json.loads((path / "config.json").read_text())
    return path


def layers(*inputs: int) -> Callable[[dict[str, Any]], None]:
    """Other hidden states, as each layout counts them."""

    def change(raw: dict[str, Any]) -> None:
        for key in IDS:
            if key in raw:
                raw[key] = list(inputs)
        if "dflash_config" in raw:
            raw["dflash_config"]["target_layer_ids"] = [i - 1 for i in inputs]

    return change


def sizes(**values: Any) -> Callable[[dict[str, Any]], None]:
    """Other sizes of the layers, where each layout states them."""
    return lambda raw: raw.get("transformer_layer_config", raw).update(values)


def neighbours(named: dict[str, torch.Tensor]) -> None:
    """Dimensions that turn together side by side, as llama.cpp stores them."""
    for name, tensor in named.items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            named[name] = tensor.view(len(tensor) // 64, 2, 32, -1).transpose(1, 2).reshape(tensor.shape)
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            named[name] = tensor.view(2, 32).T.reshape(-1)


def without_one(named: dict[str, torch.Tensor]) -> None:
    for name in named:
        if name.endswith("norm.weight"):
            named[name] = named[name] - 1


def other_output(named: dict[str, torch.Tensor]) -> None:
    named["lm_head.weight"] = torch.randn(3072, 192, generator=torch.Generator().manual_seed(0)) / 20


def moved_map(named: dict[str, torch.Tensor]) -> None:
    named["d2t"] = (torch.arange(3072) + 1) % 3072 - torch.arange(3072)


def mixed_map(named: dict[str, torch.Tensor]) -> None:
    named["d2t"] = torch.randperm(3072, generator=torch.Generator().manual_seed(0)) - torch.arange(3072)


FAULTS: dict[str, tuple[Any, Any, str]] = {
    "layers one earlier": (layers(0, 5, 9), None, "shifted hidden states"),
    "another last layer": (layers(1, 6, 8), None, "wrong layer"),
    "layers in reverse": (layers(10, 6, 1), None, "wrong layer"),
    "the last state before the norm": (lambda raw: raw.update(final_norm=False), None, "wrong norm"),
    "norms without 1": (None, without_one, "wrong norm"),
    "neighbours rotate": (None, neighbours, "rotary"),
    "another base": (sizes(rope_theta=100.0), None, "rotary"),
    "a scaling": (sizes(rope_scaling={"rope_type": "linear", "factor": 16.0}), None, "rotary"),
    "another output matrix": (None, other_output, "tied output"),
    "a map one off": (None, moved_map, "token map"),
    "a map of another order": (None, mixed_map, "token map"),
}
"""A change of the config, one of the tensors, and the cause that explains it."""
BLOCK_FAULTS: dict[str, tuple[Any, Any, str]] = {
    "the last token's row predicts": (lambda raw: raw.update(sample_from_anchor=True), None, "shifted hidden states"),
}
"""Faults of heads that fill blocks alone."""


def faults_of(kind: str) -> dict[str, tuple[Any, Any, str]]:
    """Faults that a kind of head can have."""
    return FAULTS if kind == "eagle3" else FAULTS | BLOCK_FAULTS
