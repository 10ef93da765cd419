"""What a picture is worth to a draft model: two models trained in minutes to read digits in pictures aloud.

    python benchmarks/digits.py FOLDER [--steps 600] [--write]

A picture shows three digits with noise; the text names them in words, forwards and backwards, and their sum. The target
and two draft models are llava models of a few hundred thousand weights; the second draft model never saw a picture. The
first drafts with the picture, and with the rows of the picture left out. Trained models are kept in FOLDER.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from spec_core.lazy import call_before_torch

call_before_torch()

import torch  # noqa: E402
import transformers  # noqa: E402
from PIL import Image, ImageDraw, ImageFont  # noqa: E402
from spec_methods.draft_model import DraftModel  # noqa: E402
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers  # noqa: E402

from benchmarks.support import results  # noqa: E402
from spec_core import Request, Run, Sampling, load  # noqa: E402

WORDS = "zero one two three four five six seven eight nine".split()
SPECIAL = ("<unk>", "<s>", "</s>", "<image>")
SIDE, PATCH, SHOWN = 32, 8, 3
"""Pixels of a picture's side and of a patch's, and digits of a picture."""
PROMPT = "<image> read: "
SIZES = {"target": (96, 2, 64, 1), "draft": (48, 1, 48, 1), "blind": (48, 1, 48, 1)}
"""Width and layers of the text part and of the tower."""
FAINT = bytes(value // 6 for value in range(256))
COLUMNS = ("draft model", "temperature", "accepted", "tokens per step", "texts equal plain decoding's")
CASES = (
    ("reads the picture", "draft", True),
    ("the same, without the rows of the picture", "draft", False),
    ("trained without pictures", "blind", False),
)
"""What is compared: words, the directory of the model, and whether it reads the picture."""
TESTED = 40
"""Pictures that no model was trained on."""


def draw_picture(digits: list[int], noise: random.Random) -> Image.Image:
    """Digits side by side on a noisy ground, each a little off its place."""
    ground = noise.randbytes(SIDE * SIDE).translate(FAINT)
    image = Image.frombytes("L", (SIDE, SIDE), ground)
    for place, digit in enumerate(digits):
        at = 1 + place * 10 + noise.randrange(0, 2), 8 + noise.randrange(0, 2)
        ImageDraw.Draw(image).text(at, str(digit), fill=noise.randrange(180, 256), font=ImageFont.load_default(14))
    return image.convert("RGB")


def answer(digits: list[int]) -> str:
    forwards, backwards = (" ".join(WORDS[digit] for digit in order) for order in (digits, digits[::-1]))
    return f"{forwards}. backwards: {backwards}. the sum is {sum(digits)}."


def examples(seed: int) -> Iterator[tuple[Image.Image, str]]:
    noise = random.Random(seed)
    while True:
        digits = [noise.randrange(10) for _ in range(SHOWN)]
        yield draw_picture(digits, noise), answer(digits)


def make_tokenizer(folder: Path) -> None:
    """A vocabulary of characters."""
    characters = sorted(set(PROMPT + "".join(WORDS) + answer([1, 2, 3]) + "0123456789"))
    ids = {text: i for i, text in enumerate([*SPECIAL, *characters])}
    backend = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    backend.decoder = decoders.Fuse()
    whole = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<unk>",
        padding_side="right",
        add_bos_token=True,
    )
    whole.add_special_tokens({"additional_special_tokens": ["<image>"]})
    whole.save_pretrained(folder)


def make_model(name: str, vocabulary: int) -> Any:
    width, layers, seen, depth = SIZES[name]
    sizes = dict(num_attention_heads=4, initializer_range=0.05)
    text = transformers.LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
        num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, **sizes,
    )  # fmt: skip
    vision = transformers.CLIPVisionConfig(
        hidden_size=seen, intermediate_size=2 * seen, num_hidden_layers=depth + 1, image_size=SIDE, patch_size=PATCH,
        **sizes,
    )  # fmt: skip
    config = transformers.LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=SPECIAL.index("<image>"),
        vision_feature_layer=-2,
        tie_word_embeddings=False,
    )
    return transformers.LlavaForConditionalGeneration(config)


def make_processor(folder: Path) -> Any:
    pictures = transformers.CLIPImageProcessorPil(
        size={"height": SIDE, "width": SIDE}, crop_size={"height": SIDE, "width": SIDE}, do_center_crop=False
    )
    words = transformers.AutoTokenizer.from_pretrained(folder)
    return transformers.LlavaProcessor(
        pictures, words, patch_size=PATCH, vision_feature_select_strategy="default", image_token="<image>",
        num_additional_image_tokens=1,
    )  # fmt: skip


def train(name: str, folder: Path, steps: int, seed: int) -> float:
    """Train a model and write its directory; returns the seconds."""
    torch.manual_seed(seed)
    folder.mkdir(parents=True)
    make_tokenizer(folder)
    processor = make_processor(folder)
    model, began = make_model(name, len(processor.tokenizer)), perf_counter()
    stream, rate = examples(seed), 2e-3
    asked = processor(text=PROMPT, images=[next(stream)[0]], return_tensors="pt")["input_ids"].shape[1]
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for step in range(steps):
        images, texts = zip(*(next(stream) for _ in range(48)), strict=True)
        batch = processor(
            text=[f"{PROMPT}{text}</s>" for text in texts], images=list(images), return_tensors="pt", padding=True
        )
        labels = batch["input_ids"].clone()
        labels[:, :asked] = -100
        labels[batch["attention_mask"] == 0] = -100
        if name == "blind":
            batch["pixel_values"] = torch.zeros_like(batch["pixel_values"])
        loss = model(**batch, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"{name}: step {step}, loss {loss.item():.3f}, {perf_counter() - began:.0f} s", flush=True)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return perf_counter() - began


def measure(target: Any, draft: Path, sees: bool, temperature: float) -> tuple[float, float, bool]:
    """(share of drafted tokens that were accepted, tokens per step, whether all texts equal plain decoding's)."""
    method = DraftModel(file=str(draft), p_min=0.0, draft_max=6)
    run, plain = Run(target, [method]), Run(target)
    if not sees:
        method.model.image_encoder = None
    drafted = accepted = tokens = steps = 0
    same = True
    for (image, _), seed in zip(examples(10**6), range(TESTED), strict=False):
        request = Request(PROMPT, images=[image], max_tokens=80, seed=seed, sampling=Sampling(temperature=temperature))
        result = run.generate(request).result
        same = same and result.tokens == plain.generate(request).result.tokens
        drafted, accepted = drafted + result.stats["drafted"], accepted + result.stats["accepted"]
        tokens, steps = tokens + len(result.tokens), steps + result.stats["steps"]
    return accepted / drafted, tokens / steps, same


def right_share(target: Any) -> float:
    """Share of new pictures that the target reads without a mistake."""
    run, pairs = Run(target), zip(examples(10**6), range(TESTED), strict=False)
    texts = [
        (run.generate(Request(PROMPT, images=[image], max_tokens=80)).result.text, text) for (image, text), _ in pairs
    ]
    return sum(text.strip() == expected for text, expected in texts) / len(texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--write", action="store_true", help="put the table in benchmarks/results/pictures.json")
    args = parser.parse_args()
    for seed, name in enumerate(SIZES):
        if not (args.folder / name).exists():
            print(f"{name}: trained for {train(name, args.folder / name, args.steps, seed):.0f} s")
    table = lines(args.folder)
    print("\n".join(table))
    if args.write:
        results.save("pictures", {"draft models": table}.get)


def lines(folder: Path) -> list[str]:
    """The table in Markdown."""
    target = load(str(folder / "target"))
    table = [f"| {' | '.join(COLUMNS)} |", "| --- | --- | --- | --- | --- |"]
    for words, name, sees in CASES:
        for temperature in (0.0, 0.8):
            share, per_step, same = measure(target, folder / name, sees, temperature)
            table.append(f"| {words} | {temperature:g} | {share:.2f} | {per_step:.2f} | {'yes' if same else 'NO'} |")
    read = f"The target reads {right_share(target):.0%} of {TESTED} new pictures without a mistake."
    return [*table, "", read]


if __name__ == "__main__":
    main()
