"""Turns a body into requests of the core: defaults, aliases and limits."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import attrs

from spec_core import Constraint, EncodedPrompt, Request, Run, Sampling, Target
from spec_core.commands import DEFAULT, Settings, prompt_tokens
from spec_core.errors import nearest_names, quote_value
from spec_core.toolkit import PictureBudget
from spec_serve import structured
from spec_serve.calls.families import TAGGED
from spec_serve.conversation import ChatPrompt, describe_tools
from spec_serve.errors import ApiError
from spec_serve.job import EventQueue, Job
from spec_serve.left_out import without_left_out
from spec_serve.lengths import check_ids, check_text, prompt_max
from spec_serve.pictures import PictureMemory
from spec_serve.reading import Reads, call_form_of, has_channels
from spec_serve.schemas import AllowedChoice, Chat, Generate, OpenAI, Predicted, Speculative, Tool, ToolChoice
from spec_serve.server_config import ServerConfig
from spec_serve.settings import ServeSettings
from spec_serve.template_forms import knows_tools

SEEDS, SHORT, UNLIMITED = 1 << 64, 16, 1 << 31
"""``SHORT``: max_tokens of ``/v1/completions`` where it is not set, as in OpenAI's API."""
RANDOM_BITS = 53
"""Bits of a random seed: a client whose numbers are floats, such as a browser, can send it back as it is."""
BANNED = -3.4e38
"""A bias below it bans a token: with it the logit, in float32, is -inf."""
SAMPLING = Sampling.NAMES
ALIASES = {
    "draft-simple": "draft-model", "draft_model": "draft-model", "standalone": "draft-model",
    "draft-mtp": "mtp", "nextn": "mtp", "draft-eagle3": "eagle3", "draft-dflash": "dflash",
    "ngram-simple": "ngram", "prompt-lookup": "ngram",
}  # fmt: skip
"""Names of llama-server, vLLM and SGLang."""
OFF = ("none", "off")
METHODS_MAX = 64
"""Names of methods of a request."""
TOKEN_ID = re.compile(r"-?[0-9]{1,18}")
PREDICTION = "prediction"
"""The method that drafts from a request's prediction."""


@attrs.frozen
class GenerationParams:
    """Generation parameters of a request, without its prompts.

    trace: report drafts. streamed: send an event per step. prompted: report how much of the prompt is evaluated.
    """

    request: Request
    deadline: float | None
    trace: bool
    streamed: bool
    prompted: bool = False

    def calling(self, constraint: Constraint | None) -> GenerationParams:
        """Set the constraint of a text that may, or must, call tools; None changes nothing."""
        if constraint is None:
            return self
        return attrs.evolve(self, request=attrs.evolve(self.request, constraint=constraint))

    def compile_constraint(self, target: Target) -> None:
        """Compile the constraint, so that the engine need not. Raises UsageError. Not for the event loop."""
        if self.request.constraint is not None:
            self.request.constraint.start(target)

    def limit_logprobs(self, texts: int, chosen: bool, field: str, config: ServerConfig) -> GenerationParams:
        """Set how long texts may become so that the answer has a bounded number of log-probabilities.

        texts: of the request. chosen: whether the client said how long they may become. Raises ApiError for too long
        ones; otherwise they end at the length that fits.
        """
        best = self.request.sampling.logprobs
        if best is None:
            return self
        tokens, most = min(self.request.max_tokens, config.context), config.limits.logprobs_total
        count = texts * tokens * (1 + best)
        if count <= most:
            return self
        longest = most // (texts * (1 + best))
        if chosen or longest < 1:
            problem = (
                f"{texts} texts of {tokens} tokens would have {count} log-probabilities, at most {most} are reported"
            )
            raise ApiError(400, problem, field)
        return attrs.evolve(self, request=attrs.evolve(self.request, max_tokens=longest))

    def predicting(self, prediction: str) -> GenerationParams:
        return attrs.evolve(self, request=attrs.evolve(self.request, prediction=prediction))

    def jobs(self, queue: EventQueue, prompts: list[EncodedPrompt], n: int, name: str) -> list[Job]:
        """A job for each of ``n`` texts of every prompt, in the order of the answer."""
        return [
            Job(
                attrs.evolve(
                    self.request,
                    prompt=prompt.tokens,
                    encoded=prompt if prompt.embeds else None,
                    noise_stream=stream,
                    name=name,
                ),
                queue,
                index=at * n + stream,
                prompt=at,
                trace=self.trace,
                streamed=self.streamed,
                prompted=self.prompted,
                deadline=self.deadline,
            )
            for at, prompt in enumerate(prompts)
            for stream in range(n)
        ]


