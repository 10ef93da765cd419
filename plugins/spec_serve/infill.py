"""The prompt of llama-server's ``/infill``: the text around a gap, with the tokens that the model was trained on."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import attrs

from spec_core import Tokenizer
from spec_core.toolkit import encode_after, encode_part
from spec_serve.errors import ApiError
from spec_serve.llama_fields import Infill

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
"""Of the file with the gap, and ``myproject`` of its repository, as llama-server writes them."""


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
        """Those that its file names, or those with a known name; None where the tokenizer lacks one."""
        named = getattr(tokenizer, "fim", None) or {}
        if {"pre", "suf", "mid"} <= set(named):
            return cls(named["pre"], named["suf"], named["mid"], named.get("rep"), named.get("sep"))
        for marks in MARKS:
            ids = [token for mark in marks if (token := control(mark, tokenizer)) is not None]
            if len(ids) == len(marks):
                prefix, suffix, middle = ids
                return cls(prefix, suffix, middle, first(REPOSITORY, tokenizer), first(FILE, tokenizer))
        return None


def first(names: Iterable[str], tokenizer: Tokenizer) -> int | None:
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


def _others(body: Infill, marks: FillTokens, tokenizer: Tokenizer) -> list[int]:
    """Other files of the repository, where the model has a token between files; their text alone where it has none."""
    extra = body.input_extra or []
    if not extra:
        return []
    between = [marks.file] if marks.file is not None else []
    name = lambda file: f"{file.filename or 'tmp'}\n" if between else ""
    ids = [marks.repository, *tokenizer.encode("myproject\n", bos=False)] if marks.repository is not None else []
    for file in extra:
        ids += [*between, *encode_after(tokenizer, f"{name(file)}{file.text}\n", ids)]
    return [*ids, *between, *encode_part(tokenizer, f"{NAME}\n")] if between else ids
