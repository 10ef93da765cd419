"""GGUF files of random models whose matrices have one type of blocks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
from spec_targets.architectures.config import Config
from torch import Tensor

from tests.native.programs import FLOATS, Drawn

Keys = Mapping[str, int | float | list[int] | list[bool]]


class OneType(Drawn):
    """Random tensors whose matrices have one type, but for those of convolutions and routers."""

    def __init__(self, config: Config, kind: str) -> None:
        self.kind = kind
        super().__init__(config, 0)

    def type(self, name: str) -> str:
        small = ("conv.weight", "conv1d", "gate_inp", "compressor_ape")
        plain = len(self.shapes[name]) == 1 or any(part in name for part in small)
        return "F32" if plain else self.kind


def write(
    config: Config,
    keys: Keys,
    kind: str,
    path: Path,
    renamed: Mapping[str, str] | None = None,
    more: Mapping[str, Tensor] | None = None,
) -> Path:
    """A file. renamed: tensors that it calls otherwise. more: tensors that are read with the metadata."""
    weights, writer = OneType(config, kind), gguf.GGUFWriter(path, config.arch)
    for key, value in keys.items():
        add = {int: writer.add_uint32, float: writer.add_float32, list: writer.add_array}[type(value)]
        add(f"{config.arch}.{key}", value)
    for name, tensor in (more or {}).items():
        writer.add_tensor(name, tensor.numpy())
    for name, shape in weights.shapes.items():
        own = (renamed or {}).get(name, name)
        if weights.type(name) in FLOATS:
            writer.add_tensor(own, weights.load(name).numpy())
        else:
            rows = weights.blocks(name).view(*shape[:-1], -1).numpy()
            writer.add_tensor(own, rows, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
