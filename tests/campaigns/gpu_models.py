"""GPU kernels against all golden vectors, and coupled requests, in triton's interpreter or on a card.

``python tests/campaigns/gpu_models.py [--requests 200] [--seed 0]``

The bars are those of tests/targets. Requests differ in prompt, sampling, drafts and batch; every text must equal that
of plain decoding. The last line is JSON; the exit code is 1 where a logit or a text differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")
sys.path.insert(0, str(Path(__file__).parents[2]))

from safetensors.torch import load_file
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.reference import Reference

from spec_core import Request, Run, Sampling, load
from spec_core.testing import Oracle, RandomTrees
from tests.methods.heads import head_file
from tests.support.golden import GOLDEN
from tests.support.gpu_twins import RepackedWeights
from tests.support.small_models import tiny_gemma4, tiny_gguf, tiny_hybrid, tiny_lfm2
from tests.targets.drive import fresh
from tests.targets.test_pictures import logits_of

CASES = {
    "llama": "", "qwen2": "", "qwen3": "", "mistral": "full_attention.", "phi3": "", "phi3-longrope": "long.",
    "qwen3moe": "", "glm4moe": "", "gpt-oss": "", "gpt-oss-notruncate": "",
    "gemma2": "", "gemma3": "", "qwen35": "", "qwen3next": "", "qwen35moe": "", "granite-hybrid": "",
    "falcon-h1": "", "nemotron-h": "", "nemotron-h-moe": "",
    "lfm2": "", "lfm2moe": "", "minimax-m2": "", "gemma4-e": "", "gemma4-k": "", "gemma4-moe": "",
    "kimi-linear": "gguf.", "deepseek3": "", "glm4moelite": "gguf.",
}  # fmt: skip
"""Prefixes of the tensors that belong to the GGUF file of each golden case."""
QUANTISED = {"llama-q4_k_m": "model-q4_k_m.gguf", "qwen3-q8_0": "model-q8_0.gguf"}
"""Files of dense golden models in blocks."""
QUANTISED_BAR = 4e-5
"""4 times the floor of the float32 models, as in tests/targets; of the weights as they lie on the device."""
PICTURES = "gemma3", "idefics3", "llava", "qwen3vl"
PICTURES_BAR = 1e-4
"""As in tests/gpu."""
OPTIONS = {"kernels": "gpu", "device": "cuda" if torch.cuda.is_available() else "cpu", "dtype": "float32"}
BATCH = 4
ROLLBACKS = {"dense": None, "hybrid": "gdn-rollback", "gemma4": None, "lfm2": "gdn-rollback"}
"""Owner of the recurrent state of each tiny model."""
FILES = {"hybrid": lambda: tiny_hybrid(context=128), "gemma4": tiny_gemma4, "lfm2": tiny_lfm2}


def golden_differences() -> dict[str, float]:
    """Differences of every case and length: the largest difference from the golden logits, in bars."""
    results = {}
    for name, prefix in CASES.items():
        folder = GOLDEN / name
        target = load(folder / "model-f32.gguf", **OPTIONS)
        tensors, facts = load_file(folder / "golden.safetensors"), json.loads((folder / "golden.json").read_text())
        for length in (1, 37, 130):
            if f"{prefix}logits_{length}" not in tensors:
                continue
            kinds = ("rounding_floor", "rotary_floor")
            bar = 4 * max(facts[kind].get(f"logits_{length}", 0) for kind in kinds if kind in facts)
            rows = fresh(target, tensors[f"prompt_{length}"].tolist()).logits.cpu()
            results[f"{name} {length}"] = ((tensors[f"{prefix}logits_{length}"] - rows).abs().max() / bar).item()
            print(f"{name} {length}: {results[f'{name} {length}']:.2f} of the bar", flush=True)
    for name, file in QUANTISED.items():
        folder = GOLDEN / "quantmodel" / name
        target, tensors = load(folder / file, **OPTIONS), load_file(folder / "golden.safetensors")
        prompt = tensors["prompt_37"]
        rows = fresh(target, prompt.tolist()).logits.cpu()
        reference = Reference(target.executor.model, RepackedWeights(target.executor.source), torch.float32)
        length = len(prompt)
        chain = SequenceRows(reference.cache(length), 0, length, 0)
        expected = reference.run(ForwardBatch(prompt, torch.arange(length), [chain]))["logits"]
        results[name] = ((expected - rows).abs().max() / QUANTISED_BAR).item()
        print(f"{name}: {results[name]:.2f} of the bar, {target.info.kernels}", flush=True)
    return results


def picture_differences() -> dict[str, float]:
    """Of every prompt with pictures, the largest difference from the golden logits, in bars."""
    results = {}
    for name in PICTURES:
        folder = GOLDEN / f"vision-{name}"
        target = load(folder / "hf", **OPTIONS)
        tensors, facts = load_file(folder / "golden.safetensors"), json.loads((folder / "golden.json").read_text())
        for case in "ab":
            logits = logits_of(target, tensors, facts, case).cpu()
            key = f"{name} {case}"
            results[key] = ((tensors[f"logits_{case}"] - logits).abs().max() / PICTURES_BAR).item()
            print(f"{key}: {results[key]:.2f} of the bar", flush=True)
    return results


def requests_of(seed: int, count: int, vocab: int) -> list[Request]:
    """Requests of all kinds of sampling."""
    rng = random.Random(seed)
    samplings = (
        Sampling(), Sampling(temperature=0.7), Sampling(temperature=1.0, top_k=20),
        Sampling(temperature=0.9, repetition_penalty=1.2, frequency_penalty=0.3), Sampling(logit_bias={3: 4.0}),
    )  # fmt: skip
    return [
        Request(
            [rng.randrange(vocab) for _ in range(rng.randint(1, 40))],
            max_tokens=rng.randint(3, 10), seed=i, sampling=rng.choice(samplings), name=str(i),
        )
        for i in range(count)
    ]  # fmt: skip


def drafters_of(target: str, whole: dict[str, list[int]], seed: int, vocab: int) -> list[Any]:
    """Every method that drafts for a tiny model, and two drafters that know the texts."""
    rng = random.Random(seed)
    knowing = Oracle(whole, lambda i, seq: rng.random() < 0.7, vocab=vocab), RandomTrees(whole, seed, vocab)
    if target in ("gemma4", "lfm2"):
        return [*knowing, "ngram", "suffix", "recycling"]
    kind = "hybrid" if target == "hybrid" else "dense"
    heads = [(name, {"file": str(head_file(name, kind)), "p_min": 0.0}) for name in ("eagle3", "dflash")]
    own = [("mtp", {"p_min": 0.0})] if kind == "hybrid" else [("draft-model", {"file": str(tiny_gguf(0, layers=4))})]
    return [*knowing, "ngram", "suffix", "recycling", *heads, *own]


def different_texts(target_name: str, seed: int, count: int) -> list[str]:
    """Names of requests whose text with drafts is not that of plain decoding, one at a time."""
    make_file = FILES.get(target_name, lambda: tiny_gguf(0, layers=4))
    target = load(make_file(), **OPTIONS)
    requests, names = requests_of(seed, count, target.info.vocab), []
    for first in range(0, count, BATCH):
        some = requests[first : first + BATCH]
        plain = [Run(target, rollback=ROLLBACKS[target_name]).generate(request).result.tokens for request in some]
        whole = {r.name: [*r.prompt, *text] for r, text in zip(some, plain, strict=True)}
        drafters = drafters_of(target_name, whole, first, target.info.vocab)
        drafter = drafters[first // BATCH % len(drafters)]
        run = Run(target, [drafter], rollback=ROLLBACKS[target_name], max_sequences=BATCH)
        texts = [g.result.tokens for g in run.generate(some)]
        names += [f"{target_name} {r.name}" for r, a, b in zip(some, plain, texts, strict=True) if a != b]
        print(f"{target_name}: {first + len(some)} requests, {len(names)} differ", flush=True)
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--texts-only", action="store_true", help="no golden vectors")
    args = parser.parse_args()
    torch.set_num_threads(1)
    began = perf_counter()
    golden = {} if args.texts_only else golden_differences() | picture_differences()
    texts = [name for kind in ROLLBACKS for name in different_texts(kind, args.seed, args.requests // len(ROLLBACKS))]
    result = {
        "golden_max": max(golden.values(), default=0.0), "requests": args.requests, "different": texts,
        "seconds": round(perf_counter() - began),
    }  # fmt: skip
    print(json.dumps(result))
    sys.exit(bool(texts) or result["golden_max"] > 1)


if __name__ == "__main__":
    main()
