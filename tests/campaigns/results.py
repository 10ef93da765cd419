"""Changed results: no command that reads them ends with a traceback or commands the terminal.

``python tests/campaigns/results.py --trials 1536 --seed 0`` changes the results of a small comparison that many times,
and prints what each command did wrong, most frequent first. Exit code 1 if anything was.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from spec_cli.main import run_command
from spec_compare.records.reading import LAPS

from tests.support.changed_results import change_lines, faults, write

COMMAND = (
    "compare -m zoo:pico --method ngram --method ngram+draft-model --method recycling --control auto -n 12 --limit 1 "
    "--repeats 2 --no-bounds --trace --threads 1 --out whole"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1536)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng, counts, examples = random.Random(options.seed), Counter[str](), dict[str, str]()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        assert run_command(COMMAND.split()) == 0
        lines = [json.loads(line) for line in Path("whole", LAPS).read_text("utf-8").splitlines()]
        for _ in range(options.trials):
            new, changes = change_lines(lines, rng)
            write(new, Path("changed"))
            for fault in faults(Path("changed"), Path("whole")):
                counts[fault] += 1
                examples.setdefault(fault, changes)
    for fault, times in counts.most_common():
        print(f"{times:5} {fault}\n      {examples[fault]}")
    print(f"{options.trials} changed results, {sum(counts.values())} faults of {len(counts)} kinds")
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main())
