"""The native forward is an optional extension: without a compiler everything runs on the reference, and says so.

``SPEC_PURE=1`` leaves it out, for a wheel that serves every machine.
"""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("kernels/spec_kernels/native")
FLAGS = ["-std=gnu11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-pthread"]
"""No -march: instruction sets are chosen at run time. No contraction: all of them give equal bits."""

extension = Extension(
    "spec_kernels.native._native",
    sources=sorted(str(path) for path in NATIVE.glob("*.c")),
    depends=sorted(str(path) for kind in ("*.h", "*.inc") for path in NATIVE.glob(kind)),
    extra_compile_args=FLAGS,
    extra_link_args=["-pthread"],
    py_limited_api=True,
    optional=True,
)
pure = os.environ.get("SPEC_PURE") == "1"
setup(ext_modules=[] if pure else [extension], options={} if pure else {"bdist_wheel": {"py_limited_api": "cp311"}})
