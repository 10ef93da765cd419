"""Bodies of llama-server's own endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import Field

from spec_serve.body import ANY, Body
from spec_serve.fields import Conversation, Count, Generate, Ids, Message, Number, Tool


class Extra(Body):
    """Another file of the repository, before the text."""

    where: ClassVar[str] = "input_extra"

    filename: str = ""
    text: str


class PromptText(Body):
    """A prompt in llama-server's other form."""

    where: ClassVar[str] = "a prompt"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"multimodal_data": (None, [])}

    prompt_string: str


Prompt: TypeAlias = str | PromptText | list[int | str]
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

    prompt: str | PromptText | Annotated[list[Prompt | int], Field(fail_fast=True)]
    response_fields: list[str] | None = Field(default=None, description="The answer has these fields alone: a, or a/b.")
    n_predict: int | None = None
    max_tokens: Count | None = None
    repeat_penalty: Number | None = None
    repeat_last_n: int | None = None
    n_probs: Count | None = None
    logit_bias: dict[str, Number] | list[list[int | str | float | bool]] | None = None
    return_tokens: bool | None = None


class Infill(LlamaCompletion):
    """llama-server's ``/infill``: the text between a prefix and a suffix. Editors send what is accepted and ignored."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **LlamaCompletion.neutral, "samplers": (ANY,), "n_indent": (ANY,), "t_max_predict_ms": (ANY,),
        "t_max_prompt_ms": (ANY,),
    }  # fmt: skip

    prompt: str = ""
    input_prefix: str
    input_suffix: str
    input_extra: list[Extra] | None = None


class Tokenize(Body):
    content: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class Detokenize(Body):
    ids: ClassVar[tuple[str, ...]] = ("tokens",)

    tokens: Ids


class ApplyTemplate(Conversation):
    messages: Annotated[list[Message], Field(min_length=1)]
    tools: list[Tool] | None = None
