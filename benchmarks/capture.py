"""Time of capturing hidden states of three layers, as for an EAGLE-3 head, on a prompt and on every step.

A run with a plugin that requests the hidden states and ignores them is compared with a run without it. They take turns
in every repeat; printed are medians, and the median of the ratios of adjacent laps.

    python benchmarks/capture.py [-m MODEL ...] [--threads N] [--prompt N] [--steps N] [--repeats N]
"""

from __future__ import annotations

import argparse
from statistics import median
from time import perf_counter

import attrs

from spec_core import Compat, Needs, Run, Target, hookimpl, load


@attrs.frozen
class Asks:
    """Requests a low, a middle and a high layer."""

    @hookimpl
    def compat(self, target: Target) -> Compat:
        n = target.info.layers
        return Compat(needs=Needs(hidden={2, n // 2, n - 3}), drafts=())


def lap(target: Target, plugins: list[Asks], prompt: list[int], steps: int) -> tuple[float, float]:
    """Seconds to the first token, and per step after it."""
    run = Run(target, plugins, reuse=False)
    seq = run.submit(prompt, max_tokens=steps + 1, ignore_eos=True)
    began, first = perf_counter(), 0.0
    while run.busy:
        run.step()
        if not first and len(seq.tokens) > len(prompt):
            first = perf_counter() - began
    return first, (perf_counter() - began - first) / steps


def compare(target: Target, prompt: list[int], steps: int, repeats: int) -> tuple[list[tuple[float, float]], ...]:
    laps: tuple[list[tuple[float, float]], ...] = ([], [])
    for i in range(repeats + 1):
        for times, plugins in zip(laps, ([], [Asks()]), strict=True):
            times.append(lap(target, plugins, prompt, steps))
            if i == 0:
                times.clear()  # the first lap of each is a warm-up
    return laps


def show(name: str, target: Target, given: argparse.Namespace) -> None:
    prompt = [(7 * i) % (target.tokenizer.vocab_size - 300) + 200 for i in range(given.prompt)]
    without, with_ = compare(target, prompt, given.steps, given.repeats)
    for what, i, scale, unit in (("prompt", 0, 1e3, "ms"), ("step", 1, 1e6, "µs")):
        plain, captured = ([x[i] * scale for x in laps] for laps in (without, with_))
        ratio = median(c / p for p, c in zip(plain, captured, strict=True))
        print(f"{name:16} {what:7} {median(plain):9.1f} {median(captured):9.1f} {unit}  {ratio - 1:+.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", action="append")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    print(f"{'':24} {'plain':>9} {'three':>9}")
    for model in given.model or ["zoo:pico", "zoo:pico-hybrid"]:
        show(model, load(model, threads=given.threads), given)


if __name__ == "__main__":
    main()
