"""Conversations for the chat template: messages as templates expect them, with tools or without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from spec_core import EncodedPrompt, Target, UsageError
from spec_core.toolkit import PictureBudget, image_encoder
from spec_serve import thinking
from spec_serve.calls.call import parse_json
from spec_serve.errors import ApiError
from spec_serve.pictures import picture_of
from spec_serve.reading import has_channels, thinking_of
from spec_serve.schemas import Conversation, Message, Tool, ToolCall
from spec_serve.shape import BODY_BYTES, LIMITS
from spec_serve.template_forms import apply_forms

ROLES = ("system", "user", "assistant", "tool")
PLACE = {"type": "image"}
"""The place of a picture in a message."""
TURN = 32
"""Characters around a message, about."""
RESERVED = (
    "messages", "tools", "bos_token", "eos_token", "bos", "eos", "template", "add_generation_prompt", "self", "expand",
    "special",
)  # fmt: skip
"""Variables of a template that a request says in other ways, or not at all."""


@attrs.frozen
class ChatPrompt:
    """A conversation and the tools that the model may call in it.

    conversation: fields about its prompt. defaults: variables of the template where the request says nothing.
    """

    messages: list[Message]
    tools: list[Tool] = attrs.field(factory=list)
    conversation: Conversation = attrs.field(factory=Conversation)
    defaults: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def texts(self) -> Iterator[str]:
        """Texts of its messages and descriptions of its tools, which the chat template writes."""
        for message in self.messages:
            parts = [message.content] if isinstance(message.content, str) else message.content or []
            yield from (part if isinstance(part, str) else part.text or "" for part in parts)
            yield from (call.function.arguments for call in message.tool_calls or [])
            yield message.reasoning_content or ""
        yield from (tool.function.description or "" for tool in self.tools)

    @property
    def size(self) -> int:
        """Characters that the template writes, about; tools and variables are part of the body."""
        values = bool(self.conversation.chat_template_kwargs) or any(tool.function.parameters for tool in self.tools)
        return sum(map(len, self.texts)) + TURN * len(self.messages) + (BODY_BYTES.get() if values else 0)

    @property
    def has_pictures(self) -> bool:
        lists = [message.content for message in self.messages if isinstance(message.content, list)]
        return any(part.picture is not None for parts in lists for part in parts)

    @property
    def pictures(self) -> list[bytes]:
        """Files of its pictures, in their order. Raises ApiError for an address that holds none."""
        return [
            picture_of(part.picture, f"messages[{at}].content")
            for at, message in enumerate(self.messages)
            for part in (message.content if isinstance(message.content, list) else ())
            if part.picture is not None
        ]

    def encode_pictures(self, target: Target, budget: PictureBudget) -> EncodedPrompt:
        """Encode a conversation with pictures. Raises ApiError."""
        if (encoder := image_encoder(target)) is None:
            problem = f"{target.info.name} reads text alone, and a message has a picture (image_url)"
            raise ApiError(400, problem, "messages", "not_supported")
        if self.continued:
            raise ApiError(400, "the last message cannot be continued in a conversation with pictures", "messages")
        messages, keywords = self._prepare(self.messages, target.tokenizer)
        try:
            return encoder.encode_prompt(messages, self.pictures, budget, **keywords)
        except UsageError as error:
            raise ApiError(400, f"{error.reason}; {error.hint}", "messages") from error

    def encode(self, tokenizer: Any) -> Any:
        """Encode the conversation by the chat template."""
        if self.continued:
            return tokenizer.encode(self.render(tokenizer), special=True, bos=False)
        messages, keywords = self._prepare(self.messages, tokenizer)
        return tokenizer.encode_chat(messages, **keywords) if keywords else messages

    def _prepare(self, messages: Sequence[Message], tokenizer: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Messages as the template expects them, and its variables. Raises ApiError."""
        keywords = self._keywords()
        return apply_forms(conversation(messages), describe_tools(self.tools), tokenizer, keywords)

    def render(self, tokenizer: Any) -> str:
        """The text of it. Raises ApiError where the tokenizer has none."""
        if getattr(tokenizer, "render", None) is None:
            raise ApiError(400, "the tokenizer of this model cannot write a conversation as text")
        if not self.continued:
            messages, keywords = self._prepare(self.messages, tokenizer)
            return str(tokenizer.render(messages, **keywords))
        *before, last = self.messages
        if before and before[-1].role == "assistant":
            raise ApiError(400, "the last two messages are the assistant's; join them", "messages")
        begun = ""
        if before:
            messages, keywords = self._prepare(before, tokenizer)
            begun = str(tokenizer.render(messages, **{**keywords, "add_generation_prompt": True}))
        content = _content(len(before), last)
        assert isinstance(content, str)  # an assistant has no pictures
        return begun + begun_answer(begun, content, last.reasoning_content or "", tokenizer)

    @property
    def continued(self) -> bool:
        """Whether the answer continues the last message. Raises ApiError."""
        conversation, last = self.conversation, self.messages[-1]
        if conversation.continue_final_message and conversation.add_generation_prompt:
            problem = "continue_final_message and add_generation_prompt are both true; write one"
            raise ApiError(400, problem, "continue_final_message")
        assistant = last.role == "assistant" and not last.tool_calls
        if conversation.continue_final_message and not assistant:
            raise ApiError(400, "the last message is not the assistant's: it cannot be continued", "messages")
        if conversation.continue_final_message is not None:
            return conversation.continue_final_message
        return assistant and conversation.add_generation_prompt is None

    def _keywords(self) -> dict[str, Any]:
        """Variables of the template. Raises ApiError for one that is not free."""
        template_kwargs = {**self.defaults, **(self.conversation.chat_template_kwargs or {})}
        if wrong := [name for name in template_kwargs if name in RESERVED or not name.isidentifier()]:
            raise ApiError(400, f"chat_template_kwargs cannot have {wrong[0]!r:.60}", "chat_template_kwargs")
        effort = self.conversation.reasoning_effort
        keywords: dict[str, Any] = {"enable_thinking": False} if effort == "none" else {}
        keywords |= {"reasoning_effort": effort} if effort not in (None, "none") else {}
        keywords |= {"add_generation_prompt": False} if self.conversation.add_generation_prompt is False else {}
        return {**keywords, **template_kwargs}


