"""A strict reader of the GGUF container, versions 2 and 3, little-endian, one file or several shards.

Opening reads metadata and tensor descriptions; lists of texts and tensor bytes are views of the mapped file.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from spec_core.errors import SpecError
from spec_targets.formats.damage import check_name, damage_error, unsupported_error
from spec_targets.formats.mapped import map_file, view
from spec_targets.formats.native import module
from spec_targets.formats.numbers import Numbers
from spec_targets.formats.texts import Texts
from spec_targets.formats.types import BLOCKS, NUMBERS

if TYPE_CHECKING:
    from torch import Tensor

MAGIC = b"GGUF"
MAX_DIMS = 4
MAX_DEPTH = 4
"""Max nesting of arrays in metadata."""
MIN_INFO = 8 + 4 + 8 + 4 + 8
"""Min bytes of a tensor description, and of a metadata entry."""
MIN_PAIR = 8 + 4 + 1
LISTED_MAX = 4096
"""Numbers of an array that is read when the file is opened; longer arrays stay in the file."""
PIECE = 1 << 22
"""Values dequantised at a time; temporary memory is a multiple of this."""
SHARD = re.compile(r"^(.*)-(\d{5})-of-(\d{5})\.gguf$")

SCALARS: dict[int, str] = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
STRING, ARRAY = 8, 9


@attrs.frozen(eq=False)
class TensorInfo:
    """A tensor as the file describes it. shape is in torch order; bytes() is [..., row bytes] uint8."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    nbytes: int
    buffer: memoryview = attrs.field(repr=False)

    def bytes(self) -> Tensor:
        """A view of the mapped file, uint8, one row of blocks per row of the tensor."""
        elements, size = BLOCKS[self.type]
        row = self.shape[-1] // elements * size
        return view(self.buffer, self.offset, self.nbytes).view(*self.shape[:-1], row)

    def blocks(self) -> Tensor:
        """A view of the mapped file, uint8 [rows, bytes of a row]."""
        data = self.bytes()
        return data.reshape(-1, data.shape[-1])

    def load(self) -> Tensor:
        """Values as float32, dequantised."""
        import torch
        from spec_kernels.ops.dequant import dequantize

        rows = self.blocks()
        out = torch.empty(len(rows), self.shape[-1])
        step = max(1, PIECE // self.shape[-1])
        for row in range(0, len(rows), step):
            out[row : row + step] = dequantize(rows[row : row + step], self.type)
        return out.view(self.shape)

    def whole_numbers(self) -> Tensor | None:
        """A vector of int32 or int64; None if it is none."""
        import torch

        kinds = {"I64": torch.int64, "I32": torch.int32}
        if self.type not in kinds or len(self.shape) != 1:
            return None
        return self.bytes().contiguous().view(kinds[self.type])


@attrs.frozen(eq=False)
class GgufFile:
    """Metadata and tensors of a model, all shards together."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors as stored."""
        return sum(t.nbytes for t in self.tensors.values())


class Reader:
    """A cursor over a mapped file; every read is checked against its end."""

    def __init__(self, path: Path, data: memoryview) -> None:
        self.path = path
        self.data = data
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, n: int, what: str) -> memoryview:
        if n > self.left:
            raise damage_error(self.path, f"{what} of {n} bytes at {self.at}, the file has {self.left} more")
        piece = self.data[self.at : self.at + n]
        self.at += n
        return piece

    def number(self, code: str, what: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code), what))[0]

    def count(self, item_bytes: int, what: str) -> int:
        """A count of items that need at least ``item_bytes`` bytes each."""
        n = self.number("Q", what)
        if n * item_bytes > self.left:
            raise damage_error(self.path, f"{n} {what}, the file has room for {self.left // item_bytes}")
        return n

    def text(self, what: str) -> str:
        raw = self.take(self.number("Q", f"length of {what}"), what)
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError as error:
            raise damage_error(self.path, f"{what} is not UTF-8: {error.reason}") from error


