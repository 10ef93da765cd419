"""llama-server's ``/completion``: its body, its route and its answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias
from uuid import uuid4

import attrs
from pydantic import BaseModel, Field
from starlette.responses import Response

from spec_core import Emitted, Tokenizer
from spec_core.toolkit import encode_after, encode_part
from spec_serve import report, token_logprobs
from spec_serve.answer_size import answer_size
from spec_serve.errors import ApiError, api_error_of
from spec_serve.generation_params import TOKEN_ID, GenerationParams, generation_params, max_tokens
from spec_serve.job import Done, EventQueue, Failed, Job, Progress, Prompted, job_messages
from spec_serve.lengths import check_ids, check_text
from spec_serve.llama_slots import generation
from spec_serve.report import Finished
from spec_serve.routes import api_router, generation_responses
from spec_serve.schemas import Count, Generate, Number
from spec_serve.server_config import ServerConfig
from spec_serve.service import Service, ServiceOf
from spec_serve.shape import BODY_BYTES
from spec_serve.stream import event
from spec_serve.strict_model import ANY, Body, ListOf
from spec_serve.threads import write_in_thread

router = api_router("llama-server")
STOPS = {"length": "limit", "cancelled": "limit", "deadline": "limit"}
BIASED_MAX = 256
"""Characters of a text whose tokens get a bias."""
BIASED_SIZE = 64
"""Characters of a long text that take as long as a text whose tokens get a bias."""
BIASED_TEXTS_MAX = 256
"""Texts whose tokens get a bias: each is tokenized by itself, in a millisecond."""


class PromptText(Body):
    """A prompt in llama-server's other form."""

    where: ClassVar[str] = "a prompt"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"multimodal_data": (None, [])}

    prompt_string: str


Prompt: TypeAlias = str | list[int | str] | PromptText
"""A text, or a list in which token ids and texts are mixed."""


