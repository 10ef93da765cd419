"""llama-server's endpoints with their field names: ``/completion``, ``/slots``, ``/props``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import attrs

from spec_core import Emitted, Request, Run, Tokenizer
from spec_core.commands import DEFAULT
from spec_core.toolkit import encode_after, encode_part
from spec_serve import report, tokens
from spec_serve.asked import SAMPLING, TOKEN_ID, Ask, ask, defaults, max_tokens
from spec_serve.engine import Engine
from spec_serve.errors import ApiError, api_error_of
from spec_serve.job import Done, Failed, Job, Outlet, Progress, Prompted, messages
from spec_serve.lengths import check_ids, check_text
from spec_serve.llama_fields import LlamaCompletion, PromptText
from spec_serve.report import Finished
from spec_serve.stream import event
from spec_serve.terms import Terms

OFF = {
    "n_keep": 0, "min_keep": 0, "typical_p": 1.0, "top_n_sigma": -1.0, "xtc_probability": 0.0, "dynatemp_range": 0.0,
    "mirostat": 0, "dry_multiplier": 0.0, "adaptive_target": -1.0, "adaptive_decay": 0.9, "lora": [],
}  # fmt: skip
"""Settings of llama-server that have no form here, with the values that turn them off."""
STOPS = {"length": "limit", "cancelled": "limit", "deadline": "limit"}


BIASED_MAX = 256
"""Characters of a text whose tokens get a bias."""


def limit(body: LlamaCompletion) -> int | None:
    """``n_predict`` or ``max_tokens``; -1 is no limit. Raises ApiError where both are given."""
    if body.n_predict is not None and body.max_tokens is not None:
        raise ApiError(400, "n_predict and max_tokens are both given; write one", "max_tokens")
    given = body.max_tokens if body.n_predict is None else body.n_predict
    return None if given is None or given < 0 else given


def bias(given: Any, tokenizer: Tokenizer) -> dict[int, float]:
    """``{"42": 1.5}``, or pairs ``[42, 1.5]``, ``["text", -1]``, ``[42, false]``."""
    pairs = list(given.items()) if isinstance(given, Mapping) else given or []
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


def prompts_of(given: Any) -> tuple[list[OnePrompt], bool]:
    """The prompts of a body, and whether its answer is a list."""
    if isinstance(given, list) and (not given or any(isinstance(item, int) for item in given)):
        if any(isinstance(item, (list, PromptText)) for item in given):
            raise ApiError(400, "the prompt mixes token ids and prompts; write a list of prompts", "prompt")
        return [given], False
    if isinstance(given, list):
        return [_single(item) for item in given], True
    return [_single(given)], False


def _single(given: Any) -> OnePrompt:
    return given.prompt_string if isinstance(given, PromptText) else given


def ids_of(given: OnePrompt, terms: Terms) -> str | list[int]:
    """A text, ids, or a list in which both are mixed: only the first text in it may begin with a token of its own.

    Raises ApiError for a list of more parts than the context has places.
    """
    if isinstance(given, str) or all(isinstance(item, int) for item in given):
        return given  # type: ignore[return-value]
    check_ids(given, terms)
    check_text("".join(item for item in given if isinstance(item, str)), terms)
    assert terms.target.tokenizer is not None
    ids: list[int] = []
    for item in given:
        ids += [item] if isinstance(item, int) else _next_ids(item, ids, terms.target.tokenizer)
    return ids


def _next_ids(text: str, before: list[int], tokenizer: Tokenizer) -> list[int]:
    if before:
        return encode_after(tokenizer, text, before, special=True)
    return tokenizer.encode(text, special=True)


@attrs.frozen
class Told:
    """What an answer has beside its text.

    silent: no text, its prompt was evaluated only. timed: timings in every chunk. fields: names of the fields that
    are told, all where there are none; ``a/b`` is the field b of a.
    """

    tokens: bool = False
    silent: bool = False
    timed: bool = False
    fields: tuple[str, ...] = ()

    @classmethod
    def of(cls, body: LlamaCompletion) -> Told:
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
class Answer:
    """The answer of ``/completion`` to one prompt. index: of the prompt."""

    terms: Terms
    job: Job
    outlet: Outlet
    prompt: OnePrompt
    told: Told
    index: int = 0
    ids: list[int] = attrs.field(factory=list)
    probabilities: list[dict[str, Any]] = attrs.field(factory=list)

    async def whole(self) -> dict[str, Any]:
        """In one piece. Raises the error that ended the text."""
        [finished] = await report.wait_for_all(self.outlet, 1)
        for step in self.job.steps:
            self._note(step.events)
        return self.told.choose(self._final(finished, finished.result.text, self.ids))

    async def chunks(self) -> AsyncIterator[str]:
        """Server-sent events, the last with all numbers and no text."""
        async for _, message in messages(self.outlet, 1):
            if isinstance(message, Failed):
                yield event(api_error_of(message.error).body)
            elif isinstance(message, Prompted):
                yield event(self._prompt_event(message))
            elif isinstance(message, Progress):
                if not self.told.silent:
                    yield event(self._chunk(message))
            elif isinstance(message, Done):
                yield event(self.told.choose(self._final(Finished(self.job, message.result), "", [])))

    def _prompt_event(self, message: Prompted) -> dict[str, Any]:
        head = {"index": self.index, "content": "", "tokens": [], "stop": False, "id_slot": self.job.slot}
        return {**head, **report.progress_of(message, self.told.timed)}

    def _note(self, events: list[Emitted]) -> list[dict[str, Any]]:
        assert self.terms.target.tokenizer is not None
        self.ids += [e.token for e in tokens.text_events(events)]
        logprobs = tokens.llama_logprobs(events, self.terms.target.tokenizer)
        self.probabilities += logprobs
        return logprobs

    def _chunk(self, message: Progress) -> dict[str, Any]:
        assert self.terms.target.tokenizer is not None and self.job.seq is not None
        note = self._note(message.events)
        chunk: dict[str, Any] = {
            "index": self.index,
            "content": "".join(e.text for e in message.events),
            "tokens": [e.token for e in tokens.text_events(message.events)],
            "stop": False,
            "id_slot": self.job.slot,
            "tokens_predicted": message.events[-1].t + 1,
            "tokens_evaluated": self.job.seq.prompt_len,
        }
        if note:
            chunk["completion_probabilities"] = note
        if self.told.timed:
            chunk["timings"] = report.timings_so_far(self.job, message.events[-1].t + 1)
        if self.job.trace:
            chunk["speculative"] = tokens.trace(message.events, message.drafted, self.terms.target.tokenizer)
        return chunk

    def _final(self, finished: Finished, text: str, ids: list[int]) -> dict[str, Any]:
        result, (kind, word) = finished.result, self._stop_reason(finished)
        silent = self.told.silent
        body = {
            "index": self.index,
            "content": "" if silent else text,
            "tokens": ids if self.told.tokens and not silent else [],
            "id_slot": self.job.slot,
            "stop": True,
            "model": self.terms.model,
            "tokens_predicted": 0 if silent else len(result.tokens),
            "tokens_evaluated": result.prompt_tokens,
            "generation_settings": generation(self.job.request, self.terms),
            "prompt": self.prompt,
            "has_new_line": "\n" in result.text,
            "truncated": self._is_truncated(finished),
            "stop_type": kind,
            "stopping_word": word,
            "tokens_cached": result.prompt_tokens + len(result.tokens) - 1,
            "timings": report.timings([finished]),
            "metrics": {"speculative_decoding": report.speculation([finished], self.terms.run)},
        }
        return body | ({"completion_probabilities": self.probabilities} if self.probabilities else {})

    def _is_truncated(self, finished: Finished) -> bool:
        """Whether the context ended the text."""
        result = finished.result
        return finished.reason == "length" and result.prompt_tokens + len(result.tokens) >= self.terms.context

    def _stop_reason(self, finished: Finished) -> tuple[str, str]:
        """(stop_type, stopping_word)."""
        if finished.reason != "stop":
            return STOPS.get(finished.reason, "none"), ""
        assert self.terms.target.tokenizer is not None
        word = report.stop_text(finished, self.terms.target.tokenizer)
        return ("eos", "") if word is None else ("word", word)


def ask_of(body: LlamaCompletion, terms: Terms) -> Ask:
    """The body as a request without a prompt. Raises ApiError or UsageError."""
    assert terms.target.tokenizer is not None
    if body.repeat_penalty is not None:
        if body.repetition_penalty is not None:
            raise ApiError(400, "repeat_penalty and repetition_penalty are both given; write one", "repeat_penalty")
        body.repetition_penalty = body.repeat_penalty
    if body.repeat_last_n not in (None, -1):
        raise ApiError(400, "repeat_last_n is not supported: penalties count the whole text", "repeat_last_n")
    body.seed = None if body.seed == -1 else body.seed
    tokens = max_tokens(limit(body), terms, terms.context)
    return ask(body, terms, tokens or 1, body.n_probs or None, bias(body.logit_bias, terms.target.tokenizer))


async def whole(parts: list[Answer], several: bool) -> Any:
    """The answer, or the list of them. Raises the error that ended a text."""
    answers = [await one.whole() for one in parts]
    return answers if several else answers[0]


async def chunks(answers: list[Answer]) -> AsyncIterator[str]:
    """Server-sent events of one answer after the other, each with the index of its prompt."""
    for one in answers:
        async for text in one.chunks():
            yield text


def generation(request: Request, terms: Terms) -> dict[str, Any]:
    """``generation_settings``: what a request was resolved to."""
    sampling = request.sampling
    names = {"repetition_penalty": "repeat_penalty"}
    off = request.draft_max == 0 or request.methods == ()
    return {
        **{names.get(name, name): getattr(sampling, name) for name in SAMPLING},
        "seed": request.seed,
        "stop": list(request.stop),
        "max_tokens": request.max_tokens,
        "n_predict": request.max_tokens,
        "ignore_eos": request.ignore_eos,
        "n_probs": sampling.logprobs or 0,
        "logit_bias": _biases(request, terms),
        "cache_prompt": request.reuse,
        **OFF,
        "speculative.types": [] if off else list(_types(request, terms)),
        "speculative.n_max": terms.run.settings.draft_max if request.draft_max is None else request.draft_max,
        "speculative.n_min": request.draft_min,
        "speculative.p_min": request.confidence_min,
        "speculative.control": control(request, terms.run),
    }


def _biases(request: Request, terms: Terms) -> list[dict[str, Any]]:
    """Of tokens, null where they are forbidden: ends of the text too, where they are ignored."""
    ignored = sorted(terms.target.info.eog) if request.ignore_eos else []
    biases = {token: float("-inf") for token in ignored} | dict(request.sampling.logit_bias)
    return [{"token": t, "bias": b if b > float("-inf") else None} for t, b in biases.items()]


def control(request: Request, run: Run) -> str:
    """The controller that limits its drafts, ``fixed`` where none does."""
    return next((c.name for c in run.plugins if c.controls), "fixed") if request.control else "fixed"


def _types(request: Request, terms: Terms) -> list[str]:
    names = [chosen.name for chosen in terms.run.plugins if chosen.name in terms.run.drafters]
    return [name for name in names if request.methods is None or name in request.methods]


def slots(engine: Engine, terms: Terms) -> list[dict[str, Any]]:
    """``/slots``: one entry for each sequence that may run at once."""
    busy = {job.slot: job for job in list(engine.open) if job.slot >= 0}
    return [_slot(i, busy.get(i), terms) for i in range(terms.run.settings.max_sequences)]


def _slot(number: int, job: Job | None, terms: Terms) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": number,
        "n_ctx": terms.context,
        "speculative": bool(terms.run.drafters),
        "is_processing": job is not None,
    }
    seq = job.seq if job is not None else None
    if job is None or seq is None:
        return body
    decoded = len(seq.tokens) - seq.prompt_len
    return body | {
        "id_task": job.number,
        "n_prompt_tokens": seq.prompt_len,
        "n_prompt_tokens_processed": max(0, min(seq.evaluated, seq.prompt_len) - seq.reused),
        "n_prompt_tokens_cache": seq.reused,
        "params": generation(job.request, terms),
        "next_token": [
            {
                "has_next_token": seq.finish is None,
                "has_new_line": False,
                "n_remain": seq.max_tokens - decoded,
                "n_decoded": decoded,
            }
        ],
    }


def _params(terms: Terms) -> dict[str, Any]:
    """Defaults of a request; seed -1 is a random one."""
    seed, longest = terms.settings.table["seed"], terms.settings.table["max_tokens"]
    return {
        **defaults(terms),
        "seed": -1 if seed.origin == DEFAULT else seed.value,
        "n_predict": -1 if longest.origin == DEFAULT else longest.value,
    }


def props(terms: Terms, version: str) -> dict[str, Any]:
    """``/props``: what the server runs, and every setting with its origin."""
    target, run = terms.target, terms.run
    assert target.tokenizer is not None
    return {
        "default_generation_settings": {"n_ctx": terms.context, "params": _params(terms)},
        "total_slots": run.settings.max_sequences,
        "model_alias": terms.model,
        "model_path": terms.settings["model"],
        "modalities": {"vision": False, "audio": False},
        "chat_template": target.tokenizer.chat_template or "",
        "build_info": f"spec-core {version}",
        "speculative": {
            "types": [c.name for c in run.plugins if c.name in run.drafters],
            "n_max": run.settings.draft_max,
            "rule": terms.settings["rule"] or "coupled",
            "lossy": run.stats.lossy,
            "switched_off": dict(run.stats.switched_off),
        },
        "settings": terms.settings.as_json(),
    }
