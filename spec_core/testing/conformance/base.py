"""Shared parts of the conformance classes: requests, runs, and comparison with plain decoding."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Many
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import attrs

from spec_core.assembly.hooks import ask_compat
from spec_core.contract.request import Request
from spec_core.contract.sequence import Sequence
from spec_core.contract.target import Target
from spec_core.contract.values import Compat
from spec_core.loop.run import Run
from spec_core.sampling.parameters import Sampling
from spec_core.testing.conformance.probes import SUBJECT
from spec_core.testing.conformance.promise import Found, promise
from spec_core.testing.quick import QuickTarget
from spec_core.testing.rollback import ToyRollback
from spec_core.testing.toy import ToyTarget

SHOWN = 48
"""Tokens of a prompt that a finding shows."""
_plain: dict[tuple[Any, ...], list[int]] = {}


class Conformance:
    """Inherit one of the six classes and define what is tested.

    ``make`` returns a new plugin. ``target`` returns a new target; override it if the plugin needs a certain one.
    ``owner`` returns the owner of its recurrent state; None uses the installed one.
    ``prompts`` returns prompts, as token ids, after which the plugin has something to do.
    """

    temperatures: ClassVar[tuple[float, ...]] = (0.0, 0.8)

    def make(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define what it tests: def make(self): return MyPlugin()")

    def target(self) -> Any:
        return ToyTarget(context=128)

    def owner(self) -> Any:
        recurrent = "recurrent" in self.model.info.states
        return ToyRollback() if recurrent and isinstance(self.model, ToyTarget) else None

    def prompts(self) -> list[list[int]]:
        return [[1, 2, 3, 4, 1, 2, 3, 4, 1, 2], [7], [5, 5, 5, 5, 9, 5, 5]]

    @promise("A request runs to its end: no hook raises, and no draft or verdict is refused.")
    def test_one_request_is_survived(self) -> None:
        self.one_request()

    def one_request(self) -> None:
        """The basic check: if it fails, no other check is meaningful."""
        run_together(self.run([self.mine()]), self.requests()[:1])

    # parts of checks

    @cached_property
    def model(self) -> Target:
        """The target of this check, made once."""
        return self.target()

    def requests(self, n: int = 14, temperatures: Many[float] | None = None, **more: Any) -> list[Request]:
        """Every prompt at every temperature, each with its own name and seed."""
        pairs = product(self.temperatures if temperatures is None else temperatures, self.prompts())
        return [
            Request(
                prompt, max_tokens=n, seed=i, name=str(i), sampling=Sampling(temperature=t), ignore_eos=True, **more
            )
            for i, (t, prompt) in enumerate(pairs)
        ]

    def run(self, methods: Iterable[Any], target: Target | None = None, owner: Any = None, **settings: Any) -> Run:
        target = target or self.model
        if owner is None and "recurrent" in target.info.states:
            owner = self.owner()
        return Run(target, list(methods), rollback=owner, **settings)

    def mine(self) -> tuple[str, Any]:
        """A new plugin, under the name that the kit's partners use."""
        return SUBJECT, self.make()

    @cached_property
    def compat_answer(self) -> Compat:
        """The plugin's answer to ``compat``."""
        name, plugin = self.mine()
        return ask_compat(plugin, name, self.model) or Compat()

    @cached_property
    def long_model(self) -> Any:
        """A cheap target for many steps, unless the plugin needs its own target."""
        return QuickTarget() if self.source is Conformance else self.model

    @property
    def source(self) -> type:
        """The class that defines the target: results are shared between classes with equal targets."""
        return Conformance if type(self).target is Conformance.target else type(self)

    def plain(self, request: Request, target: Target | None = None) -> list[int]:
        """Output of plain decoding in a separate run; cached."""
        target = target or self.model
        bare = attrs.evolve(request, name="", methods=None, draft_max=None)
        key = (self.source, target.info.name, describe_request(bare), tuple(bare.prompt))
        if request.embeds or key not in _plain:
            _plain[key] = Run(target, reuse=False).generate(bare).result.tokens
        return _plain[key]

    def text_of(self, request: Request, target: Target | None = None) -> list[int]:
        """Prompt and plain output."""
        return [*request.prompt, *self.plain(request, target)]

    def is_plain(self, run: Run, requests: list[Request], each: Callable[[], None] | None = None) -> None:
        """Run to the end; every request's text must equal plain decoding's."""
        for request, tokens in zip(requests, run_together(run, requests, each), strict=True):
            expect_same(tokens, self.plain(request), describe_request(request) + settings_of(run))


def run_together(run: Run, requests: list[Request], each: Callable[[], None] | None = None) -> list[list[int]]:
    """Output tokens of requests that run together. each: called after every step."""
    seqs = [run.submit(request) for request in requests]
    while run.busy:
        run.step()
        if each is not None:
            each()
    return [run.take(seq).tokens for seq in seqs]


def expect_same(tokens: list[int], plain: list[int], where: str) -> None:
    """Raise Found unless both texts are equal."""
    if tokens == plain:
        return
    pairs = enumerate(zip(tokens, plain, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(tokens), len(plain)))
    raise Found(f"output {at} is {tokens[at : at + 1]}, plain decoding has {plain[at : at + 1]}; {where}")


def describe_request(request: Request) -> str:
    """The request's parameters, to reproduce a finding; of a long prompt its ends."""
    sampling, stops, count = request.sampling, sorted(request.stop_tokens), len(request.prompt)
    ends = f"{request.prompt[: SHOWN // 2]} ... {request.prompt[-SHOWN // 2 :]} ({count} tokens)"
    prompt = request.prompt if count <= SHOWN else ends
    shown = f"prompt={prompt}, n={request.max_tokens}, seed={request.seed}, temperature={sampling.temperature}"
    shown += f", {sampling}" if sampling.adjusts or sampling.truncates else ""
    shown += f", offset={request.offset}" if request.offset else ""
    shown += f", constraint={request.constraint}" if request.constraint is not None else ""
    return shown + (f", stop_tokens={stops}" if stops else "")


def settings_of(run: Run) -> str:
    """The settings that differ from the default."""
    chosen = attrs.asdict(run.settings, filter=lambda field, value: value != field.default)
    return "".join(f", {name}={value}" for name, value in chosen.items())


def check_forgotten(seen: list[weakref.ref[Sequence]], max_sequences: int) -> None:
    """Raise Found unless finished sequences are garbage collected, except for the last one of each slot."""
    if sum(ref() is not None for ref in seen) > max_sequences:
        gc.collect()  # slow if many objects are loaded
    alive = sum(ref() is not None for ref in seen)
    expect(alive <= max_sequences, f"{alive} of {len(seen)} finished sequences are still held")


def expect(kept: bool, finding: str) -> None:
    """Raise Found if a promise is broken."""
    if not kept:
        raise Found(finding)
