"""Evaluates a shipped model on held-out text: ``python -m tools.zoo.evaluate pico --out DIR``.

Held-out loss, compared with a Kneser-Ney trigram on the same tokens; loss on a repeated chunk; the share of
samples that Python parses. The exported file is evaluated, so quantisation is included.
"""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path

import numpy as np
import torch
from spec_zoo import ZOO
from spec_zoo.texts import data

from spec_core import Run, Sampling, Target, load
from tools.zoo.score import losses
from tools.zoo.train import prepare
from tools.zoo.trigram import Trigram

CHUNK = 120
LENGTH = 512


def held_out(target: Target, held: np.ndarray, count: int = 120) -> float:
    """Nats per token over ``count`` evenly spread windows of 512 tokens."""
    starts = np.linspace(0, len(held) - LENGTH - 1, count).astype(int)
    return float(np.mean([losses(target, held[s : s + LENGTH].tolist()).mean() for s in starts]))


def second_time(target: Target, held: np.ndarray, count: int = 60) -> float:
    """Nats per token on the second copy of a held-out chunk of 120 tokens that is repeated directly."""
    starts = np.linspace(0, len(held) - CHUNK, count).astype(int)
    chunks = [held[s : s + CHUNK].tolist() for s in starts]
    return float(np.mean([losses(target, chunk + chunk)[CHUNK - 1 :].mean() for chunk in chunks]))


def parse_share(target: Target, samples: int = 50, n: int = 160) -> float:
    """Share of samples that ``ast.parse`` accepts, up to the last line that begins a top-level statement.

    A sample continues the beginning of a held-out module at temperature 0.8, top-p 0.95.
    """
    _, held = data.split_files()
    sampling = Sampling(temperature=0.8, top_p=0.95)
    run = Run(target, max_sequences=8)
    texts = ["\n".join(held[i % len(held)].split("\n")[: 12 + i // len(held)]) + "\n" for i in range(samples)]
    texts = [text for text in texts if len(target.tokenizer.encode(text)) < 700]
    waiting = [(text, run.submit(text, max_tokens=n, sampling=sampling, seed=i)) for i, text in enumerate(texts)]
    for _ in run:
        pass
    whole = [text + run.take(seq).text for text, seq in waiting]
    return sum(parses(complete(text)) for text in whole) / len(whole)


def complete(text: str) -> str:
    """Program without its last statement, which the token limit may have cut."""
    lines = text.split("\n")
    margins = [i for i, line in enumerate(lines) if line[:1].strip() and line[:1] not in ")]}#\"'"]
    return "\n".join(lines[: margins[-1]]) if margins else text


def parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def evaluate(name: str, out: Path) -> dict[str, float]:
    arrays = np.load(prepare(out, LENGTH + 1))
    target = load(f"zoo:{name}")
    trigram = Trigram(arrays["stream"], target.info.vocab)
    return {
        "held_out": held_out(target, arrays["held"]),
        "trigram": trigram.loss(arrays["held"]),
        "prose": held_out(target, arrays["held_prose"], 24),
        "trigram_prose": trigram.loss(arrays["held_prose"]),
        "second_time": second_time(target, arrays["held"]),
        "parsed": parse_share(target),
        "held_out_tokens": float(len(arrays["held"])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=sorted(ZOO))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.names:
        print(json.dumps({"model": name, **evaluate(name, args.out)}))


if __name__ == "__main__":
    main()
