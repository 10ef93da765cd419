"""The distribution of a text whose drafts are what an earlier request of the same prompt and seed said.

    python tests/campaigns/text_distribution.py                             # 20,000 texts of each case
    python tests/campaigns/text_distribution.py --texts 200000 --kept texts.json   # goes on where it was interrupted

A shared store drafts for one request what another said. If both were judged by the same coins, drafts would know the
answers, and the second text would have another distribution than the target's. The target is a random table, so that
its distribution is a product of rows; counts that a sample of this size does not reach by chance make the program fail.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch
from spec_methods.ngram import Ngram
from spec_methods.recycling import Recycling
from spec_methods.suffix import Suffix
from spec_rules.block import Block
from spec_rules.k_seq import KSeq
from spec_rules.point_mass import PointMass
from spec_rules.rejection import Rejection
from spec_rules.traversal import Traversal

from spec_core import Run, Sampling
from spec_core.testing import QuickTarget

Text = tuple[int, ...]
SAMPLED = Sampling(temperature=1.0)
RULES = {
    "rejection": Rejection(),
    "block": Block(),
    "traversal": Traversal(),
    "k-seq": KSeq(),
    "point-mass": PointMass(),
}
"""Instances: a name is looked up in the metadata of all that is installed, for every run."""
STORES = {
    "ngram": lambda: Ngram(shared=True, n_min=1, p_min=0.0),
    "suffix": lambda: Suffix(shared=True, p_min=0.0),
    "recycling": lambda: Recycling(shared=True, width=1, k=2, p_min=0.0),
}


@attrs.frozen
class World:
    """What is asked for: a vocabulary so small, a prompt and a length in which a store finds much to draft."""

    vocab: int
    prompt: list[int]
    length: int

    @property
    def target(self) -> QuickTarget:
        return QuickTarget(seed=2, vocab=self.vocab, period=3, sharpness=1.0)

    def distribution(self) -> dict[Text, float]:
        """{text: chance} of all texts of ``length`` tokens after the prompt."""
        return {text: self.chance(text) for text in product(range(self.vocab), repeat=self.length)}

    def chance(self, text: Text) -> float:
        target, at = self.target, len(self.prompt) - 1
        rows, whole = torch.softmax(target.table.double(), -1), (self.prompt[-1], *text)
        return math.prod(float(rows[(at + i) % target.period, whole[i], whole[i + 1]]) for i in range(self.length))


SUFFIXED = World(2, [0, 1, 1, 0, 1], 6)
WORLDS = {"ngram": World(3, [0, 1], 3), "suffix": SUFFIXED, "recycling": World(3, [0, 1], 3)}
CASES = [f"{store} {rule}" for store in STORES for rule in RULES]
IMPROBABLE = 1e-6
"""Chance that a text of the right distribution is found guilty; there are few cases, and long runs."""
BLOCK = 500
"""Texts between two savings."""


def distribution_of(case: str) -> dict[Text, float]:
    return WORLDS[case.split()[0]].distribution()


def second(target: QuickTarget, case: str, seed: int) -> Text:
    """Text of the second of two equal requests, alone in a run with the first, which ended before."""
    store, rule = case.split()
    run = Run(target, [(store, STORES[store]())], rule=RULES[rule], reuse=False)
    world = WORLDS[store]
    ask = {"max_tokens": world.length, "seed": seed, "sampling": SAMPLED, "ignore_eos": True}
    texts = [run.generate(world.prompt, **ask).result.tokens for _ in range(2)]
    return tuple(texts[1])


def texts(case: str, seeds: range) -> Counter[Text]:
    """Counts of the second request's texts."""
    target = WORLDS[case.split()[0]].target
    return Counter(second(target, case, seed) for seed in seeds)


def away(counts: Counter[Text], distribution: dict[Text, float]) -> float:
    """Total variation between the sample and the distribution."""
    total = counts.total()
    return 0.5 * sum(abs(counts[text] / total - chance) for text, chance in distribution.items())


def bound_of(n: int, cells: int) -> float:
    """Bound that the total variation of a sample of n, drawn rightly, exceeds with chance ``IMPROBABLE`` at most.

    Its mean is at most sqrt(cells / n) / 2, by Cauchy and Schwarz; one sample more or less moves it by 1 / n, so it is
    above its mean by more than e with a chance of at most exp(-2 n e^2) (McDiarmid).
    """
    return 0.5 * math.sqrt(cells / n) + math.sqrt(math.log(1 / IMPROBABLE) / (2 * n))


def chance(counts: Counter[Text], distribution: dict[Text, float]) -> float:
    """p of Pearson's chi-square over all texts."""
    n = counts.total()
    statistic = sum((counts[text] - n * p) ** 2 / (n * p) for text, p in distribution.items())
    half = torch.tensor([(len(distribution) - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def campaign(count: int, kept: Path | None, cases: list[str] = CASES) -> Iterator[tuple[str, Counter[Text]]]:
    """(case, counts) of every case once it has ``count`` texts. kept: where counts are saved after every block."""
    counted: dict[str, dict[str, int]] = json.loads(kept.read_text("utf-8")) if kept and kept.exists() else {}
    for case in cases:
        counts: Counter[Text] = Counter({text_of(key): n for key, n in counted.get(case, {}).items()})
        while (done := counts.total()) < count:
            counts += texts(case, range(done, min(count, done + BLOCK)))
            counted[case] = {key_of(text): n for text, n in counts.items()}
            if kept is not None:
                save(kept, counted)
        yield case, counts


def key_of(text: Text) -> str:
    return " ".join(map(str, text))


def text_of(key: str) -> Text:
    return tuple(int(word) for word in key.split())


def save(path: Path, counts: Any) -> None:
    """Whole or not at all: an interruption leaves the last block."""
    half = path.with_suffix(".part")
    half.write_text(json.dumps(counts), "utf-8")
    half.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--kept", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    guilty = 0
    for case, counts in campaign(options.texts, options.kept):
        distribution, n = distribution_of(case), counts.total()
        distance, most, p = away(counts, distribution), bound_of(n, len(distribution)), chance(counts, distribution)
        guilty += distance > most or p < IMPROBABLE
        print(f"{case}: total variation {distance:.4f} of {n} texts, at most {most:.4f}; p = {p:.2g}")
    return 1 if guilty else 0


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    sys.exit(main())
