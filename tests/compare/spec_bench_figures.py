"""An independent computation of Spec-Bench's figures from its answer files: it shares no code with the program.

Per category: the mean of all accept lengths; the mean over questions of tokens by wall time; the ratio of these means.
The baseline's tokens may be counted again from its text, less one per turn, as Spec-Bench does it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

MT_BENCH = {"writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"}


def answers(path: Path, category: str) -> list[dict]:
    """``choices[0]`` of the questions of a category, by question; the last line of a question wins."""
    last = {line["question_id"]: line for line in map(json.loads, path.read_text("utf-8").splitlines())}
    fits = {"overall": lambda c: True, "mt_bench": MT_BENCH.__contains__}.get(category, category.__eq__)
    return [line["choices"][0] for _, line in sorted(last.items(), key=str) if fits(line["category"])]


def figures(
    path: Path, base: Path, category: str = "overall", count: Callable[[str], int] | None = None
) -> dict[str, float]:
    """count: tokens of a text of the baseline, special token included; None to use its ``new_tokens``."""
    own, plain = answers(path, category), answers(base, category)
    rates = [sum(c["new_tokens"]) / sum(c["wall_time"]) for c in own]
    lengths = np.concatenate([np.array(c["accept_lengths"], dtype=float) for c in own])
    baseline = [_tokens(c, count) / sum(c["wall_time"]) for c in plain]
    return {
        "mean_accepted_tokens": float(lengths.mean()),
        "tokens_per_second": float(np.mean(rates)),
        "speedup": float(np.mean(rates) / np.mean(baseline)),
    }


def _tokens(choice: dict, count: Callable[[str], int] | None) -> int:
    if count is None:
        return sum(choice["new_tokens"])
    return sum(count(text) - 1 for text in choice["turns"])
