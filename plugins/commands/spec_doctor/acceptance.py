"""Acceptance of a head's drafts by position, in runs on a few texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from spec_core import Request, Run, RunSettings, Sampling, Target
from spec_core.commands import find_plugin, import_plugin


@attrs.frozen
class Acceptance:
    """tested, accepted: by position, drafted tokens whose predecessors were accepted, and accepted ones among them.

    steps: with a draft.
    """

    tested: tuple[int, ...]
    accepted: tuple[int, ...]
    steps: int

    @property
    def conditional(self) -> list[float]:
        """Share of accepted tokens by position, where all before were accepted; 0 where none was tested."""
        return [a / t if t else 0.0 for t, a in zip(self.tested, self.accepted, strict=True)]

    @property
    def length(self) -> float:
        """Accepted tokens of a draft on average."""
        return sum(self.accepted) / self.steps if self.steps else 0.0

    @property
    def first(self) -> float:
        """Share of first tokens that were accepted."""
        return self.conditional[0] if self.tested else 0.0


@attrs.frozen
class Texts:
    """Texts that are continued, as a prompt for each; tokens: of each continuation. longest: draft."""

    prompts: Sequence[Any]
    tokens: int
    longest: int


def make_method(file: Any, longest: int) -> tuple[str, Any]:
    """A method that drafts with a head in one reading, whatever its drafts cost."""
    kind = file.head.kind
    plugin: Any = import_plugin(find_plugin(kind, ["method"]))
    return kind, plugin(file=file, draft_max=longest, p_min=0.0)


def measure_acceptance(target: Target, file: Any, texts: Texts) -> Acceptance:
    """Continue the texts greedily with drafts of a head in one reading."""
    tested, accepted, steps = [0] * texts.longest, [0] * texts.longest, 0

    def count(step: Any) -> None:
        nonlocal steps
        for part in step.parts:
            if part.draft is None or part.full_verdict is None:
                continue
            steps += 1
            kept = len(part.full_verdict.path)
            for i in range(min(kept + 1, len(part.draft.ids))):
                tested[i] += 1
                accepted[i] += i < kept

    continue_texts(target, [make_method(file, texts.longest)], texts, count)
    return Acceptance(tuple(tested), tuple(accepted), steps)


def continue_texts(
    target: Target, methods: Sequence[Any], texts: Texts, observe: Any = None, rule: Any = None
) -> list[Any]:
    """Continue the texts greedily, all at once; returns their sequences. observe: called with every step."""
    limits = RunSettings(draft_max=max(1, texts.longest), max_sequences=len(texts.prompts), reuse=False)
    with Run(target, list(methods), rule=rule, settings=limits) as run:
        if observe is not None:
            run.observe(observe)
        greedy = Sampling(temperature=0.0)
        sequences = [
            run.submit(Request(prompt, max_tokens=texts.tokens, sampling=greedy, ignore_eos=True))
            for prompt in texts.prompts
        ]
        for _ in run:
            pass
        return sequences
