"""The model's own next-token layer drafts (MTP; NextN in GGUF): DeepSeek-V3, 2412.19437, section 2.2.

It reads pairs of a hidden state and the token after it. What it lacks of the committed pairs is evaluated together
with the first drafted token, so k drafts cost k forwards of one block.

Example: the target's hidden state of position p and the committed token p + 1 give draft token p + 2; the layer's own
hidden state of that pair and token p + 2 give token p + 3, and so on.
"""

from __future__ import annotations

from typing import Any

import attrs
import torch
from attrs.validators import ge, le
from torch import Tensor

from spec_core import Compat, Needs, Refusal, Rows, Sequence, Span, StashKey, Step, Target, hookimpl, load
from spec_core.toolkit.acceptance import AcceptanceEstimate
from spec_core.toolkit.token_drafter import PartialDraft, SampleMode, TokenDrafter
from spec_methods.mtp.layer import Layer, Pairs

BACKLOG = 256
"""Pairs that wait for the next draft at most; more are evaluated at once."""


@attrs.define(eq=False)
class Memory:
    """What the layer knows of a sequence.

    cache: attention rows of its pairs, row p for (token p + 1, hidden state p); the first ``done`` are exact.
    tokens, hidden: exact pairs after them that are not evaluated yet. embeds: {position: [D]} of tokens -1 in them.
    """

    cache: Any
    done: int = 0
    tokens: list[int] = attrs.field(factory=list)
    hidden: list[Tensor] = attrs.field(factory=list)
    embeds: dict[int, Tensor] = attrs.field(factory=dict)
    estimate: AcceptanceEstimate = attrs.field(factory=AcceptanceEstimate)

    def take(self, span: Span) -> None:
        """New pairs; what is held at or after their first position is dropped."""
        cut = span.start - self.done
        if cut < 0:
            self.done, cut = span.start, 0
        if cut < len(self.tokens):
            whole = torch.cat(self.hidden)[:cut]
            self.tokens, self.hidden = self.tokens[:cut], [whole]
        self.tokens += span.next
        self.hidden.append(span.final.clone())
        self.embeds |= {span.start + i: given.clone() for i, given in span.next_embeds.items()}

    def pairs(self, n: int | None = None) -> Pairs:
        """The first n waiting pairs for a forward, from now on held to be done; the cache has room for them."""
        hidden = torch.cat(self.hidden)
        n = len(self.tokens) if n is None else n
        embeds = {i: self.embeds.pop(self.done + i) for i, token in enumerate(self.tokens[:n]) if token < 0}
        made = Pairs(self.room(self.done + n), self.done, self.tokens[:n], hidden[:n], embeds)
        self.done, self.tokens, self.hidden = self.done + n, self.tokens[n:], [hidden[n:]]
        return made

    def room(self, rows: int) -> Any:
        if rows > self.cache.length:
            self.cache.grow(max(rows, 2 * self.cache.length))
        return self.cache


@attrs.define(eq=False)
class Drafting(PartialDraft):
    """One sequence while it is drafted; hidden: the layer's own [1, D] after its last token."""

    memory: Memory = attrs.field(kw_only=True)
    hidden: Tensor | None = None

    def pairs(self) -> Pairs:
        """What is missing of the committed text, then one pair after the other of the layer's own."""
        if not self.ids:
            return self.memory.pairs()
        start = self.memory.done + len(self.ids) - 1
        return Pairs(self.memory.room(start + 1), start, self.ids[-1:], self.hidden)


