"""Time of the host between two graphs: steps of a Run over a device that answers at once.

The executor describes every step and fills its upload as on a device; launches, and the choice's kernels, are doubles
that give the next token of a periodic text. Their time is left out. No device is needed.

    python benchmarks/gpu_host.py [--steps 2000] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are imported: CPU tensors are accepted

from spec_kernels.gpu.choice.chooser import DeviceChoice
from spec_kernels.gpu.graphs import Bucket
from spec_kernels.gpu.layout import TOKEN

from benchmarks.dense_shapes import TINY, dense_target
from spec_core import Run, Sampling
from spec_core.sampling import device

PERIOD = 12
"""Tokens after which the text repeats: n-gram drafts of it are right."""


class Device:
    """Doubles of the launches. seconds: that they took."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.choice = DeviceChoice(torch.device("cpu"))
        self.tokens = np.zeros(1, np.int32)

    def run(self, bucket: Bucket, write_embeds: Any = None) -> None:
        """Double of ``Bucket.run``: it uploads and remembers the rows of a step, and chooses its tokens."""
        bucket.layout.upload()
        began = perf_counter()
        rows = bucket.layout.rows
        self.tokens = bucket.layout.host.numpy()[TOKEN : rows.numel() : rows.shape[1]]
        if (choice := bucket.program.choice) is not None:
            tokens, largest = choice.host.numpy()
            tokens[:], largest[:] = (self.tokens[: len(tokens)] + 1) % PERIOD, 0
        self.seconds += perf_counter() - began

    def choose(self, logits: torch.Tensor, description: Any) -> torch.Tensor:
        """Double of ``DeviceChoice._choose``: the upload is real, the tokens follow those of the rows."""
        draws, *_ = self.choice._upload(description)
        began = perf_counter()
        out = torch.zeros(2, len(draws), dtype=torch.int32)
        rows = self.tokens[: len(draws)]
        out[0, : len(rows)] = torch.from_numpy((rows + 1) % PERIOD)
        self.seconds += perf_counter() - began
        return out


@contextmanager
def on_double(double: Device) -> Iterator[None]:
    """Launches and choices are those of the double."""
    with (
        patch.object(Bucket, "run", lambda bucket, write_embeds=None: double.run(bucket, write_embeds)),
        patch.object(DeviceChoice, "_choose", lambda choice, logits, description: double.choose(logits, description)),
        patch.object(device, "_load", lambda *_: double.choice),
    ):
        yield


def step_seconds(double: Device, target: Any, methods: list[str], temperature: float, steps: int) -> list[float]:
    """Seconds of steps of one sequence, without those of the double."""
    run = Run(target, methods)
    prompt = [i % PERIOD for i in range(100)]
    run.submit(prompt, max_tokens=7000, ignore_eos=True, sampling=Sampling(temperature))
    times = []
    while run.busy and len(times) < steps:
        double.seconds = 0.0
        began = perf_counter()
        run.step()
        times.append(perf_counter() - began - double.seconds)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    # bfloat16: the core chooses rows of float32 on a CPU itself.
    target = dense_target(TINY, "cpu", torch.float32)
    double = Device()
    with on_double(double), patch.object(target.executor, "run", _in_bfloat16(target.executor)):
        for methods in ([], ["ngram"]):
            for temperature in (0.0, 0.8):
                profile = cProfile.Profile()
                if args.profile:
                    profile.enable()
                times = step_seconds(double, target, methods, temperature, args.steps)
                profile.disable()
                name = f"{'+'.join(methods) or 'plain'}, temperature {temperature}"
                print(f"{name}: {1e6 * statistics.median(times[10:]):.0f} µs a step, {len(times)} steps")
                if args.profile:
                    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def _in_bfloat16(executor: Any) -> Any:
    """The executor's own run; logits are a tensor of bfloat16, as which the core takes them for a device's."""
    run, rows = executor.run, torch.zeros(64, TINY.vocab, dtype=torch.bfloat16)

    def run_converted(batch: Any) -> Any:
        outputs = run(batch)
        return {**outputs, "logits": rows[: len(outputs["logits"])]}

    return run_converted


if __name__ == "__main__":
    main()
