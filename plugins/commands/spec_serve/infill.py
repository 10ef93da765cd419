"""llama-server's ``/infill``: the text around a gap, with the tokens that the model was trained on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

import attrs
from starlette.responses import Response

from spec_core import Tokenizer
from spec_core.toolkit import encode_after, encode_part
from spec_serve.errors import ApiError
from spec_serve.lengths import check_text
from spec_serve.llama import CompletionAnswer, LlamaCompletion, answer_completion
from spec_serve.routes import api_router, generation_responses
from spec_serve.service import ServiceOf
from spec_serve.strict_model import ANY, Body, ListOf

router = api_router("llama-server")
MARKS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen Coder
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # Granite
    ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # GLM
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek
    ("<PRE>", "<SUF>", "<MID>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
)
REPOSITORY = ("<|repo_name|>", "<repo_name>", "<|fim_repo|>", "<reponame>")
FILE = ("<|file_sep|>", "<file_sep>", "<|fim_sep|>")
NAME = "filename"
"""Name of the file with the gap; its repository is ``myproject``, as llama-server writes them."""

LINE = 32
"""Characters around another file, about."""


class Extra(Body):
    """Another file of the repository, before the text."""

    where: ClassVar[str] = "input_extra"

    filename: str = ""
    text: str


class Infill(LlamaCompletion):
    """llama-server's ``/infill``: the text between a prefix and a suffix. Editors send what is accepted and ignored."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **LlamaCompletion.neutral, "samplers": (ANY,), "n_indent": (ANY,), "t_max_predict_ms": (ANY,),
        "t_max_prompt_ms": (ANY,),
    }  # fmt: skip

    prompt: str = ""
    input_prefix: str
    input_suffix: str
    input_extra: ListOf[Extra] | None = None


@router.post("/infill", response_model=CompletionAnswer, responses=generation_responses())
@router.post("/v1/infill", include_in_schema=False)
async def fill_in(body: Infill, service: ServiceOf) -> Response:
    """The text between a prefix and a suffix."""
    text = check_text(whole_text(body), service.config)
    names = sum(len(file.filename) + LINE for file in body.input_extra or [])
    prompt = await service.threads.run(len(text) + names, prompt_of, body, service.tokenizer)
    return await answer_completion(service, body, [(body.prompt, prompt)], several=False)


@attrs.frozen
class FillTokens:
    """Token ids around a gap. repository, file: None where the model has none."""

    prefix: int
    suffix: int
    middle: int
    repository: int | None = None
    file: int | None = None

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> FillTokens | None:
        """Tokens that the tokenizer's file names, or tokens with a known name; None where one is missing."""
        named = getattr(tokenizer, "fim", None) or {}
        if {"pre", "suf", "mid"} <= set(named):
            return cls(named["pre"], named["suf"], named["mid"], named.get("rep"), named.get("sep"))
        for marks in MARKS:
            ids = [token for mark in marks if (token := control(mark, tokenizer)) is not None]
            if len(ids) == len(marks):
                prefix, suffix, middle = ids
                return cls(prefix, suffix, middle, first_id(REPOSITORY, tokenizer), first_id(FILE, tokenizer))
        return None


def first_id(names: Iterable[str], tokenizer: Tokenizer) -> int | None:
    return next((token for name in names if (token := control(name, tokenizer)) is not None), None)


def control(name: str, tokenizer: Tokenizer) -> int | None:
    """The id of a token that is never written as text, None where the tokenizer has no such token."""
    ids = tokenizer.encode(name, special=True, bos=False)
    return ids[0] if len(ids) == 1 and tokenizer.encode(name, bos=False) != ids else None


def whole_text(body: Infill) -> str:
    """All texts of the body, for a limit of their length."""
    return body.input_prefix + body.input_suffix + body.prompt + "".join(file.text for file in body.input_extra or [])


def prompt_of(body: Infill, tokenizer: Tokenizer) -> list[int]:
    """Token ids of the prompt. Raises ApiError for a model without the tokens."""
    marks = FillTokens.of(tokenizer)
    if marks is None:
        problem = "this model has no tokens for a prefix, a suffix and a gap; use /completion"
        raise ApiError(400, problem, code="not_supported")
    part = partial(encode_part, tokenizer)
    start = [] if tokenizer.bos is None or tokenizer.encode("", bos=True) != [tokenizer.bos] else [tokenizer.bos]
    before = [*start, *_others(body, marks, tokenizer)]
    prefix = encode_after(tokenizer, body.input_prefix, before)
    around = [marks.prefix, *prefix, marks.suffix, *part(body.input_suffix), marks.middle]
    return [*before, *around, *part(body.prompt)]


def _others(body: Infill, fill_tokens: FillTokens, tokenizer: Tokenizer) -> list[int]:
    """Other files of the repository, where the model has a token between files; their text alone where it has none."""
    extra = body.input_extra or []
    if not extra:
        return []
    between = [fill_tokens.file] if fill_tokens.file is not None else []
    name = lambda file: f"{file.filename or 'tmp'}\n" if between else ""
    ids = (
        [fill_tokens.repository, *tokenizer.encode("myproject\n", bos=False)]
        if fill_tokens.repository is not None
        else []
    )
    for file in extra:
        ids += [*between, *encode_after(tokenizer, f"{name(file)}{file.text}\n", ids)]
    return [*ids, *between, *encode_part(tokenizer, f"{NAME}\n")] if between else ids
