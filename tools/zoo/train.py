"""Train a model of the zoo for a given time: ``python -m tools.zoo.train pico --minutes 100 --out DIR``.

The learning rate follows the clock, so on a busy machine the schedule is complete, with fewer steps. Checkpoints can
be resumed.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from spec_train.training.checkpoint import restore_checkpoint, save_checkpoint
from spec_train.training.optimizers import make_optimizers, optimizer_step
from spec_train.training.schedule import Clock, lr_factor, set_lr
from spec_zoo.texts import data, tokens
from tokenizers import Tokenizer
from torch import nn

from tools.zoo import recipes

TASK_SHARE = 0.22
"""Share of the rows that are edit and record tasks."""
REPEAT_SHARE = 0.10
"""Share of the rows that are repeated spans."""
TASKS = 30_000
MICRO = 4
"""Number of rows in one backward pass."""


class Rows:
    """Endless batches [B, T + 1] of files, tasks and repeated spans."""

    def __init__(self, out: Path, length: int, seed: int = 0) -> None:
        self.length = length + 1
        self.rng = np.random.default_rng(seed)
        prepared = np.load(prepare(out, self.length))
        self.stream, self.tasks = prepared["stream"], prepared["tasks"]

    def batch(self, size: int) -> torch.Tensor:
        rows = np.stack([self._row() for _ in range(size)])
        return torch.from_numpy(rows.astype(np.int64))

    def _row(self) -> np.ndarray:
        kind = self.rng.random()
        if kind < TASK_SHARE:
            return self.tasks[self.rng.integers(len(self.tasks))]
        if kind < TASK_SHARE + REPEAT_SHARE:
            return tokens.repeat_row(self.rng, self.stream, self.length)
        at = self.rng.integers(len(self.stream) - self.length)
        return self.stream[at : at + self.length]


def prepare(out: Path, length: int) -> Path:
    """Tokenizer, training stream, tasks and held-out tokens under ``out``, made once."""
    path = out / f"tokens-{length}.npz"
    if path.exists():
        return path
    out.mkdir(parents=True, exist_ok=True)
    train, held = data.split_files()
    prose, prose_held = data.prose()
    tokenizer = tokenizer_of(out, train + prose)
    stream = tokens.stream(tokenizer, train + prose + data.docstrings(train))
    rows = tokens.task_rows(tokenizer, train, TASKS, length)
    np.savez(
        path,
        stream=stream,
        tasks=rows,
        held=tokens.stream(tokenizer, held),
        held_prose=tokens.stream(tokenizer, prose_held),
    )
    return path


def tokenizer_of(out: Path, texts: list[str]) -> Tokenizer:
    path = out / "tokenizer.json"
    if not path.exists():
        tokens.train_tokenizer(texts).save(str(path))
    return Tokenizer.from_file(str(path))


def held_loss(model: nn.Module, held: np.ndarray, length: int, count: int = 24) -> float:
    """Nats per token on evenly spread held-out rows."""
    starts = np.linspace(0, len(held) - length - 2, count).astype(int)
    rows = torch.from_numpy(np.stack([held[s : s + length + 1] for s in starts]).astype(np.int64))
    with torch.no_grad():
        return float(np.mean([float(model.loss(rows[i : i + 8])) for i in range(0, count, 8)]))


def train(name: str, out: Path, minutes: float, batch: int, length: int, lr: float, report: float = 60) -> Path:
    """Train and return the checkpoint."""
    print(json.dumps({"name": name, "minutes": minutes, "batch": batch, "length": length, "lr": lr}), flush=True)
    torch.manual_seed(0)
    rows = Rows(out, length)
    held = np.load(prepare(out, length + 1))["held"]
    model = recipes.begin(name, out, lambda: rows.batch(MICRO), minutes)
    opts = make_optimizers(model, lr)
    path = out / f"{name}.pt"
    spent, step, seen = _resume(path, model, opts)
    shown, mean = time.monotonic(), 0.0
    clock = Clock(minutes, spent)
    for progress in clock.shares():
        set_lr(opts, lr * lr_factor(progress))
        loss = backward(model, rows.batch(batch))
        optimizer_step(model, opts)
        step, seen = step + 1, seen + batch * length
        mean = loss if not mean else 0.95 * mean + 0.05 * loss
        if time.monotonic() - shown > report:
            shown = time.monotonic()
            save_checkpoint(path, model, opts, spent=clock.spent, step=step, tokens=seen)
            line = {"step": step, "tokens": seen, "minutes": clock.spent / 60, "loss": mean}
            print(json.dumps({**line, "held_out": held_loss(model, held, length)}), flush=True)
    save_checkpoint(path, model, opts, spent=clock.spent, step=step, tokens=seen)
    print(json.dumps({"step": step, "tokens": seen, "final_held_out": held_loss(model, held, length, 64)}), flush=True)
    return path


def backward(model: nn.Module, rows: torch.Tensor) -> float:
    """Compute gradients of the mean loss, a few rows at a time: activations stay in the processor's cache."""
    total = 0.0
    for part in rows.split(MICRO):
        loss = model.loss(part) * (len(part) / len(rows))
        loss.backward()
        total += float(loss.detach())
    return total


def _resume(path: Path, model: nn.Module, opts: list) -> tuple[float, int, int]:
    state = restore_checkpoint(path, model, opts)
    return (0.0, 0, 0) if state is None else (state["spent"], state["step"], state["tokens"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=recipes.NAMES)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--lr", type=float, default=2.5e-3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    train(args.name, args.out, args.minutes, args.batch, args.length, args.lr)


if __name__ == "__main__":
    main()
