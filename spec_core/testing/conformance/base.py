"""What the conformance classes share: requests, runs, and plain decoding to hold them against."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Many
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import attrs

from spec_core.contract.request import Request
from spec_core.contract.sequence import Sequence
from spec_core.contract.target import Target
from spec_core.loop.run import Run
from spec_core.sampling.parameters import Sampling
from spec_core.testing.conformance.probes import SUBJECT
from spec_core.testing.conformance.promise import Found, promise
from spec_core.testing.quick import QuickTarget
from spec_core.testing.rollback import ToyRollback
from spec_core.testing.toy import ToyTarget

_plain: dict[tuple[Any, str, str], list[int]] = {}


class Conformance:
    """Inherit one of the five classes and say what is to be tested.

    ``make`` gives a fresh plugin. ``target`` gives a fresh target; override it for a plugin that needs a certain one.
    ``owner`` gives the owner of its recurrent state, None leaves it to the one that is installed.
    ``prompts`` gives prompts, as token ids, after which the plugin has something to do.
    """

    temperatures: ClassVar[tuple[float, ...]] = (0.0, 0.8)

    def make(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must say what it tests: def make(self): return MyPlugin()")

    def target(self) -> Any:
        return ToyTarget(context=128)

    def owner(self) -> Any:
        recurrent = "recurrent" in self.model.info.states
        return ToyRollback() if recurrent and isinstance(self.model, ToyTarget) else None

    def prompts(self) -> list[list[int]]:
        return [[1, 2, 3, 4, 1, 2, 3, 4, 1, 2], [7], [5, 5, 5, 5, 9, 5, 5]]

    @promise("No hook raises, and nothing it proposes or decides is refused: a request runs to its end.")
    def test_one_request_is_survived(self) -> None:
        self.one_request()

    def one_request(self) -> None:
        """The least that a plugin must do: without it nothing else can be checked."""
        together(self.run([self.mine()]), self.requests()[:1])

    # what checks are made of

    @cached_property
    def model(self) -> Target:
        """The target of this check, made once."""
        return self.target()

    def requests(self, n: int = 14, temperatures: Many[float] | None = None, **more: Any) -> list[Request]:
        """Every prompt at every temperature, each with a name and a seed of its own."""
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
        """A fresh plugin under the name that the kit's partners know."""
        return SUBJECT, self.make()

    @cached_property
    def long_model(self) -> Any:
        """A quick target for many steps, unless the plugin needs a target of its own."""
        return QuickTarget() if self.source is Conformance else self.model

    @property
    def source(self) -> type:
        """Whose target this is: what is remembered about it holds for equal ones."""
        return Conformance if type(self).target is Conformance.target else type(self)

    def plain(self, request: Request, target: Target | None = None) -> list[int]:
        """Output of plain decoding in a run of its own; remembered."""
        target = target or self.model
        bare = attrs.evolve(request, name="", methods=None, draft_max=None)
        key = (self.source, target.info.name, described(bare))
        if request.embeds or key not in _plain:
            _plain[key] = Run(target, reuse=False).generate(bare).result.tokens
        return _plain[key]

    def text_of(self, request: Request, target: Target | None = None) -> list[int]:
        """Prompt and plain output."""
        return [*request.prompt, *self.plain(request, target)]

    def is_plain(self, run: Run, requests: list[Request], each: Callable[[], None] | None = None) -> None:
        """Run to the end; every request's text must be that of plain decoding."""
        for request, tokens in zip(requests, together(run, requests, each), strict=True):
            same(tokens, self.plain(request), described(request) + settings_of(run))


def together(run: Run, requests: list[Request], each: Callable[[], None] | None = None) -> list[list[int]]:
    """Output tokens of requests that run side by side. each: called after every step."""
    seqs = [run.submit(request) for request in requests]
    while run.busy:
        run.step()
        if each is not None:
            each()
    return [run.take(seq).tokens for seq in seqs]


def same(tokens: list[int], plain: list[int], where: str) -> None:
    """Raise what was found unless both texts are equal."""
    if tokens == plain:
        return
    pairs = enumerate(zip(tokens, plain, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(tokens), len(plain)))
    raise Found(f"output {at} is {tokens[at : at + 1]}, plain decoding has {plain[at : at + 1]}; {where}")


def described(request: Request) -> str:
    """What to ask for to see it again."""
    sampling, stops = request.sampling, sorted(request.stop_tokens)
    shown = f"prompt={request.prompt}, n={request.max_tokens}, seed={request.seed}, temperature={sampling.temperature}"
    shown += f", {sampling}" if sampling.adjusts or sampling.truncates else ""
    shown += f", offset={request.offset}" if request.offset else ""
    return shown + (f", stop_tokens={stops}" if stops else "")


def settings_of(run: Run) -> str:
    """The settings that are not the default."""
    chosen = attrs.asdict(run.settings, filter=lambda field, value: value != field.default)
    return "".join(f", {name}={value}" for name, value in chosen.items())


def forgotten(seen: list[weakref.ref[Sequence]], max_sequences: int) -> None:
    """Raise what was found unless finished sequences are gone, but for what a slot may keep of its last one."""
    if sum(ref() is not None for ref in seen) > max_sequences:
        gc.collect()  # slow where much is loaded
    alive = sum(ref() is not None for ref in seen)
    expect(alive <= max_sequences, f"{alive} of {len(seen)} finished sequences are still held")


def expect(kept: bool, found: str) -> None:
    """Raise what was found, where a promise is not kept."""
    if not kept:
        raise Found(found)
