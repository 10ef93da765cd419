"""Converts texts to token arrays: the tokenizer, the stream of whole files, and packed task sequences."""

from __future__ import annotations

import random

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from spec_zoo.texts import tasks

VOCAB = 3072
END = "<|endoftext|>"
SPECIALS = (END, "<|im_start|>", "<|im_end|>")
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The pre-tokenizer of qwen2: words with one leading character, single digits."""


def train_tokenizer(texts: list[str], vocab: int = VOCAB) -> Tokenizer:
    """Byte-level BPE over the training texts. Merges come first, special tokens last."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab - len(SPECIALS), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIALS])
    return tokenizer


def encode_texts(tokenizer: Tokenizer, texts: list[str]) -> list[np.ndarray]:
    """Token ids of each text, uint16, without special tokens."""
    encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return [np.array(e.ids, dtype=np.uint16) for e in encoded]


def stream(tokenizer: Tokenizer, texts: list[str], seed: int = 0) -> np.ndarray:
    """All texts one after the other in random order, each followed by the end token."""
    ids = encode_texts(tokenizer, texts)
    random.Random(seed).shuffle(ids)
    end = np.array([tokenizer.token_to_id(END)], dtype=np.uint16)
    return np.concatenate([part for one in ids for part in (one, end)])


def pack_sequences(tokenizer: Tokenizer, texts: list[str], length: int) -> np.ndarray:
    """[N, length] sequences that start at the beginning of a text; the last text of each is cut."""
    end = tokenizer.token_to_id(END)
    assert end is not None
    rows: list[list[int]] = [[]]
    for ids in encode_texts(tokenizer, texts):
        rows[-1] += [*ids.tolist(), end]
        if len(rows[-1]) >= length:
            rows.append([])
    return np.array([row[:length] for row in rows if len(row) >= length], dtype=np.uint16)


def task_texts(texts: list[str], count: int, seed: int) -> list[str]:
    """Edit and record tasks made from training texts."""
    rng = random.Random(seed)
    return [tasks.write_records(rng) if rng.random() < 0.3 else tasks.edit_task(rng, texts) for _ in range(count)]


def task_rows(tokenizer: Tokenizer, texts: list[str], count: int, length: int, seed: int = 1) -> np.ndarray:
    """[N, length] packed edit and record tasks made from training texts."""
    return pack_sequences(tokenizer, task_texts(texts, count, seed), length)


def repeat_row(rng: np.random.Generator, source: np.ndarray, length: int) -> np.ndarray:
    """[length] a span of the stream that is repeated, directly or after other text, until the row is full."""
    at = rng.integers(len(source) - length)
    row = source[at : at + length].copy()
    span = int(rng.integers(16, 200))
    gap = int(rng.integers(0, 80)) if rng.random() < 0.5 else 0
    period = span + gap
    for start in range(period, length, period):
        n = min(span, length - start)
        row[start : start + n] = row[:n]
    return row