class LlamaCompletion(Generate):
    """llama-server's ``/completion``."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "samplers": (None,), "mirostat": (None, 0),
        "typical_p": (None, 1.0, 1),
        "dynatemp_range": (None, 0.0, 0), "dry_multiplier": (None, 0.0, 0), "xtc_probability": (None, 0.0, 0),
        "n_keep": (None, 0), "n_indent": (None, 0), "id_slot": (ANY,), "lora": (None, []), "min_keep": (None, 0),
        "post_sampling_probs": (None, False), "t_max_predict_ms": (None, 0), "t_max_prompt_ms": (None, 0),
        "n_discard": (None, 0),
    }  # fmt: skip

    ids: ClassVar[tuple[str, ...]] = ("prompt", "logit_bias")

    prompt: str | ListOf[int | Prompt] | PromptText
    response_fields: list[str] | None = Field(default=None, description="The answer has these fields alone: a, or a/b.")
    n_predict: int | None = None
    max_tokens: Count | None = None
    repeat_last_n: int | None = None
    n_probs: Count | None = None
    logit_bias: dict[str, Number] | list[list[int | str | float | bool]] | None = None
    return_tokens: bool | None = None


class CompletionAnswer(BaseModel):
    """Fields of an answer; ``response_fields`` choose among them."""

    index: int | None = None
    content: str | None = None
    tokens: list[int] | None = None
    id_slot: int | None = None
    stop: bool | None = None
    model: str | None = None
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    generation_settings: dict[str, Any] | None = None
    prompt: Any = None
    has_new_line: bool | None = None
    truncated: bool | None = None
    stop_type: str | None = None
    stopping_word: str | None = None
    tokens_cached: int | None = None
    timings: report.Timings | None = None
    metrics: report.DecodingMetrics | None = None
    completion_probabilities: list[dict[str, Any]] | None = None


@router.post("/completion", response_model=CompletionAnswer | list[CompletionAnswer], responses=generation_responses())
@router.post("/completions", include_in_schema=False)
async def complete_prompt(body: LlamaCompletion, service: ServiceOf) -> Response:
    """Continue a prompt, or several."""
    prompts, several = await service.prepare(_read_prompts, body, service.config, size=BODY_BYTES.get())
    return await answer_completion(service, body, prompts, several)


def _read_prompts(body: LlamaCompletion, config: ServerConfig) -> tuple[list[tuple[OnePrompt, str | list[int]]], bool]:
    """Each prompt with what it is encoded as, and whether the answer is a list. Raises ApiError."""
    if isinstance(body.prompt, list):  # whether it is one prompt or several of them
        check_ids(body.prompt, config)
    prompts, several = prompts_of(body.prompt)
    if len(prompts) > config.limits.n_max:
        raise ApiError(400, f"{len(prompts)} prompts, at most {config.limits.n_max} are allowed", "prompt")
    return [(prompt, ids_of(prompt, config)) for prompt in prompts], several


async def answer_completion(
    service: Service, body: LlamaCompletion, prompts: list[tuple[OnePrompt, str | list[int]]], several: bool
) -> Response:
    """Submit prompts, each with what it is encoded as, and answer."""
    config = service.config
    if len(prompts) > service.engine.room:
        problem = f"{len(prompts)} prompts, at most {service.engine.room} texts run or wait at once on this server"
        raise ApiError(400, problem, "prompt")
    ask = await service.prepare(ask_of, body, config, len(prompts), size=BIASED_SIZE * len(body.logit_bias or ()))
    answers: list[LlamaAnswer] = []
    try:
        for written, prompt in prompts:
            (job,), queue = await service.submit(ask, [prompt], 1, f"completion-{uuid4().hex}")
            answers.append(LlamaAnswer(config, job, queue, written, AnswerFields.of(body), len(answers)))
    except BaseException:
        service.engine.cancel([one.job for one in answers])
        raise
    return await service.respond(Answers(answers, several), [one.job for one in answers], body.stream)


def limit(body: LlamaCompletion) -> int | None:
    """``n_predict`` or ``max_tokens``; -1 is no limit. Raises ApiError where both are given."""
    if body.n_predict is not None and body.max_tokens is not None:
        raise ApiError(400, "n_predict and max_tokens are both given; write one", "max_tokens")
    count = body.max_tokens if body.n_predict is None else body.n_predict
    return None if count is None or count < 0 else count


def bias(biases: Any, tokenizer: Tokenizer) -> dict[int, float]:
    """``{"42": 1.5}``, or pairs ``[42, 1.5]``, ``["text", -1]``, ``[42, false]``."""
    pairs = list(biases.items()) if isinstance(biases, Mapping) else biases or []
    texts = sum(bool(pair) and isinstance(pair[0], str) and TOKEN_ID.fullmatch(pair[0]) is None for pair in pairs)
    if texts > BIASED_TEXTS_MAX:
        raise ApiError(400, f"logit_bias has {texts} texts, at most {BIASED_TEXTS_MAX} are tokenized", "logit_bias")
    return {token: value for pair in pairs for token, value in _bias(pair, tokenizer)}


def _bias(pair: Sequence[Any], tokenizer: Tokenizer) -> list[tuple[int, float]]:
    wrong = len(pair) != 2 or isinstance(pair[0], (bool, float)) or pair[1] is True or isinstance(pair[1], str)
    if wrong:
        raise ApiError(400, f"logit_bias has {list(pair)!r:.60}; write [token, number] or [token, false]", "logit_bias")
    key, amount = pair
    value = float("-inf") if amount is False else float(amount)
    if isinstance(key, str) and len(key) > BIASED_MAX:
        raise ApiError(400, f"logit_bias has a text of more than {BIASED_MAX} characters", "logit_bias")
    if isinstance(key, str) and TOKEN_ID.fullmatch(key) is None:
        return [(token, value) for token in encode_part(tokenizer, key)]
    return [(int(key), value)]


OnePrompt = str | list[int | str]
"""One prompt: a text, or a list in which ids and texts are mixed."""


def prompts_of(value: Any) -> tuple[list[OnePrompt], bool]:
    """The prompts of a body, and whether its answer is a list."""
    if isinstance(value, list) and (not value or any(isinstance(item, int) for item in value)):
        if any(isinstance(item, (list, PromptText)) for item in value):
            raise ApiError(400, "the prompt mixes token ids and prompts; write a list of prompts", "prompt")
        return [value], False
    if isinstance(value, list):
        return [_single(item) for item in value], True
    return [_single(value)], False


def _single(prompt: Any) -> OnePrompt:
    return prompt.prompt_string if isinstance(prompt, PromptText) else prompt


def ids_of(prompt: OnePrompt, config: ServerConfig) -> str | list[int]:
    """A text, ids, or a list in which both are mixed: only the first text in it may begin with a token of its own.

    Raises ApiError for a list of more parts than the context has places.
    """
    if isinstance(prompt, str) or all(isinstance(item, int) for item in prompt):
        return prompt  # type: ignore[return-value]
    check_ids(prompt, config)
    check_text("".join(item for item in prompt if isinstance(item, str)), config)
    assert config.target.tokenizer is not None
    ids: list[int] = []
    for item in prompt:
        ids += [item] if isinstance(item, int) else _next_ids(item, ids, config.target.tokenizer)
    return ids


def _next_ids(text: str, before: list[int], tokenizer: Tokenizer) -> list[int]:
    if before:
        return encode_after(tokenizer, text, before, special=True)
    return tokenizer.encode(text, special=True)


@attrs.frozen
class AnswerFields:
    """Fields of an answer besides its text.

    silent: no text, its prompt was evaluated only. timed: timings in every chunk. fields: names of the fields that
    are sent, all of them if empty; ``a/b`` is the field b of a.
    """

    tokens: bool = False
    silent: bool = False
    timed: bool = False
    fields: tuple[str, ...] = ()

    @classmethod
    def of(cls, body: LlamaCompletion) -> AnswerFields:
        return cls(
            bool(body.return_tokens), limit(body) == 0, bool(body.timings_per_token), tuple(body.response_fields or ())
        )

    def choose(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body with these fields alone; names that it does not have are left out."""
        selected = {name: _inner(body, name.split("/")) for name in self.fields}
        return {name: value for name, value in selected.items() if value is not MISSING} if self.fields else body


