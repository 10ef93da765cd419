"""Loading a model: seconds after the imports, and the memory it adds to the process.

    python benchmarks/loading.py -m MODEL [--rounds 5]
    python benchmarks/loading.py -m MODEL --start      seconds of a whole `spec generate` of one token

With --start every round runs `import torch` and the program in turn; printed are medians of wall and CPU time, and of
the difference. An uncounted round before them compiles the modules and caches the files.

Every round is a process of its own, which has imported all modules. The merges of a vocabulary are built for the first
text, which is timed too. Peaks are of the whole process, libraries included. Memory is divided into the process's own
(weights, tokenizer, buffers), pages of the model's file, and pages of libraries, which any model would add. Linux only:
/proc/self/smaps.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from time import perf_counter

MIB = 1 << 20
WORK = """
import gc, json, sys
from time import perf_counter
import numpy, tokenizers, torch
import spec_kernels.native.executor, spec_targets.formats.gguf_weights, spec_targets.runtime.load
import spec_targets.tokenizer.gguf_vocabulary
from spec_core import load

def memory():
    own = of_file = libraries = 0
    path = ""
    for line in open("/proc/self/smaps"):
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            path = line.split(None, 5)[5].strip() if len(line.split(None, 5)) > 5 else ""
        elif name == "Rss:":
            resident = int(rest.split()[0]) << 10
        elif name == "Anonymous:":
            mine = int(rest.split()[0]) << 10
            own += mine
            if path.endswith(".gguf"):
                of_file += resident - mine
            else:
                libraries += resident - mine
    return own, of_file, libraries

torch.ones(8) @ torch.ones(8)
gc.collect()
before, began = memory(), perf_counter()
target = load(sys.argv[1], kernels="native", threads=1)
seconds = perf_counter() - began
gc.collect()

def peak():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM:"))

grown = [b - a for a, b in zip(before, memory())]
stored, loaded, began = target.weights.file.nbytes, peak(), perf_counter()
target.tokenizer.encode("a")
text = perf_counter() - began
print(json.dumps({"seconds": seconds, "text": text, "peak": loaded, "text_peak": peak(),
                  "own": grown[0], "file": grown[1], "libraries": grown[2],
                  "weights": target.executor.arena.memory.nbytes, "stored": stored,
                  "size": target.weights.file.path.stat().st_size}))
"""


def time_starts(model: str, rounds: int) -> None:
    """Print wall and CPU seconds of the program and of ``import torch``."""
    generate = [sys.executable, "-m", "spec_core", "generate", "-m", model, "-p", "Hi", "-n", "1", "--threads", "1"]
    commands = {"import torch": [sys.executable, "-c", "import torch"], "spec generate": generate}
    taken = [{name: seconds(command) for name, command in commands.items()} for _ in range(rounds + 1)][1:]
    for name in commands:
        wall, cpu = (statistics.median(one[name][i] for one in taken) for i in (0, 1))
        print(f"{name:16}{wall:6.2f} s wall {cpu:6.2f} s CPU")
    wall, cpu = (statistics.median(one["spec generate"][i] - one["import torch"][i] for one in taken) for i in (0, 1))
    print(f"{'more':16}{wall:6.2f} s wall {cpu:6.2f} s CPU")


def seconds(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of a process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    subprocess.run(command, env=environment, capture_output=True, check=True)
    wall, after = perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="zoo:pico")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--start", action="store_true", help="time the whole program instead")
    args = parser.parse_args()
    if args.start:
        return time_starts(args.model, args.rounds)
    command = [sys.executable, "-c", WORK, args.model]
    outputs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(args.rounds)]
    results = [json.loads(text.splitlines()[-1]) for text in outputs]
    of = {name: statistics.median(one[name] for one in results) for name in results[0]}
    seconds = [one["seconds"] for one in results]
    print(f"{args.model}: {statistics.median(seconds):.2f} s ({min(seconds):.2f}-{max(seconds):.2f})")
    print(f"  first text {of['text']:.2f} s; peak {of['peak'] / MIB:.0f} MiB, with it {of['text_peak'] / MIB:.0f}")
    print(f"  file {of['size'] / MIB:.1f} MiB, weights in memory {of['weights'] / MIB:.1f}")
    for name, what in (("own", "the process's own"), ("file", "pages of the file"), ("libraries", "of libraries")):
        print(f"  {what:18}{of[name] / MIB:8.1f} MiB   {of[name] / of['size']:.2f} of the file")


if __name__ == "__main__":
    main()
