"""The NextN layer: one block that reads the target's hidden state and the token after it, and predicts the next.

DeepSeek-V3 (2412.19437, section 2.2); names of tensors as GGUF has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from spec_kernels.nn.build import BlockBuilder
from spec_kernels.nn.cache import KVCache
from spec_kernels.nn.decoder import Decoder
from spec_kernels.nn.linear import Linear
from spec_kernels.nn.window import Stretch, causal
from torch import Tensor

FIRST_ROWS = 512


class Layer:
    """Draft step: y = block(eh_proj [norm(embedding of x_(p+1)) | norm(h_p)]), ĥ = norm(y), logits = head(ĥ).

    h is the target's hidden state after its final norm; ĥ takes its place where the layer goes on from its own word.
    """

    def __init__(self, facts: Mapping[str, Any], find: Callable[[str], Tensor | None], target: Any) -> None:
        """facts: ``shape``, ``block`` and ``rotary`` of ``info.extras["nextn"]``. find: a tensor by name, or None.

        target: lends its embedding and output matrix where the layer has none of its own.
        """
        info, prefix = target.info, f"blk.{facts['block']}."
        builder = BlockBuilder(facts["shape"], find, getattr(torch, info.dtype), info.device)
        own = builder.maybe(prefix + "nextn.embed_tokens.weight")
        last = find(prefix + "nextn.shared_head_norm.weight") is not None
        self.enorm, self.hnorm = (builder.norm(f"{prefix}nextn.{name}.weight") for name in ("enorm", "hnorm"))
        self.join = Linear(builder.read(prefix + "nextn.eh_proj.weight"))
        self.decoder = Decoder(
            embedding=target.tensor("token_embd.weight") if own is None else own,
            blocks=[builder.block(prefix, 0)],
            norm=builder.norm(prefix + "nextn.shared_head_norm.weight" if last else "output_norm.weight"),
            head=_head(builder.maybe(prefix + "nextn.shared_head_head.weight"), target),
            rotary=facts["rotary"](),
        )
        self.shape, self.dtype, self.device = facts["shape"], getattr(torch, info.dtype), info.device

    def cache(self) -> KVCache:
        s = self.shape
        return KVCache(1, s.kv_heads, s.head, s.head, FIRST_ROWS, self.dtype, self.device)

    @torch.inference_mode()
    def forward(self, rows: list[tuple[KVCache, int, list[int], Tensor]]) -> tuple[Tensor, Tensor]:
        """Pairs of several sequences in one pass.

        rows: (cache, first position, tokens, hidden [n, D]) per sequence
        returns ĥ [B, D] and logits [B, V] of each sequence's last pair
        """
        tokens = [t for _, _, ids, _ in rows for t in ids]
        positions = [p for _, start, ids, _ in rows for p in range(start, start + len(ids))]
        both = torch.tensor([tokens, positions], device=self.device)
        hidden = torch.cat([h for *_, h in rows])
        e = self.decoder.embed(both[0])
        pairs = torch.cat([self.enorm(e), self.hnorm(hidden.expand(len(e), -1) if len(e) > len(hidden) else hidden)], 1)
        x, _ = self.decoder.trunk(self.join(pairs), both[1], _stretches(rows, self.device))
        last = torch.tensor([len(ids) for _, _, ids, _ in rows]).cumsum(0) - 1
        h = self.decoder.norm(x[last.to(self.device)])
        return h, self.decoder.logits(h)


def _head(own: Tensor | None, target: Any) -> Linear:
    """The target's output matrix is used as it lies in its memory."""
    weight = target.tensor("output.weight") if own is None else own
    packed = weight.T
    return Linear.packed(packed) if packed.is_contiguous() else Linear(weight)


def _stretches(rows: list[tuple[KVCache, int, list[int], Tensor]], device: str) -> list[Stretch]:
    found, first = [], 0
    for cache, start, ids, _ in rows:
        mask = causal(len(ids), device) if len(ids) > 1 else None
        found.append(Stretch(cache, first, len(ids), start, mask))
        first += len(ids)
    return found
