"""Draws of two arms as a tree of characters: what may follow an equal beginning, and how often it did.

Servers report tokens only with log-probabilities, and some do not draft then. The distribution of texts is that of
their next characters after every beginning, so characters serve as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from os.path import commonprefix

import attrs

END = ""
"""The symbol of a text that ends."""
POOL = 20
"""Draws of both arms that a symbol has at least; rarer ones are counted together."""


@attrs.frozen
class Branch:
    """A beginning after which texts go on differently. counts: {next character: draws of each arm}."""

    beginning: str
    counts: dict[str, tuple[int, int]]

    @property
    def totals(self) -> tuple[int, int]:
        """Draws of each arm that reach the branch."""
        return sum(a for a, _ in self.counts.values()), sum(b for _, b in self.counts.values())


def branches(first: Mapping[str, int], second: Mapping[str, int]) -> Iterator[Branch]:
    """Every branch with at least two symbols that are frequent enough, shorter beginnings first."""
    waiting = [("", sorted({*first, *second}))]
    while waiting:
        beginning, texts = waiting.pop()
        beginning = common_beginning(texts)
        groups: dict[str, list[str]] = {}
        for text in texts:
            groups.setdefault(text[len(beginning) : len(beginning) + 1], []).append(text)
        counts = {symbol: (_sum(first, group), _sum(second, group)) for symbol, group in groups.items()}
        frequent = [symbol for symbol, pair in counts.items() if sum(pair) >= POOL]
        if len(groups) > 1 and sum(map(sum, counts.values())) >= 2 * POOL:
            yield Branch(beginning, counts)
        waiting += [(beginning, groups[symbol]) for symbol in frequent if symbol != END and len(groups[symbol]) > 1]


def common_beginning(texts: list[str]) -> str:
    """The longest beginning that all texts have."""
    return commonprefix(texts)  # noqa: RUF071


def _sum(counts: Mapping[str, int], texts: list[str]) -> int:
    return sum(counts.get(text, 0) for text in texts)


def classes(first: Mapping[str, int], second: Mapping[str, int]) -> list[tuple[int, int]]:
    """Draws of each arm by class of texts: texts with equal beginnings share a class until it is frequent enough."""
    pooled = Counter(first) + Counter(second)
    texts, parts = sorted(pooled, key=lambda text: (-pooled[text], text)), list[tuple[int, int]]()
    rest: dict[str, list[str]] = {}
    for text in texts:
        if pooled[text] >= POOL:
            parts.append((first.get(text, 0), second.get(text, 0)))
        else:
            rest.setdefault(text[: len(text) // 2], []).append(text)
    left = [0, 0]
    for group in rest.values():
        pair = (_sum(first, group), _sum(second, group))
        if sum(pair) >= POOL:
            parts.append(pair)
        else:
            left = [left[0] + pair[0], left[1] + pair[1]]
    if sum(left) >= POOL or not parts:
        return [*parts, (left[0], left[1])]
    return [*parts[:-1], (parts[-1][0] + left[0], parts[-1][1] + left[1])]
