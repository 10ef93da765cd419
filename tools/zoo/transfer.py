"""Initialises the hybrid from the trained dense model: common weights are copied, and each gated delta net is trained
to imitate the attention layer it replaces. So the hybrid keeps the induction circuit of its parent.

Layer by layer, as in Zhang et al. (LoLCATs, 2410.10254): inputs and target outputs are the parent's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import torch
from torch import Tensor

from tools.zoo.hybrid import Attention, DeltaNet, Hybrid, HybridBlock, Mtp
from tools.zoo.model import Block, Model, angles


@torch.no_grad()
def copy(parent: Model, child: Hybrid) -> None:
    """Copies embedding, norms, feed-forward layers, and the attention layers that remain."""
    child.embed.load_state_dict(parent.embed.state_dict())
    child.norm.load_state_dict(parent.norm.state_dict())
    for old, new in zip(parent.blocks, child.blocks, strict=True):
        _copy_block(old, new)


def _copy_block(old: Block, new: HybridBlock) -> None:
    new.mixer_norm.load_state_dict(old.attn_norm.state_dict())
    new.ffn_norm.load_state_dict(old.ffn_norm.state_dict())
    new.gate_up.load_state_dict(old.gate_up.state_dict())
    new.down.load_state_dict(old.down.state_dict())
    if isinstance(new.mixer, Attention):
        _copy_attention(old, new.mixer)


def _copy_attention(old: Block, new: Attention) -> None:
    """The gate starts at sigmoid(0) = 1/2; the output matrix is doubled to compensate."""
    s = old.shape
    q, k, v = old.qkv.weight.split([s.heads * s.head, s.kv_heads * s.head, s.kv_heads * s.head])
    gated = torch.stack([q.view(s.heads, s.head, -1), torch.zeros(s.heads, s.head, s.width)], 1)
    new.q.weight.copy_(gated.flatten(0, 2))
    new.k.weight.copy_(k)
    new.v.weight.copy_(v)
    new.q_norm.load_state_dict(old.q_norm.state_dict())
    new.k_norm.load_state_dict(old.k_norm.state_dict())
    new.out.weight.copy_(2 * old.out.weight)


@torch.no_grad()
def start_mtp(trunk: Hybrid, mtp: Mtp) -> None:
    """The block starts as the trunk's last one; its input is the sum of embedding and hidden state."""
    mtp.block.load_state_dict(trunk.blocks[-1].state_dict())
    mtp.norm.load_state_dict(trunk.norm.state_dict())
    eye = torch.eye(trunk.shape.width)
    mtp.eh_proj.weight.copy_(torch.cat([0.3 * eye, eye], 1))


@torch.no_grad()
def lessons(parent: Model, tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Input and output of the attention of each layer, both [B, T, D]."""
    x = parent.embed(tokens)
    cos, sin = angles(parent.shape, tokens.shape[1])
    lessons_of_layers = []
    for block in parent.blocks:
        normed = block.attn_norm(x)
        lessons_of_layers.append((normed, block.attend(normed, cos, sin)))
        x = block(x, cos, sin)
    return lessons_of_layers


def teach(parent: Model, child: Hybrid, batch: Callable[[], Tensor], minutes: float, lr: float = 3e-3) -> None:
    """Fit every gated delta net to its inputs and outputs for a given time."""
    pupils = [(i, b.mixer) for i, b in enumerate(child.blocks) if isinstance(b.mixer, DeltaNet)]
    weights = [p for _, mixer in pupils for p in mixer.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=lr, betas=(0.9, 0.98), weight_decay=0.0)
    began = shown = time.monotonic()
    while (progress := (time.monotonic() - began) / (60 * minutes)) < 1:
        optimizer.param_groups[0]["lr"] = lr * (1 - progress)
        pairs = lessons(parent, batch())
        missed = [_unexplained_share(mixer, *pairs[i]) for i, mixer in pupils]
        sum(missed).backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if time.monotonic() - shown > 30:
            shown = time.monotonic()
            print(json.dumps({"transfer": progress, "missed": [round(m.item(), 3) for m in missed]}), flush=True)


def _unexplained_share(mixer: DeltaNet, inputs: Tensor, output: Tensor) -> Tensor:
    """Share of the variance of the target output that the layer does not explain."""
    return (mixer(inputs) - output).square().mean() / output.square().mean()
