"""Native code is optional: without a compiler everything runs on the references, and says so.

The choice of a token is the core's own extension, forwards are that of the kernels: neither knows the other.

``SPEC_PURE=1`` leaves it out, for a wheel that serves every machine.
"""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Extension, setup

FLAGS = ["-std=gnu11", "-O3", "-g0", "-ffp-contract=off", "-fno-math-errno", "-pthread"]
"""No -march: instruction sets are chosen at run time. No contraction: all of them give equal bits. -g0: what
Python's own flags ask for, debug information, is ten times as large as the code."""


NO_TRAPS = "-fno-trapping-math"
"""Nobody looks at floating-point exceptions: loops that convert or compare numbers may become vectors."""
NO_WRAP = "-fno-wrapv"
"""Python's own flags let integers wrap around, and then loops over blocks of a row do not become vectors."""


def extension(name: str, folder: Path, *flags: str) -> Extension:
    """All C of a folder as one module."""
    return Extension(
        name,
        sources=sorted(str(path) for path in folder.rglob("*.c")),
        depends=sorted(str(path) for kind in ("*.h", "*.inc") for path in folder.rglob(kind)),
        include_dirs=[str(folder)],
        extra_compile_args=[*FLAGS, *flags],
        extra_link_args=["-pthread", "-lm"],
        py_limited_api=True,
        optional=True,
    )


extensions = [
    extension("spec_kernels.native._native", Path("kernels/spec_kernels/native")),
    extension("spec_core.sampling.native._choice", Path("spec_core/sampling/native"), NO_TRAPS, NO_WRAP),
]
pure = os.environ.get("SPEC_PURE") == "1"
setup(ext_modules=[] if pure else extensions, options={} if pure else {"bdist_wheel": {"py_limited_api": "cp311"}})
