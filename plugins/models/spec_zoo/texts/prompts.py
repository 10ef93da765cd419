"""Prompts in four families.

edit: code and an instruction to repeat it with a change. structured: records to be repeated in another notation.
new code: the beginning of a module or class. prose: the beginning of a text.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from spec_zoo.texts import data, tasks

FAMILIES = ("edit", "structured", "new code", "prose")


def edit_prompt(rng: random.Random, texts: list[str]) -> str:
    """A snippet long enough that its copy has 128 tokens, and an instruction."""
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
    """The text of a file up to the body of a class or function."""
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
        "edit": lambda: edit_prompt(rng, code),
        "structured": lambda: two_notations(rng),
        "new code": lambda: new_code(rng, code),
        "prose": lambda: prose(rng, texts),
    }


def questions(count: int, seed: int = 0) -> list[str]:
    """Prompts of the four families in turn, from training text; draft heads are trained on the answers."""
    lists = list(makers(random.Random(seed), data.split_files()[0], data.prose()[0]).values())
    return [lists[i % len(lists)]() for i in range(count)]
