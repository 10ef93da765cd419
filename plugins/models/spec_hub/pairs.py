"""The table of pairs: which drafters are published for which target, and where each was named."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import attrs

FILE = Path(__file__).with_name("pairs.tsv")
NOT_MEASURED = "not measured"
LABEL = re.compile(r"[-.](GGUF|(UD-)?(I?Q\d\w*|TQ\d\w*|MXFP4\w*|BF16|F16|F32)|\d{5}-of-\d{5})$", re.IGNORECASE)
"""The end of a file's name that does not belong to the model's: its format, quantisation or part."""


@attrs.frozen
class Pair:
    """A target and a drafter: a row of ``pairs.tsv``.

    target: a pattern for the whole name of the target. drafter: its repository. kind: the method. size: number of
    parameters as its page says, or "unknown"; license likewise. source: the address where the pair was named.
    measured: machine, speedup and date, or "not measured". dialect: of the trainer that writes such files.
    """

    target: str
    drafter: str
    kind: str
    size: str
    license: str
    source: str
    measured: str
    dialect: str = "unknown"

    def fits(self, name: str) -> bool:
        """Whether this is a name of the target."""
        return re.fullmatch(self.target, name, re.IGNORECASE) is not None


@cache
def pairs() -> tuple[Pair, ...]:
    """All rows, in the order of the file."""
    head, *rows = (line.split("\t") for line in FILE.read_text("utf-8").splitlines())
    return tuple(Pair(**dict(zip(head, row, strict=True))) for row in rows)


def published_pairs(names: Iterable[str]) -> list[Pair]:
    """Pairs for a target that has these names."""
    plain = {plain_name(name) for name in names}
    return [pair for pair in pairs() if any(pair.fits(name) for name in plain)]


def plain_name(name: str) -> str:
    """A model's name without its owner, format, quantisation and part: ``Qwen3-8B-GGUF`` becomes ``Qwen3-8B``."""
    plain = re.sub(r"[ _]+(?=\w)", lambda match: "-" if " " in match[0] else match[0], name.rpartition("/")[2])
    while (shorter := LABEL.sub("", plain)) != plain:
        plain = shorter
    return plain


def target_names(name: str, file: str) -> list[str]:
    """Names under which the table may have a target. name: its own. file: where it lies, also in the hub's cache."""
    path = Path(file)
    repositories = [part.rpartition("--")[2] for part in path.parts if part.startswith("models--")]
    return [name, path.name.removesuffix(".gguf"), *repositories]
