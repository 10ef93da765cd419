"""A strict reader of safetensors files and of directories with an index of shards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from spec_targets.formats.damage import check_name, damage_error, unsupported_error
from spec_targets.formats.json_file import parse_json, read_json
from spec_targets.formats.mapped import map_file, view

if TYPE_CHECKING:
    from torch import Tensor

MAX_HEADER = 100 << 20
SIZES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
    "F8_E4M3": 1, "F8_E5M2": 1,
}  # fmt: skip
DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip
INDEX = "model.safetensors.index.json"


@attrs.frozen(eq=False)
class StoredTensor:
    """A tensor in a safetensors file; ``load()`` is a view of the mapped file."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    nbytes: int
    buffer: memoryview = attrs.field(repr=False)

    def load(self) -> Tensor:
        import torch

        dtype = getattr(torch, DTYPES[self.type])
        if not self.nbytes:
            return torch.empty(self.shape, dtype=dtype)
        raw = view(self.buffer, self.offset, self.nbytes)
        if self.offset % dtype.itemsize:
            raw = raw.clone()
        return raw.view(dtype).view(self.shape)

    def blocks(self) -> Tensor:
        """The bytes of its rows, uint8 [rows, bytes of a row]; float64 as float32."""
        from spec_kernels.model.source import bytes_of

        return bytes_of(self.load().float() if self.type == "F64" else self.load())

    def whole_numbers(self) -> Tensor | None:
        """Its values, whatever their type: the reader of a mapping checks them."""
        return self.load()


def open_safetensors(path: str | Path) -> dict[str, StoredTensor]:
    """Tensors of one file by name. Raises UsageError naming the file and what is wrong with it."""
    path = Path(path)
    data = map_file(path)
    size = int.from_bytes(data[:8], "little") if len(data) >= 8 else -1
    if not 2 <= size <= min(MAX_HEADER, len(data) - 8):
        raise damage_error(path, f"says its header has {size} bytes; the file has {max(0, len(data) - 8)}")
    header = _header(path, bytes(data[8 : 8 + size]))
    return _place_tensors(path, header, data, 8 + size)


def _header(path: Path, raw: bytes) -> dict[str, Any]:
    twice: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(items)
        if len(entries) != len(items):
            twice.append("a key")
        return entries

    header = parse_json(path, raw)
    json.loads(raw, object_pairs_hook=pairs)
    if twice:
        raise damage_error(path, "a name occurs twice in its header")
    header.pop("__metadata__", None)
    return header


def _place_tensors(path: Path, header: Mapping[str, Any], data: memoryview, base: int) -> dict[str, StoredTensor]:
    """Checked tensors: known type, size equal to the shape's, inside the file, contiguous."""
    tensors = {name: _entry(path, name, entry, data, base) for name, entry in header.items()}
    end = base
    for tensor in sorted(tensors.values(), key=lambda t: (t.offset, t.nbytes)):
        if tensor.offset != end:
            raise damage_error(
                path, f"tensor {tensor.name!r} begins at {tensor.offset - base}, the one before ends at {end - base}"
            )
        end += tensor.nbytes
    if end != len(data):
        raise damage_error(path, f"its tensors have {end - base} bytes, the file has {len(data) - base}")
    return tensors


def _entry(path: Path, name: str, entry: Any, data: memoryview, base: int) -> StoredTensor:
    check_name(path, name)
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise damage_error(path, f"the entry of tensor {name!r} is not dtype, shape and data_offsets")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in SIZES:
        raise unsupported_error(
            path, f"tensor {name!r} has type {str(kind)[:40]!r}", f"known types: {', '.join(SIZES)}"
        )
    if not _naturals(shape) or len(shape) > 8 or not _naturals(offsets) or len(offsets) != 2:
        raise damage_error(path, f"tensor {name!r} has shape {str(shape)[:60]} and offsets {str(offsets)[:60]}")
    nbytes = SIZES[kind]
    for n in shape:
        nbytes *= n
    if offsets[1] - offsets[0] != nbytes or base + offsets[1] > len(data):
        raise damage_error(path, f"tensor {name!r} needs {nbytes} bytes, its offsets are {offsets}")
    return StoredTensor(name, tuple(shape), kind, base + offsets[0], nbytes, data)


def _naturals(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 1 << 48 for v in values)


def open_directory(directory: str | Path) -> dict[str, StoredTensor]:
    """Tensors of a Hugging Face directory: one file, or the shards its index names."""
    directory = Path(directory)
    if not (directory / INDEX).exists():
        return open_safetensors(directory / "model.safetensors")
    weight_map = read_json(directory / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(f, str) for f in weight_map.values()):
        raise damage_error(directory / INDEX, "has no weight_map of names")
    shards = {name: open_safetensors(_inside(directory, name)) for name in sorted(set(weight_map.values()))}
    missing = [name for name, shard in weight_map.items() if name not in shards[shard]]
    if missing:
        raise damage_error(directory / INDEX, f"tensor {missing[0][:80]!r} is not in {weight_map[missing[0]]}")
    return {name: shards[shard][name] for name, shard in weight_map.items()}


def _inside(directory: Path, name: str) -> Path:
    if Path(name).name != name or not name.endswith(".safetensors"):
        raise damage_error(directory / INDEX, f"names the shard {name[:80]!r}, which does not exist in its folder")
    return directory / name