def generation_params(
    body: Generate, config: ServerConfig, max_tokens: int, logprobs: int | None, bias: Mapping[int, float]
) -> GenerationParams:
    """The body as a request without a prompt. Raises ApiError or UsageError.

    logprobs: how many best tokens to report at every position, None is no log-probabilities.
    """
    _check_model(body, config)
    _check_bans(bias, bool(body.ignore_eos), config.target)
    if logprobs is not None and logprobs > config.limits.logprobs_max:
        raise ApiError(
            400, f"log-probabilities of {logprobs} tokens, at most {config.limits.logprobs_max} are reported"
        )
    fields = {name: value for name in SAMPLING if (value := getattr(body, name)) is not None}
    if body.repeat_penalty is not None:
        if body.repetition_penalty is not None:
            raise ApiError(400, "repeat_penalty and repetition_penalty are both given; write one", "repeat_penalty")
        fields["repetition_penalty"] = body.repeat_penalty
    if fields.get("top_k", 0) < 0:  # vLLM and llama-server turn it off so
        fields["top_k"] = 0
    speculative = body.speculative or Speculative()
    seconds = [s for s in (body.deadline_seconds, config.limits.request_seconds or None) if s is not None]
    request = Request(
        [],
        max_tokens=max_tokens,
        sampling=Sampling(**{**defaults(config), **fields, "logit_bias": bias, "logprobs": logprobs}),
        seed=_seed(body.seed, config.settings),
        stop=_stops(body.stop, config.limits),
        stop_tokens=body.stop_token_ids or (),
        ignore_eos=bool(body.ignore_eos),
        min_tokens=_min_tokens(body.min_tokens, max_tokens),
        methods=methods(speculative, config.run),
        draft_max=speculative.n_max,
        draft_min=speculative.n_min or 0,
        confidence_min=speculative.p_min or 0.0,
        control=speculative.control != "fixed",
        plugin_values=body.plugin_values or {},
        reuse=body.cache_prompt is not False,
        cache_salt=body.cache_salt or "",
        priority=priority_of(body.priority, config.limits),
        constraint=structured.constraint(body),
    )
    deadline = perf_counter() + min(seconds) if seconds else None
    return GenerationParams(request, deadline, speculative.trace, bool(body.stream), bool(body.return_progress))


def ask_chat(body: Chat, config: ServerConfig) -> tuple[GenerationParams, ChatPrompt, int]:
    """Parameters of a conversation, and the number of texts. Raises ApiError or UsageError."""
    lengths = {length(body), body.max_completion_tokens} - {None}
    if len(lengths) > 1:
        raise ApiError(400, "max_tokens and max_completion_tokens differ; write one", "max_completion_tokens")
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs = true", "top_logprobs")
    tools = tools_of(body.tools, body.tool_choice, config.limits)
    n = count_choices(body, 1, config.limits)
    tokens_max = max_tokens(next(iter(lengths), None), config, config.context)
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    request = generation_params(body, config, tokens_max, logprobs, bias_of(body.logit_bias))
    request = request.limit_logprobs(n, bool(lengths), "top_logprobs", config)
    prediction = predicted_text(body.prediction, config)
    request = request.calling(calls_of(body, tools, request, config.target.tokenizer))
    return request.predicting(prediction), ChatPrompt(body.messages, tools, body, config.template_defaults), n


def _min_tokens(min_tokens: int | None, max_tokens: int) -> int:
    if min_tokens is not None and min_tokens > max_tokens:
        raise ApiError(400, f"min_tokens = {min_tokens} is more than max_tokens = {max_tokens}", "min_tokens")
    return min_tokens or 0


def _seed(seed: int | None, settings: Settings) -> int:
    """The request's, or the server's setting where there is one, or a random one."""
    setting = settings.table["seed"]
    if seed is not None:
        return seed % SEEDS
    return secrets.randbits(RANDOM_BITS) if setting.origin == DEFAULT else setting.value


def defaults(config: ServerConfig) -> dict[str, Any]:
    return {name: config.settings[name] for name in SAMPLING}


