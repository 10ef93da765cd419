"""Requests made from the server's OpenAPI description by schemathesis: every answer must be one that it describes.

``python tests/campaigns/openapi.py [-m MODEL] [--cases 5000] [--seed 1]``

Cases are divided among all operations; half of them have bodies that do not fit. The exit code is 1 where the status,
type or form of an answer is not in the description, or a body that does not fit is accepted.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.openapi import describe_server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", default="zoo:pico")
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with describe_server(args.model) as server:
        server.send_generated(args.cases, args.seed)
    statuses = {"statuses": dict(server.statuses), "failures": server.failures}
    print(json.dumps({"model": args.model, "cases": server.statuses.total(), **statuses}))
    sys.exit(bool(server.failures))


if __name__ == "__main__":
    main()
