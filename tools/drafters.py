"""The page of published drafters, from the table of pairs."""

from __future__ import annotations

from spec_hub.pairs import Pair, pairs

INTRODUCTION = """# Published drafters

Drafters that are published for a target, with the method that reads them and the address where the pair was named.
`spec get DRAFTER` fetches one, `--method best` finds what was fetched.
A row says that the drafter was published, not that it was tried here: sizes and licences are those of its page, and
`unknown` where the page that was read does not name them; `not measured` means that no speedup was measured here.
A method accepts a drafter only if its shapes are those of the target; [`spec doctor`](doctor.md) says how a file is read.

The dialect is that of the trainer.
`read as golden` means that drafts of such a file equal those of its trainer's code, `read, no golden` that there was no such code to compare with."""
GOLDEN = {
    ("eagle3", name)
    for name in ("SafeAILab", "SpecForge", "speculators", "Model-Optimizer", "NeMo AutoModel", "AngelSlim")
} | {
    *(("dspark", name) for name in ("DeepSpec", "SpecForge DSpark", "Liquid AI", "speculators")),
    ("dflash", "z-lab"), ("dflash2", "z-lab"), ("assistant", "Gemma 4 assistant"),
}  # fmt: skip
"""Methods and dialects with vectors of the trainer's own code."""
OTHERS = """
## Named without an address, or not read

| drafter | dialect | licence | state |
| --- | --- | --- | --- |
| NVIDIA Nemotron-3.5-Lightning-30B-A3B DFlash, DSpark | NVIDIA Model-Optimizer | unknown | read as golden; files in NVFP4 are not read |
| Meta Muse-Glimmer-30B-assistant | Meta's Muse assistant | apache-2.0 | read as golden |
| `satgeze`'s Qwen3.6-27B DSpark | DeepSpec | unknown | read as golden |
| `VirVen`'s Qwen3.5-27B EAGLE-3 | unknown | unknown | read, no golden |
| poolside Laguna XS and S 2.1 DFlash | Laguna | unknown | not read: its attention has gates of softplus |
| Kimi K3 DSpark with latent attention | SpecForge DSpark | unknown | not read: layers of latent attention; those of Qwen3 layers are |
| `tencent/Qwen3-8B-DSpine-b16`, `tencent/Qwen3.8-27B-DSpine-b16` | DSpine | apache-2.0 | not read: layers pass messages between positions |
| `jiapingW/Qwen3-8b-dspine-SpecForge` | DSpine | unknown | not read: as above |
| NVIDIA LiLiCorr heads | LiLiCorr | unknown | not read: layers of its own choose a path of candidates |
| `RedHatAI/Qwen3-8B-speculator.peagle` | speculators | unknown | not read: P-EAGLE drafts all positions from a vector of its own |
| `JetSpec/jetspec-qwen3-8b` | NeMo AutoModel | unknown | read, no golden |
"""


def drafters() -> str:
    """The page."""
    titles = ("target", "drafter", "method", "dialect", "state", "size", "licence", "measured")
    head = f"| {' | '.join(titles)} |\n|{' --- |' * len(titles)}"
    return f"{INTRODUCTION}\n\n" + "\n".join([head, *map(_row, pairs())]) + "\n" + OTHERS


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
