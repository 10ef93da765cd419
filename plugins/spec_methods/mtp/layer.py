"""The NextN layer: one block that reads the target's hidden state and the token after it, and predicts the next.

DeepSeek-V3 (2412.19437, section 2.2); names of tensors as GGUF has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch
from spec_kernels.nn.build import BlockBuilder
from spec_kernels.nn.cache import KVCache
from spec_kernels.nn.decoder import Decoder
from spec_kernels.nn.linear import Linear
from spec_kernels.nn.tiles import padded
from spec_kernels.nn.window import Stretch, causal
from torch import Tensor

FIRST_ROWS = 512


@attrs.frozen(eq=False)
class Pairs:
    """n pairs of one sequence for a forward: the tokens at positions ``start`` + 1 and up, and the hidden states before
    them, [n, D]. embeds: {index: [D]} of tokens that were given as embeddings (-1)."""

    cache: KVCache
    start: int
    tokens: list[int]
    hidden: Tensor
    embeds: Mapping[int, Tensor] = attrs.field(factory=dict)


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
    def forward(self, parts: Sequence[Pairs]) -> tuple[Tensor, Tensor]:
        """ĥ [B, D] and logits [B, V] of the last pair of each of B sequences, in one pass."""
        tokens = [t for p in parts for t in p.tokens]
        positions = [at for p in parts for at in range(p.start, p.start + len(p.tokens))]
        both = torch.tensor([tokens, positions], device=self.device)
        x = self.join(self._joined(both[0], parts))
        x, _ = self.decoder.trunk(x, both[1], _stretches(parts, self.device))
        last = torch.tensor([len(p.tokens) for p in parts]).cumsum(0) - 1
        hidden = self.decoder.norm(padded(x[last.to(self.device)]))
        return hidden[: len(parts)], self.decoder.logits(hidden)[: len(parts)]

    def _joined(self, tokens: Tensor, parts: Sequence[Pairs]) -> Tensor:
        """[whole(R), 2 D]: embedding first."""
        e = self.decoder.embed(tokens.clamp_min(0))
        hidden = torch.cat([p.hidden for p in parts])
        first = 0
        for p in parts:
            for i, given in p.embeds.items():
                e[first + i] = given.to(e)
            first += len(p.tokens)
        return torch.cat([self.enorm(e), self.hnorm(padded(hidden))], 1)


def _head(own: Tensor | None, target: Any) -> Linear:
    """The target's output matrix is used as it lies in its memory."""
    weight = target.tensor("output.weight") if own is None else own
    packed = weight.T
    return Linear.packed(packed) if packed.is_contiguous() else Linear(weight)


def _stretches(parts: Sequence[Pairs], device: str) -> list[Stretch]:
    found, first = [], 0
    for p in parts:
        n = len(p.tokens)
        found.append(Stretch(p.cache, first, n, p.start, causal(n, device) if n > 1 else None))
        first += n
    return found
