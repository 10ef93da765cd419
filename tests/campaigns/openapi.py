"""Requests made from the server's OpenAPI description by schemathesis: none may be answered with a 5xx status.

``python tests/campaigns/openapi.py [-m MODEL] [--cases 5000] [--seed 1]``

It needs ``pip install schemathesis``. Cases are divided among all operations. The exit code is 1 where an answer has a
status of 500 or more, or is no JSON where JSON is said.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.openapi import count_statuses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", default="zoo:pico")
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    statuses, wrong = count_statuses(args.model, args.cases, args.seed)
    print(json.dumps({"model": args.model, "cases": sum(statuses.values()), "statuses": statuses, "wrong": wrong}))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
