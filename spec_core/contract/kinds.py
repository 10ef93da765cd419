"""The kinds of proposal: how the tokens of a draft were chosen, and the names for them in ``Compat``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from spec_core.errors import nearest_names

Proposal = Literal["deterministic", "sampled", "unknown"]
Kind = Literal["deterministic", "sampled", "unknown", "mixed"]
Trace = Literal["states", "inputs"]
PROPOSALS: frozenset[Proposal] = frozenset({"deterministic", "sampled", "unknown"})
"""Kinds of proposal that a method makes drafts of."""
KINDS: frozenset[Kind] = PROPOSALS | {"mixed"}
"""Kinds of proposal that a draft may have."""
GREEDY = "greedy"
"""In ``Compat``: deterministic, and only for requests at temperature 0."""
GREEDY_ALONE = frozenset({GREEDY})
"""What a method declares that drafts for no request with a temperature."""


def convert_drafted(kinds: Iterable[str]) -> frozenset[str]:
    """The names in ``Compat.drafts``. Raises ValueError for an unknown one, which no rule could match."""
    return _among(kinds, PROPOSALS | {GREEDY})


def convert_judged(kinds: Iterable[str]) -> frozenset[str]:
    """The names in ``Compat.judges``. Raises ValueError for an unknown one, which no draft could match."""
    return _among(kinds, KINDS | {GREEDY})


def _among(kinds: Iterable[str], known: frozenset[str]) -> frozenset[str]:
    names = convert_names(kinds)
    for name in sorted(names - known, key=str):
        raise ValueError(f"{name!r} is not a kind of proposal; known, nearest first: {nearest_names(str(name), known)}")
    return names


def convert_names(names: Iterable[str]) -> frozenset[str]:
    """A set of names. A single text is refused: iterating over it would give its letters."""
    if isinstance(names, str):
        raise TypeError(f"a set of names is needed, got the text {names!r}: write {{{names!r}}}")
    return frozenset(names)


def is_declared(proposal: str, declared: frozenset[str], temperature: float) -> bool:
    """Whether a method that declared these kinds may make such a draft for a request at this temperature."""
    return proposal in declared or (proposal == "deterministic" and GREEDY in declared and temperature == 0)


def is_served(declared: frozenset[str] | None, temperature: float) -> bool:
    """Whether a method that declared these kinds drafts for requests at this temperature."""
    return temperature == 0 or declared != GREEDY_ALONE


def unjudged_kinds(drafted: frozenset[str], judged: frozenset[str]) -> frozenset[str]:
    """Of the kinds that a method drafts, all that a rule does not judge. Greedy drafts are deterministic."""
    return drafted - judged - (GREEDY_ALONE if "deterministic" in judged else frozenset())