def _check_model(body: Generate, config: ServerConfig) -> None:
    if config.limits.strict_model and body.model not in (None, "", config.model):
        problem = f"the model {body.model!r:.80} does not exist; this server has {config.model!r}"
        raise ApiError(404, problem, "model", "model_not_found")


def _stops(value: str | list[str] | None, settings: ServeSettings) -> tuple[str, ...]:
    stops = (value,) if isinstance(value, str) else tuple(value or ())
    if len(stops) > settings.stop_max:
        raise ApiError(400, f"{len(stops)} stop texts, at most {settings.stop_max} are allowed", "stop")
    if any(len(stop) > settings.stop_length for stop in stops):
        raise ApiError(400, f"a stop text has more than {settings.stop_length} characters", "stop")
    return stops


def methods(speculative: Speculative, run: Run) -> tuple[str, ...] | None:
    """Names of the run's methods. Raises ApiError for one that it does not have."""
    if speculative.method is not None and speculative.type is not None:
        raise ApiError(400, "speculative.method and speculative.type are both given; write one", "speculative.type")
    choice = speculative.method if speculative.method is not None else speculative.type
    if choice is None:
        return None
    if (choice.count(",") + 1 if isinstance(choice, str) else len(choice)) > METHODS_MAX:
        raise ApiError(400, f"more than {METHODS_MAX} methods", "speculative.method")
    names = [part.strip() for part in choice.split(",")] if isinstance(choice, str) else choice
    names = [name for name in names if name and name.lower() not in OFF]
    return tuple(_method(name, run) for name in names)


def _method(name: str, run: Run) -> str:
    known = {*run.drafters, *run.stats.switched_off}
    method = next((n for n in (name, name.lower(), ALIASES.get(name.lower())) if n in known), None)
    if method is None:
        there = nearest_names(name, known) if known else "no methods; start it with --method"
        raise ApiError(400, f"speculative.method {name!r:.80}: this server has {there}", "speculative.method")
    return method


def length(body: OpenAI) -> int | None:
    """``max_tokens``, or ``n_predict``. Raises ApiError where both are given."""
    if body.n_predict is None:
        return body.max_tokens
    if body.max_tokens is not None:
        raise ApiError(400, "n_predict and max_tokens are both given; write one", "n_predict")
    return UNLIMITED if body.n_predict < 0 else body.n_predict


def max_tokens(count: int | None, config: ServerConfig, otherwise: int) -> int:
    """The request's, or the server's setting where there is one, or ``otherwise``."""
    setting = config.settings.table["max_tokens"]
    return count if count is not None else otherwise if setting.origin == DEFAULT else setting.value


def bias_of(biases: Mapping[str, float] | None) -> dict[int, float]:
    """Biases of tokens from OpenAI's ``{"42": -1.5}``."""
    return {token_id(key): bias for key, bias in (biases or {}).items()}


def token_id(key: str) -> int:
    """A token id that is written as a text. Raises ApiError."""
    if TOKEN_ID.fullmatch(key) is None:
        raise ApiError(400, f"logit_bias has the key {key!r:.40}; keys must be token ids, as texts", "logit_bias")
    return int(key)


def _check_bans(bias: Mapping[int, float], without_ends: bool, target: Target) -> None:
    """Raise ApiError where every token is banned. without_ends: so are tokens that end a text."""
    banned = {token for token, value in bias.items() if value < BANNED}
    if len(banned | (set(target.info.eog) if without_ends else set())) >= target.info.vocab:
        raise ApiError(400, "logit_bias bans every token; leave one that may be chosen", "logit_bias")


def priority_of(priority: int | None, settings: ServeSettings) -> int:
    """The request's, or 0 where the server allows that. Raises ApiError for one below what the server allows."""
    lowest = settings.priority_min
    if priority is not None and lowest is not None and priority < lowest:
        raise ApiError(400, f"priority {quote_value(priority)} is below {lowest}, which this server allows", "priority")
    return priority if priority is not None else max(0, lowest or 0)


def count_choices(body: OpenAI, prompts: int, settings: ServeSettings) -> int:
    """``n``, checked together with the number of prompts."""
    n = body.n or 1
    if n * prompts > settings.n_max:
        raise ApiError(400, f"{prompts} prompts times n = {n} texts, at most {settings.n_max} are allowed", "n")
    return n


