"""The grammar of calls in a family's own form, for texts that must call, or may call strictly."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
from spec_grammar import JsonSchema, Regex, StructuralTags, Tag
from spec_grammar.compiled import Compiled

from spec_serve.calls import families, forms
from spec_serve.calls.arguments import (
    GemmaArguments,
    PythonArguments,
    TaggedArguments,
    has_odd_text,
    is_plain,
    names_of,
)
from spec_serve.calls.families import CallForm

EMPTY = {"type": "object", "properties": {}, "additionalProperties": False}
TITLES = ("type", "title", "description", "$schema")
"""Keywords of a schema that say nothing about parameters."""
NAME = re.compile(r"[A-Za-z_][\w.-]*")
WORD = re.compile(r"[A-Za-z_]\w*")
Arguments = Callable[[str, Mapping[str, Any]], Compiled]
"""The grammar of the arguments of a function: a name for its rules, and the schema."""


@attrs.frozen
class Writing:
    """How calls of a form are written.

    begin, end: of one call, with ``{}`` for the function's name. before, after: of a row of calls. between: two of
    them. arguments: None is a JSON object. suits: whether the form can write a schema; others are written as objects.
    """

    begin: str
    end: str
    before: str = ""
    after: str = ""
    between: str = ""
    trigger: str = ""
    arguments: Arguments | None = None
    suits: Callable[[Mapping[str, Any]], bool] = lambda schema: True


def _suits_tags(schema: Mapping[str, Any]) -> bool:
    names = schema.get("properties") or {}
    return schema == EMPTY or (is_plain(schema) and not has_odd_text(schema) and all(map(NAME.fullmatch, names)))


def _suits_names(schema: Mapping[str, Any]) -> bool:
    return schema == EMPTY or (is_plain(schema) and all(map(WORD.fullmatch, names_of(schema))))


def _tag_arguments(opening: str, closing: str, after: str) -> Arguments:
    return lambda name, schema: TaggedArguments(name, schema, opening, closing, after)


def _gemma(quote: str) -> Arguments:
    return lambda name, schema: GemmaArguments(name, schema, quote)


_BEGIN, _LLAMA = '{"name": "{}", "arguments": ', '{"name": "{}", "parameters": '
TAGGED = Writing(f"{forms.TAG}\n{_BEGIN}", f"}}\n{forms.TAG_END}", between="\n", trigger=f"{forms.TAG}\n")
WRITINGS: dict[CallForm, Writing] = {
    families.TAGGED: TAGGED,
    families.WHOLE: Writing(_LLAMA, "}", between="; ", trigger='{"name": "'),
    families.PYTHON_TAG: Writing(_LLAMA, "}", "<|python_tag|>", between="; "),
    families.FUNCTION: Writing("<function={}>", forms.FUNCTION_END, trigger=forms.FUNCTION),
    families.MISTRAL: Writing("[TOOL_CALLS]{}[ARGS]", "", trigger=forms.MISTRAL),
    families.MISTRAL_LIST: Writing(_BEGIN, "}", f"{forms.MISTRAL}[", "]", ", "),
    families.PHI: Writing(_BEGIN, "}", "<|tool_call|>[", "]<|/tool_call|>", ", "),
    families.NEMOTRON: Writing(_BEGIN, "}", "<TOOLCALL>[", "]</TOOLCALL>", ", "),
    families.FUNCTOOLS: Writing(_BEGIN, "}", "functools[", "]", ", "),
    families.KIMI: Writing(
        f"{forms.KIMI_CALL}functions.{{}}:0{forms.KIMI_ARGUMENTS}", forms.KIMI_CALL_END, forms.KIMI, forms.KIMI_END
    ),
    families.DEEPSEEK: Writing(
        f"{forms.DEEPSEEK_CALL}function{forms.DEEPSEEK_SEPARATOR}{{}}\n```json\n",
        f"\n```{forms.DEEPSEEK_CALL_END}", forms.DEEPSEEK, forms.DEEPSEEK_END, "\n",
    ),
    families.LFM2: Writing(
        "{}(", ")", "<|tool_call_start|>[", "]<|tool_call_end|>", ", ", "", PythonArguments, _suits_names
    ),
    families.WHOLE_PYTHON: Writing("{}(", ")", "[", "]", ", ", "[", PythonArguments, _suits_names),
    families.TOOL_CODE: Writing(
        "{}(", ")", "```tool_code\n", "\n```", "\n", "", PythonArguments, _suits_names
    ),
    families.SECTIONS: Writing(">>>{}\n", "", trigger=">>>"),
    families.GEMMA4: Writing(
        "<|tool_call>call:{}{", "}<tool_call|>", trigger="<|tool_call>", arguments=_gemma(forms.GEMMA_QUOTE),
        suits=_suits_names,
    ),
    families.FUNCTION_GEMMA: Writing(
        "<start_function_call>call:{}{", "}<end_function_call>", trigger="<start_function_call>",
        arguments=_gemma(forms.GEMMA3_QUOTE), suits=_suits_names,
    ),
    families.GLM: Writing(
        "<tool_call>{}\n", forms.TAG_END, between="\n", trigger=forms.TAG,
        arguments=_tag_arguments("<arg_key>{}</arg_key>\n<arg_value>", forms.VALUE_END, "\n"), suits=_suits_tags,
    ),
    families.INVOKES: Writing(
        '<invoke name="{}">\n', "</invoke>", f"{forms.INVOKES}\n", f"\n{forms.INVOKES_END}", "\n",
        arguments=_tag_arguments('<parameter name="{}">', forms.PARAMETER_END, "\n"), suits=_suits_tags,
    ),
    families.ATEM: Writing(
        '<atem:invoke name="{}">\n', "</atem:invoke>", f"{forms.ATEM}\n", f"\n{forms.ATEM_END}", "\n",
        arguments=_tag_arguments('<atem:parameter name="{}">', "</atem:parameter>", "\n"), suits=_suits_tags,
    ),
    families.LINES: Writing("{}(", ")", forms.LINES, forms.LINES_END, "\n", "", PythonArguments, _suits_names),
    families.PARAMETERS: Writing(
        "<tool_call>\n<function={}>\n", "</function>\n</tool_call>", between="\n", trigger=forms.TAG,
        arguments=_tag_arguments("<parameter={}>\n", "\n</parameter>", "\n"), suits=_suits_tags,
    ),
}  # fmt: skip
"""How each form is written; gpt-oss has channels of its own."""
WHOLE_FORMS = (families.WHOLE, families.WHOLE_PYTHON)
"""Forms that are a call only where they are the whole text."""
NO_CALL = r"(?s:[^{\[].*)?"
"""A text that begins no call of these forms."""


def call_tags(
    functions: Sequence[Mapping[str, Any]], form: CallForm, several: bool, demanded: bool, compiled: Compiled | None
) -> StructuralTags:
    """The constraint of a text with calls of these functions in a family's form.

    A form that cannot write the schema of one of the functions is not used: they are written as objects then.

    :param demanded: the text is calls alone; else it is an answer of ``compiled``, or free with calls in it.
    """
    writing = WRITINGS[form]
    if not all(writing.suits(arguments_schema(function)) for function in functions):
        form, writing = families.TAGGED, TAGGED
    tags = [_tag(i, function, writing) for i, function in enumerate(functions)]
    if compiled is None and not demanded and form in WHOLE_FORMS:
        compiled = Regex(NO_CALL)
    count_min = 0 if not demanded and compiled is None else 1
    trigger = writing.trigger or writing.before
    return StructuralTags(
        trigger, tags, count_min, several, writing.between, compiled, before=writing.before, after=writing.after
    )


def _tag(at: int, function: Mapping[str, Any], writing: Writing) -> Tag:
    name, schema = function["name"], arguments_schema(function)
    written = JsonSchema(schema, compact=True)
    arguments = written if writing.arguments is None else writing.arguments(f"call_{at}", schema)
    return Tag(writing.begin.replace("{}", name), arguments, writing.end)


def arguments_schema(function: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of the arguments; a function whose schema names no parameters has none."""
    schema = function.get("parameters") or {}
    says_more = any(value not in (None, {}, []) for key, value in schema.items() if key not in TITLES)
    return schema if says_more else EMPTY
