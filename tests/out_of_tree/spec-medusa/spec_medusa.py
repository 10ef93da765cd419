"""Draft a tree with heads over the last hidden state, each for a place further on (Medusa, Cai et al., 2401.10774).

A head is a residual block and an output matrix, output @ (h + SiLU(linear @ h + bias)). The heads are trained on
hidden states of the target, which stays as it is, and kept in a file::

    python -m spec_medusa zoo:pico texts.txt heads.safetensors
    spec generate -m zoo:pico --method medusa=heads.safetensors -p "def add(a, b):"
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attrs
import torch
from attrs.validators import ge
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import cross_entropy, silu

from spec_core import Compat, Draft, DraftStep, Needs, Refusal, Rows, StashKey, Target, TargetInfo, hookimpl, load
from spec_core.toolkit import TreeLimits, TreeNode, confidences, evaluate, grow_tree, most_likely, p_min_field

Row = list[tuple[int, float]]
"""The likeliest tokens of one head, each with its probability."""


@attrs.define(eq=False)
class Medusa:
    """Drafts the likeliest paths through what the heads predict, all from one hidden state."""

    file: Path | None = attrs.field(default=None, metadata={"help": "the heads that python -m spec_medusa wrote"})
    width: int = attrs.field(default=6, validator=ge(1), metadata={"help": "most tokens behind one token"})
    nodes_max: int = attrs.field(default=24, validator=ge(1), metadata={"help": "most tokens of a tree", "off": 256})
    p_min: float | None = p_min_field("leave out paths that are less likely; 0.1")
    heads: dict[str, Tensor] = attrs.field(factory=dict, init=False)
    last: StashKey[Tensor] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        needs = Needs(final=True, trees=True)
        return Compat(needs=needs, forwards=lambda k: 0, refusals=misfits(self.file, target.info), load=self.load)

    def load(self, target: Target) -> None:
        self.heads = load_file(str(self.file), device=target.info.device)

    @hookimpl
    def process(self, rows: Rows) -> None:
        for seq, span in rows.by_sequence():
            seq.stash[self.last] = span.final[-1].float().clone()

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, budget in step.undrafted:
            hidden = seq.stash[self.last]  # of the row before the last token
            rows = most_likely(predict(self.heads, hidden[None])[:, 0], self.width)
            depth, nodes = min(budget, len(rows)), min(step.nodes(seq), self.nodes_max)
            limits = TreeLimits(depth, nodes, self.width, step.price(seq, self.p_min, 0.1), seq.stop.tokens)
            following = partial(candidates, rows, limits.p_min)
            if tree := grow_tree(following(TreeNode(-1, -1, 0, 1.0), -1), following, limits):
                ids, parents = [node.token for node in tree], [node.parent for node in tree]
                step.propose(seq, Draft(ids, parents=parents, confidence=confidences(tree)))


def candidates(rows: list[Row], p_min: float, node: TreeNode, at: int) -> Iterator[TreeNode]:
    """Tokens of the next head behind a node of the tree, likeliest first. at: index of the node."""
    for token, chance in rows[node.depth]:
        if node.chance * chance >= p_min:
            yield TreeNode(token, at, node.depth + 1, node.chance * chance)


def predict(heads: dict[str, Tensor], hidden: Tensor) -> Tensor:
    """Logits [K, n, V] of all heads from hidden states [n, D]."""
    block = hidden + silu(hidden @ heads["linear"].mT + heads["bias"][:, None])
    return block @ heads["output"].mT


def misfits(file: Path | None, info: TargetInfo) -> list[Refusal]:
    """Why heads cannot draft for a target, from the header of their file."""
    if file is None:
        return [Refusal("no file of heads is named", "train some with python -m spec_medusa, and name it: medusa=FILE")]
    try:
        with safe_open(str(file), "pt") as opened:
            shape = opened.get_slice("output").get_shape()
    except Exception as error:
        return [Refusal(f"{file} cannot be read: {error}", "train heads with python -m spec_medusa")]
    if shape[1:] != [info.vocab, info.width]:
        return [Refusal(f"output is {shape}, {info.name} has {info.vocab} x {info.width}", "train heads for it")]
    return []


def train(target: Target, texts: list[list[int]], heads: int = 3, steps: int = 200) -> dict[str, Tensor]:
    """Heads that begin as the target's own output, and learn the tokens of texts (Medusa-1)."""
    hidden = torch.cat([final_states(target, ids)[: -1 - heads] for ids in texts])
    tokens = torch.cat([torch.tensor(ids).unfold(0, heads, 1)[2:] for ids in texts]).T  # [K, n]
    weights = {
        "linear": torch.zeros(heads, hidden.shape[1], hidden.shape[1], requires_grad=True),
        "bias": torch.zeros(heads, hidden.shape[1], requires_grad=True),
        "output": target.tensor("output.weight").float().repeat(heads, 1, 1).requires_grad_(),
    }
    optimizer = torch.optim.Adam(weights.values(), 1e-3)
    random = torch.Generator().manual_seed(0)
    for _ in range(steps):
        some = torch.randint(len(hidden), (256,), generator=random)
        loss = cross_entropy(predict(weights, hidden[some]).flatten(0, 1), tokens[:, some].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {name: weight.detach() for name, weight in weights.items()}


def final_states(target: Target, ids: list[int]) -> Tensor:
    """Hidden states [T, D] of a text."""
    final = evaluate(target, ids, Needs(final=True)).final
    assert final is not None
    return final.float().clone()


def main(model: str, texts: str, out: str) -> None:
    target = load(model)
    assert target.tokenizer is not None
    ids = target.tokenizer.encode(Path(texts).read_text("utf-8"))
    pieces = [ids[i : i + 256] for i in range(0, len(ids), 256)]
    save_file(train(target, [piece for piece in pieces if len(piece) > 16]), out)


if __name__ == "__main__":
    main(*sys.argv[1:])