MISSING = object()


def _inner(value: Any, path: list[str]) -> Any:
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return MISSING
        value = value[name]
    return value


@attrs.define(eq=False)
class LlamaAnswer:
    """The answer of ``/completion`` to one prompt. index: of the prompt."""

    config: ServerConfig
    job: Job
    queue: EventQueue
    prompt: OnePrompt
    answer_fields: AnswerFields
    index: int = 0
    ids: list[int] = attrs.field(factory=list)
    probabilities: list[dict[str, Any]] = attrs.field(factory=list)
    _finished: Finished | None = None

    async def wait(self) -> None:
        """Wait for the text. Raises the error that ended it."""
        [self._finished] = await report.wait_for_all(self.queue, 1)

    def whole(self) -> dict[str, Any]:
        """The answer in one piece."""
        finished = self._finished
        assert finished is not None
        for step in self.job.steps:
            self._note(step.events)
        return self.answer_fields.choose(self._final(finished, finished.result.text, self.ids))

    async def chunks(self) -> AsyncIterator[str]:
        """Server-sent events, the last with all numbers and no text."""
        async for _, message in job_messages(self.queue, 1):
            if isinstance(message, Failed):
                yield event(api_error_of(message.error).body)
            elif isinstance(message, Prompted):
                yield event(self._prompt_event(message))
            elif isinstance(message, Progress):
                if not self.answer_fields.silent:
                    yield event(self._chunk(message))
            elif isinstance(message, Done):
                yield await write_in_thread(
                    answer_size([self.job]), self._last_event, Finished(self.job, message.result)
                )

    def _last_event(self, finished: Finished) -> str:
        """All numbers, the prompt, and all log-probabilities again."""
        return event(self.answer_fields.choose(self._final(finished, "", [])))

    def _prompt_event(self, prompted: Prompted) -> dict[str, Any]:
        head = {"index": self.index, "content": "", "tokens": [], "stop": False, "id_slot": self.job.slot}
        return {**head, **report.progress_of(prompted, self.answer_fields.timed)}

    def _note(self, events: list[Emitted]) -> list[dict[str, Any]]:
        assert self.config.target.tokenizer is not None
        self.ids += [e.token for e in token_logprobs.text_events(events)]
        logprobs = token_logprobs.llama_logprobs(events, self.config.target.tokenizer)
        self.probabilities += logprobs
        return logprobs

    def _chunk(self, progress: Progress) -> dict[str, Any]:
        assert self.config.target.tokenizer is not None and self.job.seq is not None
        note = self._note(progress.events)
        chunk: dict[str, Any] = {
            "index": self.index,
            "content": "".join(e.text for e in progress.events),
            "tokens": [e.token for e in token_logprobs.text_events(progress.events)],
            "stop": False,
            "id_slot": self.job.slot,
            "tokens_predicted": progress.events[-1].t + 1,
            "tokens_evaluated": self.job.seq.prompt_len,
        }
        if note:
            chunk["completion_probabilities"] = note
        if self.answer_fields.timed:
            chunk["timings"] = report.timings_so_far(self.job, progress.events[-1].t + 1)
        if self.job.trace:
            chunk["speculative"] = token_logprobs.trace(progress.events, progress.drafted, self.config.target.tokenizer)
        return chunk

    def _final(self, finished: Finished, text: str, ids: list[int]) -> dict[str, Any]:
        result, (kind, word) = finished.result, self._stop_reason(finished)
        silent = self.answer_fields.silent
        body = {
            "index": self.index,
            "content": "" if silent else text,
            "tokens": ids if self.answer_fields.tokens and not silent else [],
            "id_slot": self.job.slot,
            "stop": True,
            "model": self.config.model,
            "tokens_predicted": 0 if silent else len(result.tokens),
            "tokens_evaluated": result.prompt_tokens,
            "generation_settings": generation(self.job.request, self.config),
            "prompt": self.prompt,
            "has_new_line": "\n" in result.text,
            "truncated": self._is_truncated(finished),
            "stop_type": kind,
            "stopping_word": word,
            "tokens_cached": result.prompt_tokens + len(result.tokens) - 1,
            "timings": report.timings([finished]),
            "metrics": {"speculative_decoding": report.speculation([finished], self.config.run)},
        }
        return body | ({"completion_probabilities": self.probabilities} if self.probabilities else {})

    def _is_truncated(self, finished: Finished) -> bool:
        """Whether the context ended the text."""
        result = finished.result
        return finished.reason == "length" and result.prompt_tokens + len(result.tokens) >= self.config.context

    def _stop_reason(self, finished: Finished) -> tuple[str, str]:
        """(stop_type, stopping_word)."""
        if finished.reason != "stop":
            return STOPS.get(finished.reason, "none"), ""
        assert self.config.target.tokenizer is not None
        word = report.stop_text(finished, self.config.target.tokenizer)
        return ("eos", "") if word is None else ("word", word)


