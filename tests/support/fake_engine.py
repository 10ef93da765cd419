"""An engine with a loop of its own: it schedules, verifies and samples greedily, and asks a Host for drafts.

It is written without the loop of this project: chunks of prompts, sequences that join and leave, drafts that are
shortened before they are verified, and stop tokens inside a draft.
"""

from __future__ import annotations

from typing import Any

import attrs

from spec_core import Compat, Draft, Needs, Part, RollbackStep, Sequence, Step, Target, Verdict, hookimpl
from spec_core.assembly.hooks import implementations
from spec_core.host import EngineModel, Host, Progress, Serves
from spec_core.toolkit import forward, next_token_layer, open_sequence

WEIGHTS = ("token_embd.weight", "output.weight", "output_norm.weight")
EVERYTHING = Serves(
    logits=True, hidden=True, final=True, trees=True, weights=WEIGHTS, constraints=True, predictions=True
)


def model_of(target: Target) -> EngineModel:
    """The target as an engine offers it: without an executor, with its matrices."""
    return EngineModel(target.info, target.tokenizer, target.tensor, next_token_layer(target))


@attrs.define(eq=False)
class Job:
    """A request. budget: draft tokens that are verified in a step, fewer than were drafted."""

    key: str
    seq: Sequence
    prompt: list[int]
    length: int
    stop: frozenset[int] = frozenset()
    draft: Draft | None = None
    tokens: list[int] = attrs.field(factory=list)
    done: bool = False


@attrs.define(eq=False)
class FakeEngine:
    """chunk: prompt rows of a step. trims: every third draft loses its last token before it is verified."""

    target: Any
    host: Host | None
    chunk: int = 5
    trims: bool = False
    steps: int = 0
    jobs: list[Job] = attrs.field(factory=list)

    def add(self, key: str, prompt: list[int], length: int, stop: frozenset[int] = frozenset()) -> Job:
        job = Job(key, open_sequence(self.target), prompt, length, stop)
        self.jobs.append(job)
        if self.host is not None:
            self.host.begin(key, prompt, max_tokens=length, name=key, stop_tokens=stop, ignore_eos=True)
        return job

    def run(self) -> None:
        while any(not job.done for job in self.jobs):
            self.step()

    def step(self) -> None:
        self.steps += 1
        running = [job for job in self.jobs if not job.done]
        step = forward(self.target, [self._part(job) for job in running], self._needs())
        progress = {job.key: self._verify(job, part, step) for job, part in zip(running, step.parts, strict=True)}
        drafts = {} if self.host is None else self.host.step(progress)
        for job in running:
            job.draft = drafts.get(job.key)
            if job.done:
                job.draft = None
                if self.host is not None:
                    self.host.end(job.key)

    def _needs(self) -> Needs:
        needs = Needs() if self.host is None else self.host.needs
        return attrs.evolve(needs, logits=False, trees=True)

    def _part(self, job: Job) -> Part:
        seq, whole = job.seq, job.prompt + job.tokens
        pending = whole[seq.evaluated :][: self.chunk]
        decides = seq.evaluated + len(pending) == len(whole)
        return Part(seq, seq.evaluated, pending, decides, draft=self._trim(job.draft) if decides else None)

    def _trim(self, draft: Draft | None) -> Draft | None:
        if draft is None or not self.trims or self.steps % 3:
            return draft
        return Draft(draft.ids[:-1], parents=draft.parents and draft.parents[:-1]) if len(draft) > 1 else None

    def _verify(self, job: Job, part: Part, step: Step) -> Progress:
        """Follow the most likely tokens down the draft, roll back, and tell the host."""
        output, n = step.output, len(part.pending)
        hidden = {i: h[part.row : part.first_draft_row + part.drafted] for i, h in output.hidden.items()}
        final = None if output.final is None else output.final[part.row : part.first_draft_row + part.drafted]
        start = job.seq.evaluated
        job.seq.evaluated = part.end
        if not part.decides:
            return Progress(prompt_rows=n, start=start, hidden=hidden, final=final)
        logits = output.logits[part.logits_row : part.logits_row + 1 + part.drafted]
        path, tokens = self._follow(part.draft, logits)
        tokens = self._cut_at_end(job, tokens)
        path = path[: len(tokens) - 1]
        self._roll_back(part, tuple(path), step)
        job.tokens += tokens
        return Progress(tokens, part.drafted, start, 0, logits, hidden, final)

    @staticmethod
    def _follow(draft: Draft | None, logits: Any) -> tuple[list[int], list[int]]:
        path: list[int] = []
        tokens = [int(logits[0].argmax())]
        while draft and (child := draft.children(path[-1] if path else -1).get(tokens[-1])) is not None:
            path.append(child)
            tokens.append(int(logits[1 + child].argmax()))
        return path, tokens

    @staticmethod
    def _cut_at_end(job: Job, tokens: list[int]) -> list[int]:
        """The tokens up to a stop token or the limit."""
        tokens = tokens[: job.length - len(job.tokens)]
        at = next((i for i, token in enumerate(tokens) if token in job.stop), None)
        tokens = tokens if at is None else tokens[: at + 1]
        job.done = at is not None or len(job.tokens) + len(tokens) == job.length
        return tokens

    def _roll_back(self, part: Part, path: tuple[int, ...], step: Step) -> None:
        """Keep the rows of the path: what the engine's own memory does."""
        one = Step(self.target, {}, owners=frozenset({"target"}), phase="rollback", plugin="target")
        one.add(part)
        one.batch, one.output = step.batch, step.output
        part.verdict = part.full_verdict = Verdict(path, 0)
        implementations(self.target, "target")["rollback"][0](RollbackStep(one))
        part.seq.evaluated = part.end + len(path)


class Recorder:
    """Collects what ``process`` delivers, and declares to read hidden states."""

    def __init__(self, needs: Needs) -> None:
        self.needs, self.rows = needs, {}

    @hookimpl
    def compat(self):
        return Compat(drafts=(), needs=self.needs)

    @hookimpl
    def process(self, rows):
        for seq, span in rows.by_sequence():
            self.rows.setdefault(seq.name, []).append(span)
