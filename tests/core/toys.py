"""Helpers of the core's tests: plain references, new forwards, and a check of every step against them."""

from __future__ import annotations

from functools import cache
from typing import Any

import attrs
import numpy as np
import torch

from spec_core import Compat, Draft, Needs, Request, Result, Run, Sampling, Sequence, hookimpl
from spec_core.contract.batch import Batch, Part
from spec_core.testing import Oracle, RandomTrees, ToyRollback, ToyTarget

STRATEGIES = ("snapshot", "replay", "checkpoint")
RIGHT = {
    "none-right": lambda i, seq: False,
    "all-right": lambda i, seq: True,
    "every-other-right": lambda i, seq: i % 2 == 0,
}
DRAFTERS = (*RIGHT, "chains", "trees")
WARPERS = {
    "plain": {},
    "top-k": {"top_k": 5},
    "top-p": {"top_p": 0.8},
    "min-p": {"min_p": 0.1},
    "all-cuts": {"top_k": 12, "top_p": 0.9, "min_p": 0.02},
    "repetition": {"repetition_penalty": 1.4},
    "presence": {"presence_penalty": 0.7},
    "frequency": {"frequency_penalty": 0.5, "top_k": 20},
    "bias": {"logit_bias": {3: 2.5, 7: -4.0, 9: float("-inf")}},
}


def drafter(kind: str, texts: dict[str, list[int]], seed: int = 0) -> Any:
    """One of DRAFTERS. texts: {sequence name: prompt and output}."""
    if kind in RIGHT:
        return Oracle(texts, RIGHT[kind])
    return RandomTrees(texts, seed=seed, trees=kind == "trees")


def plain(request: Request, **target: Any) -> Result:
    """The reference: the request alone, in a new run, without a method. Cached, since many tests use the same."""
    request = attrs.evolve(request, name="", methods=None)
    key = f"{request} {target}"
    if request.embeds or key not in _plain:
        _plain[key] = Run(ToyTarget(**target)).generate(request).result
    return _plain[key]


_plain: dict[str, Result] = {}


def texts(requests: list[Request], **target: Any) -> dict[str, list[int]]:
    """{name: prompt and plain output}."""
    return {r.name: list(r.prompt) + plain(r, **target).tokens for r in requests}


def finish(run: Run) -> None:
    while run.busy:
        run.step()


def together(run: Run, requests: list[Request]) -> list[Result]:
    """All requests in one run; results in the order of the requests."""
    seqs = [run.submit(r) for r in requests]
    finish(run)
    return [run.take(seq) for seq in seqs]


def sampling_keywords(seed: int = 0, temperature: float = 0.8, **more: Any) -> dict[str, Any]:
    """Keywords of a sampled request."""
    return {"seed": seed, "sampling": Sampling(temperature=temperature, **more)}


def forward(target: ToyTarget, tokens: list[int], embeds: dict[int, torch.Tensor] | None = None) -> tuple[Any, Any]:
    """(state, checked) of a fresh forward over these tokens, all in one chunk."""
    seq = Request(tokens)
    fresh = Sequence(list(tokens), len(tokens), 0, seq.sampling, None, embeds=embeds or {})
    target.open(fresh, 0)
    part = Part(fresh, 0, tokens, True)
    part.first_draft_row = len(tokens)
    needs = Needs(hidden=range(target.info.layers + 1), final=True, all_logits=True)
    ids = torch.tensor(tokens).clamp_min(-1)
    batch = Batch(ids, torch.arange(len(tokens)), (part,), embeds or {})
    return fresh.slot.state, target.forward(batch, needs)


@cache
def toy(recurrent: bool) -> ToyTarget:
    """A target whose new forwards are cached."""
    return ToyTarget(recurrent=recurrent)


@cache
def fresh_state(target: ToyTarget, tokens: tuple[int, ...]) -> Any:
    """Cached, since texts with every strategy and batch have common prefixes."""
    return forward(target, list(tokens))[0]


def assert_state(target: ToyTarget, seq: Sequence) -> None:
    """Attention rows and recurrent state equal those of a fresh forward over the evaluated tokens."""
    n = seq.evaluated
    have = seq.slot.state
    if not n:
        return
    embeds = {p: e for p, e in seq.embeds.items() if p < n}
    fresh = forward(target, seq.tokens[:n], embeds)[0] if embeds else fresh_state(target, tuple(seq.tokens[:n]))
    np.testing.assert_allclose(np.array(have.keys[:n]), np.array(fresh.keys), rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.array(have.values[:n]), np.array(fresh.values), rtol=0, atol=1e-12)
    if target.info.states >= {"recurrent"}:
        np.testing.assert_allclose(have.recurrent.state, fresh.recurrent.state, rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            np.array(have.recurrent.window), np.array(fresh.recurrent.window), rtol=0, atol=1e-12
        )


