"""``python -m spec_core`` runs the program ``spec``, found by its entry point: the core imports no plugin."""

from __future__ import annotations

import sys

from spec_core.installed import read_entry_points as entry_points

DISTRIBUTION, PROGRAM = "spec-core", "spec"


def main() -> None:
    """Run the program. Exits with 1 if it is not installed."""
    scripts = entry_points(group="console_scripts", name=PROGRAM)
    command = next((script for script in scripts if script.dist and script.dist.name == DISTRIBUTION), None)
    if command is None:
        sys.exit(f"error: the program {PROGRAM} is not installed\n  install {DISTRIBUTION}: pip install {DISTRIBUTION}")
    command.load()()


if __name__ == "__main__":
    main()
