"""Where two texts part, and how near the target's choice was there: numerics, or a bug."""

from __future__ import annotations

import attrs

from spec_compare.measure import Record
from spec_compare.prompts import Prompt
from spec_core.commands.score import scored
from spec_core.sampling import Sampling, adjust, gap
from spec_core.target import Target


@attrs.frozen
class Difference:
    """position: output position of the first difference; gap: between the two best scores of the target there."""

    contender: str
    prompt: str
    position: int
    gap: float
    plain: int
    other: int


def differences(records: list[Record], prompts: list[Prompt], target: Target, sampling: Sampling) -> list[Difference]:
    """The first difference of every prompt whose text is not plain's, explained by a fresh forward."""
    texts = {p.id: p.text for p in prompts}
    plain = {r.prompt: r for r in records if r.contender == "plain" and r.repeat == 0}
    found = {}
    for record in records:
        key = (record.contender, record.prompt)
        if key not in found and record.tokens != plain[record.prompt].tokens:
            found[key] = difference(record, plain[record.prompt], texts[record.prompt], target, sampling)
    return list(found.values())


def difference(record: Record, plain: Record, text: str, target: Target, sampling: Sampling) -> Difference:
    at = next(
        (i for i, (a, b) in enumerate(zip(plain.tokens, record.tokens, strict=False)) if a != b),
        min(len(plain.tokens), len(record.tokens)),
    )
    prompt = target.tokenizer.encode(text)
    history = prompt + plain.tokens[:at]
    row = adjust(scored(target, history, hidden=False)["logits"][-1], sampling, history, len(prompt))
    a, b = (tokens[at] if at < len(tokens) else -1 for tokens in (plain.tokens, record.tokens))
    return Difference(record.contender, record.prompt, at, gap(row, sampling, record.seed, at), a, b)
