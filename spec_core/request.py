"""What a caller asks for, and what it gets: Request in, events and a Result out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from torch import Tensor

from spec_core.errors import UsageError
from spec_core.request_checks import checked, prompt
from spec_core.sampling import Logprob, Sampling
from spec_core.sequence import Sequence
from spec_core.stop import Stop, Text
from spec_core.target import Target


def _listed(texts: Any) -> Any:
    """A text alone is one, not its letters. What is no text is found when the request is submitted."""
    return (texts,) if isinstance(texts, str) else texts


@attrs.frozen(eq=False)
class Request:
    """One text to generate. Its fields are checked when it is submitted, and copied: later changes do not count.

    prompt: text, or token ids: a list, or an integral array or tensor [T]. n: most output tokens.
    seed: 64-bit; equal seeds give equal texts, under a rule with private coins only for a request that is alone in a
        fresh run.
    stop: texts that end the output and are cut off; stop_tokens likewise by id.
    ignore_eos: do not end at the model's own end-of-generation tokens.
    methods: names of the methods that may draft here; None is all of the run, () is plain decoding.
    draft_max: longest draft here; None is the run's, 0 is plain decoding.
    embeds: {position: [D]} prompt positions given as embeddings, floating-point tensors or arrays; their token id in
        ``prompt`` is -1.
    offset: output position the noise starts at, for a generation that continues an earlier one.
    stream: which text of this seed, 0 to 65,535: each has noise of its own.
    """

    prompt: str | list[int]
    n: int = 128
    sampling: Sampling = Sampling()
    seed: int = 0
    stop: tuple[str, ...] = attrs.field(default=(), converter=_listed)
    stop_tokens: Iterable[int] = frozenset()
    ignore_eos: bool = False
    methods: tuple[str, ...] | None = attrs.field(default=None, converter=_listed)
    draft_max: int | None = None
    embeds: Mapping[int, Tensor] = attrs.field(factory=dict)
    offset: int = 0
    stream: int = 0
    name: str = ""


@attrs.frozen
class Emitted:
    """One committed token. source: the plugin that proposed it, None where it is the target's own choice.

    text: what became certain with this token; pieces may lag behind tokens, their concatenation is the text.
    """

    seq: Sequence
    token: int
    t: int
    text: str
    source: str | None
    logprob: Logprob | None = None


@attrs.frozen(eq=False)
class Result:
    """A finished text. tokens include the stop token, text does not."""

    text: str
    tokens: list[int]
    finish_reason: str
    prompt_tokens: int
    reused: int
    seed: int
    stats: Mapping[str, Any]
    logprobs: list[Logprob] | None = None


def sequence(
    request: Request,
    target: Target,
    always: frozenset[str],
    drafters: frozenset[str],
    switched_off: Mapping[str, str],
) -> Sequence:
    """Check a request against the target and make its sequence. Raises UsageError.

    always: plugins that serve every sequence. drafters: those a request may choose among.
    switched_off: {plugin: why} of those that failed earlier in this run.
    """
    clean = checked(request, target)
    eog = frozenset() if clean.ignore_eos else target.info.eog
    return Sequence(
        tokens=clean.prompt,
        prompt=len(clean.prompt),
        limit=clean.n,
        sampling=clean.sampling,
        stop=Stop(eog | clean.stop_tokens, clean.stop),
        seed=clean.seed,
        name=clean.name,
        embeds=clean.embeds,
        methods=_methods(clean.methods, always, drafters, switched_off),
        draft_max=clean.draft_max,
        offset=clean.offset,
        stream=clean.stream,
        text=None if target.tokenizer is None else Text(target.tokenizer.stream(), clean.stop),
    )


def prompt_tokens(request: Request, target: Target) -> list[int]:
    """Token ids of the prompt, checked."""
    return prompt(request.prompt, request.embeds, target)


def _methods(
    asked: tuple[str, ...] | None, always: frozenset[str], drafters: frozenset[str], switched_off: Mapping[str, str]
) -> frozenset[str] | None:
    if asked is None:
        return None
    failed = sorted(set(asked) & set(switched_off))
    if failed:
        raise UsageError(
            f"the request asks for {', '.join(failed)}, switched off in this run: {switched_off[failed[0]]}",
            mend="leave it out of the request, or start a new run",
        )
    unknown = set(asked) - drafters
    if unknown:
        known = ", ".join(sorted(drafters)) or "no methods"
        raise UsageError(
            f"the request asks for {', '.join(sorted(unknown))}, this run has {known}",
            mend="start the run with that method, or leave it out of the request",
        )
    return always | frozenset(asked)