def open_gguf(path: str | Path) -> GgufFile:
    """Open a model. Raises UsageError naming the file and what is wrong with it."""
    path = Path(path)
    first = _open_one(path)
    shards = first.metadata.get("split.count", 1)
    if not isinstance(shards, int) or shards <= 1:
        return first
    return _join_shards(first, shards)


def _open_one(path: Path) -> GgufFile:
    reader = Reader(path, map_file(path))
    try:
        return _read(reader)
    except (SpecError, MemoryError):
        raise
    except (struct.error, OverflowError, ValueError) as error:
        raise damage_error(path, f"cannot be parsed at byte {reader.at}: {error}") from error


def _read(reader: Reader) -> GgufFile:
    magic = bytes(reader.take(4, "magic"))
    if magic != MAGIC:
        raise unsupported_error(reader.path, f"is not a GGUF file (it begins with {magic!r})", "give a GGUF file")
    version = reader.number("I", "version")
    if version not in (2, 3):
        raise _bad_version(reader.path, version)
    tensor_count = reader.count(MIN_INFO, "tensors")
    pair_count = reader.count(MIN_PAIR, "metadata entries")
    metadata = _metadata(reader, pair_count)
    infos = [_info(reader) for _ in range(tensor_count)]
    return GgufFile(reader.path, metadata, _place_tensors(reader, infos, _alignment(reader.path, metadata)))


def _bad_version(path: Path, version: int) -> Exception:
    if version.to_bytes(4, "big")[:3] != b"\0\0\0" and int.from_bytes(version.to_bytes(4, "little"), "big") in (2, 3):
        return unsupported_error(path, "is big-endian", "convert it to little-endian (gguf-convert-endian)")
    return unsupported_error(path, f"is GGUF version {version}; supported are 2 and 3", "convert the model again")