@attrs.define(eq=False)
class Mtp:
    """Drafts with the NextN layer of the target, or of a file that goes with it."""

    file: str | None = attrs.field(default=None, metadata={"help": "a file with the layer; default: the target's own"})
    draft_max: int = attrs.field(default=4, validator=[ge(1), le(256)], metadata={"help": "longest draft", "off": 256})
    p_min: float = attrs.field(
        default=0.3,
        validator=[ge(0.0), le(1.0)],
        metadata={"help": "stop where the draft survives less likely", "off": 0.0},
    )
    sample: SampleMode = attrs.field(
        default="auto", metadata={"help": "sampled: by the request's own sampling and noise; auto: where it samples"}
    )
    layer: Layer | None = attrs.field(default=None, init=False)
    watch: Any = attrs.field(default=None, init=False)
    memory: StashKey[Memory] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        holder = target if self.file is None else load(self.file, weights=False)
        refusal = self._misfit(target, holder)
        return Compat(
            needs=Needs(final=True),
            refusals=[refusal] if refusal else [],
            drafts=self._drafter.proposals,
            forwards=lambda k: k,
            load=lambda target: self._load(target, holder),
        )

    def _misfit(self, target: Target, holder: Target) -> Refusal | None:
        facts = holder.info.extras.get("nextn")
        if facts is None:
            hint = "name a file that has one (--method mtp=FILE), or use another method"
            return Refusal(f"{holder.info.name} has no NextN layer", hint)
        if facts["problem"]:
            return Refusal(facts["problem"], "convert the model again, with its NextN layer, or use another method")
        if (holder.info.vocab, holder.info.width) != (target.info.vocab, target.info.width):
            found = f"{holder.info.vocab} tokens and width {holder.info.width}"
            wanted = f"{target.info.vocab} and {target.info.width}"
            return Refusal(f"the NextN layer has {found}, the target {wanted}", "use the file of the same model")
        turns = [of.info.extras.get("rotated", (0, 0)) for of in (holder, target)]
        if turns[0] != turns[1]:
            found, wanted = (f"heads of {head}, {turned} of them turned" for head, turned in turns)
            return Refusal(f"the NextN layer has {found}, the target {wanted}", "use the file of the same model")
        return None

    def _load(self, target: Target, holder: Target) -> None:
        self.layer = Layer(holder.info.extras["nextn"], target.info.extras["executor"]())

    @property
    def _drafter(self) -> TokenDrafter:
        return TokenDrafter(self.p_min, self.sample)

    # hooks

    @hookimpl
    def draft(self, step: Step) -> None:
        drafts = [d for seq, budget in step.undrafted if (d := self._begin(step, seq, budget))]
        if len(drafts) == 1 and self.watch is None and not self._drafter.samples(drafts[0].seq):
            self._all_at_once(step, drafts[0])
        while growing := [d for d in drafts if d.open]:
            self._one_more(step, growing)
        for d in drafts:
            step.propose(d.seq, self._drafter.made(d))

    @hookimpl
    def rollback(self, step: Step) -> None:
        for seq, part in step.judged:
            seq.stash[self.memory].estimate.learn(part.drafted, len(part.uncut.path))

    @hookimpl
    def process(self, rows: Rows) -> None:
        """Keep the new pairs; evaluate them only where they are many."""
        for seq, span in rows.by_sequence():
            memory = seq.stash.get(self.memory)
            if memory is None:
                memory = seq.stash[self.memory] = Memory(self.layer.cache())
            memory.take(span)
            while len(memory.tokens) > BACKLOG:
                self.layer.forward([memory.pairs(BACKLOG)], last=False)
                rows.step.report_cost(forwards=1, rows=BACKLOG)

    # one draft

    def _begin(self, step: Step, seq: Sequence, budget: int) -> Drafting | None:
        memory = seq.stash.get(self.memory)
        if memory is None or not memory.tokens:
            return None
        memory.estimate.fade()
        if memory.estimate.value < self.p_min:
            return None
        return Drafting(seq, min(budget, self.draft_max), memory.estimate, memory=memory)

    def _all_at_once(self, step: Step, draft: Drafting) -> None:
        """A greedy draft of one sequence is one call, however long it gets."""
        pairs = draft.pairs()
        draft.memory.room(draft.memory.done + draft.budget)
        stops = sorted(draft.seq.stop.tokens)
        ids, chances = self.layer.draft(pairs, draft.budget, self.p_min, draft.estimate.value, stops)
        step.report_cost(forwards=len(ids), rows=len(pairs.tokens) + len(ids) - 1)
        draft.ids, draft.confidence, draft.open = ids, chances, False

    def _one_more(self, step: Step, drafts: list[Drafting]) -> None:
        """One forward, one more token for each."""
        parts = [d.pairs() for d in drafts]
        hidden, logits = self.layer.forward(parts)
        step.report_cost(forwards=1, rows=sum(len(p.tokens) for p in parts))
        for i, d in enumerate(drafts):
            token = self._drafter.extend(step, d, logits[i])
            d.hidden = hidden[i : i + 1]
            if self.watch is not None:
                self.watch(token, logits[i])
