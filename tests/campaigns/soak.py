"""Campaigns that are too long for the suite, in parts: what is finished is recorded, and skipped on the next call.

    python tests/campaigns/soak.py                             # everything; ctrl-c and call again as you like
    python tests/campaigns/soak.py --only draws --minutes 20   # parts whose name begins so, none begun after 20 min
    python tests/campaigns/soak.py --report                    # what is recorded

Products are three: native kernels, those of torch, and one that sums badly on purpose (tests/support/misbehaving.py).
draws: seeded draws of zoo:pico, the row alone against the row among up to 17 drafts, 100,000 for each product and
number of threads. wide: rows of random text of a model of 100 M random weights, 20,000 for each product, 1,000 on the
misbehaving one. choices: random choices of every setting, natively and by the reference, 350,000 for each instruction
set. fuzz: 10,000 steps of tests/campaigns/fuzz.py on zoo:pico and on the toy.
texts: 400 prompts under every method on a dense, a mixture-of-experts and a hybrid model, alone and five at a time,
against plain decoding. programs: 4,000 random models on every instruction set (tests/native/programs.py), and 1,000
more with the extension compiled for the address and undefined-behaviour sanitizers. heads: 4,000 random draft heads
and 1,000 in the same way (tests/native/random_heads.py). headers: 4,000 files of models and draft heads with one field
of a header changed (tests/targets/mutations.py), under the sanitizers.
threads: 200 texts of four runs in four threads on one dense and one hybrid model, ten times natively and twice by the
reference, and texts of 200 random models.
runs: 2,000 runs of one request, one after the other, half of them closed and half dropped; memory may be 5 % more at
the end than after a fifth of them.
The exit code is 1 where a recorded part failed.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from spec_core.lazy import call_before_torch  # noqa: E402

call_before_torch()

import torch  # noqa: E402
from spec_kernels import native as native_model  # noqa: E402

from spec_core import Target, load  # noqa: E402
from spec_core.sampling import native  # noqa: E402
from tests.native import programs, random_heads, sanitized  # noqa: E402
from tests.support import choices, shared, texts  # noqa: E402
from tests.support import draws as exact_draws  # noqa: E402
from tests.support.misbehaving import misbehaving  # noqa: E402
from tests.support.recorded import lines  # noqa: E402

Part = Callable[[], dict[str, Any]]
PRODUCTS = {"native": nullcontext, "real": nullcontext, "misbehaving": misbehaving}
THREADS = (1, 2)
DRAWS, DRAW_PARTS = 5_000, 20
WIDE = {"native": (1_000, 20), "real": (1_000, 20), "misbehaving": (250, 4)}
"""Rows of a part, parts; odd parts run with two threads."""
FUZZ_STEPS, FUZZ_PARTS = 1_000, 10
CHOICES, CHOICE_PARTS = 25_000, 14
TEXT_PARTS = 20
THREADED = {"native": 10, "reference": 2}
RANDOM_PARTS = 10
RUNS, RUNS_GROW = 2_000, 1.05
PROGRAMS = {"native": 200, "sanitized": 50}
"""Seeds of a part."""
HEADERS = 200
"""Changed headers of a part."""
RANDOM = {
    "programs": (programs.differences, sanitized.random_models),
    "heads": (random_heads.wrong, sanitized.random_heads),
}
"""Functions that draw: one seed here, and a range of them under sanitizers."""


def parts() -> Iterator[tuple[str, Part]]:
    """Names in an order that does a little of everything first."""
    for i in range(DRAW_PARTS):
        for product in PRODUCTS:
            for threads in THREADS:
                yield f"draws/{product}/{threads}/{i:02}", functools.partial(draws, product, threads, i)
            rows, count = WIDE[product]
            if i < count:
                yield f"wide/{product}/{1 + i % 2}/{i:02}", functools.partial(wide, product, 1 + i % 2, i, rows)
        if i < CHOICE_PARTS and native.module is not None:
            for isa in native.module.instruction_sets():
                yield f"choices/{isa}/{i:02}", functools.partial(compare_choices, isa, 1_000 + i)
        if i < FUZZ_PARTS:
            for model in ("zoo:pico", "toy"):
                yield f"fuzz/{model}/{i:02}", functools.partial(fuzz, model, i)
        for kind, methods in texts.METHODS.items():
            for method in methods:
                yield f"texts/{kind}/{method}/{i:02}", functools.partial(compare_texts, kind, method, i)
        for kind in ("dense", "hybrid"):
            for kernels, count in THREADED.items():
                if i < count:
                    yield f"threads/{kind}/{kernels}/{i:02}", functools.partial(compare_threads, kind, kernels, i)
                if i == 0:
                    yield f"runs/{kind}/{kernels}/{i:02}", functools.partial(many_runs, kind, kernels)
        if i < RANDOM_PARTS and native_model.problem() is None:
            yield f"threads/random/native/{i:02}", functools.partial(threads_of_random, i)
        for build, count in PROGRAMS.items():
            for what in RANDOM:
                part = functools.partial(run_programs, what, build, i * count, (i + 1) * count)
                yield f"{what}/{build}/{i:02}", part
        yield f"headers/sanitized/{i:02}", functools.partial(headers, i * HEADERS, (i + 1) * HEADERS)


def draws(product: str, threads: int, seed: int) -> dict[str, Any]:
    return compare_products(exact_draws.draws, pico, product, threads, seed, DRAWS)


def wide(product: str, threads: int, seed: int, rows: int) -> dict[str, Any]:
    return compare_products(exact_draws.rows, exact_draws.hundred_million, product, threads, seed, rows)


def compare_choices(isa: str, seed: int) -> dict[str, Any]:
    return {"count": CHOICES, "differ": len(choices.differing(isa, seed, CHOICES))}


def compare_products(
    campaign: Callable[[Target, int, int], int],
    make: Callable[[str, int], Target],
    product: str,
    threads: int,
    seed: int,
    count: int,
) -> dict[str, Any]:
    with PRODUCTS[product]():
        target = make("native" if product == "native" else "reference", threads)
        torch.set_num_threads(threads)
        return {"count": count, "differ": campaign(target, seed, count)}


def compare_texts(kind: str, method: str, part: int) -> dict[str, Any]:
    """Every prompt twice: alone, and among others."""
    count = 2 * len(texts.requests(part, TEXT_PARTS))
    return {"count": count, "differ": texts.differing(kind, method, part, TEXT_PARTS)}


def compare_threads(kind: str, kernels: str, seed: int) -> dict[str, Any]:
    return {"count": 200, "differ": shared.differing(kind, kernels, seed, 50)}


def threads_of_random(part: int) -> dict[str, Any]:
    seeds = range(20 * part, 20 * (part + 1))
    differing = {seed: n for seed in seeds if (n := shared.differing("random", "native", seed, 5))}
    return {"count": 400, "differ": sum(differing.values()), **({"said": str(differing)} if differing else {})}


def many_runs(kind: str, kernels: str) -> dict[str, Any]:
    first, last, places = shared.growth(kind, kernels, RUNS, close=True)
    text = f"{first:.0f} MB after {RUNS // 5} runs, {last:.0f} at the end, {places} places of recurrent states"
    return {"count": RUNS, "differ": int(last > RUNS_GROW * first), "said": text}


def run_programs(what: str, build: str, first: int, last: int) -> dict[str, Any]:
    tried, checked = RANDOM[what]
    if build == "native":
        failures = {seed: wrong for seed in range(first, last) if (wrong := tried(seed))}
        return {"count": last - first, "differ": len(failures), **({"said": str(failures)} if failures else {})}
    done = checked(first, last)
    fields = {"said": (done.stdout + done.stderr).splitlines()[-40:]} if done.returncode else {}
    return {"count": last - first, "differ": int(done.returncode != 0), **fields}


def headers(first: int, last: int) -> dict[str, Any]:
    done = sanitized.start("-m", "tests.targets.mutations", str(sanitized.library()), str(first), str(last))
    fields = {"said": (done.stdout + done.stderr).splitlines()[-40:]} if done.returncode else {}
    return {"count": last - first, "differ": int(done.returncode != 0), **fields}


@functools.cache
def pico(kernels: str, threads: int) -> Target:
    return load("zoo:pico", kernels=kernels, threads=threads)


def fuzz(model: str, seed: int) -> dict[str, Any]:
    command = [sys.executable, "tests/campaigns/fuzz.py", model, "--steps", str(FUZZ_STEPS), "--seed", str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    fields = {"said": done.stdout.splitlines()} if not done.returncode else {"error": done.stderr.splitlines()[-5:]}
    return {"count": FUZZ_STEPS, "differ": int(done.returncode != 0), **fields}


def read_results(file: Path) -> dict[str, dict[str, Any]]:
    """{part: result}"""
    return {row["part"]: row for row in lines(file)}


def report(results: dict[str, dict[str, Any]]) -> None:
    """Sums by campaign, product and threads."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0, 0])
    for name, row in sorted(results.items()):
        for i, n in enumerate((1, row["count"], row["differ"], row["seconds"])):
            sums[name.rpartition("/")[0]][i] += n
    for name, (n, count, differ, seconds) in sums.items():
        print(f"{name:24}{n:4.0f} parts{count:9.0f} done{differ:6.0f} differ{seconds:9.0f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "soak.jsonl")
    parser.add_argument("--only", default="", help="parts whose name begins so")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no part after these")
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    began, results = perf_counter(), read_results(args.out)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for name, part in () if args.report else parts():
        if name in results or not name.startswith(args.only) or perf_counter() - began > 60 * args.minutes:
            continue
        start = perf_counter()
        row = {"part": name, **part(), "seconds": round(perf_counter() - start, 1), "torch": torch.__version__}
        results[name] = row
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{name:28}{row['count']:7} done, {row['differ']} differ, {row['seconds']:.0f} s", flush=True)
    report(results)
    return int(any(row["differ"] for row in results.values()))


if __name__ == "__main__":
    sys.exit(main())
