"""Lists the source files that a decoding step enters: ``python tests/step_files.py METHOD``.

The step is one in the middle of a text, with a draft of `ngram` or `draft-model` that the target accepts in part,
on `zoo:pico` with one thread. A file counts when one of its functions is called in that step.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from spec_core import Emitted, Run, load

ROOT = Path(__file__).parent.parent
PACKAGES = (ROOT / "spec_core", ROOT / "kernels", ROOT / "plugins")
PROMPT = "def add(a, b):\n    return a + b\n\ndef add(a, b):\n    return a +"


METHODS = ("ngram", "draft-model")


def files_entered(method: str) -> list[str]:
    """The files, relative to the project, that a step of a new process enters: nothing is cached by other tests."""
    command = [sys.executable, __file__, method]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


def trace_files(method: str) -> list[str]:
    """The files in the second step with an accepted draft; the first prepares the drafter."""
    run = Run(load("zoo:pico", threads=1), [method])
    run.submit(PROMPT, max_tokens=64)
    run.step()
    accepted = 0
    while run.busy:
        events, files = _trace_step(run)
        accepted += any(event.source for event in events)
        if accepted == 2:
            return sorted(file.relative_to(ROOT).as_posix() for file in files)
    raise AssertionError("fewer than two drafts were accepted")


def _trace_step(run: Run) -> tuple[list[Emitted], list[Path]]:
    names = set()

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            names.add(frame.f_code.co_filename)

    before = sys.getprofile()
    gc.disable()  # finalizers of other tests are no part of a step
    sys.setprofile(look)
    try:
        events = run.step()
    finally:
        sys.setprofile(before)
        gc.enable()
    return events, [path for path in map(Path, names) if any(path.is_relative_to(folder) for folder in PACKAGES)]


def of_the_core(files: list[str]) -> list[str]:
    """Source files of ``spec_core``."""
    return [file for file in files if file.startswith("spec_core/")]


if __name__ == "__main__":
    print(json.dumps(trace_files(sys.argv[1])))
