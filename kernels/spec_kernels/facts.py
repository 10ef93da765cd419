"""What executes models on this machine, in words, for ``spec env``."""

from __future__ import annotations

from spec_kernels import native
from spec_kernels.model import tiles
from spec_kernels.ops import dispatch


def kernels() -> str:
    """Which executor runs what, and why."""
    if native.problem():
        return f"{dispatch.in_use()}; no native forward: {native.problem()}; quantised blocks become floats at load"
    best, *others = native.instruction_sets()
    equal = f"; equal bits with {', '.join(others)}" if others else ""
    return (
        f"native on cpu in float32 ({best}{equal}), weights stay as they are stored "
        f"({', '.join(native.TYPES[:-1])}; others become F32, which a model's own line says); "
        f"else {dispatch.in_use()}"
    )


def activations() -> str:
    """Of native products with quantised weights: bits, and the error that they make, as ``benchmarks/numerics.py``
    found it on six quantised models."""
    if native.problem():
        return "floats: nothing runs natively"
    return (
        "int15 (root mean square of the logits' error against float64, measured on six models: 0.001 to 0.008 % of "
        "their range), or int8 for speed (0.12 to 0.92 %): -o activations=int8"
    )


def exact() -> str:
    """Whether a row has the same bits in every batch."""
    made = "" if native.problem() else "native: yes, on any number of threads and every instruction set; "
    return f"{made}reference: {tiles.in_use()}"
