"""Random draft heads for tiny targets, in real files of every layout."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import torch
from safetensors.torch import load_file, save_file
from spec_train.heads.export.trained import Trained
from spec_train.heads.export.write import write_head
from spec_train.heads.shape import default_shape
from spec_train.init.random import random_weights

from spec_core import Target, load
from tests.support.small_models import tiny_gguf

SOURCES = {"eagle3": (2, 1, 1), "dflash": (1, 2)}


def tiny_target(**options: Any) -> Target:
    """Four blocks of width 32, 300 tokens."""
    return load(tiny_gguf(0, layers=4), **options)


def target_with(**facts: Any) -> Target:
    """A described ``tiny_target`` with other facts in its TargetInfo."""
    target: Any = tiny_target(weights=False)
    return attrs.evolve(target, info=attrs.evolve(target.info, **facts))


def train(kind: str, target: Target, rows: int | None = None, seed: int = 0, **more: Any) -> Trained:
    """A head with random weights; rows: of its logits, where it drafts part of the vocabulary only."""
    d2t = None if rows is None else torch.randperm(target.info.vocab)[:rows].sort()[0]
    block = {"qk_norm": True, "block": 4, "mask": 299, "windows": (0, 0), "causal": (False, False)}
    shape = default_shape(
        kind,
        target.info,
        1 if kind == "eagle3" else 2,
        heads=2,
        ff=64,
        draft_vocab=rows or target.info.vocab,
        inputs=len(SOURCES[kind]),
        sources=SOURCES[kind],
        **({"own_output": kind == "eagle3" or rows is not None} | (block if kind == "dflash" else {}) | more),
    )
    weights = random_weights(shape, torch.randn(shape.draft_vocab, shape.width), None, seed)
    return Trained(shape, weights, d2t, f"{target.info.name}-{kind}")


def directory(folder: Path, kind: str, layout: str, rows: int | None = None) -> Path:
    """A directory of a published layout."""
    target = tiny_target(weights=False)
    folder.mkdir(parents=True, exist_ok=True)
    write_head(train(kind, target, rows), target, folder / layout, layout, "f32")
    return folder / layout


def edit_config(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    config = json.loads((path / "config.json").read_text("utf-8"))
    change(config)
    (path / "config.json").write_text(json.dumps(config), "utf-8")
    return path


def edit_tensors(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    named = dict(load_file(path / "model.safetensors"))
    change(named)
    save_file({name: t.contiguous() for name, t in named.items()}, path / "model.safetensors")
    return path
