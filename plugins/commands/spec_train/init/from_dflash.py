"""Initialises a DSpark head as a trained DFlash head with Markov matrices that add nothing yet."""

from __future__ import annotations

from typing import Any

import attrs
import torch

from spec_core import Refusal, Target, load
from spec_core.errors import UsageError
from spec_core.toolkit import draft_head
from spec_train.heads.dspark import DSpark
from spec_train.heads.dspark_student import DSparkStudent, MarkovVocabulary
from spec_train.heads.shape import Shape
from spec_train.init.random import target_matrix
from spec_train.options import DSparkOptions

CODE_SCALE = 0.3
"""Standard deviation of the first Markov matrix before training; the second one is zero."""


@attrs.frozen(eq=False)
class BaseHead:
    """A DFlash head that fits the target. file: of it. sources: hidden states that it reads. rank: of the Markov
    matrices that extend it."""

    file: Any
    sources: tuple[int, ...]
    rank: int

    def new_student(self, target: Target, seed: int) -> DSparkStudent:
        """A head with the base's drafts, on the target's device."""
        base, device = self.file.head, target.info.device
        whole = base.width + self.rank
        shape = attrs.evolve(Shape.of(base, self.sources), kind="dspark", markov=self.rank, confidence=whole)
        weights = {name: self.file.tensor(name).float() for name in self.file.names}
        embedding = weights.get("token_embd.weight")
        if embedding is None:
            embedding = target_matrix(target, "token_embd.weight", "embedding")
        codes = torch.randn(base.vocab, self.rank, generator=torch.Generator().manual_seed(seed))
        weights |= {
            "markov_w1.weight": CODE_SCALE * codes,
            "markov_w2.weight": torch.zeros(base.draft_vocab, self.rank),
            "conf_proj.weight": torch.zeros(1, whole),
            "conf_proj.bias": torch.zeros(1),
        }
        head = DSpark(shape, weights, *self.file.rotation()).to(device)
        head.freeze_block()
        output = None if base.own_output else target_matrix(target, "output.weight", "output matrix")
        ids = None if base.d2t is None else base.d2t.to(device)
        return DSparkStudent(head, MarkovVocabulary(head, embedding.to(device), output, ids))


def read_base(options: DSparkOptions, target: Target) -> BaseHead:
    """Read the head that is extended. Raises UsageError if there is none, if it is of another kind or does not fit the
    target, and if it has what a written head could not state."""
    location = options.base or target.info.companions.get("dflash")
    if location is None:
        raise UsageError(
            f"{target.info.name} has no DFlash head, which a DSpark head extends",
            hint="pass one with --head, or train one: spec train dflash",
        )
    head = draft_head(target, "dflash", location, load)
    if isinstance(head, Refusal):
        raise UsageError(head.reason, hint=head.hint)
    file: Any = head.file
    if fact := unwritable_property(file.head):
        raise UsageError(
            f"{file.head.name}: {fact}, which heads of spec train do not have",
            hint="extend a head that spec train dflash made",
        )
    return BaseHead(file, head.sources, options.rank)


def unwritable_property(head: Any) -> str | None:
    """A property of a head that the writers of heads do not state; None if it has none of them."""
    facts = {
        "its layers have windows": any(head.windows),
        "its blocks are causal": any(head.causal),
        "its rotary positions are scaled": head.scaling.kind != "none" or head.divisors is not None,
        "its projections have biases": head.biases or head.fc_bias or head.output_bias,
        "its width is not the target's": head.width != head.target_width,
    }
    return next((fact for fact, holds in facts.items() if holds), None)
