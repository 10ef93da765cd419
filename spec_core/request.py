"""What a caller asks for, and what it gets: Request in, events and a Result out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs
from torch import Tensor

from spec_core.errors import UsageError
from spec_core.sampling import Logprob, Sampling
from spec_core.sequence import Sequence
from spec_core.stop import Stop, Text
from spec_core.target import Target
from spec_core.values import ints, strings


@attrs.frozen(eq=False)
class Request:
    """One text to generate.

    prompt: text, or token ids. n: most output tokens. seed: 64-bit; equal seeds give equal texts, under a
        rule with private coins only for a request that is alone in a fresh run.
    stop: texts that end the output and are cut off; stop_tokens likewise by id.
    ignore_eos: do not end at the model's own end-of-generation tokens.
    methods: names of the methods that may draft here; None is all of the run, () is plain decoding.
    draft_max: longest draft here; None is the run's, 0 is plain decoding.
    embeds: {position: [D]} prompt positions given as embeddings; their token id in ``prompt`` is -1.
    offset: output position the noise starts at, for a generation that continues an earlier one.
    """

    prompt: str | list[int]
    n: int = 128
    sampling: Sampling = Sampling()
    seed: int = 0
    stop: tuple[str, ...] = attrs.field(default=(), converter=strings)
    stop_tokens: frozenset[int] = attrs.field(default=frozenset(), converter=ints)
    ignore_eos: bool = False
    methods: tuple[str, ...] | None = attrs.field(default=None, converter=attrs.converters.optional(strings))
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
    tokens = prompt_tokens(request, target)
    _check_embeds(request, len(tokens), target.info.width)
    _check_seed(request.seed)
    _check_bias(request.sampling, target.info.vocab)
    _check_stop_tokens(request.stop_tokens, target.info.vocab)
    _check_room(tokens, request, target.info.context)
    eog = frozenset() if request.ignore_eos else target.info.eog
    return Sequence(
        tokens=tokens,
        prompt=len(tokens),
        limit=request.n,
        sampling=request.sampling,
        stop=Stop(eog | request.stop_tokens, _stops(request, target)),
        seed=request.seed,
        name=request.name,
        embeds=dict(request.embeds),
        methods=_methods(request, always, drafters, switched_off),
        draft_max=request.draft_max,
        offset=request.offset,
        stream=request.stream,
        text=None if target.tokenizer is None else Text(target.tokenizer.stream(), request.stop),
    )


def prompt_tokens(request: Request, target: Target) -> list[int]:
    """Token ids of the prompt, checked."""
    if isinstance(request.prompt, str):
        if target.tokenizer is None:
            raise UsageError(
                f"{target.info.name} has no tokenizer", mend="give the prompt as token ids (--tokens 1,2,3)"
            )
        tokens = target.tokenizer.encode(request.prompt)
    else:
        tokens = [int(t) for t in request.prompt]
    for at, token in enumerate(tokens):
        if not 0 <= token < target.info.vocab and at not in request.embeds:
            raise UsageError(
                f"prompt token {token} at position {at} is outside the vocabulary of {target.info.vocab}",
                mend="tokenize the prompt with this model's own tokenizer",
            )
    return [-1 if at in request.embeds else token for at, token in enumerate(tokens)]


def _check_embeds(request: Request, prompt: int, width: int) -> None:
    for at, embedding in request.embeds.items():
        if not 0 <= at < prompt:
            raise UsageError(
                f"an embedding is given for position {at}, the prompt has {prompt}",
                mend="put the token -1 into the prompt at every position that is given as an embedding",
            )
        if tuple(embedding.shape) != (width,):
            raise UsageError(
                f"the embedding at position {at} has shape {list(embedding.shape)}, this model's are [{width}]",
                mend="give one vector of the model's width per position",
            )


def _check_bias(sampling: Sampling, vocab: int) -> None:
    for token, bias in sampling.logit_bias.items():
        if not 0 <= token < vocab:
            raise UsageError(
                f"logit bias for token {token}, the vocabulary has {vocab}", mend=f"give ids from 0 to {vocab - 1}"
            )
        if not bias < math.inf:
            raise UsageError(f"logit bias {bias} for token {token}", mend="give a finite number, or -inf to ban it")


def _check_stop_tokens(stops: frozenset[int], vocab: int) -> None:
    for token in sorted(stops):
        if not 0 <= token < vocab:
            raise UsageError(
                f"stop token {token} is outside the vocabulary of {vocab}", mend=f"give ids from 0 to {vocab - 1}"
            )


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 1 << 64:
        raise UsageError(f"seed {seed} is no 64-bit number", mend=f"give one from 0 to {(1 << 64) - 1}")


def _check_room(tokens: list[int], request: Request, context: int) -> None:
    if not tokens:
        raise UsageError("the prompt is empty and this model adds no beginning token", mend="give at least one token")
    if request.n < 0:
        raise UsageError(f"n = {request.n} tokens", mend="ask for 0 or more tokens")
    if len(tokens) >= context and request.n > 0:
        raise UsageError(
            f"the prompt has {len(tokens)} tokens, the context is {context} and one must be left to generate",
            mend=f"shorten the prompt to {context - 1} tokens, or load the model with a larger --context if it has one",
        )
    if request.draft_max is not None and request.draft_max < 0:
        raise UsageError(f"draft_max = {request.draft_max}", mend="give 0 (off) or more")


def _stops(request: Request, target: Target) -> tuple[str, ...]:
    if request.stop and target.tokenizer is None:
        raise UsageError("stop texts need a tokenizer, this target has none", mend="use stop tokens (--stop-token ID)")
    if any(not text for text in request.stop):
        raise UsageError("an empty stop text would end every output at once", mend="leave it out")
    return request.stop


def _methods(
    request: Request, always: frozenset[str], drafters: frozenset[str], switched_off: Mapping[str, str]
) -> frozenset[str] | None:
    if request.methods is None:
        return None
    failed = sorted(set(request.methods) & set(switched_off))
    if failed:
        raise UsageError(
            f"the request asks for {', '.join(failed)}, switched off in this run: {switched_off[failed[0]]}",
            mend="leave it out of the request, or start a new run",
        )
    unknown = set(request.methods) - drafters
    if unknown:
        known = ", ".join(sorted(drafters)) or "no methods"
        raise UsageError(
            f"the request asks for {', '.join(sorted(unknown))}, this run has {known}",
            mend="start the run with that method, or leave it out of the request",
        )
    return always | frozenset(request.methods)
