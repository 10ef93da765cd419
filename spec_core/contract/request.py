"""A request, the events of its text, and its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from torch import Tensor

from spec_core.contract.constraint import Constraint
from spec_core.contract.encoded_prompt import EncodedPrompt
from spec_core.contract.sequence import Sequence
from spec_core.sampling.logprob import Logprob
from spec_core.sampling.parameters import Sampling


def _as_tuple(texts: Any) -> Any:
    """Turn a single text into a tuple of one. Other types are checked when the request is submitted."""
    return (texts,) if isinstance(texts, str) else texts


@attrs.frozen(eq=False)
class Request:
    """One text to generate. Its fields are checked and copied when it is submitted; later changes have no effect.

    prompt: text; or token ids: a list, or an integral array or tensor [T]; or messages for the model's chat template:
        a list of ``{"role": ..., "content": ...}``. max_tokens: max output tokens.
    seed: 64-bit; equal seeds give equal texts. Under a rule with private noise this holds only for a request that is
        alone in a new run.
    sampling: how tokens are chosen. stop: texts that end the output and are cut off. stop_tokens: ids that end it.
    name: its name in errors and statistics.
    ignore_eos: do not end at the model's own end-of-generation tokens.
    min_tokens: output tokens before which no end-of-generation token and none of ``stop_tokens`` is chosen, and no stop
        text ends the output.
    methods: names of the methods that may draft; None means all of the run, () plain decoding.
    draft_max: longest draft; None means the run's setting, 0 plain decoding.
    draft_min: shorter drafts are dropped. confidence_min: a draft ends before its first token of lower confidence;
        drafts without confidences are not cut. Both need a rule with shared noise.
    control: the run's controller limits the drafts of this request; False gives each its full length.
    prediction: what the output is likely to be, a text or token ids: methods may draft from it.
    plugin_values: {plugin: {name: value}} values of the request for plugins that read them, such as the negative prompt
        of guidance: plain JSON values.
    reuse: continue on rows of an earlier request if the run allows it. cache_salt: of requests with the same salt only.
    priority: of waiting requests those with the lowest number start first, equal ones in the order of submission.
    images: pictures of a prompt that is a text, in the order of their places: paths, bytes of files, arrays [height,
        width, 3] of uint8, or images of pillow. Messages hold theirs in parts ``{"type": "image", "image": ...}``.
    embeds: {position: [D]} prompt positions given as embeddings, floating-point tensors or arrays; their token id in
        ``prompt`` is -1.
    encoded: what the target's image encoder made of a prompt with pictures; ``prompt`` then has its tokens.
    offset: output position at which the noise starts, for a generation that continues an earlier one.
    noise_stream: number of the text of this seed, 0 to 65,535: each has its own noise.
    constraint: what the output must match, such as a JSON schema of ``spec_grammar``; None for free text.
    """

    prompt: str | list[int] | list[dict[str, Any]]
    max_tokens: int = 128
    sampling: Sampling = Sampling()
    seed: int = 0
    stop: tuple[str, ...] = attrs.field(default=(), converter=_as_tuple)
    stop_tokens: Iterable[int] = frozenset()
    ignore_eos: bool = False
    min_tokens: int = 0
    methods: tuple[str, ...] | None = attrs.field(default=None, converter=_as_tuple)
    draft_max: int | None = None
    draft_min: int = 0
    confidence_min: float = 0.0
    control: bool = True
    prediction: str | list[int] = ""
    plugin_values: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    reuse: bool = True
    cache_salt: str = ""
    priority: int = 0
    images: Iterable[Any] = ()
    embeds: Mapping[int, Tensor] = attrs.field(factory=dict)
    encoded: EncodedPrompt | None = None
    offset: int = 0
    noise_stream: int = 0
    constraint: Constraint | None = None
    name: str = ""


@attrs.frozen
class Emitted:
    """One committed token. source: the plugin that proposed it, None if the target chose it.

    token: its id. t: its output position, from 0. logprob: if ``Sampling.logprobs`` requests it.
    text: the text that this token completed; it may be empty. All pieces joined are the whole text.
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

    text: without the stop text that ended it. tokens: output ids, stop token included.
    finish_reason: "stop", "complete" (its constraint allows nothing more), "length", "cancelled" or "error".
    prompt_tokens: length of the prompt.
    reused: prompt rows taken over from an earlier request. seed: the request's. stats: as in docs/metrics.md.
    logprobs: one per token if ``Sampling.logprobs`` requests them, else None.
    """

    text: str
    tokens: list[int]
    finish_reason: str
    prompt_tokens: int
    reused: int
    seed: int
    stats: Mapping[str, Any]
    logprobs: list[Logprob] | None = None
