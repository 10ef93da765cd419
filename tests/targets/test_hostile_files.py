"""Hostile files: a changed file is read or refused in one line, in bounded time and memory."""

from __future__ import annotations

import json
import os
import random
import resource
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from spec_targets.formats.gguf import open_gguf
from spec_targets.formats.safetensors import open_directory, open_safetensors

from spec_core import SpecError
from tests.support.small_models import tiny_gguf

MUTATIONS = 2500
MAX_SECONDS = 20
"""Max seconds for one file of some kilobytes, a thousand times its needs: a number believed from a header takes for
ever."""


@pytest.fixture(scope="module")
def gguf_bytes() -> bytes:
    return tiny_gguf(0).read_bytes()


@pytest.fixture(scope="module")
def safetensors_bytes(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("st") / "model.safetensors"
    save_file({"a": torch.randn(8, 6), "b": torch.arange(5), "c": torch.randn(3).bfloat16()}, path)
    return path.read_bytes()


def read_gguf(path: Path) -> None:
    for tensor in open_gguf(path).tensors.values():
        tensor.bytes()[..., :1].sum()


def read_safetensors(path: Path) -> None:
    for tensor in open_safetensors(path).values():
        tensor.load()


READERS = {"gguf": read_gguf, "safetensors": read_safetensors}


def survives(reader, data: bytes, path: Path) -> None:
    """The file is read, or refused with a SpecError, without work beyond its size."""
    path.write_bytes(data)
    began = time.process_time()
    try:
        reader(path)
    except SpecError as error:
        assert error.hint
        assert "\n" not in error.reason
    assert time.process_time() - began < MAX_SECONDS


def header_of(kind: str, data: bytes) -> int:
    """Bytes where a change can hurt: metadata and descriptions."""
    return len(data) if kind == "safetensors" else data.find(b"blk.1.ffn_up.weight") + 200


@pytest.mark.slow
@pytest.mark.parametrize("kind", READERS)
def test_bit_flips_and_overwritten_bytes(kind, gguf_bytes, safetensors_bytes, tmp_path):
    """Thousands of random changes in header and descriptions."""
    data = {"gguf": gguf_bytes, "safetensors": safetensors_bytes}[kind]
    rng, end = random.Random(0), header_of(kind, data)
    for _ in range(MUTATIONS):
        changed = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 8])):
            at = rng.randrange(min(end, 400) if rng.random() < 0.3 else end)
            changed[at] = rng.choice([0, 255, 127, 128, changed[at] ^ (1 << rng.randrange(8)), rng.randrange(256)])
        survives(READERS[kind], bytes(changed), tmp_path / f"m.{kind}")


@pytest.mark.parametrize("kind", READERS)
def test_truncation_anywhere(kind, gguf_bytes, safetensors_bytes, tmp_path):
    data = {"gguf": gguf_bytes, "safetensors": safetensors_bytes}[kind]
    end = header_of(kind, data)
    for length in [*range(min(end, 600)), *range(600, end, 97), len(data) - 1]:
        survives(READERS[kind], data[:length], tmp_path / f"m.{kind}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", READERS)
def test_hostile_numbers_anywhere(kind, gguf_bytes, safetensors_bytes, tmp_path):
    """Huge counts, lengths, shapes and offsets in place of any eight bytes of the header."""
    data = {"gguf": gguf_bytes, "safetensors": safetensors_bytes}[kind]
    rng, end = random.Random(1), header_of(kind, data)
    values = [0, 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1, len(data), len(data) - 8]
    for _ in range(MUTATIONS // 2):
        at = rng.choice([8, 16]) if rng.random() < 0.1 else rng.randrange(end - 8)
        changed = bytearray(data)
        changed[at : at + 8] = struct.pack("<Q", rng.choice(values))
        survives(READERS[kind], bytes(changed), tmp_path / f"m.{kind}")


def gguf(
    pairs: bytes = b"", n_pairs: int = 0, infos: bytes = b"", n_infos: int = 0, data: bytes = b"", version: int = 3
) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, n_infos, n_pairs) + pairs + infos
    return head + b"\0" * (-len(head) % 32) + data


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def info(name: str, shape: list[int], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}QIQ", *shape, kind, offset)


