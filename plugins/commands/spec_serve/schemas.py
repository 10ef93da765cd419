"""Bodies of requests: their fields and types. A field that is unknown or not supported is refused by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, model_validator

from spec_serve.formats import ResponseFormat, StructuredOutputs
from spec_serve.strict_model import ANY, Body, ListOf, field_error

NAME = r"^[A-Za-z0-9_.-]{1,64}$"
"""Pattern of a function's name."""
Number = Annotated[float, Field(allow_inf_nan=False)]
"""A JSON number."""
Ids = ListOf[int]
"""Token ids."""
Count = Annotated[int, Field(ge=0, lt=1 << 63)]


ReasoningFormat: TypeAlias = Literal["auto", "none", "deepseek", "deepseek-legacy"]
"""Place of reasoning in an answer, as in llama-server. ``auto`` is ``deepseek``."""


class Speculative(Body):
    """Drafting for this request. It changes the speed of the text, never the text."""

    where: ClassVar[str] = "speculative"

    method: str | list[str] | None = Field(default=None, description="Methods that may draft; none is off.")
    type: str | list[str] | None = Field(default=None, description="The same, by llama-server's name.")
    n_max: Count | None = Field(default=None, description="Longest draft; 0 is plain decoding.")
    n_min: Count | None = Field(default=None, description="Shorter drafts are dropped.")
    p_min: Number | None = Field(default=None, description="A draft ends before its first token of lower confidence.")
    control: Literal["auto", "fixed"] | None = Field(
        default=None, description="fixed: drafts of full length, whatever the server's controller allows others."
    )
    trace: bool = Field(default=False, description="Report the source of every token, and rejected drafts.")


class StreamOptions(Body):
    where: ClassVar[str] = "stream_options"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"include_obfuscation": (None, False)}

    include_usage: bool | None = Field(default=None, description="A last chunk has the usage.")
    continuous_usage_stats: bool | None = Field(
        default=None, description="With include_usage: every chunk counts the tokens of its text so far."
    )

    @model_validator(mode="after")
    def _check_usage(self) -> StreamOptions:
        if self.continuous_usage_stats and not self.include_usage:
            problem = "continuous_usage_stats needs include_usage = true"
            raise field_error("continuous_usage_stats", problem)
        return self


class Generate(Body):
    """Fields of all ways of generating. A field that is left out, or null, has the server's setting."""

    model: str | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    top_k: int | None = None
    min_p: Number | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    repetition_penalty: Number | None = None
    repeat_penalty: Number | None = Field(default=None, description="repetition_penalty, by llama-server's name.")
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    min_tokens: Count | None = Field(
        default=None, description="Tokens before which no end token, stop token or stop text ends the text."
    )
    stream: bool | None = None
    timings_per_token: bool | None = Field(default=None, description="Every chunk of a stream has timings.")
    return_progress: bool | None = Field(default=None, description="A stream says how much of the prompt is evaluated.")
    cache_prompt: bool | None = None
    cache_salt: str | None = Field(default=None, description="Only requests with the same salt share a prompt cache.")
    priority: int | None = Field(default=None, description="Of waiting requests the lowest number starts first.")
    deadline_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="Seconds after which the request ends, waiting included."
    )
    speculative: Speculative | None = None
    plugin_values: dict[str, dict[str, Any]] | None = Field(
        default=None, description="Values for plugins that read them, as {plugin: {name: value}}."
    )
    json_schema: dict[str, Any] | bool | str | None = Field(default=None, description="The text is JSON of this.")
    grammar: str | None = Field(default=None, description="The text is one of this grammar: Lark's notation or GBNF.")
    structured_outputs: StructuredOutputs | None = None
    open_objects: bool | None = Field(
        default=None,
        description="Objects of a schema may have keys that it does not name.",
    )
    compact: bool | None = Field(
        default=None, description="JSON of a schema has no white space but a space after commas and colons."
    )


class OpenAI(Generate):
    """Fields of both OpenAI endpoints."""

    ids: ClassVar[tuple[str, ...]] = ("logit_bias",)

    n: Annotated[int, Field(ge=1)] | None = None
    max_tokens: Count | None = None
    logit_bias: dict[str, Number] | None = None
    stream_options: StreamOptions | None = None
    user: str | None = Field(default=None, description="Accepted; it changes nothing.")
    n_predict: int | None = Field(default=None, description="max_tokens, by llama-server's name; -1 is no limit.")
    response_format: ResponseFormat | None = None
    guided_json: dict[str, Any] | bool | str | None = Field(default=None, description="structured_outputs.json")
    guided_regex: str | None = Field(default=None, description="structured_outputs.regex")
    guided_choice: list[str] | None = Field(default=None, description="structured_outputs.choice")
    guided_grammar: str | None = Field(default=None, description="structured_outputs.grammar")


