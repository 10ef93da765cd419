"""Classifier-free guidance (Sanchez et al., 2306.17806): away from what the target would say after a negative prompt.

logits = negative + scale * (positive - negative); negative are those after the negative prompt and the same output. The
text is defined without drafts: every step is decided by this rule, so that drafts change nothing but the speed::

    spec generate -m zoo:pico --rule guidance:negative_prompt=TODO,scale=2 -p "def add(a, b):"
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import torch
from attrs.validators import ge, le
from torch import Tensor

from spec_core import (
    AcceptStep,
    Compat,
    DraftStep,
    HookStep,
    Needs,
    Part,
    Refusal,
    Sequence,
    StashKey,
    Target,
    UsageError,
    hookimpl,
)
from spec_core.toolkit import adjust_row, forward, open_sequence, support, uniform, walk_draft

SCALE_MAX = 100.0


@attrs.define(eq=False)
class Negative:
    """The output after the negative prompt, in a sequence of its own. tokens: those whose rows it holds."""

    seq: Sequence
    tokens: list[int] = attrs.field(factory=list)

    def part(self, tokens: list[int], draft: Any) -> Part:
        """The rows that it lacks of these tokens, and the draft; the last token's row is made anew."""
        known = zip(self.tokens, tokens[:-1], strict=False)
        same = next((i for i, (one, other) in enumerate(known) if one != other), len(self.tokens))
        start = min(same, len(tokens) - 1)
        return Part(self.seq, start, tokens[start:], decides=True, draft=draft)


@attrs.define(eq=False)
class Guidance:
    """Steer the text away from what would follow a negative prompt."""

    negative_prompt: str = attrs.field(default="", metadata={"help": "of requests that give none; empty: not guided"})
    scale: float = attrs.field(
        default=1.5, validator=[ge(0), le(SCALE_MAX)], metadata={"help": "of requests that give none; 1: not guided"}
    )
    target: Target = attrs.field(init=False)
    negative: StashKey[Negative] = attrs.field(factory=StashKey, init=False)
    logits: dict[Sequence, Tensor] = attrs.field(factory=dict, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        recurrent = "recurrent" in target.info.states
        reason = f"{target.info.name} has recurrent layers, whose state the negative text cannot roll back"
        return Compat(
            drafts=(),
            steers="guides the text away from a negative prompt",
            needs=Needs(runs_target=True, trees=target.info.trees),
            memory={"row": target.info.row_bytes or 0},
            refusals=[Refusal(reason, "use a model of attention layers alone")] if recurrent else [],
            request_values={"negative_prompt": self.check_prompt, "scale": self.check_scale},
            load=self.load,
        )

    def load(self, target: Target) -> None:
        self.target = target
        self.check_prompt(self.negative_prompt or [])

    def check_prompt(self, prompt: Any) -> list[int]:
        """Token ids of a negative prompt, a text or ids; an empty one does not guide."""
        tokenizer, info = self.target.tokenizer, self.target.info
        if isinstance(prompt, str):
            if prompt and tokenizer is None:
                raise ValueError(f"{info.name} has no tokenizer: give token ids")
            prompt = tokenizer.encode(prompt) if prompt and tokenizer is not None else []
        if not isinstance(prompt, list) or any(type(token) is not int for token in prompt):
            raise ValueError("give a text, or a list of token ids")
        if any(not 0 <= token < info.vocab for token in prompt):
            raise ValueError(f"give token ids from 0 to {info.vocab - 1}")
        if len(prompt) >= info.context:
            raise ValueError(f"{len(prompt)} tokens, the context is {info.context}: give fewer")
        return prompt

    def check_scale(self, scale: Any) -> float:
        if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not 0 <= scale <= SCALE_MAX:
            raise ValueError(f"give a number from 0 to {SCALE_MAX:.0f}")
        return float(scale)

    def wish(self, step: HookStep, seq: Sequence) -> tuple[list[int], float]:
        """The negative prompt of a request, empty if it is not guided, and the scale."""
        values = step.request_values(seq)
        prompt, scale = values.get("negative_prompt"), values.get("scale", self.scale)
        if prompt is None:
            prompt = self.check_prompt(self.negative_prompt)
        return ([] if scale == 1 else prompt), scale

    @hookimpl(wrapper=True)
    def draft(self, step: DraftStep) -> Iterator[None]:
        """Evaluate output and drafts after the negative prompts, once all methods have drafted."""
        yield
        self.logits.clear()
        seqs = [part.seq for part in step.parts if part.decides and self.wish(step, part.seq)[0]]
        parts = {seq: part for seq in seqs if (part := self.part_of(step, seq)) is not None}
        if not parts:
            return
        done = forward(self.target, parts.values(), Needs(trees=step.trees))
        step.report_cost(1, done.batch.tokens.numel())
        for seq, part in parts.items():
            seq.stash[self.negative].tokens[part.start :] = part.pending
            self.logits[seq] = done.output.logits[part.logits_row : part.logits_row + 1 + part.drafted].clone()

    def part_of(self, step: HookStep, seq: Sequence) -> Part | None:
        """The rows to evaluate after the negative prompt; None where they are more than the context."""
        text = seq.stash.get(self.negative)
        if text is None:
            text = seq.stash[self.negative] = Negative(open_sequence(self.target, close_when_dropped=True))
        tokens, draft = [*self.wish(step, seq)[0], *seq.tokens[seq.prompt_len :]], step.part(seq).draft
        if len(tokens) + (0 if draft is None else len(draft)) > self.target.info.context:
            return None
        return text.part(tokens, draft)

    @hookimpl
    def accept(self, step: AcceptStep) -> None:
        for seq in list(step.undecided):
            prompt, scale = self.wish(step, seq)
            positive, negative = step.logits(seq), self.logits.get(seq)
            if prompt and negative is None:
                reason = f"the negative prompt of {len(prompt)} tokens and the output are longer than the context"
                step.fail(seq, UsageError(reason, hint="give a shorter negative prompt, or a lower max_tokens"))
                continue
            choose = lambda row, seq=seq, scale=scale, rows=(positive, negative): self.choose(
                step, seq, row, scale, *rows
            )
            step.decide(seq, walk_draft(step.part(seq).draft, choose))
        self.logits.clear()

    def choose(
        self, step: AcceptStep, seq: Sequence, row: int, scale: float, positive: Tensor, negative: Tensor | None
    ) -> int:
        """The token after a row, by the seed's noise of its position."""
        logits = positive[row].double()
        if negative is not None:
            against = negative[row].double()
            logits = against + scale * (logits - against)
        history = step.history(seq, row)
        adjusted = adjust_row(logits, seq.sampling, history, seq.prompt_len, step.mask(seq, row))
        if seq.sampling.temperature == 0:
            return int(adjusted.argmax())
        ids, scores = support(adjusted, seq.sampling)
        seed, stream, domain = step.choosing(seq)
        position = seq.output_position + len(history) - len(seq.tokens)
        noise = torch.from_numpy(uniform(seed, position, ids.numpy(), stream, domain))
        return int(ids[(scores - (-noise.log()).log()).argmax()])
