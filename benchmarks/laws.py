"""The law of a text whose drafts are what an earlier request of the same prompt and seed said.

    python benchmarks/laws.py                             # 20,000 texts of each case
    python benchmarks/laws.py --texts 200000 --kept laws.json   # goes on where it was interrupted

A shared store drafts for one request what another said. If both were judged by the same coins, drafts would know the
answers, and the second text would have another law than the target's. The target is a random table, so that law is a
product of rows; a total variation that a sample of this size does not reach by chance ends the program.
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

VOCAB, LENGTH, PROMPT = 3, 3, [0, 1]
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
CASES = [f"{store} {rule}" for store in STORES for rule in RULES]
IMPROBABLE = 1e-6
"""Chance that a text of the right law is found guilty; there are few cases, and long runs."""
BLOCK = 500
"""Texts between two looks at the clock, and between two savings."""

Text = tuple[int, ...]


def small() -> QuickTarget:
    return QuickTarget(seed=2, vocab=VOCAB, period=3, sharpness=1.0)


def text_law(target: QuickTarget) -> dict[Text, float]:
    """{text: chance} of all texts of ``LENGTH`` tokens after the prompt."""
    rows = torch.softmax(target.table.double(), -1)
    at = len(PROMPT) - 1

    def chance(text: Text) -> float:
        whole = (PROMPT[-1], *text)
        return math.prod(float(rows[(at + i) % target.period, whole[i], whole[i + 1]]) for i in range(LENGTH))

    return {text: chance(text) for text in product(range(VOCAB), repeat=LENGTH)}


def second(target: QuickTarget, case: str, seed: int) -> Text:
    """What the second of two equal requests says, alone in a run with the first, which ended before."""
    store, rule = case.split()
    run = Run(target, [(store, STORES[store]())], rule=RULES[rule], reuse=False)
    said = [
        run.generate(PROMPT, max_tokens=LENGTH, seed=seed, sampling=SAMPLED, ignore_eos=True).result.tokens
        for _ in range(2)
    ]
    return tuple(said[1])


def texts(case: str, seeds: range) -> Counter[Text]:
    """How often each text was the second one's."""
    target = small()
    return Counter(second(target, case, seed) for seed in seeds)


def away(counts: Counter[Text], law: dict[Text, float]) -> float:
    """Total variation between the sample and the law."""
    total = counts.total()
    return 0.5 * sum(abs(counts[text] / total - chance) for text, chance in law.items())


def bound(n: int, cells: int) -> float:
    """What the total variation of a sample of n from the law itself exceeds with chance ``IMPROBABLE`` at most.

    Its mean is at most sqrt(cells / n) / 2, by Cauchy and Schwarz; one sample more or less moves it by 1 / n, so it is
    above its mean by more than e with a chance of at most exp(-2 n e^2) (McDiarmid).
    """
    return 0.5 * math.sqrt(cells / n) + math.sqrt(math.log(1 / IMPROBABLE) / (2 * n))


def chance(counts: Counter[Text], law: dict[Text, float]) -> float:
    """p of Pearson's chi-square over all texts."""
    n = counts.total()
    statistic = sum((counts[text] - n * p) ** 2 / (n * p) for text, p in law.items())
    half = torch.tensor([(len(law) - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def campaign(wanted: int, kept: Path | None, cases: list[str] = CASES) -> Iterator[tuple[str, Counter[Text]]]:
    """(case, counts) of every case once it has so many texts. kept: where counts are saved after every block."""
    found: dict[str, dict[str, int]] = json.loads(kept.read_text("utf-8")) if kept and kept.exists() else {}
    for case in cases:
        counts: Counter[Text] = Counter({text_of(key): n for key, n in found.get(case, {}).items()})
        while (done := counts.total()) < wanted:
            counts += texts(case, range(done, min(wanted, done + BLOCK)))
            found[case] = {key_of(text): n for text, n in counts.items()}
            if kept is not None:
                save(kept, found)
        yield case, counts


def key_of(text: Text) -> str:
    return " ".join(map(str, text))


def text_of(key: str) -> Text:
    return tuple(int(word) for word in key.split())


def save(path: Path, found: Any) -> None:
    """Whole or not at all: an interruption leaves the last block."""
    half = path.with_suffix(".part")
    half.write_text(json.dumps(found), "utf-8")
    half.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--kept", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    law, guilty = text_law(small()), 0
    for case, counts in campaign(options.texts, options.kept):
        n, found = counts.total(), away(counts, law)
        most = bound(n, len(law))
        guilty += found > most
        print(f"{case}: total variation {found:.4f} of {n} texts, at most {most:.4f}; p = {chance(counts, law):.2g}")
    return 1 if guilty else 0


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    sys.exit(main())
