"""Random requests with pictures on models with eyes, until the number is compared with plain decoding.

    python tests/campaigns/pictures.py [--requests 500] [--seed 0] [--only gemma3] [--planted]

No to three pictures of a few, beginnings in common, prompts that are repeated and continued, chunks of 7, 16 and 64
rows, layers with a window that give rows back, cancelled requests, and every method that needs no head. --planted: rows
of pictures have no numbers of their own; then wrong texts must be found.
Needs the golden models. Prints what was compared; the exit code is 1 if a text differs, or with --planted if none does.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
from spec_kernels.model import kept_rows

from spec_core import Request, Run, Sampling, load
from spec_core.loop.request import prompt_checks
from tests.campaigns.windows import keeping_all, submit_all
from tests.support.golden import GOLDEN

MODELS = {
    "gemma3": "<start_of_image>",
    "idefics3": "<image>",
    "llava": "<image>",
    "qwen3vl": "<|vision_start|><|image_pad|><|vision_end|>",
}
"""Folders of models, and the place of a picture in a prompt."""
METHODS = (["ngram"], ["suffix"], ["recycling"], ["ngram", "suffix"], ["draft-model"], ["draft-model++ngram"])
CHUNKS = (7, 16, 64)
EACH = 8
"""Requests of a run."""


def draw_request(rng: random.Random, place: str, images: list[Any], name: str, earlier: list[Request]) -> Request:
    """A request like an earlier one, or one that continues its prompt, or another one; texts begin alike, so that rows
    are reused."""
    kind, longer = rng.random(), ""
    if earlier and kind < 0.5:
        like = rng.choice(earlier)
        text, shown = like.prompt, list(like.images)
        longer = "" if kind < 0.25 else rng.choice((" A", " and what")) * rng.randrange(1, 9)
    else:
        shown = [rng.choice(images) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))]
        text = "A" + "".join(f"{rng.choice((' see', ' see', ' then'))} {place}" for _ in shown)
        text += rng.choice((" what?", " what is it?", " and"))
    sampling = Sampling(temperature=rng.choice((0.0, 0.0, 0.8)), frequency_penalty=rng.choice((0.0, 0.0, 0.5)))
    return Request(
        text + longer, images=shown, max_tokens=rng.choice((rng.randrange(1, 20), 85)), seed=rng.randrange(9),
        sampling=sampling, ignore_eos=True, name=name,
    )  # fmt: skip


def compare(target: Any, place: str, file: str, seed: int, counts: Counter[str]) -> list[str]:
    """Requests of one run whose texts are not those of a target that keeps all rows and decodes plainly."""
    rng = random.Random(seed)
    target.rewind = rng.choice((2, 20, 100))
    images = [np.random.default_rng(i).integers(0, 256, (20 + i, 30, 3), dtype=np.uint8) for i in range(3)]
    methods = [name.replace("draft-model", f"draft-model={file}") for name in rng.choice(METHODS)]
    chunk, sequences = rng.choice(CHUNKS), rng.choice((1, 2, 4))
    settings = {"prefill_chunk": chunk, "draft_max": 5, "max_sequences": sequences}
    requests: list[Request] = []
    for i in range(EACH):
        requests.append(draw_request(rng, place, images, str(i), requests))
    with Run(target, methods, **settings) as run:
        submitted, cancelled = submit_all(run, requests, rng, counts)
        results = [run.take(seq) for seq in submitted]
    wrong = []
    for request, seq, result in zip(requests, submitted, results, strict=True):
        with Run(keeping_all(target), reuse=False) as run:
            whole = run.generate(request).result.tokens
        counts["requests"] += 1
        counts["pictures"] += len(list(request.images))
        counts["reused"] += result.reused
        counts["cancelled"] += result.finish_reason == "cancelled"
        counts["accepted"] += result.stats["accepted"]
        if result.tokens != (whole[: len(result.tokens)] if seq in cancelled else whole):
            wrong.append(f"{target.info.family} seed {seed} request {request.name}: {methods}, {settings}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--planted", action="store_true")
    options = parser.parse_args()
    plant = mock.patch.object(prompt_checks, "number_of", lambda embedding, more=b"": -2)
    wrong, counts = [], Counter[str]()
    kept_rows.AHEAD = 16
    targets = {name: load(str(GOLDEN / f"vision-{name}" / "hf")) for name in MODELS if options.only in name}
    while counts["requests"] < options.requests:
        name = list(targets)[counts["requests"] // EACH % len(targets)]
        file, seed = str(GOLDEN / f"vision-{name}" / "hf"), options.seed + counts["requests"] // EACH
        if options.planted:
            with plant:
                wrong += compare(targets[name], MODELS[name], file, seed, counts)
        else:
            wrong += compare(targets[name], MODELS[name], file, seed, counts)
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    print("\n".join(wrong) or "all plain")
    return bool(wrong) != options.planted


if __name__ == "__main__":
    sys.exit(main())
