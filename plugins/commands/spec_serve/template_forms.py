"""What a chat template does with tools, calls and their results, found by rendering with names that are random.

A template may read tools in several places, or only in some orders of roles; it may want the arguments of calls as an
object or as text. So a conversation of the same roles is rendered in each form, until all of it is in the prompt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Any, Literal
from weakref import WeakKeyDictionary

import attrs

from spec_core import SpecError
from spec_serve.calls import families, writing
from spec_serve.calls.families import CallForm
from spec_serve.errors import ApiError
from spec_serve.reading import call_form_of

WRITTEN = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{}\n</tools>\n\n"
    "For each function call, return a json object with function name and arguments within <tool_call></tool_call> "
    'XML tags:\n<tool_call>\n{{"name": <function-name>, "arguments": <args-json-object>}}\n</tool_call>'
)
"""The system message with tools, as Hermes models read it, where the template has no place for them."""
ROLES_MAX = 48
"""Messages of a conversation that is rendered to find the forms; of a longer one its beginning and its end."""
Messages = list[dict[str, Any]]


@attrs.frozen
class TemplateForms:
    """Forms in which a template writes what belongs to tools.

    tools: its variable, a key of the system message, or our own words in the system's or first user's message.
    arguments: of earlier calls, as an object or as text; ``written``: calls become text. results: messages of the role
    tool, or text of the user.
    """

    tools: Literal["variable", "system", "written", "user"]
    arguments: Literal["object", "text", "written"] = "object"
    results: Literal["tool", "written"] = "tool"


TOOLS: tuple[Literal["variable", "system", "written", "user"], ...] = ("variable", "system", "written", "user")
_forms: WeakKeyDictionary[Any, dict[Any, TemplateForms]] = WeakKeyDictionary()
KEPT_MAX = 256
"""Orders of roles whose forms are kept, of each tokenizer."""


def apply_forms(
    messages: Messages, tools: Sequence[Mapping[str, Any]], tokenizer: Any, keywords: Mapping[str, Any]
) -> tuple[Messages, dict[str, Any]]:
    """Messages and variables with the tools and calls in a form that is in the prompt.

    Raises ApiError where the template writes the tools in no form.
    """
    if not needs_forms(messages, tools):
        return messages, dict(keywords)
    if getattr(tokenizer, "render", None) is None:
        return _apply(
            TemplateForms("variable" if _names_tools(tokenizer) else "written"), messages, tools, tokenizer, keywords
        )
    suited = forms_of(messages, bool(tools), tokenizer, keywords)
    if not tools:
        return _apply(suited, messages, tools, tokenizer, keywords)
    names = [str(tool["function"]["name"]) for tool in tools]
    for way in TOOLS[TOOLS.index(suited.tools) :]:
        forms = attrs.evolve(suited, tools=way)
        ready = _apply(forms, messages, tools, tokenizer, keywords)
        text = _render(tokenizer, *ready)
        without = _render(tokenizer, *_apply(forms, messages, [], tokenizer, keywords)) or ""
        if text is not None and all(text.count(name) > without.count(name) for name in names):
            return ready
    bare = _apply(attrs.evolve(suited, tools="variable"), messages, [], tokenizer, keywords)
    if _render(tokenizer, *bare) is None:
        return bare  # the template refuses the conversation itself, and says why
    raise ApiError(
        400, "the chat template writes no tools into this conversation; use another --chat-template", "tools"
    )


def needs_forms(messages: Messages, tools: Sequence[Any]) -> bool:
    return bool(tools) or any(message["role"] == "tool" or message.get("tool_calls") for message in messages)


def _names_tools(tokenizer: Any) -> bool:
    return "tools" in (tokenizer.chat_template or "")


def knows_tools(tokenizer: Any) -> bool:
    """Whether the model's template has a place for tools in the simplest conversation."""
    if getattr(tokenizer, "render", None) is None:
        return _names_tools(tokenizer)
    messages = [{"role": "user", "content": "x"}]
    return forms_of(messages, True, tokenizer, {}).tools in ("variable", "system")


def forms_of(messages: Messages, tools: bool, tokenizer: Any, keywords: Mapping[str, Any]) -> TemplateForms:
    """The forms of a conversation of these roles."""
    roles = tuple((message["role"], len(message.get("tool_calls") or ())) for message in _shorten(messages))
    key = (tokenizer.chat_template, roles, tools, repr(sorted(keywords.items(), key=lambda item: item[0])))
    known = _forms.setdefault(tokenizer, {})
    if key not in known:
        if len(known) >= KEPT_MAX:
            known.clear()
        known[key] = Probe(roles, tools, tokenizer, keywords).forms()
    return known[key]


def _shorten(messages: Messages) -> Messages:
    """The beginning and the end of a long conversation; the end begins with a user."""
    if len(messages) <= ROLES_MAX:
        return messages
    start = 1 if messages[0]["role"] == "system" else 0
    end = messages[-(ROLES_MAX - 1) :]
    first = next((i for i, message in enumerate(end) if message["role"] == "user"), 0)
    return [*messages[:start], *end[first:]]


