"""A comparison of 60 laps, killed with SIGKILL at random moments and started again.

    python tests/campaigns/kills.py --kills 10 --seed 1

The results must be those of an undisturbed comparison: each lap once, every text token for token, all counts of the
summary. The comparison is that of tests/compare/test_continue.py with 60 laps. Prints one JSON object; the exit code is
1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from spec_core.lazy import call_before_torch  # noqa: E402

call_before_torch()

from spec_compare.records.reading import read_results  # noqa: E402

from tests.compare.test_continue import COMMAND, TOML  # noqa: E402
from tests.support import kills  # noqa: E402

PROMPTS = 15
"""Prompts of four contenders: 60 laps in one repeat."""
PAUSE = 0.05
"""Seconds after each lap."""
STRIDE = 9
"""Max lines between two kills: ten kills are spread over most of the 60 laps."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    command = [*COMMAND[: COMMAND.index("--repeats")], "--no-bounds", "--out", "out"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prompts = (
            {"id": str(i), "family": "fg"[i % 2], "prompt": "HELLO AND HELLO"[: 4 + i % 9]} for i in range(PROMPTS)
        )
        (folder / "p.jsonl").write_text("\n".join(map(json.dumps, prompts)))
        (folder / "c.toml").write_text(TOML)
        subprocess.run(
            kills.command(command, 0.0), cwd=folder, check=True, capture_output=True, env=kills.environment()
        )
        (folder / "out").rename(folder / "whole")
        lines = kills.killed_and_continued(command, folder, args.kills, random.Random(args.seed), PAUSE, STRIDE)
        whole, continued = read_results(folder / "whole"), read_results(folder / "out")
        report = {
            "laps": continued.header.laps,
            "lines_after_each_kill": lines,
            "sessions": len(continued.sessions),
            "each_lap_once": [lap.number for lap in continued.laps] == list(range(continued.header.laps)),
            "same_texts": kills.texts(continued) == kills.texts(whole),
            "same_counts": kills.counts(folder / "out") == kills.counts(folder / "whole"),
        }
    print(json.dumps(report))
    return 0 if report["each_lap_once"] and report["same_texts"] and report["same_counts"] else 1


if __name__ == "__main__":
    sys.exit(main())
