"""A smaller model of the same vocabulary drafts token by token (Leviathan, Kalman, Matias, 2211.17192).

One cache serves all sequences, and they are drafted in one batch. Missing rows of committed text are evaluated
together with the first drafted token, so k drafts cost k forwards of the draft model.
With ``extend`` it goes on where another method's draft ends: that draft's tokens are evaluated like committed text, in
the same forward, and forgotten like its own if they are rejected.

Example: two tokens were committed since the last draft. The first forward evaluates both and gives draft token 1, the
second evaluates that and gives token 2, and so on until a token makes the draft too unlikely (``p_min``) or it is full.
"""

from __future__ import annotations

from typing import Any

import attrs
import torch
from attrs.validators import ge, le
from torch import Tensor

from spec_core import (
    Compat,
    DraftStep,
    Refusal,
    RollbackStep,
    Rows,
    Sampling,
    Sequence,
    StashKey,
    Target,
    UsageError,
    hookimpl,
    load,
)
from spec_core.toolkit import (
    BranchPoint,
    DraftLimits,
    PartialDraft,
    SampleMode,
    TokenDrafter,
    branch_points,
    image_encoder,
    p_min_field,
    sample_field,
    tested_extensions,
)
from spec_methods.draft_model.pictures import picture_note, read_prompt
from spec_methods.draft_model.resources import memory_of, threads
from spec_methods.draft_model.state import CHUNK, DraftModelState, catch_up, draft_at_once, forward, open_state
from spec_methods.draft_model.vocabulary import (
    Padded,
    Same,
    Translated,
    difference,
    same_words,
    shared_words,
    translation,
)

COMMITTED = BranchPoint()
"""The place after committed text."""
P_MIN = 0.35
"""Default that holds if neither the user nor a controller sets one."""


@attrs.define(eq=False)
class Drafting(PartialDraft):
    """One sequence while it is drafted; ``tokens`` are ids of the draft model, drafted ones included."""

    cache: DraftModelState = attrs.field(kw_only=True)
    tokens: list[int] = attrs.field(kw_only=True)