def _metadata(reader: Reader, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(count):
        key = reader.text("metadata key")
        check_name(reader.path, key)
        if key in metadata:
            raise damage_error(reader.path, f"metadata key {key!r} occurs twice")
        metadata[key] = _value(reader, reader.number("I", f"type of {key!r}"), key, 0)
    return metadata


def _value(reader: Reader, kind: int, key: str, depth: int) -> Any:
    if kind in SCALARS:
        return reader.number(SCALARS[kind], key)
    if kind == STRING:
        return reader.text(key)
    if kind == ARRAY and depth < MAX_DEPTH:
        return _array(reader, key, depth)
    raise damage_error(reader.path, f"metadata {key!r} has value type {kind} at depth {depth}")


def _array(reader: Reader, key: str, depth: int) -> Any:
    kind = reader.number("I", f"element type of {key!r}")
    if kind in SCALARS:
        code = SCALARS[kind]
        size = struct.calcsize("<" + code)
        n = reader.count(size, f"elements of {key!r}")
        numbers = np.frombuffer(reader.take(n * size, key), dtype=np.dtype("<" + code.replace("?", "b1")[-2:]))
        return numbers.tolist() if n <= LISTED_MAX else Numbers(numbers)
    if kind == STRING:
        return _strings(reader, reader.count(8, f"texts of {key!r}"), key)
    n = reader.count(12, f"arrays in {key!r}")
    return [_value(reader, kind, key, depth + 1) for _ in range(n)]


def _strings(reader: Reader, count: int, key: str) -> Texts:
    """Several hundred thousand texts for a large vocabulary, so that their ends are read in C if possible."""
    ends = None if module is None else module.read_ends(reader.data, reader.at, count)
    if ends is None:
        return _strings_one_by_one(reader, count, key)
    texts = Texts(reader.data, reader.at, array("Q", ends))
    reader.at = texts.ends[-1] if count else reader.at
    return texts


def _strings_one_by_one(reader: Reader, count: int, key: str) -> Texts:
    """Raises UsageError for texts that do not lie in the file."""
    data, start, end = reader.data, reader.at, len(reader.data)
    unpack, ends, at = struct.Struct("<Q").unpack_from, array("Q"), start
    put = ends.append
    for _ in range(count):
        if at + 8 > end:
            raise damage_error(reader.path, f"the texts of {key!r} end early")
        (n,) = unpack(data, at)
        at += 8 + n
        if at > end:
            raise damage_error(reader.path, f"a text of {key!r} has {n} bytes, the file has {end - at + n} more")
        put(at)
    reader.at = at
    return Texts(data, start, ends)


def _alignment(path: Path, metadata: Mapping[str, Any]) -> int:
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 16 or alignment & (alignment - 1):
        raise damage_error(path, f"general.alignment is {repr(alignment)[:40]}, not a power of two up to 65536")
    return alignment


def _info(reader: Reader) -> tuple[str, tuple[int, ...], str, int]:
    """Name, shape in torch order, type and offset of one tensor."""
    name = reader.text("tensor name")
    check_name(reader.path, name)
    dims = reader.number("I", f"dimensions of {name!r}")
    if not 1 <= dims <= MAX_DIMS:
        raise damage_error(reader.path, f"tensor {name!r} has {dims} dimensions, 1 to {MAX_DIMS} are possible")
    shape = tuple(reversed([reader.number("Q", f"shape of {name!r}") for _ in range(dims)]))
    number = reader.number("I", f"type of {name!r}")
    offset = reader.number("Q", f"offset of {name!r}")
    if number not in NUMBERS:
        raise unsupported_error(
            reader.path,
            f"tensor {name!r} has type number {number}, which is unknown",
            "quantise the model to another type",
        )
    return name, shape, NUMBERS[number], offset


def _place_tensors(reader: Reader, infos: list, alignment: int) -> dict[str, TensorInfo]:
    """Tensors with checked sizes and places: inside the file, aligned, without overlap."""
    base = -(-reader.at // alignment) * alignment
    room = max(0, len(reader.data) - base)
    tensors: dict[str, TensorInfo] = {}
    for name, shape, kind, offset in infos:
        nbytes = _nbytes(reader.path, name, shape, kind, room)
        if offset % alignment or offset + nbytes > room:
            raise damage_error(
                reader.path,
                f"tensor {name!r} lies at {offset} with {nbytes} bytes; {room} are there, aligned by {alignment}",
            )
        if name in tensors:
            raise damage_error(reader.path, f"tensor {name!r} occurs twice")
        tensors[name] = TensorInfo(name, shape, kind, base + offset, nbytes, reader.data)
    _check_apart(reader.path, tensors)
    return tensors


def _nbytes(path: Path, name: str, shape: tuple[int, ...], kind: str, room: int) -> int:
    elements, size = BLOCKS[kind]
    if any(n < 1 for n in shape) or shape[-1] % elements:
        raise damage_error(
            path, f"tensor {name!r} has shape {list(shape)}; {kind} needs rows of a multiple of {elements}"
        )
    total = 1
    for n in shape:
        total *= n
    nbytes = total // elements * size
    if nbytes > room:
        raise damage_error(path, f"tensor {name!r} would have {nbytes} bytes, the file has {room}")
    return nbytes


def _check_apart(path: Path, tensors: Mapping[str, TensorInfo]) -> None:
    end, last = 0, ""
    for tensor in sorted(tensors.values(), key=lambda t: t.offset):
        if tensor.offset < end:
            raise damage_error(path, f"tensors {last!r} and {tensor.name!r} overlap")
        end, last = tensor.offset + tensor.nbytes, tensor.name


def _join_shards(first: GgufFile, shards: int) -> GgufFile:
    """All shards of a model; metadata is the first one's."""
    match = SHARD.match(first.path.name)
    if match is None or int(match[3]) != shards:
        raise damage_error(
            first.path, f"says it is one of {shards} shards, its name does not (NAME-00001-of-{shards:05}.gguf)"
        )
    tensors: dict[str, TensorInfo] = {}
    metadata = first.metadata
    for number in range(1, shards + 1):
        path = first.path.with_name(f"{match[1]}-{number:05}-of-{shards:05}.gguf")
        shard = first if path == first.path else _open_one(path)
        if number == 1:
            metadata = shard.metadata
        if twice := tensors.keys() & shard.tensors.keys():
            raise damage_error(path, f"tensor {min(twice)!r} is in two shards")
        tensors.update(shard.tensors)
    return GgufFile(first.path, metadata, tensors)
