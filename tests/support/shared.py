"""One target and several runs, in threads and one after the other; the long form is in tests/campaigns/soak.py."""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Sequence
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

from spec_core import Request, Run, Sampling, Target, load
from spec_core.testing import ToyRollback, ToyTarget
from tests.native import programs

METHODS: dict[str, tuple[list[Any], ...]] = {
    "dense": (["ngram", "suffix"], ["draft-model"], ["eagle3"], ["recycling"]),
    "hybrid": (["ngram"], ["draft-model"], ["mtp"], []),
    "toy": ([], ["ngram"], ["ngram"], []),
    "random": ([], ["ngram"], ["suffix"], ["recycling"]),
}
"""Methods of the four runs."""
MODELS = {"dense": "zoo:pico", "hybrid": "zoo:pico-hybrid"}
SAMPLINGS = (Sampling(), Sampling(temperature=0.8), Sampling(temperature=0.8, top_p=0.9, repetition_penalty=1.1))
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


@functools.cache
def target(kind: str, kernels: str) -> Target:
    return ToyTarget() if kind == "toy" else load(MODELS[kind], kernels=kernels, threads=1)


def random_target(kernels: str, seed: int) -> Target:
    """An architecture, sizes and types drawn."""
    program = programs.program(seed)
    return program.target(kernels=kernels, **(program.options if kernels == "native" else {}))


def run_of(kind: str, on: Target, methods: Sequence[Any] = (), **settings: Any) -> Run:
    rollback = ToyRollback("replay") if kind == "toy" else None
    return Run(on, list(methods), rollback=rollback, **settings)


def requests(on: Target, seed: int, count: int, longest: int) -> list[Request]:
    """Texts of random tokens, of all lengths: no slot holds what the next request begins with."""
    rng = random.Random(seed)
    return [
        Request(
            [rng.randrange(on.info.vocab) for _ in range(rng.randint(1, 40))],
            max_tokens=rng.randint(1, longest),
            seed=rng.getrandbits(32),
            sampling=rng.choice(SAMPLINGS),
            ignore_eos=True,
        )
        for _ in range(count)
    ]


def differing(kind: str, kernels: str, seed: int, each: int, longest: int = 48) -> int:
    """Number of texts of four runs, in four threads on one target, that differ from a single run's.

    Each thread begins and closes several runs, so that places are taken, given back and added all the time.
    """
    on = random_target(kernels, seed) if kind == "random" else target(kind, kernels)
    asked = [requests(on, 4 * seed + i, each, longest) for i in range(4)]
    alone = [run_of(kind, on, max_sequences=1).generate(many) for many in asked]
    expected = [[g.result.tokens for g in generations] for generations in alone]
    texts, errors, together = [[] for _ in asked], [], Barrier(4)

    def serve(i: int) -> None:
        rng = random.Random(seed + i)
        try:
            together.wait(60)  # not for ever, where the system gives no more threads
            while len(texts[i]) < each:
                some = asked[i][len(texts[i]) :][: rng.randint(1, 12)]
                with run_of(kind, on, METHODS[kind][i], max_sequences=rng.randint(1, 6)) as run:
                    texts[i] += [g.result.tokens for g in run.generate(some)]
        except BaseException as error:
            errors.append(error)
            together.abort()

    threads = [Thread(target=serve, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return sum(a != b for f, w in zip(texts, expected, strict=True) for a, b in zip(f, w, strict=True))


def growth(kind: str, kernels: str, runs: int, close: bool) -> tuple[float, float, int]:
    """One request in several runs: resident MB after a fifth of them and at the end, and the places of the pool.

    close: every second run is closed, the others are dropped.
    """
    on = target(kind, kernels)
    first = 0.0
    for i in range(runs):
        run = run_of(kind, on, ["ngram"])
        run.generate([1, 2, 3, i % 40], max_tokens=6, ignore_eos=True).result
        if close and i % 2:
            run.close()
        del run
        if i + 1 == runs // 5:
            first = resident()
    pool = getattr(on, "pool", None)
    return first, resident(), 0 if pool is None else pool.places


def resident() -> float:
    """MB of memory that this process has now; 0 where the system does not say."""
    table = Path("/proc/self/statm")
    return int(table.read_text().split()[1]) * PAGE / 1e6 if table.exists() else 0.0
