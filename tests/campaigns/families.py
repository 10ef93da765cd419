"""Random models of every family against transformers, for long: what is finished is recorded, and skipped next time.

    python tests/campaigns/families.py                        # 200 models of each; ctrl-c and call again as you like
    python tests/campaigns/families.py --only gemma3 -n 1000  # of one family
    python tests/campaigns/families.py --report               # what is recorded

Every model has unfriendly sizes, is stored as a directory and as a GGUF file, and is run by the reference and by the
native program on every instruction set of the processor, whose bits must be equal. The exit code is 1 where a model
differs from transformers by more than tests/targets/random_families.py allows.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from spec_core.lazy import call_before_torch  # noqa: E402

call_before_torch()

import torch  # noqa: E402
from transformers.utils import logging  # noqa: E402

from tests.support.recorded import lines  # noqa: E402
from tests.targets.random_families import FAMILIES, FLOORS, differences, lacking  # noqa: E402

Rows = dict[tuple[str, int], dict[str, Any]]


def read_results(file: Path) -> Rows:
    """Results by family and seed."""
    return {(row["family"], row["seed"]): row for row in lines(file)}


def try_family(family: str, seed: int) -> dict[str, Any]:
    began = perf_counter()
    try:
        with tempfile.TemporaryDirectory() as folder:
            errors = differences(family, seed, Path(folder))
        fields = {"floors": {name: round(value, 3) for name, value in errors.items()}}
    except Exception as error:  # recorded, and the campaign goes on
        fields = {"error": f"{type(error).__name__}: {error}"[:500]}
    return {"family": family, "seed": seed, **fields, "seconds": round(perf_counter() - began, 2)}


def far(row: dict[str, Any]) -> bool:
    return "error" in row or max(row["floors"].values()) > FLOORS


def report(rows: Rows) -> None:
    """Models, and the largest difference of each executor in rounding floors."""
    families: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows.values():
        families[row["family"]].append(row)
    for family, results in families.items():
        most: dict[str, float] = defaultdict(float)
        for row in results:
            for name, value in row.get("floors", {}).items():
                most[name] = max(most[name], value)
        largest = ", ".join(f"{name} {value:.2f}" for name, value in most.items())
        print(f"{family}: {len(results)} models, {sum(map(far, results))} far; {largest}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=200, help="models of each family")
    parser.add_argument("--only", default="", help="families whose name begins so")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "families.jsonl")
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    rows, seeds = read_results(args.out), range(0 if args.report else args.n)
    families = [name for name in FAMILIES if name.startswith(args.only) and not lacking(name)]
    for family, seed in ((family, seed) for seed in seeds for family in families):
        if (family, seed) in rows:
            continue
        row = rows[family, seed] = try_family(family, seed)
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if far(row):
            print(json.dumps(row), flush=True)
    report(rows)
    return int(any(map(far, rows.values())))


if __name__ == "__main__":
    sys.exit(main())
