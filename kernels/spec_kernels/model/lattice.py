"""Two small layers over the most likely tokens of a block's rows give every pair of neighbours a score (LiLiCorr).

A candidate is described by its embedding, its row's state, its chance and rank. After the layers each has a vector by
which tokens follow it and one by which it follows others; the first row follows a vector of the committed text.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.build import Builder
from spec_kernels.model.head import block_shape, matrix_name, shared_weights, spread_logits, tokens_of
from spec_kernels.model.ops import Embed, Model, Tap


class LatticeScores:
    """Scores of pairs of candidates."""

    def __init__(self, file: Any, trunk: Any) -> None:
        """file: of the head. trunk: of the target, whose embeddings it reads."""
        self.head, self.sizes, self.device = file.head, file.head.lattice, getattr(trunk, "device", "cpu")
        names = self.sizes.tensor_shapes(self.head.width, self.head.block, self.head.candidates)
        self.weights = {name[len("lilicorr.") :]: file.source.load(name).float().to(self.device) for name in names}
        self.ids = tokens_of(self.head, self.device)
        source = shared_weights(file.source, trunk)
        builder = Builder(block_shape(self.head), source)
        table = builder.weight(matrix_name(builder, "token_embd.weight"))
        self.table = trunk.with_layers(Model((Embed("x", table, self.head.embed_scale), Tap("x", "x"))), source)

    def score(self, rows: Tensor, states: Tensor, feature: Tensor) -> tuple[Tensor, Tensor]:
        """rows: logits [n, Vd]; states: [n, D]; feature: [D] of the last committed position.

        returns tokens int64 [n, K] of candidates, the best first, and scores [n, K, K] after each of the row
        before; the first row has the same scores after all.
        """
        chances = spread_logits(rows.float(), self.ids, self.head.vocab).log_softmax(-1)
        best, tokens = chances.topk(min(self.head.candidates, rows.shape[1]))
        x = self._describe_tokens(best, tokens, states.float())
        for i in range(self.sizes.layers):
            x = x + self._attend(i, self._norm(f"layers.{i}.attn_norm", x), *tokens.shape)
            x = x + self._mlp(f"layers.{i}.mlp", self._norm(f"layers.{i}.mlp_norm", x))
        x = self._norm("output_norm", x)
        anchor = self._norm("anchor_norm", self._linear("context_proj", feature.float()))
        joined = torch.cat([x, anchor.expand_as(x), x * anchor], -1)
        factors = F.silu(self._linear("factor_input_proj", joined)).unflatten(0, tokens.shape)
        after, follows = (self._unit(self._linear(name, factors)) for name in ("out_head", "in_head"))
        first = self._unit(self._linear("anchor_out_head", anchor)).expand_as(after[:1])
        return tokens, self.sizes.scale * torch.cat([first, after[:-1]]) @ follows.mT

    def _describe_tokens(self, best: Tensor, tokens: Tensor, states: Tensor) -> Tensor:
        """[n * K, width]"""
        (slots, count), rank = tokens.shape, torch.arange(tokens.shape[1], device=best.device)
        share = (rank / max(count - 1, 1)).expand_as(best)
        facts = torch.stack([best, best.exp(), best - best[:, :1], share, (rank == 0).float().expand_as(best)], -1)
        weight, bias = self.weights["feature_norm.weight"], self.weights["feature_norm.bias"]
        x = self._mlp("feature_mlp", F.layer_norm(facts, (facts.shape[-1],), weight, bias))
        embedded = self._embed(tokens.flatten()).unflatten(0, tokens.shape)
        x = x + (self._linear("token_proj", embedded) if "token_proj.weight" in self.weights else embedded)
        x = x + self._linear("pass_hidden_proj", states)[:, None]
        x = x + self.weights["slot_embedding"][0, 0, :slots] + self.weights["rank_embedding"][0, 0, :, :count]
        return x.flatten(0, 1)

    def _embed(self, tokens: Tensor) -> Tensor:
        places = torch.zeros_like(tokens)
        batch = ForwardBatch(tokens, places, [SequenceRows(None, 0, len(tokens), 0)], taps=("x",))
        return self.table.run(batch)["x"].float()

    def _attend(self, layer: int, x: Tensor, slots: int, count: int) -> Tensor:
        """Attention of all candidates to all, with a bias by the distance of their rows."""
        name, heads = f"layers.{layer}.attn", self.sizes.heads
        parts = F.linear(x, self.weights[f"{name}.in_proj_weight"], self.weights[f"{name}.in_proj_bias"])
        q, k, v = (part.unflatten(1, (heads, -1)).transpose(0, 1) for part in parts.chunk(3, -1))
        slot = torch.arange(slots, device=x.device).repeat_interleave(count)
        apart = slot[:, None] - slot
        bias = self.weights["relative_slot_bias"][:, apart + self.head.block - 1]
        bias = bias + (apart == 0) * self.weights["same_slot_bias"][:, None, None]
        weights = (q @ k.mT * q.shape[-1] ** -0.5 + bias).softmax(-1)
        return self._linear(f"{name}.out_proj", (weights @ v).transpose(0, 1).flatten(1))

    def _mlp(self, name: str, x: Tensor) -> Tensor:
        return self._linear(f"{name}.down_proj", F.silu(self._linear(f"{name}.up_proj", x)))

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weights[f"{name}.weight"], self.head.eps)

    def _unit(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1, eps=self.sizes.eps)


def pack_scores(tokens: Tensor, scores: Tensor) -> Tensor:
    """[n, K * K + 2 K]: for each row its scores, the candidates of the row before, and its own."""
    before = torch.cat([tokens[:1], tokens[:-1]])
    return torch.cat([scores.flatten(1), before.float(), tokens.float()], 1)


def scores_after(token: int, packed: Tensor, vocab: int) -> Tensor:
    """[V]: scores of a row's candidates after a token of the row before, -inf for all other tokens."""
    count = int((1 + len(packed)) ** 0.5) - 1
    before, own = packed[count * count : -count].long(), packed[-count:].long()
    at = int((before == token).int().argmax())
    return packed.new_full((vocab,), -torch.inf).index_copy_(0, own, packed[at * count : (at + 1) * count])
