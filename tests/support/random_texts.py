"""Random texts to compare tokenizers on: in seconds for the suite, for long in tests/campaigns/vocabularies.py."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from spec_targets.formats.gguf import open_gguf
from spec_targets.tokenizer.gguf_vocabulary import from_gguf
from tokenizers import Tokenizer

from tests.support.golden import golden

EMOJI = ("🙂", "👨\u200d👩\u200d👧", "🏳️\u200d🌈", "🇫🇷", "👍🏽")
WORDS = ("The", "the", "in", "ion", "it's", "x = 1", "日本語", "e\u0301", "Å", "ß", "<0x0A>", "<0x41>", "</s>")
SURROGATES = range(0xD800, 0xE000)


def character(rng: random.Random) -> str:
    """One character of any plane, the first ones most often."""
    while (code := rng.randrange(rng.choice((0x80, 0x800, 0x10000, 0x110000)))) in SURROGATES:
        pass
    return chr(code)


PARTS: tuple[Callable[[random.Random], str], ...] = (
    lambda rng: "\n" * rng.randrange(1, 13),
    lambda rng: " " * rng.randrange(1, 20),
    lambda rng: rng.choice(("\t", "\t\t", "\r\n", "\r", "\x0b", "\u00a0", "\u2003", "\u2028")),
    lambda rng: "▁" * rng.randrange(1, 4),
    lambda rng: rng.choice(EMOJI),
    lambda rng: rng.choice(WORDS),
    lambda rng: "".join(character(rng) for _ in range(rng.randrange(1, 6))),
)


def random_texts(count: int, seed: int, names: Sequence[str]) -> Iterator[str]:
    """Texts of up to 15 parts. names: of special tokens, whole and cut."""
    rng = random.Random(seed)
    for _ in range(count):
        parts = [rng.choice(PARTS)(rng) for _ in range(rng.randrange(1, 12))]
        parts += [name[: rng.choice((None, -1))] for name in rng.choices(names, k=rng.randrange(4))]
        rng.shuffle(parts)
        yield "".join(parts)


def different_texts(family: str, count: int, seed: int = 0) -> list[str]:
    """Texts to which the GGUF file's tokenizer gives other ids than the package ``tokenizers`` by tokenizer.json."""
    folder = golden(family)
    tokenizer = from_gguf(open_gguf(folder / "model-f32.gguf").metadata)
    reference = Tokenizer.from_file(str(folder / "hf" / "tokenizer.json"))
    names = [token.content for token in reference.get_added_tokens_decoder().values()]
    different = []
    for text in random_texts(count, seed, names):
        for special in (True, False):
            reference.encode_special_tokens = not special
            expected = reference.encode(text, add_special_tokens=False).ids
            if tokenizer.encode(text, special=special, bos=False) != expected:
                different.append(text)
    return different
