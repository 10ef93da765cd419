"""Random models of families with windows against transformers, for long: python tests/campaigns/families.py [COUNT]

Every model has unfriendly sizes, and is read as a directory and as a GGUF file, by both executors.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.targets.test_windowed import differences
from tests.targets.windowed import FAMILIES


def main(count: int) -> int:
    far = 0
    for family in FAMILIES:
        most = 0.0
        for seed in range(count):
            with tempfile.TemporaryDirectory() as folder:
                found = differences(family, seed, Path(folder))
            most = max(most, *found.values())
            if max(found.values()) > 4:
                far += 1
                print(f"{family}, seed {seed}: {found} times the rounding floor")
        print(f"{family}: {count} models, max {most:.2f} times the rounding floor", flush=True)
    return far > 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
