"""The page of published drafters, from the table of pairs."""

from __future__ import annotations

from pathlib import Path

from spec_hub.pairs import Pair, pairs

INTRODUCTION = """# Published drafters

Drafters that are published for a target, with the method that reads them and the address where the pair was named.
`spec get DRAFTER` fetches one, `--method best` finds what was fetched.
A row says that the drafter was published, not that it was tried here: sizes and licences are from its page, and
`unknown` where the page that was read does not name them; `not measured` means that no speedup was measured here.
A method accepts a drafter only if its shapes are the target's.

The dialect is that of the trainer, and [`spec doctor`](doctor.md) shows that of a file.
`read as golden`: drafts of such a file equal its trainer's code's; `read, no golden`: there was no such code to
compare with."""
GOLDEN = {
    ("eagle3", name)
    for name in ("SafeAILab", "SpecForge", "speculators", "Model-Optimizer", "NeMo AutoModel", "AngelSlim")
} | {
    *(("dspark", name) for name in ("DeepSpec", "SpecForge DSpark", "Liquid AI", "speculators")),
    ("dflash", "z-lab"), ("dflash", "Laguna"), ("dflash2", "z-lab"), ("dspine", "SpecForge"), ("lilicorr", "NVIDIA"),
    ("assistant", "Gemma 4 assistant"),
}  # fmt: skip
"""Methods and dialects with vectors of the trainer's own code."""
OTHERS = Path(__file__).with_name("drafters.md")
"""Drafters without an address, or that are not read."""


def drafters() -> str:
    """The page."""
    titles = ("target", "drafter", "method", "dialect", "state", "size", "licence", "measured")
    head = f"| {' | '.join(titles)} |\n|{' --- |' * len(titles)}"
    return f"{INTRODUCTION}\n\n" + "\n".join([head, *map(_row, pairs())]) + "\n\n" + OTHERS.read_text("utf-8")


def _row(pair: Pair) -> str:
    cells = (
        f"`{pair.target}`".replace("\\.", "."),
        f"[`{pair.drafter}`]({pair.source})",
        f"[`{pair.kind}`](methods/{pair.kind}.md)",
        pair.dialect,
        "read as golden" if (pair.kind, pair.dialect) in GOLDEN else "read, no golden",
        pair.size,
        pair.license,
        pair.measured,
    )
    return f"| {' | '.join(cells)} |"
