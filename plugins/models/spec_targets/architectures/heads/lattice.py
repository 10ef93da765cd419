"""LiLiCorr's part of a block head: two small layers over the most likely tokens of all rows, which choose a path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from spec_core.errors import UsageError
from spec_targets.architectures.heads import tensors

FEATURES = 5
"""Numbers that describe a candidate of a row."""
PREFIX = "lilicorr."


@attrs.frozen
class Lattice:
    """width, inner: of its layers. factors: numbers by which two candidates are compared. eps: of their unit length.
    scale: of scores."""

    width: int
    layers: int
    heads: int
    inner: int
    factors: int
    eps: float
    scale: float

    def tensor_shapes(self, width: int, block: int, candidates: int) -> dict[str, tuple[int, ...]]:
        """Its tensors. width: of the head. block: rows of a block. candidates: of a row."""
        own = self.width
        shapes: dict[str, tuple[int, ...]] = {"feature_norm.weight": (FEATURES,), "feature_norm.bias": (FEATURES,)}
        shapes |= {"slot_embedding": (1, 1, block - 1, 1, own), "rank_embedding": (1, 1, 1, candidates, own)}
        shapes |= {"relative_slot_bias": (self.heads, 2 * block - 1), "same_slot_bias": (self.heads,)}
        shapes |= {"anchor_norm.weight": (own,), "output_norm.weight": (own,)}
        linears = {"pass_hidden_proj": (own, width), "context_proj": (own, width), "factor_input_proj": (own, 3 * own)}
        linears |= {f"{name}_head": (self.factors, own) for name in ("in", "out", "anchor_out")}
        linears |= {"feature_mlp.up_proj": (own, FEATURES), "feature_mlp.down_proj": (own, own)}
        linears |= {"token_proj": (own, width)} if own != width else {}
        for layer in (f"layers.{i}." for i in range(self.layers)):
            shapes |= {f"{layer}attn_norm.weight": (own,), f"{layer}mlp_norm.weight": (own,)}
            shapes |= {f"{layer}attn.in_proj_weight": (3 * own, own), f"{layer}attn.in_proj_bias": (3 * own,)}
            linears |= {f"{layer}attn.out_proj": (own, own)}
            linears |= {f"{layer}mlp.up_proj": (self.inner, own), f"{layer}mlp.down_proj": (own, self.inner)}
        for name, shape in linears.items():
            shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
        return {PREFIX + name: shape for name, shape in shapes.items()}


def lattice_facts(head_tensors: tensors.HeadTensors, head: Any, stated: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of LiLiCorr, by the shapes of its tensors; heads, eps and scale as the file states them.

    Raises UsageError for sizes that do not fit.
    """
    out, ranks = head_tensors.shape(f"{PREFIX}out_head.weight"), head_tensors.shape(f"{PREFIX}rank_embedding")
    inner = head_tensors.shape(f"{PREFIX}layers.0.mlp.up_proj.weight")
    if not inner or out is None or ranks is None or len(out) != 2 or len(ranks) != 5 or 0 in (*out, *ranks, *inner):
        fact = f"{head.name}: a LiLiCorr head lacks out_head, rank_embedding or its layers, or they have other shapes"
        raise UsageError(fact, hint=tensors.DAMAGED)
    layers = sum(
        f"{PREFIX}layers.{i}.mlp.up_proj.weight" in head_tensors.names() for i in range(len([*head_tensors.names()]))
    )
    heads, (factors, width) = stated.get("lilicorr_num_heads"), out
    if type(heads) is not int or heads < 1 or width % heads:
        fact = f"{head.name}: lilicorr_num_heads is {repr(heads)[:40]}, a divisor of its width {width} was needed"
        raise UsageError(fact, hint=tensors.DAMAGED)
    numbers = {
        "lilicorr_candidate_topk": (ranks[3],),
        "lilicorr_hidden_size": (width, 0) if width == head.width else (width,),
        "lilicorr_num_layers": (layers,),
        "lilicorr_factor_dim": (factors,),
    }
    for key, good in numbers.items():
        if stated.get(key) not in (None, *good):
            fact = f"{head.name}: {key} is {repr(stated[key])[:40]}, its tensors have {good[0]}"
            raise UsageError(fact, hint=tensors.DAMAGED)
    eps = tensors.stated_number(stated, "lilicorr_vector_eps", head.name)
    scale = tensors.stated_number(stated, "lilicorr_logit_scale", head.name)
    lattice = Lattice(width, layers, heads, inner[0], factors, eps, scale)
    return {"lattice": lattice, "candidates": ranks[3]}