@attrs.frozen
class Answers:
    """The answer, or a list of them where the body had a list of prompts."""

    parts: list[LlamaAnswer]
    several: bool

    async def wait(self) -> None:
        """Wait for all texts. Raises the error that ended one of them."""
        for one in self.parts:
            await one.wait()

    def whole(self) -> Any:
        """The answers in one piece."""
        answers = [one.whole() for one in self.parts]
        return answers if self.several else answers[0]

    async def chunks(self) -> AsyncIterator[str]:
        """Server-sent events of one answer after the other, each with the index of its prompt."""
        for one in self.parts:
            async for text in one.chunks():
                yield text


def ask_of(body: LlamaCompletion, config: ServerConfig, texts: int) -> GenerationParams:
    """The body as a request without a prompt. texts: number of its prompts. Raises ApiError or UsageError."""
    assert config.target.tokenizer is not None
    if body.repeat_last_n not in (None, -1):
        raise ApiError(400, "repeat_last_n is not supported: penalties count the whole text", "repeat_last_n")
    body.seed = None if body.seed == -1 else body.seed
    tokens = max_tokens(limit(body), config, config.context)
    params = generation_params(
        body, config, tokens or 1, body.n_probs or None, bias(body.logit_bias, config.target.tokenizer)
    )
    return params.limit_logprobs(texts, limit(body) is not None, "n_probs", config)
