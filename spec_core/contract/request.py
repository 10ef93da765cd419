"""A request, the events of its text, and its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from torch import Tensor

from spec_core.contract.sequence import Sequence
from spec_core.sampling.logprob import Logprob
from spec_core.sampling.parameters import Sampling


def _listed(texts: Any) -> Any:
    """One text stands for a list of one. What is no text is found when the request is submitted."""
    return (texts,) if isinstance(texts, str) else texts


@attrs.frozen(eq=False)
class Request:
    """One text to generate. Its fields are checked when it is submitted, and copied: later changes do not count.

    prompt: text; or token ids: a list, or an integral array or tensor [T]; or messages for the model's chat template:
        a list of ``{"role": ..., "content": ...}``. max_tokens: most output tokens.
    seed: 64-bit; equal seeds give equal texts, under a rule with private coins only for a request that is alone in a
        fresh run.
    sampling: how tokens are chosen. stop: texts that end the output and are cut off. stop_tokens: ids that end it.
    name: what errors and statistics call it.
    ignore_eos: do not end at the model's own end-of-generation tokens.
    methods: names of the methods that may draft here; None is all of the run, () is plain decoding.
    draft_max: longest draft here; None is the run's, 0 is plain decoding.
    draft_min: shorter drafts are dropped. confidence_min: a draft ends before its first token whose confidence is
        lower; drafts without confidences are not cut. Both need a rule with shared noise.
    reuse: continue on rows of an earlier request where the run allows it.
    priority: of waiting requests those with the lowest number start first, equal ones in the order of submission.
    embeds: {position: [D]} prompt positions given as embeddings, floating-point tensors or arrays; their token id in
        ``prompt`` is -1.
    offset: output position the noise starts at, for a generation that continues an earlier one.
    stream: which text of this seed, 0 to 65,535: each has noise of its own.
    """

    prompt: str | list[int] | list[dict[str, Any]]
    max_tokens: int = 128
    sampling: Sampling = Sampling()
    seed: int = 0
    stop: tuple[str, ...] = attrs.field(default=(), converter=_listed)
    stop_tokens: Iterable[int] = frozenset()
    ignore_eos: bool = False
    methods: tuple[str, ...] | None = attrs.field(default=None, converter=_listed)
    draft_max: int | None = None
    draft_min: int = 0
    confidence_min: float = 0.0
    reuse: bool = True
    priority: int = 0
    embeds: Mapping[int, Tensor] = attrs.field(factory=dict)
    offset: int = 0
    stream: int = 0
    name: str = ""


@attrs.frozen
class Emitted:
    """One committed token. source: the plugin that proposed it, None where it is the target's own choice.

    token: its id. t: its output position, from 0. logprob: where ``Sampling.logprobs`` asked for it.
    text: what became certain with this token; it may be empty, and the pieces together are the text.
    """

    seq: Sequence
    token: int
    t: int
    text: str
    source: str | None
    logprob: Logprob | None = None


@attrs.frozen(eq=False)
class Result:
    """A finished text.

    text: without what ended it. tokens: output ids, the stop token included.
    finish_reason: "stop", "length", "cancelled" or "error". prompt_tokens: length of the prompt.
    reused: prompt rows taken over from an earlier request. seed: the request's. stats: as in docs/metrics.md.
    logprobs: one per token where ``Sampling.logprobs`` asked for them, else None.
    """

    text: str
    tokens: list[int]
    finish_reason: str
    prompt_tokens: int
    reused: int
    seed: int
    stats: Mapping[str, Any]
    logprobs: list[Logprob] | None = None
