"""How a head begins before it is trained: close to saying nothing, in the geometry of its target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from spec_core import Target
from spec_core.errors import UsageError
from spec_train.dflash import DFlash
from spec_train.eagle3 import Eagle3
from spec_train.lessons import matrix
from spec_train.pupils import Borrowed, DFlashPupil, Eagle3Pupil, Pupil
from spec_train.shape import Shape
from spec_train.weights import radians


def begun(shape: Shape, d2t: Tensor | None, target: Target, seed: int, depth: int) -> Pupil:
    """A head with random weights of this seed, on the target's device."""
    device = target.info.device
    embedding = matrix(target, "token_embd.weight", "embedding")
    output = matrix(target, "output.weight", "output matrix")
    weights = start(shape, output if d2t is None else output[d2t.to(device)], final_norm(target), seed)
    cls = Eagle3 if shape.kind == "eagle3" else DFlash
    head = cls(shape, weights, radians(shape)).to(device)
    lent = Borrowed(head, embedding, None if shape.own_output else output, None if d2t is None else d2t.to(device))
    return Eagle3Pupil(head, lent, depth) if isinstance(head, Eagle3) else DFlashPupil(head, lent)


def final_norm(target: Target) -> Tensor | None:
    try:
        return target.tensor("output_norm.weight").detach().float().cpu().clone()
    except KeyError:
        return None


def start(shape: Shape, output: Tensor, norm: Tensor | None, seed: int) -> dict[str, Tensor]:
    """Weights by name. ``fc`` passes the last hidden state through, what writes into the stream is small, and the
    final norm and the output matrix are the target's: from the first step on words lie where the target has them."""
    generator = torch.Generator().manual_seed(seed)
    made = {name: _random(name, size, generator) for name, size in sizes(shape).items()}
    made["fc.weight"][:, -shape.target_width :] += torch.eye(shape.width, shape.target_width)
    if norm is not None and norm.shape == made["output_norm.weight"].shape:
        made["output_norm.weight"] = norm
    if shape.own_output:
        made["output.weight"] = output.cpu().clone()
    return made


def _random(name: str, size: tuple[int, ...], generator: torch.Generator) -> Tensor:
    if len(size) == 1:
        return torch.ones(size)
    small = 0.2 if name.endswith(("attn_output.weight", "ffn_down.weight", "fc.weight")) else 0.7
    return torch.randn(size, generator=generator) * (small / math.sqrt(size[1]))


def sizes(s: Shape) -> dict[str, tuple[int, ...]]:
    """Tensors of a head in training; what a published head may have beside them is not trained here."""
    q, kv, read = s.heads * s.head, s.kv_heads * s.head, s.width * (2 if s.kind == "eagle3" else 1)
    found: dict[str, tuple[int, ...]] = {"fc.weight": (s.width, s.inputs * s.target_width)}
    found |= {"output_norm.weight": (s.width,)} | ({"hidden_norm.weight": (s.width,)} if s.kind == "dflash" else {})
    for i in range(s.layers):
        block: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (s.width,),
            "attn_q.weight": (q, read),
            "attn_k.weight": (kv, read),
            "attn_v.weight": (kv, read),
            "attn_output.weight": (s.width, q),
            "ffn_norm.weight": (s.width,),
            "ffn_gate.weight": (s.ff, s.width),
            "ffn_up.weight": (s.ff, s.width),
            "ffn_down.weight": (s.width, s.ff),
        }
        block |= {"attn_norm_2.weight": (s.width,)} if s.kind == "eagle3" else {}
        block |= {"attn_q_norm.weight": (s.head,), "attn_k_norm.weight": (s.head,)} if s.qk_norm else {}
        found |= {f"blk.{i}.{name}": size for name, size in block.items()}
    return found


def sources(kind: str, layers: int, given: Mapping[str, Any]) -> tuple[int, ...]:
    """Hidden states that are read: as asked, or as the heads of SafeAILab do (low, middle and high) and those of z-lab
    (as many as the head has layers, evenly). layers: of the target. Raises UsageError."""
    if given["sources"] is not None:
        return checked(given["sources"], layers)
    if kind == "eagle3":
        return tuple(min(layers, max(0, i)) for i in (2, layers // 2, layers - 3))
    of = given["layers"]
    if of == 1:
        return (layers // 2 + 1,)
    return tuple(min(layers, max(1, 1 + round(1 + i * (layers - 4) / (of - 1)))) for i in range(of))


def checked(given: Sequence[int], layers: int) -> tuple[int, ...]:
    if not given or not all(0 <= i <= layers for i in given):
        raise UsageError(
            f"--sources {','.join(map(str, given))}: the target has hidden states 0 to {layers}",
            hint="give numbers of blocks whose input is read",
        )
    return tuple(given)