def tools_of(
    body_tools: list[Any] | None, choice: str | ToolChoice | AllowedChoice | None, settings: ServeSettings
) -> list[Tool]:
    """The tools that may be called. Raises ApiError."""
    tools = without_left_out("tools", body_tools)
    if len(tools) > settings.tools_max:
        raise ApiError(400, f"{len(tools)} tools, at most {settings.tools_max} are allowed", "tools")
    names = [tool.function.name for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ApiError(400, f"two tools have the name {twice!r}", "tools")
    if isinstance(choice, AllowedChoice):
        allowed = {tool.called for tool in choice.allowed_tools.tools}
        tools = [tool for tool in tools if tool.function.name in allowed]
    if choice not in (None, "none") and not tools and not (choice == "auto" and body_tools):
        raise ApiError(400, "tool_choice is given without tools that can be called", "tool_choice")
    return [] if choice == "none" else tools


def calls_of(body: Chat, tools: list[Tool], params: GenerationParams, tokenizer: Any) -> Constraint | None:
    """The constraint of a text that may, or must, call these tools, in a form that is read; None is no constraint."""
    choice: Any = body.tool_choice or "auto"
    if isinstance(choice, ToolChoice):
        choice = choice.model_dump()
    elif isinstance(choice, AllowedChoice):
        choice = choice.allowed_tools.mode
    channels, parallel = has_channels(tokenizer.chat_template), body.parallel_tool_calls is not False
    forced = choice not in ("auto", "none") or any(tool.function.strict for tool in tools)
    form = call_form_of(tokenizer) if forced and not channels and knows_tools(tokenizer) else TAGGED
    return structured.tools_constraint(
        describe_tools(tools), choice, channels, parallel, params.request.constraint, form
    )


def reads_of(body: Chat, tools: list[Tool], params: GenerationParams, config: ServerConfig) -> Reads:
    """Options of reading the text as an answer."""
    single, format = body.parallel_tool_calls is False, body.reasoning_format or config.limits.reasoning_format
    return Reads(tools, single, format, structured.is_all_answer(params.request.constraint))


def predicted_text(predicted: Predicted | None, config: ServerConfig) -> str:
    """The text that a request predicts. Raises ApiError where no method would read it."""
    if predicted is None:
        return ""
    if PREDICTION not in config.run.drafters:
        raise ApiError(
            400,
            f"prediction needs the method {PREDICTION!r}: start the server with --method {PREDICTION}",
            "prediction",
        )
    if isinstance(predicted.content, str):
        return check_text(predicted.content, config, "prediction")
    if any(part.type != "text" or part.text is None for part in predicted.content):
        raise ApiError(400, "a prediction has parts of type 'text' only", "prediction.content")
    return check_text("".join(part.text or "" for part in predicted.content), config, "prediction")


def size_of(prompt: Any) -> int:
    """Characters of a text or conversation, or number of ids."""
    return prompt.size if isinstance(prompt, ChatPrompt) else len(prompt)


def has_pictures(prompt: Any) -> bool:
    return isinstance(prompt, ChatPrompt) and prompt.has_pictures


def encode_pictured(chat_prompt: ChatPrompt, config: ServerConfig, memory: PictureMemory) -> EncodedPrompt:
    """Token ids of a conversation, and rows of its pictures. Very slow: not for the event loop. Raises ApiError."""
    limits = config.limits
    check_text("".join(chat_prompt.texts), config)
    budget = PictureBudget(limits.picture_pixels, prompt_max(config), limits.picture_seconds)
    encoded = chat_prompt.encode_pictures(config.target, budget)
    check_ids(encoded.tokens, config)
    memory.hold(encoded, budget)
    return encoded


def encode_prompt(prompt: Any, config: ServerConfig) -> EncodedPrompt:
    """Token ids of a text, of ids, or of a conversation without pictures. Slow: not for the event loop.

    Raises ApiError for one that is too long, before it is tokenized where its length shows that.
    """
    if isinstance(prompt, ChatPrompt):
        check_text("".join(prompt.texts), config)
        prompt = prompt.encode(config.target.tokenizer)
    if isinstance(prompt, str):
        check_text(prompt, config)
    else:
        check_ids(prompt, config)
    return EncodedPrompt(list(check_ids(prompt_tokens(Request(prompt), config.target), config)), {})