class Completion(OpenAI):
    """``/v1/completions``."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "suffix": (None, ""), "best_of": (None, 1), "id_slot": (ANY,), "metadata": (ANY,),
    }  # fmt: skip

    ids: ClassVar[tuple[str, ...]] = ("prompt", "logit_bias")

    echo: bool | None = Field(default=None, description="The text begins with the prompt; logprobs are of both.")
    prompt: str | ListOf[str] | Ids | ListOf[Ids]
    logprobs: Count | None = None


class ImageUrl(Body):
    """A picture as a ``data:`` URL: PNG, JPEG or WEBP."""

    where: ClassVar[str] = "a picture"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"detail": (ANY,)}

    url: str


class ContentPart(Body):
    where: ClassVar[str] = "a part of a message's content"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"cache_control": (ANY,), "annotations": (ANY,)}

    type: str
    text: str | None = None
    image_url: ImageUrl | str | None = Field(default=None, description="A picture, in a part of type image_url.")

    @property
    def picture(self) -> str | None:
        """The address of its picture."""
        return self.image_url.url if isinstance(self.image_url, ImageUrl) else self.image_url


class Function(Body):
    """A function that a model may call. parameters: a JSON schema."""

    where: ClassVar[str] = "a tool's function"

    name: Annotated[str, Field(pattern=NAME)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Body):
    where: ClassVar[str] = "a tool"

    type: Literal["function"]
    function: Function


def is_no_function(name: str) -> bool:
    """Whether a tool of this type cannot be offered."""
    return name != "function"


class NamedFunction(Body):
    where: ClassVar[str] = "tool_choice.function"

    name: str


class ToolChoice(Body):
    where: ClassVar[str] = "tool_choice"

    type: Literal["function"]
    function: NamedFunction


class NamedTool(Body):
    """A tool that may be called; of a function the name says which."""

    where: ClassVar[str] = "a tool of tool_choice"

    type: str
    name: str | None = None
    function: NamedFunction | None = None

    @property
    def called(self) -> str | None:
        """The function's name."""
        return self.function.name if self.function is not None else self.name


class AllowedTools(Body):
    """The tools that may be called in this answer, of all that the conversation has."""

    where: ClassVar[str] = "tool_choice.allowed_tools"

    mode: Literal["auto", "required"]
    tools: ListOf[NamedTool]


class AllowedChoice(Body):
    where: ClassVar[str] = "tool_choice"

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


class CalledFunction(Body):
    where: ClassVar[str] = "a tool call's function"

    name: str
    arguments: str


class ToolCall(Body):
    where: ClassVar[str] = "a tool call"

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(Body):
    where: ClassVar[str] = "a message"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "refusal": (None,), "audio": (None,), "annotations": (None, []), "function_call": (None,),
        "reasoning": (ANY,), "reasoning_details": (ANY,), "provider_specific_fields": (ANY,), "cache_control": (ANY,),
    }  # fmt: skip

    role: str
    content: str | ListOf[ContentPart] | None = None
    name: str | None = None
    tool_calls: ListOf[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = Field(default=None, description="What an assistant thought before its answer.")


class Predicted(Body):
    """OpenAI's predicted output."""

    where: ClassVar[str] = "prediction"

    type: Literal["content"]
    content: str | ListOf[ContentPart]


class Conversation(Body):
    """Options of turning messages into a prompt."""

    chat_template_kwargs: dict[str, Any] | None = Field(default=None, description="Variables of the chat template.")
    reasoning_effort: str | None = Field(
        default=None, description="A variable of the chat template; none is enable_thinking = false too."
    )
    add_generation_prompt: bool | None = Field(default=None, description="False: no turn of the assistant is begun.")
    continue_final_message: bool | None = Field(
        default=None, description="The answer continues the last message; the default if it is the assistant's."
    )


class Chat(OpenAI, Conversation):
    """``/v1/chat/completions``."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "functions": (None, []), "function_call": (None, "none", "auto"),
        "audio": (None,), "modalities": (None, ["text"]), "web_search_options": (None,), "store": (None, False),
        "verbosity": (ANY,), "metadata": (ANY,), "service_tier": (None, "auto", "default"), "id_slot": (ANY,),
        "prompt_cache_key": (ANY,), "prompt_cache_retention": (ANY,), "safety_identifier": (ANY,),
    }  # fmt: skip

    messages: Annotated[ListOf[Message], Field(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Count | None = None
    tools: ListOf[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | AllowedChoice | None = None
    parallel_tool_calls: bool | None = None
    prediction: Predicted | None = None
    reasoning_format: ReasoningFormat | None = Field(
        default=None, description="Where thinking goes: reasoning_content (auto, deepseek), content (none), both."
    )
    verbose: bool | None = Field(default=None, description="The answer has its prompt as text, in __verbose.")
