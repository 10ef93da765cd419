"""Time of choosing a token, per row: native, and by the reference in Python, in turns; and time of noise.

    python benchmarks/choice.py [--json] [--vocab 49152 151936] [--repeats N] [--isa NAME]

Rows are random. peaked: a few tokens have most of the mass, as after most tokens of a text. broad: normal with a
standard deviation of 3: top-p 0.95 keeps thousands of tokens. flat: normal with a standard deviation of 0.5: top-p
keeps nearly all. Nothing is printed unless both forms choose the same tokens. One thread; each figure is a median.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np
import torch

from spec_core import Sampling
from spec_core.sampling import native, reference
from spec_core.sampling.choose import adjust, place
from spec_core.sampling.noise import gumbel

SETTINGS = {
    "greedy": Sampling(),
    "temperature 0.8": Sampling(0.8),
    "top-k 40": Sampling(0.8, top_k=40),
    "top-p 0.95": Sampling(0.8, top_p=0.95),
    "min-p 0.05": Sampling(0.8, min_p=0.05),
    "top-k, top-p, min-p": Sampling(0.8, top_k=40, top_p=0.95, min_p=0.05),
    "top-p and penalties": Sampling(0.8, top_p=0.95, repetition_penalty=1.1, frequency_penalty=0.2),
}
HISTORY = list(range(500))
SOURCE = (7, 0, 0)


def peaked_row(rng: np.random.Generator, n: int) -> np.ndarray:
    row = rng.normal(size=n) * 2
    row[rng.integers(0, n, 8)] += 12
    return row


ROWS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "peaked": peaked_row,
    "broad": lambda rng, n: rng.normal(size=n) * 3,
    "flat": lambda rng, n: rng.normal(size=n) * 0.5,
}


def natively(row: torch.Tensor, sampling: Sampling, t: int) -> int:
    job = (*place(row, stride=0), sampling._terms, SOURCE, t, HISTORY, 100, None, None)
    ((_, token, _),) = native.module.walk([job])
    return token


def python_choice(row: torch.Tensor, sampling: Sampling, t: int) -> int:
    return reference.choose(adjust(row, sampling, HISTORY, 100).numpy(), sampling, SOURCE, t)[0]


def seconds(choose: Callable[..., int], row: torch.Tensor, sampling: Sampling, t: int) -> tuple[float, int]:
    began = perf_counter()
    token = choose(row, sampling, t)
    return perf_counter() - began, token


def measure(kind: str, n: int, sampling: Sampling, repeats: int) -> tuple[float, float]:
    """Median milliseconds of both forms, which choose from each row in turn."""
    rng, ours, theirs = np.random.default_rng(0), [], []
    rows = [torch.from_numpy(ROWS[kind](rng, n).astype(np.float32)) for _ in range(4)]
    for i in range(-2, repeats):
        row = rows[i % len(rows)]
        (a, token), (b, same) = (seconds(form, row, sampling, i + 2) for form in (natively, python_choice))
        if token != same:
            raise SystemExit(f"{kind} row of {n}, {sampling}: {token} natively, {same} by the reference")
        if i >= 0:
            ours.append(a * 1e3)
            theirs.append(b * 1e3)
    return statistics.median(ours), statistics.median(theirs)


def noise(vocabulary: int, repeats: int = 200) -> dict[str, float]:
    """Microseconds of noise for a whole vocabulary, and for 40 tokens of it, as for temperatures above 0."""
    ids = torch.arange(0, vocabulary, vocabulary // 40)
    times = {}
    for name, what in (("whole vocabulary", vocabulary), ("40 tokens", ids)):
        began = perf_counter()
        for t in range(repeats):
            gumbel(1, t, what)
        times[name] = (perf_counter() - began) / repeats * 1e6
    return times


def show(vocabularies: list[int], repeats: int, isa: str | None, as_json: bool) -> None:
    """Measure and print. isa: instruction set of the native form; None: the best."""
    if native.module is None:
        raise SystemExit(native.problem())
    native.module.use(isa)
    torch.set_num_threads(1)
    rows = [
        {"vocab": n, "row": kind, "settings": name, "ms": ours, "python_ms": theirs}
        for n in vocabularies
        for kind in ROWS
        for name, sampling in SETTINGS.items()
        for ours, theirs in [measure(kind, n, sampling, repeats)]
    ]
    about = {
        "machine": platform.processor() or platform.machine(),
        "isa": isa or native.module.instruction_sets()[0],
        "threads": 1,
        "repeats": repeats,
        "numpy": np.__version__,
    }
    if as_json:
        print(json.dumps({"rows": rows, "noise": {n: noise(n) for n in vocabularies}, **about}, indent=2))
        return
    print(" · ".join(f"{name} {value}" for name, value in about.items()), file=sys.stderr)
    print(f"{'vocabulary':>10}  {'row':8}{'settings':22}{'ms':>8}{'Python':>9}")
    for r in rows:
        print(f"{r['vocab']:10}  {r['row']:8}{r['settings']:22}{r['ms']:8.3f}{r['python_ms']:9.2f}")
    for n in vocabularies:
        for name, cost in noise(n).items():
            print(f"noise of {name}, vocabulary {n}: {cost:.0f} µs a row")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, nargs="+", default=[49_152, 151_936])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--isa", help="instruction set; the default is the best")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    show(given.vocab, given.repeats, given.isa, given.json)


if __name__ == "__main__":
    main()