def finish_checked(run: Run, each: Any = None) -> None:
    """Run to the end; after every step, every running sequence's state equals that of a fresh forward."""
    oracle = toy("recurrent" in run.target.info.states)
    while run.busy:
        seqs = list(run.running)
        run.step()
        for seq in {*seqs, *run.running}:
            if seq.finish != "error" and seq.slot.state is not None:
                assert_state(oracle, seq)
                assert seq.finish or seq.evaluated < len(seq.tokens), "the last token is never evaluated"
        if each is not None:
            each()


@attrs.define(eq=False)
class Watcher:
    """Learns like a method, and records every row it receives: once, in order, without gaps."""

    hidden: tuple[int, ...] = (0, 1)
    final: bool = True
    received: dict[Sequence, list[dict[str, Any]]] = attrs.field(factory=dict)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(needs=Needs(hidden=self.hidden, final=self.final), drafts=())

    @hookimpl
    def process(self, rows) -> None:
        for seq, span in rows.by_sequence():
            received = self.received.setdefault(seq, [])
            assert span.tokens, "an empty span was delivered"
            assert span.start == (received[-1]["position"] + 1 if received else seq.reused)
            for i, token in enumerate(span.tokens):
                received.append(
                    {
                        "position": span.start + i,
                        "token": token,
                        "next": span.next[i],
                        "embed": span.next_embeds.get(i),
                        "hidden": {k: h[i].clone() for k, h in span.hidden.items()},
                        "final": span.final[i].clone() if rows.step.output.final is not None else None,
                    }
                )
            assert span.end == span.start + len(span.tokens) == received[-1]["position"] + 1

    def check(self, target: ToyTarget, seq: Sequence) -> None:
        """All received rows equal a new forward over the sequence's tokens."""
        received = self.received.get(seq, [])
        if not received:
            return
        end = received[-1]["position"] + 1
        _, fresh = forward(target, seq.tokens[:end], {p: e for p, e in seq.embeds.items() if p < end})
        assert [m["position"] for m in received] == list(range(seq.reused, end))
        for m in received:
            p = m["position"]
            assert (m["token"], m["next"]) == (max(seq.tokens[p], -1), max(seq.tokens[p + 1], -1))
            assert (m["embed"] is not None) == (p + 1 in seq.embeds)
            for i, h in m["hidden"].items():
                torch.testing.assert_close(h, fresh.hidden[i][p], rtol=0, atol=1e-12)
            if m["final"] is not None:
                torch.testing.assert_close(m["final"], fresh.final[p], rtol=0, atol=1e-12)


@attrs.define(eq=False)
class Fixed:
    """Proposes what a function says: ``make(step, seq, budget) -> Draft | None``."""

    make: Any
    asked: list[tuple[str, int]] = attrs.field(factory=list)

    @hookimpl
    def draft(self, step) -> None:
        for seq, budget in step.undrafted:
            self.asked.append((seq.name, budget))
            draft = self.make(step, seq, budget)
            if draft is not None:
                step.propose(seq, draft)


def ones(n: int = 2) -> Fixed:
    """Always drafts n times the token 1, or fewer if the budget is smaller."""
    return Fixed(lambda step, seq, budget: Draft([1] * min(n, budget)))


def toy_run(method: Any, strategy: str = "snapshot", target: dict[str, Any] | None = None, **settings: Any) -> Run:
    methods = method if isinstance(method, list) else [method]
    return Run(ToyTarget(**(target or {})), methods=methods, rollback=ToyRollback(strategy), **settings)


def chi_square_p(counts: np.ndarray, distribution: np.ndarray) -> float:
    """Probability of counts at least as far from the expected ones (Pearson; upper incomplete gamma function)."""
    expected = counts.sum() * distribution
    seen = expected > 0
    assert counts[~seen].sum() == 0, "drawn, though impossible"
    statistic = ((counts - expected)[seen] ** 2 / expected[seen]).sum()
    half = torch.tensor([(seen.sum() - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1])) if seen.sum() > 1 else 1.0


DENSE = {"recurrent": False}


def requests(count: int = 4, n: int = 14) -> list[Request]:
    return [
        Request([i, i + 1, 5][: 1 + i % 3], max_tokens=n, name=f"{i}", **sampling_keywords(i)) for i in range(count)
    ]


class Breaks(ToyTarget):
    """Raises in the n-th forward."""

    def __init__(self, at: int, error=None, **more) -> None:
        super().__init__(**more)
        self.at, self.error = at, error or RuntimeError("device lost")

    def forward(self, batch, needs):
        if self.forwards + 1 == self.at:
            self.forwards += 1
            for part in batch.parts:
                part.seq.slot.state.keys.append(None)
            raise self.error
        return super().forward(batch, needs)


def dense(methods, **more) -> Run:
    return Run(ToyTarget(**DENSE), methods, **more)


class Says:
    """A plugin whose ``compat`` returns the argument."""

    def __init__(self, **compat) -> None:
        self.answer = Compat(**compat)

    @hookimpl
    def compat(self):
        return self.answer


class Drafts(Says):
    @hookimpl
    def draft(self, step):
        for seq, _ in step.undrafted:
            step.propose(seq, Draft([1]))
