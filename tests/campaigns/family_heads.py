"""A head for a model of another family: a small model is trained, then a head for it, then texts are compared.

    python tests/campaigns/family_heads.py gemma3 --model-minutes 5 --minutes 10 --out build/gemma3

The model is one of transformers, trained on the standard library of Python, and the head is made by ``spec train``.
Held-out prompts are answered plainly and with the head, alone and five at a time, greedily and at a temperature; the
last lines say how many texts are equal, and how many tokens a step gave. The exit code is 1 where a text differs.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from spec_core.lazy import call_before_torch  # noqa: E402

call_before_torch()

import torch  # noqa: E402
from spec_zoo.texts.data import split_files  # noqa: E402
from spec_zoo.texts.tokens import stream, train_tokenizer  # noqa: E402

from spec_core import Request, Run, Sampling, Target, load  # noqa: E402
from tests.targets.tiny import classes  # noqa: E402

VOCAB, LENGTH, BATCH, RATE = 1024, 128, 8, 2e-3
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "sliding_window": 48,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": VOCAB - 3,
    "tie_word_embeddings": True,
}
"""The window is shorter than a text."""
MORE = {
    "gemma2": {"head_dim": 32, "query_pre_attn_scalar": 32},
    "gemma3": {"head_dim": 32, "query_pre_attn_scalar": 32},
}
PROMPTS, HELD_OUT, TOKENS = 1500, 40, 96


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=("mistral", "phi3", "gemma2", "gemma3"))
    parser.add_argument("--model-minutes", type=float, default=5)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--kind", choices=("eagle3", "dflash"), default="eagle3")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    known, held = split_files()
    model = args.out / "model"
    if not (model / "config.json").exists():
        train(args.family, known, args.model_minutes, model)
    data, head = args.out / "prompts.jsonl", args.out / "head.gguf"
    data.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts(known, PROMPTS)), "utf-8")
    if not head.exists():
        words = ["train", args.kind, "-m", model, "--data", data, "--generate", PROMPTS, "--minutes", args.minutes]
        words += ["--threads", 1, "--out", head]
        subprocess.run([sys.executable, "-m", "spec_cli.main", *map(str, words)], cwd=ROOT, check=True)
    target = load(model)
    rows = list(map(target.tokenizer.encode, prompts(held, HELD_OUT)))
    different = [count_different(target, args.kind, head, rows, temperature) for temperature in (0.0, 0.8)]
    return int(any(different))


def prompts(texts: list[str], count: int) -> list[str]:
    """Eight lines from anywhere in a text, as often as asked for."""
    rng, sequences = random.Random(0), []
    while len(sequences) < count:
        lines = rng.choice(texts).split("\n")
        at = rng.randrange(len(lines))
        sequences += [text for text in ["\n".join(lines[at : at + 8])[:400]] if text.strip()]
    return sequences


def train(family: str, texts: list[str], minutes: float, folder: Path) -> None:
    """A model of the family on streams of the texts; the directory is written at the end."""
    torch.manual_seed(0)
    make_config, make = classes(family)
    model = make(make_config(**SIZES, **MORE.get(family, {}), attn_implementation="eager"))
    words = train_tokenizer(texts, VOCAB)
    tokens = torch.from_numpy(stream(words, texts).astype("int64"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.05)
    rng, began, steps, loss = random.Random(0), perf_counter(), 0, 0.0
    while (done := (perf_counter() - began) / (60 * minutes)) < 1:
        starts = [rng.randrange(len(tokens) - LENGTH) for _ in range(BATCH)]
        batch = torch.stack([tokens[i : i + LENGTH] for i in starts])
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (steps + 1) / 100) * (1 - done)
        now = model(batch, labels=batch).loss
        optimizer.zero_grad()
        now.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps, loss = steps + 1, 0.98 * loss + 0.02 * now.item() if steps else now.item()
        if steps % 200 == 0:
            print(f"model: step {steps}, loss {loss:.3f}", flush=True)
    print(
        f"model: {steps} steps, loss {loss:.3f}, {sum(p.numel() for p in model.parameters()):,} parameters", flush=True
    )
    model.eval().save_pretrained(folder)
    (folder / "tokenizer.json").write_text(words.to_str(), "utf-8")


def count_different(target: Target, kind: str, head: Path, rows: list[list[int]], temperature: float) -> int:
    """The number of texts that differ from plain decoding."""
    sampling = Sampling(temperature=temperature)
    requests = [
        Request(row, max_tokens=TOKENS, ignore_eos=True, seed=i, sampling=sampling) for i, row in enumerate(rows)
    ]
    plain, different = [Run(target).generate(request).result.tokens for request in requests], 0
    for batch in (1, 5):
        run = Run(target, [(kind, {"file": str(head), "p_min": 0.0, "draft_max": 4})], max_sequences=batch)
        results = [generation.result for generation in run.generate(requests)]
        wrong = sum(result.tokens != text for result, text in zip(results, plain, strict=True))
        steps, drafted = (sum(result.stats[name] for result in results) for name in ("steps", "drafted"))
        row = {
            "temperature": temperature,
            "batch": batch,
            "texts": len(requests),
            "different": wrong,
            "drafted": drafted,
        }
        print(json.dumps(row | {"tokens per step": round((TOKENS - 1) * len(requests) / steps, 2)}), flush=True)
        different += wrong
    return different


if __name__ == "__main__":
    sys.exit(main())
