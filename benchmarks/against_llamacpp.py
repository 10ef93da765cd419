"""Forwards of n rows here and in llama.cpp: the same file, the same threads, in turns, medians of ratios.

    python benchmarks/against_llamacpp.py -m FILE --peer PYTHON [--threads 1] [--depth 64] [--activations auto]
    python benchmarks/against_llamacpp.py -m FILE --peer PYTHON --sequences 16

PYTHON is an interpreter that has llama-cpp-python 0.3.36, built natively (support/peer.py). Both sides evaluate the
same tokens after ``depth`` cached rows, with the logits of every row and their argmax, in a loop over the lowest-level
call: ``llama_decode`` there, ``target.forward``'s executor here. 512 rows and more are a prompt: only the last row's
logits are computed. Tokenisation is not timed, nor is resetting a cache to ``depth``, for which llama.cpp has to
evaluate the cached rows of a hybrid again.
With ``--sequences`` a forward is one row of each of that many sequences, each after ``depth`` rows of its own.
A round is one burst of each side, in alternating order; a ratio is that of one round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from spec_kernels.model.batch import ForwardBatch, SequenceRows

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.support.peer import BATCH, Peer, Side, burst, tokens

ROWS = (1, 2, 4, 8, 16)
MARGIN = 512
"""Rows of a context beyond ``depth``: the largest number of rows of one forward."""


class Ours:
    """This project's executor with a cache for each of a number of sequences; ``side`` uses the first."""

    def __init__(self, model: str, depth: int, threads: int, activations: str, sequences: int = 1) -> None:
        from spec_kernels.model.recurrence import RecurrentSlot

        from spec_core import load

        self.target = load(model, threads=threads, activations=activations)
        if self.target.pool and sequences > 1:
            sys.exit("--sequences needs a model without recurrent layers, because llama.cpp cannot roll those back")
        self.depth = depth
        self.caches = [self.target.executor.cache(depth + MARGIN) for _ in range(sequences)]
        self.slot = RecurrentSlot(self.target.pool) if self.target.pool else None

    def run(self, caches: list[Any], rows: int, start: int) -> torch.Tensor:
        """``rows`` rows of each of ``caches`` from position ``start`` on; of a prompt only the last has logits."""
        count = rows * len(caches)
        parts = [SequenceRows(cache, i * rows, rows, start) for i, cache in enumerate(caches)]
        positions = torch.arange(start, start + rows).repeat(len(caches))
        last = [count - 1] if count >= BATCH else None
        settings = {"logits": last, "final": last, "recurrence": self._recurrence(rows, start)}
        ids = torch.tensor(tokens(rows) * len(caches))
        return self.target.executor.run(ForwardBatch(ids, positions, parts, **settings))["logits"]

    def _recurrence(self, rows: int, start: int) -> Any:
        from spec_kernels.model.recurrence import Lines, Recurrence

        if self.slot is None:
            return None
        lines = Lines()
        lines.add(self.slot.current, start, rows, [], [], 0)
        return Recurrence(self.slot.pool, lines.lineage(), None, [])

    def prefill(self) -> None:
        for at in range(0, self.depth, BATCH):
            for cache in self.caches:
                self.run([cache], min(BATCH, self.depth - at), at)

    def side(self) -> Side:
        """Forwards of a number of rows of the first sequence."""
        self.prefill()
        state = self.slot and self.slot.copy()

        def reset() -> None:
            if self.slot is not None:
                self.slot.put(state)

        return reset, lambda rows: self._choose(self.run(self.caches[:1], rows, self.depth))

    def side_of_sequences(self) -> Side:
        """Forwards of one row of each sequence."""
        self.prefill()
        return (lambda: None), lambda _: self._choose(self.run(self.caches, 1, self.depth))

    @staticmethod
    def _choose(logits: torch.Tensor) -> None:
        logits.numpy().argmax(axis=1)


def rounds(peer: Peer, side: Side, depth: int, rows: list[int], count: int) -> dict[int, list[list[float]]]:
    """{rows: [[seconds here, seconds there] of every round]}, in alternating order."""
    times: dict[int, list[list[float]]] = {n: [] for n in rows}
    for i in range(count):
        for n in rows:
            sides = [lambda n=n: burst(side, n), lambda n=n: peer.burst(n, depth)]
            order = (0, 1) if i % 2 == 0 else (1, 0)
            seconds = [0.0, 0.0]
            for which in order:
                seconds[which] = sides[which]()
            times[n].append(seconds)
    return times


def report(times: dict[int, list[list[float]]]) -> list[dict[str, float]]:
    """Lines by number of rows: median milliseconds, the median ratio, and ratios to one row of the peer."""
    first = times[min(times)]
    return [
        {
            "rows": n,
            "ours": statistics.median(a for a, _ in pairs) * 1e3,
            "theirs": statistics.median(b for _, b in pairs) * 1e3,
            "ratio": statistics.median(a / b for a, b in pairs),
            "of_their_first": statistics.median(a / one for (a, _), (_, one) in zip(pairs, first, strict=True)),
        }
        for n, pairs in times.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, help="a GGUF file, or zoo:NAME")
    parser.add_argument("--peer", required=True, help="an interpreter with llama-cpp-python")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--depth", type=int, default=64, help="cached rows")
    parser.add_argument("--sequences", type=int, default=1, help="number of sequences, with one row each")
    parser.add_argument("--activations", default="auto")
    parser.add_argument("--rows", type=int, nargs="*", default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    file = args.model
    if file.startswith("zoo:"):
        from spec_zoo import path

        file = str(path(file.removeprefix("zoo:")))
    peer = Peer(args.peer, str(Path(file).resolve()), args.depth + MARGIN, args.threads, args.sequences)
    here = Ours(file, args.depth, args.threads, args.activations, args.sequences)
    several = args.sequences > 1
    side, rows = (here.side_of_sequences(), [1]) if several else (here.side(), sorted(args.rows))
    lines = report(rounds(peer, side, args.depth, rows, args.rounds))
    peer.close()
    load = os.getloadavg()[0]
    if args.json:
        settings = {**vars(args), "load": load, "peer": peer.about, "measured": lines}
        print(json.dumps(settings, indent=2))
        return
    circumstances = f"{args.threads} threads, {args.sequences} sequences, depth {args.depth}, {args.activations}"
    print(f"{args.model}, {circumstances}, load {load:.1f}: ms, medians")
    print(f"{'rows':>5}{'ours':>10}{'llama.cpp':>11}{'ratio':>8}{'of its T(' + str(rows[0]) + ')':>13}")
    for x in lines:
        print(f"{x['rows']:5.0f}{x['ours']:10.3f}{x['theirs']:11.3f}{x['ratio']:8.2f}{x['of_their_first']:13.2f}")


if __name__ == "__main__":
    main()