@attrs.define
class Probe:
    """Renders a conversation of these roles with random words, in one form after the other."""

    roles: Sequence[tuple[str, int]]
    tools: bool
    tokenizer: Any
    keywords: Mapping[str, Any]
    tool: str = attrs.field(factory=lambda: f"probe_{token_hex(6)}")
    called: str = attrs.field(factory=lambda: f"called_{token_hex(6)}")
    key: str = attrs.field(factory=lambda: f"key_{token_hex(6)}")
    value: str = attrs.field(factory=lambda: f"value_{token_hex(6)}")
    result: str = attrs.field(factory=lambda: f"result_{token_hex(6)}")

    def forms(self) -> TemplateForms:
        """The first form of each part with which it is in the prompt."""
        for results in ("tool", "written") if any(role == "tool" for role, _ in self.roles) else ("tool",):
            for arguments in ("object", "text", "written") if any(calls for _, calls in self.roles) else ("object",):
                for tools in TOOLS if self.tools else TOOLS[:1]:
                    forms = TemplateForms(tools, arguments, results)
                    if self._writes(forms):
                        return forms
        return TemplateForms("written", "written", "written")

    def _writes(self, forms: TemplateForms) -> bool:
        """Whether all parts are in the prompt, the arguments as JSON or in a form of the template's own."""
        tools = [{"type": "function", "function": {"name": self.tool, "description": "x", "parameters": PARAMETERS}}]
        ready = _apply(forms, self._messages(), tools if self.tools else [], self.tokenizer, self.keywords)
        text = _render(self.tokenizer, *ready)
        if text is None or (self.tools and self.tool not in text):
            return False
        if any(role == "tool" for role, _ in self.roles) and self.result not in text:
            return False
        if not any(calls for _, calls in self.roles):
            return True
        odd = (f"'{self.key}'", f'\\"{self.key}\\"')  # as Python prints an object, and a text within a text
        return self.called in text and self.value in text and not any(word in text for word in odd)

    def _messages(self) -> Messages:
        messages: Messages = []
        for role, calls in self.roles:
            message: dict[str, Any] = {"role": role, "content": "" if calls else "x"}
            if role == "tool":
                message |= {"content": self.result, "tool_call_id": "call00000", "name": self.called}
            if calls:
                function = {"name": self.called, "arguments": {self.key: self.value}}
                message["tool_calls"] = [{"id": "call00000", "type": "function", "function": function}] * calls
            messages.append(message)
        return messages


PARAMETERS = {"type": "object", "properties": {"x": {"type": "string", "description": "x"}}, "required": ["x"]}


def _render(tokenizer: Any, messages: Messages, keywords: Mapping[str, Any]) -> str | None:
    """The prompt; None where the template fails."""
    try:
        return str(tokenizer.render(messages, **keywords))
    except SpecError:
        return None


def _apply(
    forms: TemplateForms,
    messages: Messages,
    tools: Sequence[Mapping[str, Any]],
    tokenizer: Any,
    keywords: Mapping[str, Any],
) -> tuple[Messages, dict[str, Any]]:
    """Messages and variables in these forms."""
    own = forms.tools in ("variable", "system")
    form = call_form_of(tokenizer) if own and getattr(tokenizer, "render", None) else families.TAGGED
    converted = [_convert(message, forms, form) for message in messages]
    variables = dict(keywords)
    if tools and forms.tools == "variable":
        variables["tools"] = list(tools)
    elif tools and forms.tools == "system":
        converted = _add_to_system(converted, tools)
    elif tools:
        converted = _add_text(converted, tools, "system" if forms.tools == "written" else "user")
    return converted, variables


def _convert(message: dict[str, Any], forms: TemplateForms, form: CallForm) -> dict[str, Any]:
    """A message with its calls and results in these forms."""
    if message["role"] == "tool" and forms.results == "written":
        return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}
    if not (calls := message.get("tool_calls")) or forms.arguments == "object":
        return message
    if forms.arguments == "text":
        return {**message, "tool_calls": [_with_text(call) for call in calls]}
    text = [message["content"]] if message["content"] else []
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**rest, "content": "\n".join([*text, write_calls([call["function"] for call in calls], form)])}


def _with_text(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {**call, "function": {**function, "arguments": dump_json(function["arguments"])}}


def write_calls(functions: Sequence[Mapping[str, Any]], form: CallForm) -> str:
    """Calls as text, in the family's form where it writes arguments as JSON."""
    written = writing.WRITINGS.get(form, writing.TAGGED)
    if written.arguments is not None:
        written = writing.TAGGED
    calls = [f"{written.begin.replace('{}', f['name'])}{dump_json(f['arguments'])}{written.end}" for f in functions]
    return f"{written.before}{written.between.join(calls)}{written.after}"


def dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _add_to_system(messages: Messages, tools: Sequence[Mapping[str, Any]]) -> Messages:
    """Tools as a key of the system message, as JSON (Phi 4 mini)."""
    listed = dump_json([tool["function"] for tool in tools])
    if messages[0]["role"] == "system":
        return [{**messages[0], "tools": listed}, *messages[1:]]
    return [{"role": "system", "content": "", "tools": listed}, *messages]


def _add_text(messages: Messages, tools: Sequence[Mapping[str, Any]], role: str) -> Messages:
    """Tools in our own words, before the text of the system or of the first user."""
    text = WRITTEN.format("\n".join(dump_json(tool) for tool in tools))
    at = next((i for i, message in enumerate(messages) if message["role"] == role), None)
    if role == "system" and at != 0:
        return [{"role": "system", "content": text}, *messages]
    if at is None:
        return [{"role": role, "content": text}, *messages]
    first = messages[at]
    parts = [first["content"], text] if role == "system" else [text, first["content"]]
    content: Any = "\n\n".join(filter(None, parts)) if isinstance(first["content"], str) else [
        {"type": "text", "text": f"{text}\n\n"}, *first["content"]
    ]  # fmt: skip
    return [*messages[:at], {**first, "content": content}, *messages[at + 1 :]]
