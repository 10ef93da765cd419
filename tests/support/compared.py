"""A comparison in a process of its own, with the toy plugins: ``python -m tests.support.compared SECONDS ARGUMENT...``.

SECONDS: pause after each lap, so that the process can be killed between any two of them.
"""

from __future__ import annotations

import sys
import time

import pytest

from tests.support import toy_plugins
from tests.support.ours import without_strangers


def main() -> int:
    pause, arguments = float(sys.argv[1]), sys.argv[2:]
    with without_strangers(), pytest.MonkeyPatch.context() as patch:
        toy_plugins.install(patch)
        from spec_cli.main import run_command
        from spec_compare.measuring import measure

        real = measure.lap_of

        def lap_of(*args):
            result = real(*args)
            time.sleep(pause)
            return result

        patch.setattr(measure, "lap_of", lap_of)
        return run_command(arguments)


if __name__ == "__main__":
    sys.exit(main())
