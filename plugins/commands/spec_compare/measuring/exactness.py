"""Explains differences: whether plain decoding, in steps of the contender's shape, chooses another token there too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
from spec_commands.prompt import tokens_of

from spec_compare.figures.difference import Difference, answers
from spec_compare.figures.summary import text_of, truth
from spec_compare.inputs.conversation import next_prompt
from spec_compare.measuring.measure import Baseline
from spec_compare.records.header import TargetFacts
from spec_compare.records.record import Lap, Record
from spec_core import Draft, DraftStep, Request, Run, hookimpl

EQUAL = {
    "rows": "rows have equal bits alone, with drafts and in a batch",
    "chains": "rows of text and of drafts that are chains have equal bits",
}
"""Descriptions of the checks of a target's rows, by the first word of its report."""


@attrs.define(eq=False)
class Shapes:
    """Drafts tokens of plain decoding, with the lengths of a contender's drafts at the same positions.

    text: prompt and output of plain decoding. lengths: {output position: drafted tokens}.
    """

    text: list[int]
    lengths: Mapping[int, int]

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, budget in step.undrafted:
            count = min(budget, self.lengths.get(seq.output_position, 0))
            ahead = self.text[len(seq.tokens) : len(seq.tokens) + count]
            if count:
                step.propose(seq, Draft(ahead + [0] * (count - len(ahead))))


def explain_differences(
    differing: Iterable[Difference], laps: list[Lap], setups: Mapping[str, Baseline]
) -> list[Difference]:
    """The differences, each with the rows of the contender's step, and whether plain decoding flips at that shape.

    The shapes of other prompts of a batch are not repeated.
    """
    plain, texts = truth(laps), answers(laps)
    result = []
    for difference in differing:
        if difference.gap is None:  # a prompt with pictures
            result.append(difference)
            continue
        record = record_of(difference, laps, plain)
        setup = setups[record.baseline]
        turn = next_prompt(
            setup.prompt(record.prompt), texts[record.baseline, record.prompt][: record.turn], setup.target
        )
        prompt, own_text = tokens_of(turn, setup.target), plain[text_of(record)]
        flips = (
            replay_record(record, prompt, own_text, setup)[: difference.position + 1]
            != own_text[: difference.position + 1]
        )
        result.append(attrs.evolve(difference, rows=rows_at(record, difference.position), flips=flips))
    return result


def record_of(difference: Difference, laps: Iterable[Lap], plain: Mapping[tuple[str, str, int], list[int]]) -> Record:
    """The text in which the difference was found."""
    return next(
        r
        for lap in laps
        for r in lap.records
        if (r.contender, r.prompt) == (difference.contender, difference.prompt) and r.tokens != plain[text_of(r)]
    )


def replay_record(record: Record, prompt: list[int], plain: list[int], baseline: Baseline) -> list[int]:
    """The text of plain decoding with the steps of a record. The default rule: its choices are the target's."""
    lengths = {t: drafted for t, drafted in step_starts(record) if drafted}
    longest = max(lengths.values(), default=0)
    request_settings = baseline.request_settings
    request = Request(
        prompt,
        max_tokens=request_settings.max_tokens,
        sampling=request_settings.sampling,
        seed=record.seed,
        name=record.prompt,
    )
    methods = [("shapes", Shapes(prompt + plain, lengths))] if longest else []
    with Run(baseline.target, methods, draft_max=longest, nodes_max=max(longest, 1), reuse=False) as run:
        return run.generate(request).result.tokens


def step_starts(record: Record) -> list[tuple[int, int]]:
    """(output position at which it began, drafted tokens) of each step."""
    positions, t = [], 1
    for emitted, drafted in zip(record.steps.emitted, record.steps.drafted, strict=True):
        positions.append((t, drafted))
        t += emitted
    return positions


def rows_at(record: Record, position: int) -> int:
    """Rows of the step that chose the token at this output position; the first token comes from the prompt's."""
    began = [drafted for t, drafted in step_starts(record) if t <= position]
    return 1 + began[-1] if began else record.prompt_tokens


def statement(target: TargetFacts) -> str:
    """Statement about the exactness of a target before any text is compared."""
    claim = target.exact or "its target does not report it"
    if equal := EQUAL.get(claim.partition(":")[0]):
        return (
            f"{target.model}: exact by construction: {equal}, as was checked when it was loaded; "
            "a text that differs is a bug"
        )
    return f"{target.model}: not exact by construction ({claim}): texts may differ where the two best scores are close"
