"""Partners of the plugin under test: they limit drafts, cut verdicts and record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, cast

import attrs
import torch

from spec_core.assembly.hooks import ask_compat, implementations
from spec_core.contract.batch import Batch, Part, TargetOutput
from spec_core.contract.draft_step import DraftStep
from spec_core.contract.kinds import KINDS
from spec_core.contract.overlay import Overlay
from spec_core.contract.plan import DraftPlan, Limit
from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.target import Target
from spec_core.contract.target_parts import PartialForward, overlay_problem, partial_forward
from spec_core.contract.values import Compat, Draft, Needs, Verdict
from spec_core.contract.verified_step import AcceptStep, RollbackStep
from spec_core.errors import NotRequested
from spec_core.hookspecs import hookimpl
from spec_core.loop.run import Run
from spec_core.toolkit.choosing import choosers, walk_draft
from spec_core.toolkit.drive import forward as drive

SUBJECT = "subject"
"""The name of the plugin under test in the kit's runs."""

Drafts = dict[tuple[str, int], Draft]
"""{(sequence name, committed tokens): the draft after them}."""


def record_drafts(run: Run, plugin: str = SUBJECT) -> Drafts:
    """A dict that collects the plugin's drafts while the run steps."""
    drafts: Drafts = {}

    def on_step(step: Step) -> None:
        for part in step.parts:
            if part.draft is not None and part.source == plugin:
                drafts[part.seq.name, len(part.seq.tokens) - len(part.emitted)] = part.draft

    run.observe(on_step)
    return drafts


@attrs.define(eq=False)
class Limiter:
    """A controller that lets a method draft for a sequence only if ``may[method]`` says so; others always."""

    may: Mapping[str, Callable[[Sequence], bool]]

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts=())

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        step.plan(DraftPlan({}, {part.seq.number: self._limits(step, part.seq) for part in step.parts}))

    def _limits(self, step: DraftStep, seq: Sequence) -> dict[str, Limit]:
        return {name: Limit() for name in step.methods if name not in self.may or self.may[name](seq)}


class Rests:
    """A controller that lets no method draft in four steps, then every method in one."""

    def __init__(self) -> None:
        self.drafting = False

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts=())

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        self.drafting = not self.drafting
        step.plan(DraftPlan(dict.fromkeys(step.methods, Limit())) if self.drafting else DraftPlan({}, steps=4))


class Hidden:
    """Rows of logits of a plugin that did not declare to read them: any use raises NotRequested."""

    def __getattr__(self, name: str) -> Any:
        raise NotRequested(
            "logits were read in rollback or process: compat must return Compat(needs=Needs(logits=True))"
        )

    def __getitem__(self, rows: Any) -> Any:
        return self.rows


class WithoutLogits:
    """Takes the logits away once the verdicts are known, as engines do that keep them to themselves."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts=())

    @hookimpl(tryfirst=True)
    def rollback(self, step: RollbackStep) -> None:
        state = step._shown[0]
        assert state.output is not None
        state.output = attrs.evolve(state.output, logits=cast(Any, Hidden()))


def first_right(n: int) -> Callable[[int, Sequence], bool]:
    """The first n drafts are to be right."""
    return lambda i, seq: i < n


@attrs.define(eq=False)
class Cut:
    """Keeps at most ``longest`` drafts of a step and emits the next as the target's token: more steps, same text."""

    longest: int = 0

    @hookimpl
    def accept(self, step: AcceptStep) -> None:
        for seq, choice in choosers(step):
            draft = step.part(seq).draft
            verdict = walk_draft(draft, choice)
            if draft is not None and len(verdict.path) > self.longest:
                verdict = Verdict(verdict.path[: self.longest], draft.ids[verdict.path[self.longest]])
            step.decide(seq, verdict)


@attrs.define(eq=False)
class Judge:
    """Reads probs and decides nothing; with private noise a drafter's steps are independent."""

    noise: Literal["shared", "private"] = "private"

    @hookimpl
    def compat(self) -> Compat:
        return Compat(judges=KINDS, noise=self.noise)

    @hookimpl
    def accept(self, step: AcceptStep) -> None:
        """Leave every sequence to the core's rule."""


@attrs.define(eq=False)
class Watched:
    """Wraps a target: ``after(output)`` is called with a copy of every forward's output."""

    inner: Target
    after: Callable[[Batch, TargetOutput], None]
    hooks: dict[str, Any] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.hooks = implementations(self.inner, "target")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def forward(self, batch: Batch, needs: Needs) -> TargetOutput:
        output = copy_output(self.inner.forward(batch, needs))
        self.after(batch, output)
        return output

    @hookimpl
    def compat(self, target: Target) -> Compat | None:
        return ask_compat(self.inner, "target", target)

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        if "rollback" in self.hooks:
            self.hooks["rollback"][0](step)


@attrs.define(eq=False)
class Lender(Watched):
    """Notes the names of the weights that are read."""

    after: Callable[[Batch, TargetOutput], None] = attrs.field(default=lambda batch, output: None)
    read: set[str] = attrs.field(factory=set)

    def tensor(self, name: str) -> torch.Tensor:
        self.read.add(name)
        return self.inner.tensor(name)


@attrs.define(eq=False)
class LendsParts(Watched):
    """Notes whether a part of its blocks was asked for; a target without parts gives all of it for each."""

    after: Callable[[Batch, TargetOutput], None] = attrs.field(default=lambda batch, output: None)
    asked: bool = False

    @property
    def partial_problem(self) -> str | None:
        return getattr(self.inner, "partial_problem", None)

    def overlay_problem(self, overlay: Overlay) -> str | None:
        return overlay_problem(self.inner, overlay)

    def partial_forward(
        self, blocks: Iterable[int], window: int = 0, overlay: Overlay | None = None, sinks: int = 0
    ) -> PartialForward:
        self.asked = True
        if not hasattr(self.inner, "partial_forward"):
            return Whole(self)
        return partial_forward(self.inner, blocks, window, overlay, sinks)


@attrs.frozen
class Whole:
    """All blocks of a target that runs no parts."""

    target: Any

    def forward(self, rows: Iterable[tuple[Sequence, int, list[int]]]) -> torch.Tensor:
        parts = [Part(seq, start, tokens, decides=True) for seq, start, tokens in rows]
        output = drive(self.target.inner, parts).output
        assert output is not None
        return output.logits

    def forward_rows(self, rows: Iterable[tuple[Sequence, int, list[int]]], first: int = 0) -> list[torch.Tensor]:
        raise NotImplementedError("a target that runs no parts has no logits of further rows")


@attrs.define(eq=False)
class Rewinds(Watched):
    """Evaluates every kept draft again in the next step, like an owner that cannot restore a state."""

    after: Callable[[Batch, TargetOutput], None] = attrs.field(default=lambda batch, output: None)

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        super().rollback(step)
        for seq, verdict in step.verdicts.items():
            if verdict.path:
                step.rewind(seq, step.part(seq).end)


def copy_output(output: TargetOutput) -> TargetOutput:
    """Copy of an output in new tensors."""
    hidden = {i: h.clone() for i, h in output.hidden.items()}
    final = None if output.final is None else output.final.clone()
    return attrs.evolve(output, logits=output.logits.clone(), hidden=hidden, final=final)


def views(output: TargetOutput) -> list[torch.Tensor]:
    """Every tensor of a forward's output, except the trace."""
    return [output.logits, *output.hidden.values(), *([] if output.final is None else [output.final])]
