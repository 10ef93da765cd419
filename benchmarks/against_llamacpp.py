"""Forwards of n rows here and in llama.cpp: the same file, the same threads, in turns, medians of ratios.

    python benchmarks/against_llamacpp.py -m FILE --peer PYTHON [--threads 1] [--depth 64] [--activations auto]

PYTHON is an interpreter that has llama-cpp-python 0.3.36, built natively (support/peer.py). Both sides evaluate the
same tokens after ``depth`` cached rows, with the logits of every row and their argmax, in a loop over the lowest-level
call: ``llama_decode`` there, ``target.forward``'s executor here. 512 rows and more are a prompt, of which only the last
row's logits are computed. Tokenisation is not timed, nor is resetting a cache to ``depth``, for which llama.cpp has to
evaluate the cached rows of a hybrid again.
A round is one burst of each side, in alternating order; a ratio is that of one round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.support.peer import BATCH, Peer, Side, burst, tokens

ROWS = (1, 2, 4, 8, 16)
CONTEXT = 1024


def ours(model: str, depth: int, threads: int, activations: str) -> Side:
    """Forwards of this project's executor after ``depth`` cached rows."""
    import torch
    from spec_kernels.model.batch import Batch, SequenceRows
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
        rows_of_one = SequenceRows(cache, 0, count, start)
        last = [count - 1] if count >= BATCH else None
        settings = {"logits": last, "final": last, "recurrence": recurrence(count, start)}
        asked = Batch(torch.tensor(tokens(count)), torch.arange(start, start + count), [rows_of_one], **settings)
        return executor.run(asked)["logits"]

    run(depth, 0)
    state = slot and slot.copy()

    def reset() -> None:
        if slot is not None:
            slot.put(state)

    def forward(rows: int) -> None:
        run(rows, depth).numpy().argmax(axis=1)

    return reset, forward


def rounds(peer: Peer, side: Side, depth: int, rows: list[int], count: int) -> dict[int, list[list[float]]]:
    """{rows: [[seconds here, seconds there] of every round]}, in alternating order."""
    found: dict[int, list[list[float]]] = {n: [] for n in rows}
    for i in range(count):
        for n in rows:
            sides = [lambda n=n: burst(side, n), lambda n=n: peer.burst(n, depth)]
            order = (0, 1) if i % 2 == 0 else (1, 0)
            seconds = [0.0, 0.0]
            for which in order:
                seconds[which] = sides[which]()
            found[n].append(seconds)
    return found


def report(found: dict[int, list[list[float]]]) -> list[dict[str, float]]:
    """For each number of rows: median milliseconds, the median ratio, and ratios to one row of the peer."""
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
    parser.add_argument("--peer", required=True, help="an interpreter with llama-cpp-python")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--depth", type=int, default=64, help="cached rows, at most 512")
    parser.add_argument("--activations", default="auto")
    parser.add_argument("--rows", type=int, nargs="*", default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    file = args.model
    if file.startswith("zoo:"):
        from spec_zoo import path

        file = str(path(file.removeprefix("zoo:")))
    peer = Peer(args.peer, str(Path(file).resolve()), CONTEXT, args.threads)
    side = ours(file, args.depth, args.threads, args.activations)
    lines = report(rounds(peer, side, args.depth, sorted(args.rows), args.rounds))
    peer.close()
    load = os.getloadavg()[0]
    if args.json:
        settings = {**vars(args), "load": load, "peer": peer.about, "measured": lines}
        print(json.dumps(settings, indent=2))
        return
    print(f"{args.model}, {args.threads} threads, depth {args.depth}, {args.activations}, load {load:.1f}: ms, medians")
    print(f"{'rows':>5}{'ours':>10}{'llama.cpp':>11}{'ratio':>8}{'of its T(' + str(min(args.rows)) + ')':>13}")
    for x in lines:
        print(f"{x['rows']:5.0f}{x['ours']:10.3f}{x['theirs']:11.3f}{x['ratio']:8.2f}{x['of_their_first']:13.2f}")


if __name__ == "__main__":
    main()
