"""Random requests with pictures on models with eyes, until the number is compared with plain decoding.

    python tests/campaigns/pictures.py [--requests 500] [--seed 0] [--planted]

No to three pictures of a few, beginnings in common, chunks of 7, 16 and 64 rows, cancelled requests, and every method
that needs no head. --planted: rows of pictures have no numbers of their own; then wrong texts must be found.
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

from spec_core import Request, Run, Sampling, Target, load
from spec_core.loop.request import prompt_checks
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


def draw_request(rng: random.Random, place: str, images: list[Any], name: str) -> Request:
    """Texts begin alike, so that rows are reused."""
    shown = [rng.choice(images) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))]
    text = "A" + "".join(f"{rng.choice((' see', ' see', ' then'))} {place}" for _ in shown)
    text += rng.choice((" what?", " what is it?", " and"))
    sampling = Sampling(temperature=rng.choice((0.0, 0.0, 0.8)), frequency_penalty=rng.choice((0.0, 0.0, 0.5)))
    return Request(
        text, images=shown, max_tokens=rng.randrange(1, 20), seed=rng.randrange(9), sampling=sampling, ignore_eos=True,
        name=name,
    )  # fmt: skip


def compare(target: Target, place: str, file: str, seed: int, counts: Counter[str]) -> list[str]:
    """Requests of one run whose texts are not plain decoding's."""
    rng = random.Random(seed)
    images = [np.random.default_rng(i).integers(0, 256, (20 + i, 30, 3), dtype=np.uint8) for i in range(3)]
    methods = [name.replace("draft-model", f"draft-model={file}") for name in rng.choice(METHODS)]
    chunk, sequences = rng.choice(CHUNKS), rng.choice((1, 2, 4))
    run = Run(target, methods, prefill_chunk=chunk, draft_max=5, max_sequences=sequences)
    requests = [draw_request(rng, place, images, str(i)) for i in range(EACH)]
    sequences_of = {request.name: run.submit(request) for request in requests}
    cancelled = {request.name for request in requests if rng.random() < 0.1}
    for _ in range(rng.randrange(6)):
        run.step()
    for name in cancelled:
        run.cancel(sequences_of[name])
    for _ in run:
        pass
    wrong = []
    for request in requests:
        result = run.take(sequences_of[request.name])
        plain = Run(target).generate(request).result
        counts.update(
            requests=1,
            pictures=len(list(request.images)),
            reused=result.reused,
            cancelled=result.finish_reason == "cancelled",
        )
        if result.tokens != plain.tokens[: len(result.tokens)] or (
            result.finish_reason != "cancelled" and len(result.tokens) != len(plain.tokens)
        ):
            wrong.append(f"{target.info.family} seed {seed} request {request.name}: {methods}, chunk {chunk}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--planted", action="store_true")
    options = parser.parse_args()
    plant = mock.patch.object(prompt_checks, "number_of", lambda embedding, more=b"": -2)
    wrong, counts = [], Counter[str]()
    targets = {name: load(str(GOLDEN / f"vision-{name}" / "hf")) for name in MODELS}
    while counts["requests"] < options.requests:
        name = list(MODELS)[counts["requests"] // EACH % len(MODELS)]
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
