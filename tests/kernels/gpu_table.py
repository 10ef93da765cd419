"""Resources of compiled kernels: of every launch of a decoding step, for cards that need not be there.

``compile_for_gpu.py --table FILE`` writes them. Programs of a multiprocessor follow from registers, shared memory and
warps; instructions a weight are counted in the loop of a product, in the disassembly of triton's own tools.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import triton
from spec_kernels.gpu.executor import Gpu
from spec_kernels.gpu.layout import Size
from spec_kernels.gpu.repack import Matrix

from benchmarks.dense_shapes import QWEN3_8B, RandomWeights, dense_model

TYPES = "BF16", "Q8_0", "Q4_0", "Q4_K", "Q6_K", "MXFP4"
CARDS = 80, 89, 90, 120
ROWS = 1, 16
"""Rows of a step: of up to 16 rows all have the same tiles."""
PIECES = 8
"""Pieces of attention: a context of up to 1,024 positions."""
TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"


@dataclass(frozen=True)
class Limits:
    """Limits of a multiprocessor: threads, programs, bytes of shared memory; bytes that a program may have."""

    threads: int
    programs: int
    shared: int
    program_shared: int


LIMITS = {
    80: Limits(2048, 32, 164 << 10, 163 << 10),
    89: Limits(1536, 24, 100 << 10, 99 << 10),
    90: Limits(2048, 32, 228 << 10, 227 << 10),
    120: Limits(1536, 24, 100 << 10, 99 << 10),
}
"""By compute capability, from NVIDIA's programming guide."""
REGISTERS = 65536
RESERVED = 1024
"""Bytes of shared memory that the system takes of every program."""


class LikeBlocks(RandomWeights):
    """Weights of Qwen3-8B's shape without memory: matrices of one type."""

    def __init__(self, kind: str) -> None:
        super().__init__(replace(QWEN3_8B, layers=1), torch.bfloat16, "meta")
        self.kind = kind

    def type(self, name: str) -> str:
        return "F32" if len(self.shape(name)) == 1 else self.kind

    def blocks(self, name: str) -> torch.Tensor:
        from spec_kernels.ops.dequant import TYPES as STORED

        n, k = self.shape(name)
        return torch.empty(n, STORED[self.kind].row_bytes(k), dtype=torch.uint8, device="meta")


class Recorder:
    """Stands for ``JITFunction.run``: compiles, and keeps every launch with its name. name: of the next launches."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run, self.name = run, ""
        self.launches: list[tuple[str, str, tuple[int, ...], Any, dict[str, Any]]] = []

    def function(self) -> Callable[..., Any]:
        """The replacement of ``JITFunction.run``."""

        def compile_kernel(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            binary = self.run(kernel, *args, grid=grid, warmup=True, **kwargs)
            constants = dict(zip(kernel.arg_names, args, strict=False))
            self.launches.append((self.name, kernel.__name__, tuple(grid), binary, constants))
            return binary

        return compile_kernel


def table_rows(recorder: Recorder, kind: str, rows: int, card: int) -> list[dict[str, Any]]:
    """Resources of every kernel of a layer, of what comes before it and behind it; in order, equal ones once."""
    source = LikeBlocks(kind)
    with patch.object(Matrix, "write", lambda *_: None):
        executor = Gpu(dense_model(source.of, source), source, torch.bfloat16, torch.device("meta"), 4096)
    program = executor.program(Size(rows, 1, PIECES, -1, -1, False), frozenset({"logits"}))
    recorder.launches.clear()
    for recorder.name, launch in program.launches:
        launch()
    described = [describe_launch(*launch, card) for launch in recorder.launches]
    return [row for at, row in enumerate(described) if row not in described[:at]]


def describe_launch(
    name: str, kernel: str, grid: tuple[int, ...], binary: Any, constants: dict[str, Any], card: int
) -> dict[str, Any]:
    """Resources of one launch."""
    usage = resource_usage(binary.asm["cubin"])
    warps, shared = binary.metadata.num_warps, binary.metadata.shared
    fits = programs_fitting(LIMITS[card], warps, usage["registers"], shared)
    row = {"launch": name, "kernel": kernel, "grid": list(grid), "warps": warps, **usage, "shared": shared}
    row["programs per multiprocessor"] = fits
    if "INPUTS" in constants:
        weights = constants["OUTPUTS"] * constants["INPUTS"] * (2 if constants.get("PAIR") else 1)
        loop = count_loop(disassemble(binary.asm["cubin"]))
        row["instructions a weight"] = round(loop * warps * 32 / weights, 2)
    return row


def programs_fitting(limits: Limits, warps: int, registers: int, shared: int) -> int:
    """Programs that a multiprocessor runs at once; 0: none."""
    if shared > limits.program_shared:
        return 0
    threads = 32 * warps
    by_registers = REGISTERS // (-(-registers // 8) * 8 * threads)
    return min(by_registers, limits.shared // (shared + RESERVED), limits.threads // threads, limits.programs)


@functools.cache
def resource_usage(cubin: bytes) -> dict[str, int]:
    """Registers of a thread, and bytes of it that lie in memory instead."""
    text = run_tool("cuobjdump", "-res-usage", cubin)
    usage = {name: int(value) for name, value in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", text)}
    return {"registers": usage["REG"], "spilled": usage["STACK"] + usage["LOCAL"]}


@functools.cache
def disassemble(cubin: bytes) -> str:
    return run_tool("cuobjdump", "-sass", cubin)


def run_tool(tool: str, option: str, cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(TOOLS / tool), option, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def count_loop(code: str) -> float:
    """Instructions of the longest loop that holds no other; NaN without one."""
    lines = re.findall(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", code, re.M)
    at = {int(address, 16): number for number, (address, _) in enumerate(lines)}
    loops = list(loops_of(lines, at))
    inner = [a for a in loops if not any(b != a and b[0] >= a[0] and b[1] <= a[1] for b in loops)]
    if not inner:
        return float("nan")
    begin, end = max(inner, key=lambda loop: loop[1] - loop[0])
    return sum(not re.match(r"(@!?U?P\w+\s+)?NOP", text) for _, text in lines[begin : end + 1])


def loops_of(lines: list[tuple[str, str]], at: dict[int, int]) -> Iterator[tuple[int, int]]:
    """The first and the last line of every loop."""
    for number, (address, text) in enumerate(lines):
        jump = re.search(r"\bBRA(?:\.\w+)*\s+(?:!?U?P\w+,\s*)?0x([0-9a-f]+)", text)
        if jump and int(jump[1], 16) < int(address, 16) and int(jump[1], 16) in at:
            yield at[int(jump[1], 16)], number


def format_table(facts: dict[str, Any]) -> str:
    """JSON with a kernel in every line."""
    marked = json.dumps(facts, indent=1, default=str)
    return re.sub(r"\{\s+\"launch\".*?\}", lambda row: re.sub(r"\s+", " ", row[0]), marked, flags=re.S) + "\n"
