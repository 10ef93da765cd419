"""Load with clients that behave badly, a plugin that raises and a forward that raises, and SIGTERM at the end.

``python tests/campaigns/faults.py [-m MODEL] [--minutes 30] [--seed 1]``

All the time clients send whole requests too: each of their texts must be that of a run alone, or end with an error that
says that a forward failed. At the end nothing may run, memory may be 5 % more than after a fifth of the time, and
requests that run when SIGTERM comes must end. The exit code is 1 where one of this is not so.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.faults import Load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", default="zoo:pico")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    summary: dict[str, Any] = Load(args.model, 60 * args.minutes, args.seed).run()
    print(json.dumps(summary, ensure_ascii=False))
    sys.exit(bool(summary["wrong"]))


if __name__ == "__main__":
    main()
