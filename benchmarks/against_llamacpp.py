"""Forwards of n rows here and in llama.cpp: the same file, the same threads, in turns, medians of ratios.

    python benchmarks/against_llamacpp.py -m FILE --peer PYTHON [--threads 1] [--depth 64] [--activations int15]

PYTHON is an interpreter that has llama-cpp-python 0.3.36, built natively; it runs in a process of its own. Both sides
evaluate the same tokens behind ``depth`` cached rows, with the logits of every row and their argmax, in a loop over the
lowest call there is: ``llama_decode`` there, with its default type of cache, ``target.forward``'s executor here. From
512 rows on, a prompt, only the last row's logits are asked for. Tokenisation, and bringing a cache back to ``depth``,
are outside: llama.cpp evaluates a hybrid's cached rows anew for that.
A round is one burst of both sides, whoever is first alternates; a ratio is that of one round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

ROWS = (1, 2, 4, 8, 16)
CONTEXT = 1024
PROMPT = 512
"""As many rows, and more, are a prompt: its last row alone has logits."""
SECONDS = 0.15
"""Of a burst."""
Side = tuple[Callable[[], None], Callable[[int], None]]
"""Brings the cache back, which is not timed; a forward of so many rows."""


def burst(side: Side, rows: int) -> float:
    """Seconds of the median forward among those that fit into a burst, at least three, or one that is long."""
    reset, forward = side
    times: list[float] = []
    while sum(times) < SECONDS or (len(times) < 3 and sum(times) < 5 * SECONDS):
        reset()
        began = perf_counter()
        forward(rows)
        times.append(perf_counter() - began)
    return statistics.median(times)


def tokens(count: int) -> list[int]:
    return [5 + i % 300 for i in range(count)]


def theirs(model: str, depth: int, threads: int) -> Side:
    """Forwards of llama.cpp behind ``depth`` rows; runs in the peer's interpreter."""
    import ctypes

    import numpy as np
    from llama_cpp import llama_cpp as c

    quiet = c.llama_log_callback(lambda level, text, data: None)
    c.llama_log_set(quiet, ctypes.c_void_p(0))
    c.llama_backend_init()
    loaded = c.llama_model_load_from_file(model.encode(), c.llama_model_default_params())
    options = c.llama_context_default_params()
    options.n_ctx, options.n_batch, options.n_ubatch = CONTEXT, 512, 512
    options.n_threads = options.n_threads_batch = threads
    context = c.llama_init_from_model(loaded, options)
    vocab = c.llama_vocab_n_tokens(c.llama_model_get_vocab(loaded))
    batch = c.llama_batch_init(512, 0, 1)

    def decode(count: int, start: int) -> None:
        batch.n_tokens = count
        for i, token in enumerate(tokens(count)):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, start + i, 1, 0
            batch.logits[i] = count < PROMPT or i == count - 1
        if c.llama_decode(context, batch):
            raise RuntimeError("llama_decode failed")

    decode(depth, 0)

    def reset() -> None:
        memory = c.llama_get_memory(context)
        if not c.llama_memory_seq_rm(memory, 0, depth, -1):
            c.llama_memory_clear(memory, True)
            decode(depth, 0)

    def forward(rows: int, keep: object = quiet) -> None:
        decode(rows, depth)
        first, count = (0, rows) if rows < PROMPT else (rows - 1, 1)
        logits = c.llama_get_logits_ith(context, first)  # the rows lie one behind the other
        np.ctypeslib.as_array(logits, shape=(count, vocab)).argmax(axis=1)

    return reset, forward


def ours(model: str, depth: int, threads: int, activations: str) -> Side:
    """Forwards of our executor behind ``depth`` rows."""
    import torch
    from spec_kernels.model.batch import Batch, Stretch
    from spec_kernels.model.recurrence import Lines, Recurrence, RecurrentSlot

    from spec_core import load

    target = load(model, threads=threads, activations=activations)
    executor = target.executor
    cache = executor.cache(CONTEXT)
    slot = RecurrentSlot(target.pool) if target.pool else None

    def recurrence(count: int, start: int) -> Recurrence | None:
        if slot is None:
            return None
        lines = Lines()
        lines.add(slot.current, start, count, [], [], 0)
        return Recurrence(slot.pool, lines.lineage(), None, [])

    def run(count: int, start: int) -> torch.Tensor:
        stretch = Stretch(cache, 0, count, start)
        last = [count - 1] if count >= PROMPT else None
        told = {"logits": last, "final": last, "recurrence": recurrence(count, start)}
        asked = Batch(torch.tensor(tokens(count)), torch.arange(start, start + count), [stretch], **told)
        return executor.run(asked)["logits"]

    run(depth, 0)
    state = slot and slot.copy()

    def reset() -> None:
        if slot is not None:
            slot.put(state)

    def forward(rows: int) -> None:
        run(rows, depth).numpy().argmax(axis=1)

    return reset, forward


