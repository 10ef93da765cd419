"""The first difference of two texts, and the gap between the target's best scores there: numerics, or a bug."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from spec_commands.evaluation import evaluate_tokens
from spec_commands.prompt import tokens_of

from spec_compare.figures.difference import Difference, answers, first_difference, token_at
from spec_compare.figures.summary import text_of, truth
from spec_compare.inputs.conversation import next_prompt
from spec_compare.measuring.measure import Baseline, RequestSettings
from spec_compare.records.record import Lap, Record
from spec_core import Target
from spec_core.toolkit import adjust_row, gap


def differences(laps: Iterable[Lap], labels: Iterable[str], setups: Mapping[str, Baseline]) -> list[Difference]:
    """The first difference of every text that is not plain decoding's, with scores from a new forward.

    labels: contenders whose text may differ. setups: by baseline. Conversations: the first turn that differs.
    """
    laps = list(laps)
    plain, texts = truth(laps), answers(laps)
    first: dict[tuple[str, str], Difference] = {}
    for record in (r for lap in laps if lap.contender not in set(labels) for r in lap.records):
        key = (record.contender, record.prompt)
        if key not in first and record.tokens != plain[text_of(record)]:
            setup = setups[record.baseline]
            prompt = next_prompt(
                setup.prompt(record.prompt), texts[record.baseline, record.prompt][: record.turn], setup.target
            )
            first[key] = difference(record, plain[text_of(record)], prompt, setup.target, setup.request_settings)
    return list(first.values())


def difference(record: Record, plain: list[int], content: Any, target: Target, settings: RequestSettings) -> Difference:
    at = first_difference(plain, record.tokens)
    prompt = tokens_of(content, target)
    if min(prompt) < 0:  # rows of pictures have no token to evaluate again
        return Difference(record.contender, record.prompt, at, None, token_at(plain, at), token_at(record.tokens, at))
    history = prompt + plain[:at]
    row = adjust_row(
        evaluate_tokens(target, history, hidden=False)["logits"][-1], settings.sampling, history, len(prompt)
    )
    apart = gap(row, settings.sampling, record.seed, at)
    scores, best = (part.tolist() for part in row.topk(2))
    return Difference(
        record.contender, record.prompt, at, apart, token_at(plain, at), token_at(record.tokens, at), best, scores
    )
