"""Weights of an overlay from safetensors files: whole tensors, or an adapter of pairs (LoRA, as PEFT stores it)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spec_core.contract.overlay import LowRank, check_floats
from spec_core.errors import UsageError

CONFIG_BYTES_MAX = 1 << 20
CONFIG, ADAPTER = "adapter_config.json", "adapter_model.safetensors"
PAIR = re.compile(r"(.+)\.lora_([AB])\.weight")
BLOCK = re.compile(r"(?:.+\.)?layers\.([0-9]{1,5})\.(?:self_attn|mlp)\.(\w+)\.(weight|bias)")
STEMS = {f"{x}_proj": f"attn_{x}" for x in "qkv"} | {"o_proj": "attn_output"}
STEMS |= {f"{x}_proj": f"ffn_{x}" for x in ("gate", "up", "down")} | {f"{x}_norm": f"attn_{x}_norm" for x in "qk"}
NEUTRAL = {"alpha_pattern": {}, "rank_pattern": {}, "bias": "none", "fan_in_fan_out": False, "lora_bias": False}
NEUTRAL |= {"use_dora": False, "modules_to_save": None}
"""Settings of an adapter that change its forward, and the values that do not."""


def block_tensor_name(name: str) -> str | None:
    """The GGUF name of a block's matrix, bias or norm of heads in a Hugging Face checkpoint; None for others."""
    match = BLOCK.fullmatch(name)
    stem = STEMS.get(match[2]) if match else None
    return f"blk.{match[1]}.{stem}.{match[3]}" if match and stem else None


def read_overlay_tensors(path: str | Path, rename: Callable[[str], str | None], values: bool = True) -> dict[str, Any]:
    """Tensors of a file, or of all files of a directory, by the GGUF names that ``rename`` gives them; None: not read.

    values: False gives tensors on the device ``meta``, of names, shapes and types alone. Raises UsageError.
    """
    tensors: dict[str, Tensor] = {}
    for file, name, tensor in _tensors(Path(path), values, lambda stored: rename(stored) is not None):
        own = rename(name)
        assert own is not None
        if own in tensors:
            raise _damage(file, f"two of its tensors are {own!r}")
        tensors[own] = _check_tensor(file, name, tensor)
    if not tensors:
        raise UsageError(f"{path}: no tensor of an overlay is in it", hint="name the file or directory of the weights")
    return tensors


def read_adapter(folder: str | Path, values: bool = True) -> dict[str, LowRank]:
    """The pairs of a LoRA adapter by GGUF names, from ``adapter_config.json`` and ``adapter_model.safetensors``.

    values: see ``read_overlay_tensors``. Raises UsageError for an adapter that is no plain LoRA, and for a tensor that
    belongs to no pair.
    """
    folder = Path(folder)
    scale, pairs = _adapter_scale(folder / CONFIG), {}
    halves: dict[str, dict[str, Tensor]] = {}
    for file, name, tensor in _tensors(folder / ADAPTER, values, lambda stored: True):
        match = PAIR.fullmatch(name)
        own = block_tensor_name(f"{match[1]}.weight") if match else None
        if match is None or own is None:
            raise _damage(file, f"tensor {name[:80]!r} is not half of a pair for a matrix of a block")
        if match[2] in halves.setdefault(own, {}):
            raise _damage(file, f"two of its tensors are {match[2]} of {own!r}")
        halves[own][match[2]] = _check_tensor(file, name, tensor)
    for own, half in halves.items():
        if len(half) < 2:
            raise _damage(folder / ADAPTER, f"of the pair for {own!r} it has {min(half)} alone")
        try:
            pairs[own] = LowRank(half["A"], half["B"], scale)
        except ValueError as error:
            raise _damage(folder / ADAPTER, f"{own!r}: {error}") from error
    if not pairs:
        raise _damage(folder / ADAPTER, "it has no pair")
    return pairs


def _adapter_scale(path: Path) -> float:
    """alpha / r, or alpha / sqrt(r) where the config says so."""
    config = _read_config(path)
    if config.get("peft_type") != "LORA":
        raise _damage(path, f"peft_type is {str(config.get('peft_type'))[:40]!r}, 'LORA' was needed")
    for name, neutral in NEUTRAL.items():
        if config.get(name, neutral) not in (neutral, None):
            raise _damage(path, f"{name} is {str(config[name])[:40]!r}; {neutral!r} is possible")
    rank: Any = config.get("r")
    alpha: Any = config.get("lora_alpha")
    if type(rank) is not int or rank < 1 or type(alpha) not in (int, float) or not math.isfinite(alpha):
        raise _damage(path, f"r is {str(rank)[:40]} and lora_alpha {str(alpha)[:40]}, positive numbers were needed")
    return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") is True else rank)


def _read_config(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > CONFIG_BYTES_MAX:
            raise _damage(path, f"it has more than {CONFIG_BYTES_MAX} bytes")
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: {error}", hint="name the folder of an adapter") from error
    if not isinstance(config, dict):
        raise _damage(path, "it is not an object")
    return config


def _tensors(path: Path, values: bool, is_wanted: Callable[[str], bool]) -> Iterator[tuple[Path, str, Tensor]]:
    """File, name and tensor of every wanted tensor of a file, or of all files of a directory."""
    from safetensors import SafetensorError, safe_open

    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    for file in files:
        try:
            with safe_open(file, "pt") as opened:
                for name in filter(is_wanted, opened.keys()):
                    yield file, name, opened.get_tensor(name) if values else _shape_alone(opened.get_slice(name))
        except (OSError, SafetensorError) as error:
            raise UsageError(f"{file}: {error}", hint="get the file again") from error


def _shape_alone(entry: Any) -> Tensor:
    """A tensor without values. One of a type that torch calls otherwise becomes bytes, which are refused."""
    types = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    types |= {"I64": torch.int64, "I32": torch.int32}
    return torch.empty(entry.get_shape(), dtype=types.get(entry.get_dtype(), torch.uint8), device="meta")


def _check_tensor(file: Path, name: str, tensor: Tensor) -> Tensor:
    try:
        check_floats(name[:80], tensor)
    except ValueError as error:
        raise _damage(file, str(error)) from error
    if tensor.dim() not in (1, 2) or not tensor.numel():
        raise _damage(file, f"tensor {name[:80]!r} has shape {list(tensor.shape)}, a matrix or vector was needed")
    return tensor


def _damage(file: Path, problem: str) -> UsageError:
    return UsageError(f"{file}: {problem}", hint="use a file made for this method")
