"""Tensors of ``pytorch_model.bin``, read by a loader that executes no code of the file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
from spec_kernels.model.source import bytes_of
from torch import Tensor

from spec_core.errors import UsageError
from spec_targets.formats.damage import check_name, damage_error
from spec_targets.formats.safetensors import INDEX, StoredTensor, open_directory

PICKLED = "pytorch_model.bin"
TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64"}


@attrs.frozen(eq=False)
class LoadedTensor:
    """A tensor that is already in memory. See ``safetensors.StoredTensor``."""

    value: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def type(self) -> str:
        """Its type by the names of files; torch's name where it is no float."""
        return TYPES.get(self.value.dtype, str(self.value.dtype).removeprefix("torch."))

    def load(self) -> Tensor:
        return self.value

    def blocks(self) -> Tensor:
        return bytes_of(self.value.float() if self.type == "F64" else self.value)

    def whole_numbers(self) -> Tensor | None:
        return self.value


def open_tensors(directory: Path) -> Mapping[str, StoredTensor] | Mapping[str, LoadedTensor]:
    """Tensors by their own names; safetensors is preferred. Raises UsageError."""
    if (directory / INDEX).exists() or (directory / "model.safetensors").exists():
        return open_directory(directory)
    if (directory / PICKLED).exists():
        return load_pickled(directory / PICKLED)
    raise UsageError(
        f"{directory.name}: there is neither model.safetensors nor {PICKLED}", hint="get the directory again, whole"
    )


def load_pickled(path: Path) -> dict[str, LoadedTensor]:
    """Tensors of a pickled dictionary, read by a loader that executes no code of the file."""
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # an untrusted pickle can make the loader raise anything
        raise damage_error(path, f"cannot be read as tensors alone: {_reason(error)}") from error
    if not isinstance(tensors, dict) or not all(isinstance(name, str) for name in tensors):
        raise damage_error(path, "holds something else than tensors by name")
    for name, value in tensors.items():
        check_name(path, name)
        if (problem := _not_plain(value)) is not None:
            raise damage_error(path, f"holds {problem} under {name!r}, a dense tensor of numbers was needed")
    return {name: LoadedTensor(value) for name, value in tensors.items()}


def _reason(error: Exception) -> str:
    """The loader's message; for a file with code, without torch's advice on how to run it."""
    if code := re.search(r"GLOBAL ([\w.]+)", str(error)):
        return f"it needs {code[1][:80]}"
    return str(error).partition("\n")[0].partition(". ")[0][:120] or type(error).__name__


def _not_plain(value: Any) -> str | None:
    """The description of a value that is not a dense tensor with all values in the file, else None."""
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    if value.is_nested:
        return "a nested tensor"
    if value.is_quantized:
        return "a quantised tensor"
    if value.layout is not torch.strided:
        return f"a tensor of layout {str(value.layout).removeprefix('torch.')}"
    if value.device.type != "cpu":
        return f"a tensor on the {value.device.type} device, without numbers"
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        return f"a tensor of shape {list(value.shape)} in {value.untyped_storage().nbytes()} bytes"
    return None
