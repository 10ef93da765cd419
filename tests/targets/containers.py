"""A GGUF file as metadata and tensors that a test changes and writes again, and hostile values for its metadata."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from spec_targets.formats.gguf import open_gguf
from spec_targets.formats.types import NUMBERS

CODES = {"u8": 0, "u32": 4, "i32": 5, "f32": 6, "bool": 7, "text": 8, "array": 9, "u64": 10, "i64": 11, "f64": 12}
PACKED = {0: "B", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TYPES = {name: number for number, name in NUMBERS.items()}
NUMBERS_GIVEN = [0, 1, 2, 3, 4, 5, 7, 16, 31, 33, 64, 255, 2**15, 2**16, 2**24 - 1, 2**31 - 1]
HOSTILE: list[tuple[str, Any]] = [
    *(("u32", n) for n in NUMBERS_GIVEN),
    *(("i32", -n) for n in (1, 2, 4, 2**31)),
    *(("u64", n) for n in (2**32, 2**40, 2**63, 2**64 - 1)),
    *(("i64", -n) for n in (1, 2**40, 2**63)),
    *(("f32", x) for x in (0.0, -1.0, 2.0, 1e-30, 1e30, float("nan"), float("inf"), float("-inf"))),
    ("f64", 1e300),
    ("bool", True),
    ("bool", False),
    ("text", ""),
    ("text", "linear\n\x1b[2J"),
    ("text", "yarn"),
    ("text", "x" * 5000),
]
VALUES = [
    *HOSTILE,
    *(("array", (kind, [value] * n)) for kind, value in HOSTILE for n in (0, 1, 4, 5, 6)),
    *(("array", ("bool", list(map(bool, bits)))) for bits in ([1, 0, 1], [0, 1, 0, 1, 0], [1] * 5, [0, 0, 0, 0, 1])),
    *(("array", ("i32", ints)) for ints in ([2, -1, 2, 0, 0], [0, 1, 2, 3, 4], [1, 0] * 500)),
]


@attrs.define
class Model:
    """pairs: key -> (value type, value) in bytes. tensors: name -> [shape in torch order, type, bytes].

    offsets: what the file says of a tensor's place where that is not where its bytes are. again: names of pairs and
    tensors that are described twice.
    """

    pairs: dict[str, bytes]
    tensors: dict[str, list[Any]]
    offsets: dict[str, int] = attrs.field(factory=dict)
    again: set[str] = attrs.field(factory=set)

    def bytes(self) -> bytes:
        infos, data = b"", b""
        for name, (shape, kind, raw) in self.tensors.items():
            data += bytes(-len(data) % 32)
            place = self.offsets.get(name, len(data))
            info = text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], TYPES[kind], place)
            infos += info * (1 + (name in self.again))
            data += raw
        twice = len(self.again & set(self.tensors)), len(self.again & set(self.pairs))
        head = struct.pack("<4sIQQ", b"GGUF", 3, len(self.tensors) + twice[0], len(self.pairs) + twice[1])
        head += b"".join((text(key) + value) * (1 + (key in self.again)) for key, value in self.pairs.items()) + infos
        return head + bytes(-len(head) % 32) + data

    def copy(self) -> Model:
        return Model(dict(self.pairs), {name: list(t) for name, t in self.tensors.items()})


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def pack_typed(kind: str, value: Any) -> bytes:
    return struct.pack("<I", CODES[kind]) + pack_value(kind, value)


def pack_value(kind: str, value: Any) -> bytes:
    if kind == "array":
        inner, values = value
        return struct.pack("<IQ", CODES[inner], len(values)) + b"".join(pack_value(inner, v) for v in values)
    return text(value) if kind == "text" else struct.pack("<" + PACKED[CODES[kind]], value)


def as_stored(value: Any) -> bytes:
    """A value of an opened file; which integer type it had is not kept."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return pack_typed("array", (kind_of(value[0]), list(value)))
    return pack_typed(kind_of(value), value)


def kind_of(value: Any) -> str:
    return {bool: "bool", int: "i32", float: "f32", str: "text"}[type(value)]


def open_model(path: Path) -> Model:
    file = open_gguf(path)
    tensors = {n: [t.shape, t.type, bytes(t.buffer[t.offset : t.offset + t.nbytes])] for n, t in file.tensors.items()}
    return Model({key: as_stored(value) for key, value in file.metadata.items()}, tensors)
