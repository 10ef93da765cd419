"""A model that says what a test wants it to say, and pico's tokenizer with other templates and tokens."""

from __future__ import annotations

from copy import copy
from typing import Any

import attrs
from spec_targets.runtime.torch_target import TorchTarget

from spec_core import Batch, Needs, TargetOutput, load


class Scripted(TorchTarget):
    """pico, whose greedy text is always ``script``, ended by its end-of-text token."""

    script: list[int]

    def forward(self, batch: Batch, needs: Needs) -> TargetOutput:
        output = super().forward(batch, needs)
        for part in batch.parts:
            if part.decides:
                first = part.end - part.seq.prompt_len
                for i in range(1 + part.drafted):
                    row = output.logits[part.logits_row + i]
                    row.fill_(-100.0)
                    row[self.script[min(first + i, len(self.script) - 1)]] = 0.0
        return output


def script_target(text: str, template: str | None = None) -> Scripted:
    """pico that says the text. template: its chat template, None is pico's own."""
    target: Any = load("zoo:pico")
    scripted_target = Scripted(**{f.name: getattr(target, f.name) for f in attrs.fields(TorchTarget) if f.init})
    scripted_target.script = [*target.tokenizer.encode(text, bos=False), min(target.info.eog)]
    if template is not None:
        scripted_target.tokenizer = copy(target.tokenizer)
        scripted_target.tokenizer.chat_template = template
    return scripted_target
