"""The tensors of a head, by one set of names: those of GGUF where they exist.

The norm before ``fc`` is ``input_norm.weight`` over all hidden states together or ``input_norm.I.weight`` for each;
``hidden_norm.weight`` stands after ``fc`` (dflash). ``blk.0.attn_norm.weight`` norms the token's embedding and
``blk.0.attn_norm_2.weight`` the feature (eagle3). Rows of q and k are ordered so that halves of a head turn together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from spec_core.errors import UsageError
from spec_targets.architectures.heads.tensors import DAMAGED, HeadTensors

if TYPE_CHECKING:
    from spec_targets.architectures.heads.head import Head

Shapes = dict[str, tuple[int, ...]]
UNREAD = ("d2t", "t2d", "rope_freqs.weight")
"""Tensors that are read separately, or not needed."""


def tensor_shapes(head: Head) -> Shapes:
    """Every tensor a head of this description has, with its shape."""
    wide = head.inputs * head.target_width
    shapes: Shapes = {"fc.weight": (head.width, wide), "output_norm.weight": (head.width,)}
    shapes |= {"fc.bias": (head.width,)} if head.fc_bias else {}
    shapes |= {"input_norm.weight": (wide,)} if head.norm_before_fc else {}
    shapes |= {f"input_norm.{i}.weight": (head.target_width,) for i in range(head.inputs)} if head.fc_norm else {}
    shapes |= {"token_embd.weight": (head.vocab, head.width)} if head.own_embedding else {}
    shapes |= {"output.weight": (head.draft_vocab, head.width)} if head.own_output else {}
    shapes |= {"hidden_norm.weight": (head.width,)} if head.fills_blocks else {}
    shapes |= _sequential(head)
    for i in range(head.layers):
        shapes |= {f"blk.{i}.{name}": shape for name, shape in _block(head).items()}
    return shapes


def _sequential(h: Head) -> Shapes:
    """Tensors of the sequential part and of the confidence head."""
    shapes: Shapes = {}
    if h.markov:
        shapes |= {"markov_w1.weight": (h.vocab, h.markov), "markov_w2.weight": (h.draft_vocab, h.markov)}
    if h.selector:
        codebook = (h.vocab, h.selector)
        shapes |= {"selector_predecessor.weight": codebook, "selector_successor.weight": codebook}
        shapes |= {"selector_hidden.weight": (h.selector, h.width)}
    if h.confidence:
        shapes |= {"conf_proj.weight": (1, h.confidence), "conf_proj.bias": (1,)}
    return shapes


def _block(h: Head) -> Shapes:
    q, kv, read = h.heads * h.head, h.kv_heads * h.head, h.width * (2 if h.kind == "eagle3" else 1)
    shapes: Shapes = {
        "attn_norm.weight": (h.width,),
        "attn_q.weight": (q, read),
        "attn_k.weight": (kv, read),
        "attn_v.weight": (kv, read),
        "attn_output.weight": (h.width, q),
        "ffn_norm.weight": (h.width,),
        "ffn_gate.weight": (h.ff, h.width),
        "ffn_up.weight": (h.ff, h.width),
        "ffn_down.weight": (h.width, h.ff),
    }
    if not h.own_values:
        del shapes["attn_v.weight"]
    if h.post_norms:
        shapes |= {"post_attention_norm.weight": (h.width,), "post_ffw_norm.weight": (h.width,)}
        shapes |= {"layer_output_scale.weight": (1,)}
    shapes |= {"attn_norm_2.weight": (h.width,)} if h.kind == "eagle3" else {}
    shapes |= {"attn_q_norm.weight": (h.head,), "attn_k_norm.weight": (h.head,)} if h.qk_norm else {}
    shapes |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)} if h.biases else {}
    for part in ("attn", "ffn") if h.conv_taps else ():
        shapes |= {f"{part}_conv_base": (2, h.conv_taps, h.width)}
        shapes |= {f"{part}_conv_proj.weight": (2 * h.conv_taps * h.conv_groups, h.width)}
    return shapes | ({"attn_output.bias": (h.width,)} if h.output_bias else {})


def check(head: Head, source: HeadTensors) -> Shapes:
    """Raise UsageError for a tensor that is missing, misshapen, unknown or not finite; returns the shapes found."""
    shapes = tensor_shapes(head)
    for name, needed in shapes.items():
        shape = source.shape(name)
        if shape is None:
            raise UsageError(
                f"{source.where}: tensor {name!r} is missing, this {head.kind} head needs it",
                hint="get the file again",
            )
        if shape != needed:
            raise UsageError(
                f"{source.where}: tensor {name!r} has shape {list(shape)}, {list(needed)} was needed", hint=DAMAGED
            )
    for name in source.names():
        if name not in shapes and name not in UNREAD:
            raise UsageError(
                f"{source.where}: tensor {name[:80]!r} is not part of an {head.kind} head as supported here",
                hint="its drafts would be wrong without it; use another head",
            )
    _check_finite(shapes, source)
    return shapes


def _check_finite(shapes: Mapping[str, tuple[int, ...]], source: HeadTensors) -> None:
    for name in shapes:
        if not bool(torch.isfinite(source.load(name)).all()):
            raise UsageError(f"{source.where}: tensor {name!r} has NaN or infinite numbers", hint="get the file again")
