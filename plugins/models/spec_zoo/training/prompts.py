"""Prompts from held-out text, in four families: ``python -m spec_zoo.training.prompts --out DIR``.

edit: code and an instruction to repeat it with a change. structured: records to be repeated in another notation.
new code: the beginning of a held-out module or class. prose: the beginning of a held-out text.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from tokenizers import Tokenizer

from spec_zoo.training import data, tasks

ZOO_FOLDER = Path(__file__).parents[1]
FAMILIES = ("edit", "structured", "new code", "prose")
SHIPPED, MANY = 10, 50
"""Number of prompts of each family in the shipped set, and in the large one."""
MAX_TOKENS = 340


def edit(rng: random.Random, texts: list[str]) -> str:
    """A held-out snippet long enough that its copy has 128 tokens, and an instruction."""
    while True:
        text = tasks.snippet(rng, texts, 12, 26)
        instruction, changed = rng.choice(tasks.EDITS)(rng, text)
        if len(text) > 480:
            return f"{text}\n\n{instruction}\n\n{changed.split(chr(10))[0]}\n"


def two_notations(rng: random.Random) -> str:
    fields, rows = tasks.records(rng, rng.randint(6, 8))
    first, second = rng.sample(tasks.NOTATIONS, 2)
    return f"{first(fields, rows)}\n\n# the same records as {second.__doc__}:\n\n"


def new_code(rng: random.Random, texts: list[str]) -> str:
    """The text of a held-out file up to the body of a class or function."""
    while True:
        lines = rng.choice(texts).split("\n")
        starts = [i for i, line in enumerate(lines) if line.lstrip().startswith(("def ", "class "))]
        if len(starts) < 3:
            continue
        at = rng.choice(starts[1:])
        return "\n".join(lines[max(0, at - 14) : at + 1]) + "\n"


def prose(rng: random.Random, texts: list[str]) -> str:
    text = rng.choice(texts)
    at = rng.randrange(max(1, len(text) - 900))
    at = text.find("\n\n", at) + 2 if "\n\n" in text[at:-700] else 0
    return text[at : at + rng.randint(300, 600)].rsplit(" ", 1)[0]


def makers(rng: random.Random, code: list[str], topics: list[str]) -> dict[str, Callable[[], str]]:
    """Functions that make a prompt of each family, from files and from prose."""
    texts = topics + data.docstrings(code)
    return {
        "edit": lambda: edit(rng, code),
        "structured": lambda: two_notations(rng),
        "new code": lambda: new_code(rng, code),
        "prose": lambda: prose(rng, texts),
    }


def questions(count: int, seed: int = 0) -> list[str]:
    """Prompts of the four families in turn, from training text; draft heads are trained on the answers."""
    lists = list(makers(random.Random(seed), data.split()[0], data.prose()[0]).values())
    return [lists[i % len(lists)]() for i in range(count)]


def prompts(tokenizer: Tokenizer, each: int, seed: int) -> Iterator[dict[str, str]]:
    """``each`` prompts of every family from held-out text; the same seed gives the same ones."""
    for family, make in makers(random.Random(seed), data.split()[1], data.prose()[1]).items():
        texts: list[str] = []
        while len(texts) < each:
            text = make()
            if 30 <= len(tokenizer.encode(text).ids) <= MAX_TOKENS and text not in texts:
                texts.append(text)
        yield from (
            {"id": f"{family.replace(' ', '-')}-{i}", "family": family, "prompt": t} for i, t in enumerate(texts)
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where the tokenizer was trained")
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.out / "tokenizer.json"))
    for name, each, seed in (("prompts.jsonl", SHIPPED, 7), ("prompts-200.jsonl", MANY, 8)):
        lines = [json.dumps(p, ensure_ascii=False) for p in prompts(tokenizer, each, seed)]
        (ZOO_FOLDER / name).write_text("\n".join(lines) + "\n", "utf-8")
        print(f"{name}: {len(lines)} prompts")


if __name__ == "__main__":
    main()
