"""Native code is optional: without a compiler everything runs on the references, and says so.

The choice of a token is the core's own extension, forwards are that of the kernels, and reading vocabularies is that of
the targets: none knows another.

``SPEC_PURE=1`` leaves it out, for a wheel that serves every machine.

An editable install also gets a list of the folders of the packages: setuptools finds them by code that runs at import,
and type checkers run none.
"""

from __future__ import annotations

import base64
import hashlib
import os
import tomllib
import zipfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.editable_wheel import editable_wheel

ROOT = Path(__file__).resolve().parent
FOLDERS = "__editable__.spec_core.folders.pth"
"""The file in site-packages that Python, mypy and pyright read."""

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


class EditableWheel(editable_wheel):
    """The wheel of ``pip install -e``, with the folders of the packages by name."""

    def run(self) -> None:
        super().run()
        [wheel] = Path(self.dist_dir).glob("spec_core-*editable*.whl")
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
        folders = project["tool"]["setuptools"]["packages"]["find"]["where"]
        add_file(wheel, FOLDERS, "".join(f"{(ROOT / folder).resolve()}\n" for folder in folders))


def add_file(wheel: Path, name: str, text: str) -> None:
    """Add a file to a wheel, and to the list of its files."""
    with zipfile.ZipFile(wheel) as old:
        contents = {entry: old.read(entry) for entry in old.infolist()}
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as new:
        new.writestr(name, text)
        for entry, content in contents.items():
            listed = entry.filename.endswith(".dist-info/RECORD")
            line = f"{name},sha256={digest},{len(text.encode())}\n".encode() if listed else b""
            new.writestr(entry, line + content)


extensions = [
    extension("spec_kernels.native._native", Path("kernels/spec_kernels/native")),
    extension("spec_core.sampling.native._choice", Path("spec_core/sampling/native"), NO_TRAPS, NO_WRAP),
    extension("spec_targets.formats.native._vocabulary", Path("plugins/models/spec_targets/formats/native")),
]
pure = os.environ.get("SPEC_PURE") == "1"
setup(
    ext_modules=[] if pure else extensions,
    options={} if pure else {"bdist_wheel": {"py_limited_api": "cp311"}},
    cmdclass={"editable_wheel": EditableWheel},
)