def begun_answer(prompt: str, content: str, thought: str, tokenizer: Any) -> str:
    """The beginning of an assistant's turn, in the form of the model's answers.

    prompt: what it follows; it may have opened the thinking.
    """
    if has_channels(tokenizer.chat_template):
        analysis = f"<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant" if thought else ""
        return f"{analysis}<|channel|>final<|message|>{content}"
    form = thinking_of(tokenizer) or thinking.THINK
    opening = f"{form.opening}{form.label}"
    if prompt.rstrip().endswith(opening):
        return f"{thought}\n{form.closing}\n\n{content}"
    return f"{opening}\n{thought}\n{form.closing}\n\n{content}" if thought else content


def conversation(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages for the chat template. Raises ApiError for what is no text.

    Templates read what was thought as ``reasoning_content`` (Qwen, GLM) or ``thinking`` (gpt-oss).
    """
    return [_message(at, message) for at, message in enumerate(messages)]


def describe_tools(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Tools as templates print them."""
    return [tool.model_dump(exclude_none=True) for tool in tools]


def _message(at: int, message: Message) -> dict[str, Any]:
    role = "system" if message.role == "developer" else message.role
    if role not in ROLES:
        raise ApiError(400, f"role {message.role!r:.40} is not supported", f"messages[{at}].role", "not_supported")
    if message.tool_calls and role != "assistant":
        raise ApiError(400, "only an assistant's message has tool_calls", f"messages[{at}].tool_calls")
    entry: dict[str, Any] = {"role": role, "content": _content(at, message)}
    if message.tool_calls:
        entry["tool_calls"] = [_call(at, call) for call in message.tool_calls]
    if message.reasoning_content:
        entry |= {"reasoning_content": message.reasoning_content, "thinking": message.reasoning_content}
    return entry | {n: v for n in ("name", "tool_call_id") if (v := getattr(message, n))}


def _call(at: int, call: ToolCall) -> dict[str, Any]:
    """Call with its arguments as an object, since templates print them themselves."""
    try:
        LIMITS.check(call.function.arguments.encode(errors="surrogatepass"))
        arguments = parse_json(call.function.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise ApiError(
            400, f"the arguments of a tool call are not JSON: {error}", f"messages[{at}].tool_calls"
        ) from error
    return {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": arguments}}


def _content(at: int, message: Message) -> str | list[dict[str, str]]:
    """The text of a message; its parts, if it has pictures."""
    if message.content is None:
        if not message.tool_calls:
            raise ApiError(400, f"messages[{at}] has no content", f"messages[{at}].content")
        return ""
    if isinstance(message.content, str):
        return message.content
    for part in message.content:
        if (part.text if part.type == "text" else part.picture if part.type == "image_url" else None) is None:
            where = f"messages[{at}].content"
            problem = f"a part of type {part.type!r:.40} is not supported, only text and image_url"
            raise ApiError(400, problem, where, "not_supported")
    if all(part.type == "text" for part in message.content):
        return "".join(part.text or "" for part in message.content)
    if message.role != "user":
        raise ApiError(400, f"a message of role {message.role!r:.40} has a picture", f"messages[{at}].content")
    return [{"type": "text", "text": part.text or ""} if part.type == "text" else PLACE for part in message.content]
