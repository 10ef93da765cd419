"""The executors on this machine, for ``spec env``."""

from __future__ import annotations

import torch

from spec_kernels import native
from spec_kernels.gpu import support
from spec_kernels.model import tiles
from spec_kernels.native.activations import ALLOWED, NOISE, by_types

REFERENCE = "reference (plain torch) on cpu, and on cuda if asked for"


def kernels() -> str:
    """Executors in use, and the reasons."""
    if native.problem():
        floats = f"no native forward: {native.problem()}; quantised blocks become floats at load"
        return f"{REFERENCE}; {floats}; {gpu_forward()}"
    best, *others = native.instruction_sets()
    equal = f"; equal bits with {', '.join(others)}" if others else ""
    return (
        f"native on cpu in float32 ({best}{equal}), weights stay as stored "
        f"({', '.join(native.TYPES[:-1])}; others become F32, which a model's own line says); "
        f"else {REFERENCE}; {gpu_forward()}"
    )


def gpu_forward() -> str:
    """Whether dense models run as captured programs, and in which types."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    types = [str(dtype).removeprefix("torch.") for dtype in support.DTYPES if support.problem(device, dtype) is None]
    if not types:
        return f"no gpu forward: {support.problem(device, torch.float32)}"
    captured = "captured as graphs" if device.type == "cuda" else "in triton's interpreter, not captured"
    return f"gpu on {device.type} for dense models in {', '.join(types)}, steps {captured}"


def activations() -> str:
    """The rule that chooses the activation bits of native products with quantised weights."""
    if native.problem():
        return "floats: nothing runs natively"
    small = [type for type in NOISE if by_types({type: 1}).name == "int8"]
    rest = [type for type in NOISE if type not in small]
    return (
        f"auto: int8 where it adds at most {ALLOWED:.0%} of the noise of the weights' own rounding (weights in "
        f"{', '.join(small)}), else int15 ({', '.join(rest)}); mixed files by their weights of each type, a model's "
        "own line says which; -o activations=int15 or int8 forces one"
    )


def exactness() -> str:
    """Whether a row has the same bits in every batch."""
    native_part = "" if native.problem() else "native: yes, on any number of threads and every instruction set; "
    return f"{native_part}reference: {tiles.in_use()}"