def serve(model: str, depth: int, threads: int) -> None:
    """The peer's side: a number of rows a line in, the seconds of a burst a line out."""
    side = theirs(model, depth, threads)
    print("ready", flush=True)
    for line in sys.stdin:
        print(burst(side, int(line)), flush=True)


class Peer:
    """llama.cpp in a process of its own. It waits while we are measured."""

    def __init__(self, python: str, model: str, depth: int, threads: int) -> None:
        command = [python, __file__, "--serve", "-m", model, "--depth", str(depth), "--threads", str(threads)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(command, env=environment, **pipes)
        if self.process.stdout.readline().strip() != "ready":
            sys.exit(f"{python} did not start: it needs llama-cpp-python 0.3.36, built for this machine")

    def burst(self, rows: int) -> float:
        self.process.stdin.write(f"{rows}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def rounds(peer: Peer, side: Side, rows: list[int], count: int) -> dict[int, list[list[float]]]:
    """{rows: [[seconds here, seconds there] of every round]}; who is first alternates."""
    found: dict[int, list[list[float]]] = {n: [] for n in rows}
    for i in range(count):
        for n in rows:
            sides = [lambda n=n: burst(side, n), lambda n=n: peer.burst(n)]
            order = (0, 1) if i % 2 == 0 else (1, 0)
            seconds = [0.0, 0.0]
            for which in order:
                seconds[which] = sides[which]()
            found[n].append(seconds)
    return found


def report(found: dict[int, list[list[float]]]) -> list[dict[str, float]]:
    """Per number of rows: medians in milliseconds, the median ratio, and ratios to the peer's one row of that round."""
    first = found[min(found)]
    return [
        {
            "rows": n,
            "ours": statistics.median(a for a, _ in pairs) * 1e3,
            "theirs": statistics.median(b for _, b in pairs) * 1e3,
            "ratio": statistics.median(a / b for a, b in pairs),
            "of_their_first": statistics.median(a / one for (a, _), (_, one) in zip(pairs, first, strict=True)),
        }
        for n, pairs in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, help="a GGUF file, or zoo:NAME")
    parser.add_argument("--peer", help="the interpreter that has llama-cpp-python")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--depth", type=int, default=64, help="cached rows, at most 512")
    parser.add_argument("--activations", default="int15")
    parser.add_argument("--rows", type=int, nargs="*", default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args.model, args.depth, args.threads)
    if args.peer is None:
        parser.error("--peer PYTHON is needed: an interpreter that has llama-cpp-python 0.3.36")
    file = args.model
    if file.startswith("zoo:"):
        from spec_zoo import path

        file = str(path(file.removeprefix("zoo:")))
    peer = Peer(args.peer, str(Path(file).resolve()), args.depth, args.threads)
    side = ours(file, args.depth, args.threads, args.activations)
    lines = report(rounds(peer, side, sorted(args.rows), args.rounds))
    peer.close()
    load = os.getloadavg()[0]
    if args.json:
        print(json.dumps({**vars(args), "load": load, "measured": lines}, indent=2))
        return None
    print(f"{args.model}, {args.threads} threads, depth {args.depth}, {args.activations}, load {load:.1f}: ms, medians")
    print(f"{'rows':>5}{'ours':>10}{'llama.cpp':>11}{'ratio':>8}{'of its T(' + str(min(args.rows)) + ')':>13}")
    for x in lines:
        print(f"{x['rows']:5.0f}{x['ours']:10.3f}{x['theirs']:11.3f}{x['ratio']:8.2f}{x['of_their_first']:13.2f}")
    return None


if __name__ == "__main__":
    main()
