"""Random vocabularies, for the C that reads them and the Python code that it must equal."""

from __future__ import annotations

import random
import struct
from array import array
from itertools import product
from typing import Any

from spec_targets.formats.texts import read_texts
from spec_targets.tokenizer import gguf_vocabulary, merges
from spec_targets.tokenizer.gguf_vocabulary import BYTE, CONTROL, NORMAL, UNUSED, USER, from_gguf

LETTERS = ["a", "b", "▁", "é", "<", "0", "x", "E", "2", ">", "😀", " "]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
KINDS = (NORMAL, NORMAL, NORMAL, NORMAL, USER, CONTROL, UNUSED)


def text_of(rng: random.Random, most: int) -> str:
    return "".join(rng.choices(LETTERS[: rng.choice((2, 3, 4, len(LETTERS)))], k=rng.randint(1, most)))


def scored_metadata(seed: int) -> dict[str, Any]:
    """Metadata of a SentencePiece vocabulary: equal scores, equal pieces, pieces with names of bytes and of the token
    for unknown characters, long pieces, characters without a token."""
    rng = random.Random(seed)
    pieces = {letter: None for letter in LETTERS if rng.random() < 0.9}
    for _ in range(rng.choice((5, 30, 200))):
        known = list(pieces)
        joined = "".join(rng.choices(known, k=rng.randint(2, 3))) if rng.random() < 0.8 else text_of(rng, 6)
        pieces[joined[:300]] = None
    if rng.random() < 0.7:
        dense = [
            "".join(letters) for size in (2, 3, 4, 5) for letters in product("abé"[: rng.randint(1, 3)], repeat=size)
        ]
        pieces |= dict.fromkeys(rng.sample(dense, min(len(dense), rng.choice((10, 60, 120)))))
    texts = list(pieces)
    rng.shuffle(texts)
    if rng.random() < 0.2:
        texts += rng.choices(texts, k=3)
    if rng.random() < 0.5:
        texts += ["<0xE2>a", "a<0xE2>", "<unk>a", "a" * 40, "a" * 20, "a" * 10]
    unknown = rng.choice(["<unk>", "<unk>", "<unk>", "a", "ab", "zz"])
    tokens = [unknown, *(BYTES if rng.random() < 0.8 else BYTES[:64]), *texts]
    scores = [rng.choice((0.0, -1.0, -2.0, float(-i))) for i in range(len(tokens))]
    kinds = [CONTROL, *(BYTE for _ in tokens[1 : len(tokens) - len(texts)]), *rng.choices(KINDS, k=len(texts))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": rng.random() < 0.5,
    }


def check_scored(seed: int) -> None:
    """Texts have the same tokens with merges from C and from Python."""
    rng, metadata = random.Random(seed), scored_metadata(seed)
    quick, plain = from_gguf(metadata), from_gguf(metadata)
    quick.encode("")
    real, merges.module = merges.module, None
    try:
        plain.encode("")
    finally:
        merges.module = real
    for _ in range(60):
        kind = rng.randrange(3)
        pieces = metadata["tokenizer.ggml.tokens"] if kind == 0 else "abé"
        text = text_of(rng, 30) if kind == 1 else "".join(rng.choices(pieces, k=rng.randint(2, 20)))
        assert quick.encode(text) == plain.encode(text), (seed, text)


def check_listed(seed: int) -> None:
    """The same merges from C and from Python; damaged ones are left out."""
    rng = random.Random(seed)
    tokens = [text_of(rng, 3) for _ in range(rng.randint(1, 40))] + rng.choice(([], [""], [" ", "a b"]))
    texts: list[Any] = [f"{rng.choice(tokens)} {rng.choice(tokens)}" for _ in range(200)]
    texts += ["", " ", "a", "a  b", "  a", "é é", None, 7, b"a b", "\ud800 a", "a " * 50]
    ids = gguf_vocabulary._first_ids(tokens)
    pairs = merges.listed_merges(tokens, ids, texts)
    real, merges.module = merges.module, None
    try:
        assert list(pairs) == list(merges.listed_merges(tokens, ids, texts))
    finally:
        merges.module = real


def check_stored(seed: int) -> None:
    """Texts and their ends are read as they were stored; what does not lie in the buffer is refused."""
    rng = random.Random(seed)
    texts = [
        rng.choice((b"", b"a", b"\xff\xfe", b"\xe2\x96", "é▁😀".encode(), bytes(300)))
        for _ in range(rng.randint(0, 50))
    ]
    data = b"skipped" + b"".join(struct.pack("<Q", len(text)) + text for text in texts)
    ends = array("Q", merges.module.read_ends(data, 7, len(texts)))
    assert read_texts(memoryview(data), 7, ends) == [text.decode("utf-8", "replace") for text in texts]
    for length in (len(texts) + 1, 1 << 40, (1 << 63) - 1, -1):
        assert merges.module.read_ends(data, 7, length) is None
    for cut in range(max(7, len(data) - 20), len(data)):
        assert merges.module.read_ends(data[:cut], 7, len(texts)) is None
    for length in (1 << 63, (1 << 64) - 1, (1 << 64) - 8, len(data) + 1):
        assert merges.module.read_ends(struct.pack("<Q", length) + data, 0, 1) is None
    for start in (-1, 1 << 60, len(data) + 1):
        assert merges.module.read_ends(data, start, 0 if start > 0 else 1) is None
    for wrong in ([len(data) + 1], [7], [20, 10], [(1 << 64) - 1]):
        try:
            merges.module.read_texts(data, 7, array("Q", wrong))
        except ValueError as error:
            assert "outside the buffer" in str(error)
        else:
            raise AssertionError(wrong)


def check_all(first: int, last: int) -> None:
    for seed in range(first, last):
        check_scored(seed)
        check_listed(seed)
        check_stored(seed)
