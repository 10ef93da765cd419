"""Initial weights with which the first two layers copy; training a small model to copy takes millions of tokens.

An induction circuit (Olsson et al., 2209.11895): a head of layer 0 attends to the previous token and writes its code
next to the current one; a head of layer 1 attends to the position whose *previous* token is the current one, and copies
the token there. Training may change these weights; all others are initialised at random.
"""

from __future__ import annotations

import torch

from tools.zoo.model import Model, Shape

CODE = 36
"""Residual dimensions 0 to 35 hold a token's code, the next 36 the previous token's; the last one is constant."""
EMBED_STD = 0.05
SHARP_PREVIOUS, SHARP_MATCH = 2.0, 1.5
"""Weights of the norms on q and k: the scale of scores."""
FAST_PAIRS = 6
"""Rotary pairs fast enough to tell adjacent positions apart."""


@torch.no_grad()
def start(model: Model) -> None:
    """Write the circuit into layers 0 and 1 of a new model."""
    shape = model.shape
    for block in model.blocks:
        # Other writes to the residual stream start at zero, else their noise would be larger than the codes.
        block.out.weight.zero_()
        block.down.weight.zero_()
    embed = model.embed.weight
    embed.normal_(std=EMBED_STD)
    embed[:, -1] = EMBED_STD
    model.norm.weight[:CODE] = 3.0
    _previous(model.blocks[0], shape)
    _match(model.blocks[1], shape)


def _clear(block: torch.nn.Module, shape: Shape) -> None:
    """Zero what the circuit sets: the first query head, keys and values."""
    block.qkv.weight[: shape.head] = 0
    block.qkv.weight[shape.heads * shape.head :] = 0


def _values(block: torch.nn.Module, shape: Shape, into: int, gain: float) -> None:
    """Values are token codes; the first head writes them to dimensions ``into`` and up."""
    v = shape.heads * shape.head + shape.kv_heads * shape.head
    index = torch.arange(CODE)
    block.qkv.weight[v + index, index] = 1.0
    block.out.weight[into + index, index] = gain * EMBED_STD


def _previous(block: torch.nn.Module, shape: Shape) -> None:
    """Score cos((distance - 1) theta), summed over the fast pairs: largest at distance 1."""
    _clear(block, shape)
    half, k = shape.head // 2, shape.heads * shape.head
    pair = torch.arange(FAST_PAIRS)
    theta = shape.rope_base ** (-2.0 * pair / shape.head)
    block.qkv.weight[pair, -1] = 1.0
    block.qkv.weight[k + pair, -1] = theta.cos()
    block.qkv.weight[k + half + pair, -1] = theta.sin()
    block.q_norm.weight.fill_(SHARP_PREVIOUS)
    block.k_norm.weight.fill_(SHARP_PREVIOUS)
    _values(block, shape, into=CODE, gain=1.5)


def _match(block: torch.nn.Module, shape: Shape) -> None:
    """Score: match of the current code with previous tokens' codes, on pairs that barely rotate within a context."""
    _clear(block, shape)
    half, k = shape.head // 2, shape.heads * shape.head
    slow = torch.arange(half - CODE // 2, half)
    dims = torch.cat([slow, slow + half])
    index = torch.arange(CODE)
    block.qkv.weight[dims, index] = 1.0
    block.qkv.weight[k + dims, CODE + index] = 1.0
    block.q_norm.weight.fill_(SHARP_MATCH)
    block.k_norm.weight.fill_(SHARP_MATCH)
    _values(block, shape, into=0, gain=3.0)
