"""llama-server's routes for tokens of texts: ``/tokenize``, ``/detokenize`` and ``/apply-template``."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field
from starlette.responses import Response

from spec_core.errors import quote_value
from spec_serve import generation_params
from spec_serve.conversation import ChatPrompt
from spec_serve.errors import ApiError
from spec_serve.routes import READS, api_router, refusals
from spec_serve.schemas import Conversation, Ids, Message, Tool
from spec_serve.service import ServiceOf
from spec_serve.stream import JsonPieces, as_json, encode_pieces
from spec_serve.strict_model import Body, ListOf

router = api_router("llama-server")
TEXT_MAX = 1 << 20
"""Characters of a text to tokenize: tokenizing a MiB takes 170 MiB."""
SLICE = 10_000
"""Tokens of an answer that are written at once."""


class Tokenize(Body):
    content: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class Detokenize(Body):
    ids: ClassVar[tuple[str, ...]] = ("tokens",)

    tokens: Ids


class ApplyTemplate(Conversation):
    messages: Annotated[ListOf[Message], Field(min_length=1)]
    tools: ListOf[Tool] | None = None


class Piece(BaseModel):
    """piece: a text, or bytes where they are no whole characters."""

    id: int
    piece: str | list[int]


class TokenList(BaseModel):
    tokens: list[int] | list[Piece]


class Content(BaseModel):
    content: str


class Prompt(BaseModel):
    prompt: str


@router.post("/tokenize", response_model=TokenList, responses=refusals(*READS))
async def tokenize_text(body: Tokenize, service: ServiceOf) -> Response:
    """Token ids of a text."""
    return await service.threads.run(len(body.content), _tokenize, body, service.tokenizer)


def _tokenize(body: Tokenize, tokenizer: Any) -> Response:
    if (count := len(body.content)) > TEXT_MAX:
        raise ApiError(400, f"content has {count:,} characters, at most {TEXT_MAX:,} are tokenized at once", "content")
    ids = tokenizer.encode(body.content, special=body.parse_special, bos=body.add_special)
    slices = (ids[at : at + SLICE] for at in range(0, len(ids), SLICE))
    pieces = [_describe(part, body.with_pieces, tokenizer) for part in slices]
    lists = [f"{',' if at else ''}{piece}".encode() for at, piece in enumerate(pieces)]
    return JsonPieces([b'{"tokens":[', *lists, b"]}"])


def _describe(ids: list[int], pieces: bool, tokenizer: Any) -> str:
    """A part of a list in JSON: writing all of a long one at once would keep other threads from running."""
    return as_json([{"id": i, "piece": _piece(i, tokenizer)} for i in ids] if pieces else ids)[1:-1]


def _piece(token: int, tokenizer: Any) -> str | list[int]:
    """A text, or bytes where they are no whole characters, as llama-server writes them."""
    data = tokenizer.token_bytes(token)
    try:
        return str(data.decode())
    except UnicodeDecodeError:
        return list(data)


@router.post("/detokenize", response_model=Content, responses=refusals(*READS))
async def detokenize_ids(body: Detokenize, service: ServiceOf) -> Response:
    """Text of token ids."""
    return await service.threads.run(len(body.tokens), _detokenize, body.tokens, service.tokenizer)


def _detokenize(tokens: list[int], tokenizer: Any) -> Response:
    size = tokenizer.vocab_size
    if wrong := [t for t in tokens if not 0 <= t < size]:
        raise ApiError(400, f"token {quote_value(wrong[0])} is outside the vocabulary of {size}", "tokens")
    return JsonPieces(encode_pieces({"content": str(tokenizer.decode(tokens))}))


@router.post("/apply-template", response_model=Prompt, responses=refusals(*READS))
async def apply_template(body: ApplyTemplate, service: ServiceOf) -> Response:
    """Messages as the model's chat template writes them."""
    tools = generation_params.tools_of(body.tools, None, service.config.limits)
    chat_prompt = ChatPrompt(body.messages, tools, body, service.config.template_defaults)
    return await service.threads.run(chat_prompt.size, _render, chat_prompt, service.tokenizer)


def _render(chat_prompt: ChatPrompt, tokenizer: Any) -> Response:
    return JsonPieces(encode_pieces({"prompt": chat_prompt.render(tokenizer)}))
