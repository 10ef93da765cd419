"""Launches of kernels, and dependent launches: a kernel starts while the one before it ends.

Every kernel first lets its successor start (``start_next``), then reads what no kernel of a step writes, weights and
the description of the step, and then waits for the memory of its predecessor (``wait_for_previous``). Each one must
wait, or a kernel two places later could start too early. Needs compute capability 9.0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from spec_kernels.ops.device_function import INTERPRETED, device_function

ROWS = 64 if INTERPRETED else 1
"""Rows of a program that computes whole rows: the interpreter runs few large programs faster."""
_alone = ContextVar("alone", default=False)
DEPENDENT_CAPABILITY = 90
"""The lowest compute capability, times 10, with dependent launches."""


@functools.cache
def capability() -> int:
    """Compute capability of the current device, times 10; 0 in the interpreter."""
    if INTERPRETED:
        return 0
    target = triton.runtime.driver.active.get_current_target()
    return int(target.arch)


def launch_options(warps: int, stages: int = 2, fuse: bool = True, registers: int | None = None) -> dict[str, Any]:
    """Keyword arguments of a launch. fuse: a product and a sum may become one rounding. registers: max of a thread.

    The constant ``DEPENDENT`` of a kernel is among them.
    """
    dependent = capability() >= DEPENDENT_CAPABILITY and not _alone.get()
    options: dict[str, Any] = {"num_warps": warps, "num_stages": stages, "DEPENDENT": dependent}
    if registers is not None:
        options["maxnreg"] = registers
    if not fuse:
        options["enable_fp_fusion"] = False
    return options | ({"launch_pdl": True} if dependent else {})


def run_alone(launch: Callable[[], None]) -> None:
    """Launch a kernel that starts when the one before has ended: the one before writes what later ones read early."""
    token = _alone.set(True)
    try:
        launch()
    finally:
        _alone.reset(token)


def on_device(device: torch.device) -> AbstractContextManager[Any]:
    """Launches within it are on this device."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def exact_precision(dtype: torch.dtype) -> str:
    """``input_precision`` of products: float32 operands are not rounded to tf32."""
    return "ieee" if dtype == torch.float32 else "tf32"


@device_function
def start_next(DEPENDENT: tl.constexpr):
    """Let programs of the next kernel start when there is room for them."""
    if DEPENDENT:
        gdc_launch_dependents()


@device_function
def wait_for_previous(DEPENDENT: tl.constexpr):
    """Wait for the memory of the kernel before, and so of all kernels before it."""
    if DEPENDENT:
        gdc_wait()


@device_function
def prefetch(lines, DEPENDENT: tl.constexpr):
    """Read 128-byte lines at these addresses into the second-level cache."""
    if DEPENDENT:
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [lines], dtype=tl.int32, is_pure=False, pack=1
        )
