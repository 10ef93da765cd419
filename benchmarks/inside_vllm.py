"""Tokens per CPU second inside vLLM: methods of this project against vLLM's own n-gram and suffix drafts, in turns.

    VLLM_PYTHON benchmarks/inside_vllm.py [-m zoo:pico] [--rounds 5] [--limit 5]
    VLLM_PYTHON benchmarks/inside_vllm.py --runners [--rounds 3] [--limit 2]

``--runners`` compares vLLM's two model runners instead, and what filler and asynchronous scheduling change on the
second.

Each contender of a round is a process of its own, pinned to one processor, with one thread, eager, greedy, float32, one
sequence at a time; the time that it takes to start is not counted. The order of contenders rotates. Threads of
libraries that spin would count as CPU time: one processor and one thread for numba keep them out. Runs are kept in
build/inside_vllm.jsonl and not made again. Ratios are medians over rounds; microseconds are of a step with one
sequence, of plugins and of everything else between vLLM and them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.campaigns import inside_vllm as campaign
from tests.support.hugging_face import directory

KEPT = Path(__file__).parents[1] / "build" / "inside_vllm.jsonl"
SHARED = "suffix:shared=true"
"""Drafts from outputs of earlier requests too, as vLLM's suffix drafts."""
METHODS = ("ngram", "suffix", SHARED, "recycling", "draft-model=zoo:pico-draft")
PLAIN, PEERS = "plain", ("vllm-ngram", "vllm-suffix")
RUNNERS = (
    PLAIN,
    "ngram",
    "draft-model=zoo:pico-draft",
    "plain@second",
    "ngram@second",
    "ngram@second+filler",
    "ngram@second+async_scheduling",
    "draft-model=zoo:pico-draft@second",
)
"""Contenders of ``--runners``: METHOD@RUNNER+SWITCH."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", default="zoo:pico", choices=campaign.METHODS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=int, default=5, help="prompts of each of the four families")
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--runners", action="store_true", help="compare vLLM's two model runners")
    args = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    known = {*campaign.METHODS[args.model], SHARED}
    names = [*RUNNERS] if args.runners else [PLAIN, *PEERS, *(name for name in METHODS if name in known)]
    for turn in range(args.rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            if (key := of(args, name, turn)) not in saved_units():
                measure(args, name, key)
    (table_of_runners if args.runners else table)(args, names)


def of(args: Any, name: str, turn: int) -> str:
    return json.dumps([args.model, args.limit, args.n, name, turn])


def saved_units() -> dict[str, dict[str, Any]]:
    if not KEPT.exists():
        return {}
    units = (json.loads(line) for line in KEPT.read_text("utf-8").splitlines())
    return {unit.pop("key"): unit for unit in units}


def measure(args: Any, name: str, key: str) -> None:
    """One run. A contender that does not run is recorded as such."""
    method, _, where = name.partition("@")
    runner, *switches = (where or "first").split("+")
    asked = argparse.Namespace(
        model=args.model, limit=args.limit, n=args.n, directory=str(directory(args.model)), dtype="float32",
        tensor_parallel=1, sequences=1, temperature=0.0, runner=runner,
        **{switch: switch in switches for switch in campaign.SWITCHES},
    )  # fmt: skip
    with TemporaryDirectory() as folder:
        result = campaign.contender(method, asked, Path(folder) / "found.json")
    unit: dict[str, Any] = {"key": key, "rate": None}
    if result is not None:
        unit = {"key": key, "rate": sum(map(len, result["texts"])) / result["seconds"]}
        unit |= campaign.count_columns(result["counts"]) | {
            "texts": [crc32(json.dumps(t).encode()) for t in result["texts"]]
        }
    KEPT.parent.mkdir(exist_ok=True)
    with KEPT.open("a", encoding="utf-8") as file:
        file.write(json.dumps(unit) + "\n")


def table(args: Any, names: list[str]) -> None:
    """Texts and rates against vLLM alone, rates against its own drafts, and microseconds of a step."""
    known = saved_units()
    runs = {name: [known[of(args, name, turn)] for turn in range(args.rounds)] for name in names}
    print("| contender | equal | of plain | of vLLM's ngram | of vLLM's suffix | plugins, us | host, us |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, unit_runs in runs.items():
        cells = [equal(unit_runs, runs[PLAIN]), *(ratio(unit_runs, runs[base]) for base in (PLAIN, *PEERS))]
        cells += [middle([run.get(f"{part}_us_per_step") for run in unit_runs]) for part in ("plugin", "host")]
        print(f"| {name} | {' | '.join(cells)} |")


def table_of_runners(args: Any, names: list[str]) -> None:
    """Rates against plain decoding on the first runner, and microseconds of a step, of every contender."""
    known = saved_units()
    runs = {name: [known[of(args, name, turn)] for turn in range(args.rounds)] for name in names}
    print("| contender | equal | of plain, first runner | tokens per step | plugins, us | host, us |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, unit_runs in runs.items():
        cells = [equal(unit_runs, runs[PLAIN]), ratio(unit_runs, runs[PLAIN])]
        cells.append(f"{unit_runs[0]['tokens_per_step']:.2f}" if "tokens_per_step" in unit_runs[0] else "")
        cells += [middle([run.get(f"{part}_us_per_step") for run in unit_runs]) for part in ("plugin", "host")]
        print(f"| {name} | {' | '.join(cells)} |")


def equal(contender_runs: list[dict[str, Any]], plain: list[dict[str, Any]]) -> str:
    """Number of texts of all rounds that equal plain decoding's in the same round."""
    rounds = [(a["texts"], b["texts"]) for a, b in zip(contender_runs, plain, strict=True) if a["rate"] and b["rate"]]
    same = [x == y for a, b in rounds for x, y in zip(a, b, strict=True)]
    return f"{sum(same)} of {len(same)}"


def ratio(contender_runs: list[dict[str, Any]], base: list[dict[str, Any]]) -> str:
    both = [(a["rate"], b["rate"]) for a, b in zip(contender_runs, base, strict=True) if a["rate"] and b["rate"]]
    return f"{median(a / b for a, b in both):.2f}" if both else "did not run"


def middle(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{median(known):.0f}" if known else ""


if __name__ == "__main__":
    main()