@attrs.define(eq=False)
class DraftModel:
    """Drafts with a second, smaller model."""

    file: str | None = attrs.field(default=None, metadata={"help": "the draft model; default: the target's own"})
    draft_max: int = attrs.field(
        default=8, validator=[ge(1), le(256)], metadata={"help": "max draft length", "off": 256}
    )
    p_min: float | None = p_min_field("stop when the draft's acceptance probability falls below this; 0.35")
    sample: SampleMode = sample_field()
    dtype: str = attrs.field(
        default="auto", metadata={"help": "dtype of the draft model; auto is the loader's default on this device"}
    )
    device: str = attrs.field(default="auto", metadata={"help": "where the draft model runs; auto: with the target"})
    threads: int = attrs.field(
        default=0, validator=ge(0), metadata={"help": "CPU threads of the draft model; 0: the target's number"}
    )
    translate: bool = attrs.field(
        default=False, metadata={"help": "allow another vocabulary, and match tokens by their text"}
    )
    extend: bool = attrs.field(default=False, metadata={"help": "extend the drafts of methods named before it"})
    model: Any = attrs.field(default=None, init=False)
    vocabulary: Same | Translated = attrs.field(factory=Same, init=False)
    cache: StashKey[DraftModelState] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        file = self.file or target.info.companions.get("draft-model")
        if file is None:
            hint = "name one: --method draft-model=FILE"
            return Compat(refusals=[Refusal(f"no draft model is given, and {target.info.name} has none", hint)])
        described = load(file, weights=False)
        return Compat(
            shares=True,
            refusals=[r for r in (self._other_state(described), self._refuse_vocabulary(target, described)) if r],
            drafts=self._drafter.proposals,
            extends=self.extend,
            forwards=lambda k: k,
            load=lambda target: self._load(file, described, target),
            learns="length",
            memory=memory_of(described.info, CHUNK),
            notes=picture_note(target, described, same_words(target, described)),
        )

    def _other_state(self, draft: Target) -> Refusal | None:
        if draft.info.states == {"attention"}:
            return None
        return Refusal(f"{draft.info.name} has recurrent state, which cannot be truncated", "use a dense one")

    def _refuse_vocabulary(self, target: Target, draft: Target) -> Refusal | None:
        if same_words(target, draft):
            return None
        without_tokenizer = next((t.info.name for t in (target, draft) if t.tokenizer is None), None)
        if self.translate and without_tokenizer is None:
            return None
        detail = f"{without_tokenizer} has no tokenizer"
        if not without_tokenizer:
            detail = difference(target.tokenizer, draft.tokenizer)
        hint = "use a draft model of the same family"
        if not without_tokenizer:
            hint += f', or name it "{self._translating()}" to match tokens by their text'
        return Refusal(f"{draft.info.name} has a different vocabulary than {target.info.name}: {detail}", hint)

    def _translating(self) -> str:
        """This method with another vocabulary allowed, as written on the command line and in ``Run(methods=[...])``."""
        return f"draft-model:file={self.file},translate=true" if self.file else "draft-model:translate=true"

    def _load(self, file: str, described: Target, target: Target) -> None:
        """Load the draft model with its own dtype, and a context no longer than the target's."""
        same = same_words(target, described)
        context = min(described.info.context, target.info.context) if same else described.info.context
        options = target.info.options if self.dtype == "auto" else {}
        device = target.info.device if self.device == "auto" else self.device
        self.model = load(file, device=device, dtype=self.dtype, context=context, **options)
        self.vocabulary = shared_words(target, self.model) if same else translation(target, self.model)

    # hooks

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        drafts = [d for seq, place, budget in branch_points(step) if (d := self._begin(step, seq, budget, place))]
        drafts += [d for seq, budget in step.undrafted if (d := self._begin(step, seq, budget))]
        if drafts:
            with threads(self.threads):
                self._draft(step, drafts)

    def _draft(self, step: DraftStep, drafts: list[Drafting]) -> None:
        forwards, rows = catch_up(self.model, [(d.cache, d.tokens) for d in drafts])
        step.report_cost(forwards=forwards, rows=rows)
        if isinstance(self.vocabulary, Same) and hasattr(self.model, "draft"):
            self._all_at_once(step, drafts)
        while drafting := [d for d in drafts if d.open]:
            self._extend_drafts(step, drafting)
        for d in drafts:
            if d.ids:
                d.place.add(step, d.seq, self._drafter.finish(d))

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        for seq, part in step.draft_results:
            seq.stash[self.cache].estimate.learn(part.drafted, len(part.full_verdict.path))
        for seq, tested in tested_extensions(step):
            seq.stash[self.cache].reached.add(tested, 1)

    @hookimpl
    def process(self, rows: Rows) -> None:
        """Rows from ``span.start`` on may differ from the cache; they are compared when drafting."""
        for seq, span in rows.by_sequence():
            cache = seq.stash.get(self.cache)
            if cache is not None:
                same_rows = isinstance(self.vocabulary, Same) and not seq.embeds
                cache.sure = min(cache.sure, span.start if same_rows else 0)

    # one draft

    def _begin(self, step: DraftStep, seq: Sequence, budget: int, point: BranchPoint = COMMITTED) -> Drafting | None:
        cache = self._open_cache(seq)
        cache.fade()
        survival = cache.chance(point)
        if survival * cache.estimate.value < self._drafter.price(step, seq):
            return None
        text = self._with_pictures(cache, seq) if seq.embeds or cache.owner is not None else seq.tokens
        tokens = list(self.vocabulary.whole_to_draft([*text, *point.path]))
        # The last drafted token needs no row: nothing follows it. At the end of the context nothing is drafted.
        room = min(budget, self.draft_max, self.model.info.context - len(tokens) + 1)
        if room < 1 or not tokens:
            return None
        return Drafting(seq, room, cache.estimate, survival=survival, place=point, cache=cache, tokens=tokens)

    def _with_pictures(self, state: DraftModelState, seq: Sequence) -> list[int]:
        return read_prompt(image_encoder(self.model) if isinstance(self.vocabulary, Same) else None, state, seq)

    def _open_cache(self, seq: Sequence) -> DraftModelState:
        cache = seq.stash.get(self.cache)
        if cache is None:
            cache = seq.stash[self.cache] = open_state(self.model)
        return cache

    def _all_at_once(self, step: DraftStep, drafts: list[Drafting]) -> None:
        """Draft in one call, whatever the lengths, all sequences whose tokens need not be chosen here.

        A call keeps the rows of all its drafts or of none: drafts whose rows a rule reads have a call of their own.
        """
        whole = [(d, limits) for d in drafts if (limits := self._drafter.limits(step, d, self._chooses)) is not None]
        for keep in (True, False):
            if some := [(d, limits) for d, limits in whole if self._drafter.keeps_probs(step, d.seq) == keep]:
                self._in_one_call(step, some, keep)

    def _chooses(self, sampling: Sampling) -> bool:
        """Whether the model draws such tokens in one call; padding must not be drawn."""
        return not isinstance(self.vocabulary, Padded) and self.model.chooses(sampling)

    def _in_one_call(self, step: DraftStep, drafts: list[tuple[Drafting, DraftLimits]], keep: bool) -> None:
        rows = [(d.cache, d.tokens) for d, _ in drafts]
        result = draft_at_once(self.model, rows, [limits for _, limits in drafts], keep)
        step.report_cost(forwards=result.forwards, rows=result.rows)
        for (d, _), chain in zip(drafts, result.found, strict=True):
            rows_read = None if chain.rows is None else chain.rows.to(step.target.info.device)
            tokens = self.vocabulary.cut_padding(chain.tokens) if isinstance(self.vocabulary, Padded) else chain.tokens
            self._drafter.add_tokens(d, tokens, chain.chances[: len(tokens)], rows_read)

    def _extend_drafts(self, step: DraftStep, drafting: list[Drafting]) -> None:
        """One forward that adds a token to every draft."""
        rows = sum(len(d.tokens) - d.cache.agree(d.tokens) for d in drafting)
        logits = self.vocabulary.rows(forward(self.model, [(d.cache, d.tokens) for d in drafting]))
        logits = logits.to(step.target.info.device)
        step.report_cost(forwards=1, rows=rows)
        for d, row in zip(drafting, logits, strict=True):
            d.tokens += self.vocabulary.to_draft([self._drafter.extend(step, d, row)])

    @property
    def _drafter(self) -> TokenDrafter:
        return TokenDrafter(self.p_min, self.sample, P_MIN)

    def draft_logits(self, tokens: list[int], n: int) -> tuple[list[int], Tensor]:
        """A greedy draft of n tokens after ``tokens``, and the logits that each was chosen from, [n, V]."""
        context = self.model.info.context
        if len(tokens) + n > context:
            raise UsageError(
                f"{len(tokens)} tokens and a draft of {n}, the draft model's context is {context}",
                hint="give fewer tokens, or request a shorter draft",
            )
        cache, tokens = open_state(self.model), self.vocabulary.whole_to_draft(list(tokens))
        ids: list[int] = []
        rows: list[Tensor] = []
        for _ in range(n):
            row = self.vocabulary.rows(forward(self.model, [(cache, tokens)]))[0]
            ids.append(int(row.argmax()))
            rows.append(row.clone())
            tokens = tokens + self.vocabulary.to_draft(ids[-1:])
        return ids, torch.stack(rows)
