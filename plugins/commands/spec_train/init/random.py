"""Random initial weights of a head, close to a constant prediction, with the norm and output matrix of its target."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from spec_core import Target
from spec_core.errors import UsageError
from spec_train.heads.dflash import DFlash
from spec_train.heads.dflash_student import DFlashStudent
from spec_train.heads.eagle3 import Eagle3
from spec_train.heads.eagle3_student import Eagle3Student
from spec_train.heads.module import rope_frequencies
from spec_train.heads.shape import Shape
from spec_train.heads.student import Student
from spec_train.heads.vocabulary import Vocabulary


def new_student(shape: Shape, d2t: Tensor | None, target: Target, seed: int, depth: int) -> Student:
    """A head with random weights of this seed, on the target's device. depth: unrolled steps of eagle3."""
    device = target.info.device
    embedding = target_matrix(target, "token_embd.weight", "embedding")
    output = target_matrix(target, "output.weight", "output matrix")
    weights = random_weights(shape, output if d2t is None else output[d2t.to(device)], final_norm(target), seed)
    cls = Eagle3 if shape.kind == "eagle3" else DFlash
    head = cls(shape, weights, rope_frequencies(shape)).to(device)
    vocab = Vocabulary(head, embedding, None if shape.own_output else output, None if d2t is None else d2t.to(device))
    return Eagle3Student(head, vocab, depth) if isinstance(head, Eagle3) else DFlashStudent(head, vocab)


def target_matrix(target: Target, name: str, description: str) -> Tensor:
    """A weight of the target, float32. Raises UsageError if it has none of that name."""
    try:
        return target.tensor(name).detach().float().clone()
    except KeyError as error:
        raise UsageError(
            f"{target.info.name} provides no {description} ({name})",
            hint="train on a target that does, such as a GGUF file",
        ) from error


def final_norm(target: Target) -> Tensor | None:
    try:
        return target.tensor("output_norm.weight").detach().float().cpu().clone()
    except KeyError:
        return None


def random_weights(shape: Shape, output: Tensor, norm: Tensor | None, seed: int) -> dict[str, Tensor]:
    """Weights by name. ``fc`` passes the last hidden state through, weights that write to the residual stream are
    small, and the final norm and the output matrix are the target's."""
    generator = torch.Generator().manual_seed(seed)
    weights = {name: _random(name, size, generator) for name, size in tensor_shapes(shape).items()}
    weights["fc.weight"][:, -shape.target_width :] += torch.eye(shape.width, shape.target_width)
    if norm is not None and norm.shape == weights["output_norm.weight"].shape:
        weights["output_norm.weight"] = norm
    if shape.own_output:
        weights["output.weight"] = output.cpu().clone()
    return weights


def _random(name: str, size: tuple[int, ...], generator: torch.Generator) -> Tensor:
    if len(size) == 1:
        return torch.ones(size)
    gain = 0.2 if name.endswith(("attn_output.weight", "ffn_down.weight", "fc.weight")) else 0.7
    return torch.randn(size, generator=generator) * (gain / math.sqrt(size[1]))


def tensor_shapes(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Shapes by name of the tensors that are trained; a published head may have others too."""
    q, kv, read = (
        shape.heads * shape.head,
        shape.kv_heads * shape.head,
        shape.width * (2 if shape.kind == "eagle3" else 1),
    )
    shapes: dict[str, tuple[int, ...]] = {"fc.weight": (shape.width, shape.inputs * shape.target_width)}
    shapes |= {"output_norm.weight": (shape.width,)} | (
        {"hidden_norm.weight": (shape.width,)} if shape.fills_blocks else {}
    )
    for i in range(shape.layers):
        block: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (shape.width,),
            "attn_q.weight": (q, read),
            "attn_k.weight": (kv, read),
            "attn_v.weight": (kv, read),
            "attn_output.weight": (shape.width, q),
            "ffn_norm.weight": (shape.width,),
            "ffn_gate.weight": (shape.ff, shape.width),
            "ffn_up.weight": (shape.ff, shape.width),
            "ffn_down.weight": (shape.width, shape.ff),
        }
        block |= {"attn_norm_2.weight": (shape.width,)} if shape.kind == "eagle3" else {}
        block |= {"attn_q_norm.weight": (shape.head,), "attn_k_norm.weight": (shape.head,)} if shape.qk_norm else {}
        shapes |= {f"blk.{i}.{name}": size for name, size in block.items()}
    return shapes