DEEP = text("a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 200 + struct.pack("<IQ", 4, 0)
HOSTILE_GGUF = {
    "overlapping tensors": gguf(b"", 0, info("a", [8], 0, 0) + info("b", [8], 0, 0), 2, b"\0" * 64),
    "the same tensor twice": gguf(b"", 0, info("a", [8], 0, 0) + info("a", [8], 0, 32), 2, b"\0" * 64),
    "a tensor of no elements": gguf(b"", 0, info("a", [0], 0, 0), 1, b"\0" * 64),
    "five dimensions": gguf(b"", 0, info("a", [1] * 5, 0, 0), 1, b"\0" * 64),
    "an unknown type": gguf(b"", 0, info("a", [8], 42, 0), 1, b"\0" * 64),
    "a product that overflows": gguf(b"", 0, info("a", [2**32, 2**32, 2**32], 0, 0), 1, b"\0" * 64),
    "an offset that is not aligned": gguf(b"", 0, info("a", [8], 0, 3), 1, b"\0" * 64),
    "an offset past the end": gguf(b"", 0, info("a", [8], 0, 2**40), 1, b"\0" * 64),
    "a row that is no block": gguf(b"", 0, info("a", [33], 8, 0), 1, b"\0" * 64),
    "arrays in arrays in arrays": gguf(DEEP, 1),
    "an array of four billion": gguf(text("a") + struct.pack("<IIQ", 9, 4, 2**32), 1),
    "an unknown value type": gguf(text("a") + struct.pack("<I", 13), 1),
    "a key twice": gguf((text("a") + struct.pack("<IB", 7, 1)) * 2, 2),
    "a key that is not a text": gguf(struct.pack("<Q", 2) + b"\xff\xfe" + struct.pack("<IB", 7, 1), 1),
    "an alignment of three": gguf(text("general.alignment") + struct.pack("<II", 4, 3), 1),
    "an alignment of four billion": gguf(text("general.alignment") + struct.pack("<II", 4, 2**32 - 1), 1),
    "an old version": gguf(version=1),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "nothing": b"",
    "another format": b"PK\3\4" + b"\0" * 100,
    "a shard whose name says nothing": gguf(text("split.count") + struct.pack("<IH", 2, 3), 1),
}


@pytest.mark.parametrize("name", HOSTILE_GGUF)
def test_hostile_gguf_is_refused(name, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(HOSTILE_GGUF[name])
    with pytest.raises(SpecError):
        read_gguf(path)


def header(value: object) -> bytes:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack("<Q", len(raw)) + raw


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
HOSTILE_SAFETENSORS = {
    "a header of 2^63 bytes": struct.pack("<Q", 2**63) + b"{}",
    "deep nesting": header(b'{"a":' * 5000 + b"1" + b"}" * 5000),
    "no object": header([1, 2]),
    "no UTF-8": header(b"\xff\xff"),
    "the same name twice": header(b'{"a":' + json.dumps(ENTRY).encode() + b',"a":' + json.dumps(ENTRY).encode() + b"}")
    + b"\0" * 8,
    "an unknown dtype": header({"a": ENTRY | {"dtype": "F31"}}) + b"\0" * 8,
    "a dtype that is not a text": header({"a": ENTRY | {"dtype": [1]}}) + b"\0" * 8,
    "a negative size": header({"a": ENTRY | {"shape": [-2]}}) + b"\0" * 8,
    "a size that is not a number": header({"a": ENTRY | {"shape": ["2"]}}) + b"\0" * 8,
    "a boolean size": header({"a": ENTRY | {"shape": [True]}}) + b"\0" * 8,
    "a product that overflows": header({"a": ENTRY | {"shape": [2**40, 2**40]}}) + b"\0" * 8,
    "offsets past the end": header({"a": ENTRY | {"shape": [2**20], "data_offsets": [0, 2**22]}}) + b"\0" * 8,
    "overlapping tensors": header({"a": ENTRY, "b": ENTRY}) + b"\0" * 8,
    "a gap": header({"a": ENTRY, "b": ENTRY | {"data_offsets": [16, 24]}}) + b"\0" * 24,
    "bytes nobody owns": header({"a": ENTRY}) + b"\0" * 99,
    "an entry without shape": header({"a": {"dtype": "F32", "data_offsets": [0, 8]}}) + b"\0" * 8,
}


@pytest.mark.parametrize("name", HOSTILE_SAFETENSORS)
def test_hostile_safetensors_is_refused(name, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(HOSTILE_SAFETENSORS[name])
    with pytest.raises(SpecError):
        read_safetensors(path)


@pytest.mark.parametrize(
    "index",
    [
        {},
        {"weight_map": 3},
        {"weight_map": {"a": 1}},
        {"weight_map": {"a": "../../etc/passwd"}},
        {"weight_map": {"a": "/etc/passwd.safetensors"}},
        {"weight_map": {"a": "missing.safetensors"}},
    ],
    ids=str,
)
def test_a_hostile_index_is_refused(index, tmp_path):
    """Shards lie beside the index, exist, and hold what it says."""
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(SpecError):
        open_directory(tmp_path)


MEASURE = """
import resource, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from spec_core import SpecError, load
from spec_targets.formats.gguf import open_gguf
import torch
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sorted(Path({folder!r}).iterdir()):
    try:
        load(str(path))
    except SpecError:
        pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_loading_damaged_models_takes_little_memory(gguf_bytes, tmp_path):
    """Whole loads, tokenizer and weights included: at most the file and 300 MB more than torch itself."""
    rng = random.Random(2)
    end = header_of("gguf", gguf_bytes)
    for i in range(150):
        changed = bytearray(gguf_bytes)
        if i % 3:
            at = rng.randrange(24, end - 8)
            changed[at : at + 8] = struct.pack("<Q", rng.choice([2**31, 2**40, 2**64 - 1, 7, 0]))
        else:
            changed[rng.randrange(end)] ^= 1 << rng.randrange(8)
        (tmp_path / f"{i}.gguf").write_bytes(changed)
    script = MEASURE.format(root=os.getcwd(), folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) * 1024 < len(gguf_bytes) + 300e6
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0
