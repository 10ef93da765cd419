"""Forms of calls and thinking that the models of each family write, for the readers and docs/serve-chats.md."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import attrs

from spec_serve.calls import code_forms, forms, marked_forms
from spec_serve.calls.forms import Form
from spec_serve.calls.text import NoCall, Step, Text, has_word


@attrs.frozen(eq=False)
class CallForm:
    """A form of calls.

    openings: texts that begin it, each with its reader. closings: its other words, which may be control tokens.
    example: a text that calls ``f`` with ``{"a": 1}``. signs: words of a chat template whose model writes this form.
    beginning: reads the beginning of an answer, whose opening ends the prompt.
    """

    name: str
    openings: dict[str, Form]
    closings: tuple[str, ...]
    example: str
    signs: tuple[str, ...] = ()
    beginning: Form | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """Words that are control tokens in some vocabularies."""
        return (*self.openings, *self.closings)


def _form(name: str, opening: str, form: Form, *closings: str, example: str, signs: Iterable[str] = ()) -> CallForm:
    return CallForm(name, {opening: form}, closings, example, tuple(signs))


_OBJECT = '{"name": "f", "arguments": {"a": 1}}'
_PAIR = "<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n"
_LISTED = "<|tool_call|>", "<|/tool_call|>"
_LFM2 = "<|tool_call_start|>", "<|tool_call_end|>"

GEMMA4 = _form(
    "gemma4", forms.GEMMA_CALL, forms.read_gemma(forms.GEMMA_CALL_END), forms.GEMMA_CALL_END, forms.GEMMA_QUOTE,
    example='<|tool_call>call:f{a:1}<tool_call|>', signs=[forms.GEMMA_CALL],
)  # fmt: skip
FUNCTION_GEMMA = _form(
    "function-gemma", forms.GEMMA3_CALL, forms.read_gemma(forms.GEMMA3_CALL_END),
    forms.GEMMA3_CALL_END, forms.GEMMA3_QUOTE,
    example="<start_function_call>call:f{a:1}<end_function_call>", signs=[forms.GEMMA3_CALL],
)  # fmt: skip
KIMI = CallForm(
    "kimi",
    {forms.KIMI: marked_forms.read_kimi, forms.KIMI_CALL: marked_forms.read_kimi_call},
    (forms.KIMI_END, forms.KIMI_ARGUMENTS, forms.KIMI_CALL_END),
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}'
    "<|tool_call_end|><|tool_calls_section_end|>",
    (forms.KIMI,),
)
DEEPSEEK = CallForm(
    "deepseek",
    {forms.DEEPSEEK: marked_forms.read_deepseek, forms.DEEPSEEK_CALL: marked_forms.read_deepseek_call},
    (forms.DEEPSEEK_END, forms.DEEPSEEK_SEPARATOR, forms.DEEPSEEK_CALL_END),
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"a": 1}\n```<｜tool▁call▁end｜>'
    "<｜tool▁calls▁end｜>",
    (forms.DEEPSEEK_CALL,),
)
LFM2 = _form(
    "lfm2", _LFM2[0], forms.read_python(_LFM2[1]), _LFM2[1],
    example="<|tool_call_start|>[f(a=1)]<|tool_call_end|>", signs=["<|tool_call_start|>", "<|tool_list_start|>"],
)  # fmt: skip
GLM = _form(
    "glm", forms.TAG, forms.read_tagged, forms.TAG_END, forms.KEY, forms.KEY_END, forms.VALUE, forms.VALUE_END,
    example=f"<tool_call>f\n{_PAIR}</tool_call>", signs=[forms.KEY],
)  # fmt: skip
PARAMETERS = CallForm(
    "parameters",
    {forms.TAG: forms.read_tagged, forms.FUNCTION: forms.read_function},
    (forms.TAG_END,),
    "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    (forms.PARAMETER,),
)
INVOKES = _form(
    "invokes", forms.INVOKES, forms.read_invokes(forms.INVOKES, forms.INVOKES_END), forms.INVOKES_END,
    example='<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">1</parameter>\n</invoke>\n'
    "</minimax:tool_call>", signs=[forms.INVOKES],
)  # fmt: skip
ATEM = _form(
    "atem", forms.ATEM, forms.read_invokes(forms.ATEM, forms.ATEM_END, "atem:"), forms.ATEM_END,
    example='<atem:function_calls>\n<atem:invoke name="f">\n<atem:parameter name="a">1</atem:parameter>\n'
    "</atem:invoke>\n</atem:function_calls>", signs=[forms.ATEM],
)  # fmt: skip
LINES = _form(
    "lines", forms.LINES, forms.read_python(forms.LINES_END, lines=True), forms.LINES_END,
    example="<function_calls>f(a=1)</function_calls>", signs=[forms.LINES],
)  # fmt: skip
FUNCTION = _form(
    "function", forms.FUNCTION, forms.read_function, example='<function=f>{"a": 1}</function>', signs=[forms.FUNCTION]
)
MISTRAL = _form(
    "mistral", forms.MISTRAL, forms.read_mistral, forms.MISTRAL_ID, forms.MISTRAL_ARGUMENTS,
    example='[TOOL_CALLS]f[ARGS]{"a": 1}', signs=[forms.MISTRAL_ARGUMENTS],
)  # fmt: skip
MISTRAL_LIST = _form(
    "mistral-list", forms.MISTRAL, forms.read_mistral, example=f"[TOOL_CALLS][{_OBJECT}]", signs=[forms.MISTRAL]
)
PHI = _form(
    "phi", _LISTED[0], forms.read_listed(_LISTED[1]), _LISTED[1],
    example=f"<|tool_call|>[{_OBJECT}]<|/tool_call|>", signs=["<|tool_call|>", "<|tool|>"],
)  # fmt: skip
NEMOTRON = _form(
    "nemotron", "<TOOLCALL>", forms.read_listed("</TOOLCALL>"), "</TOOLCALL>",
    example=f"<TOOLCALL>[{_OBJECT}]</TOOLCALL>", signs=["<TOOLCALL>"],
)  # fmt: skip
FUNCTOOLS = _form(
    "functools", "functools[", forms.read_after("["), example=f"functools[{_OBJECT}]", signs=["functools["]
)
PYTHON_TAG = _form(
    "python-tag", "<|python_tag|>", forms.read_tag_of_python,
    example='<|python_tag|>{"name": "f", "parameters": {"a": 1}}',
)  # fmt: skip
PYTHON = _form(
    "python", "<|python_start|>", forms.read_python("<|python_end|>"), "<|python_end|>",
    example="<|python_start|>[f(a=1)]<|python_end|>",
)  # fmt: skip
WHOLE_PYTHON = CallForm("whole-python", {}, (), "[f(a=1)]", ("[func_name1(params_name1",))
WHOLE = CallForm(
    "whole", {}, (), '{"name": "f", "parameters": {"a": 1}}', ("dictionary of argument name", "<|python_tag|>")
)
SECTIONS = CallForm(
    "sections", {">>>": code_forms.read_section}, (), '>>>f\n{"a": 1}', (">>>all",), code_forms.read_section
)
TOOL_CODE = _form(
    "tool-code", "```tool_code\n", code_forms.read_code("```"), example="```tool_code\nf(a=1)\n```",
    signs=["```tool_code"],
)  # fmt: skip
TAGGED = _form("tagged", forms.TAG, forms.read_tagged, forms.TAG_END, example=f"<tool_call>\n{_OBJECT}\n</tool_call>")
HARMONY = CallForm("harmony", {}, (), '<|channel|>commentary to=functions.f<|message|>{"a": 1}<|call|>')

FORMS = (
    GEMMA4, FUNCTION_GEMMA, KIMI, DEEPSEEK, LFM2, GLM, PARAMETERS, INVOKES, ATEM, LINES, FUNCTION, MISTRAL,
    MISTRAL_LIST, PHI, NEMOTRON, FUNCTOOLS, PYTHON_TAG, PYTHON, SECTIONS, TOOL_CODE, WHOLE_PYTHON, WHOLE, TAGGED,
)  # fmt: skip
"""All forms. The first whose sign a template has is that of its model."""
OPENINGS: dict[str, Form] = {
    opening: form for one in FORMS if one.beginning is None for opening, form in one.openings.items()
}
"""Openings that are recognised in every model's text."""
WORDS = tuple(dict.fromkeys(chain.from_iterable(form.words for form in FORMS)))


def read_beginning(text: Text, at: int) -> Step[Form]:
    """The form of a text that begins with a call without an opening. Raises NoCall."""
    if (yield from has_word(text, at, forms.NAMED)):
        return forms.read_gemma(forms.GEMMA_CALL_END)
    if at < len(text.whole) and text.whole[at] in "[{":
        return forms.read_whole
    raise NoCall


@attrs.frozen
class Member:
    """Models of a family that write answers alike. thinking: how their thinking is opened, if they think."""

    families: tuple[str, ...]
    models: str
    calls: CallForm
    thinking: str = ""


ENDS = {
    "llama": "<|eot_id|> <|eom_id|> <|im_end|> </s>", "phi3": "<|end|> <|endoftext|>", "gemma2": "<end_of_turn>",
    "gemma3": "<end_of_turn> <start_function_response>", "gemma4": "<turn|> <|tool_response>",
    "gpt-oss": "<|return|> <|call|>", "qwen2": "<|im_end|> <|endoftext|>", "qwen3": "<|im_end|> <|endoftext|>",
    "qwen3moe": "<|im_end|> <|endoftext|>", "qwen3next": "<|im_end|> <|endoftext|>",
    "qwen35": "<|im_end|> <|endoftext|>", "qwen35moe": "<|im_end|> <|endoftext|>", "qwen3-vl": "<|im_end|>",
    "glm4moe": "<|endoftext|> <|user|> <|observation|>", "lfm2": "<|im_end|>", "lfm2moe": "<|im_end|>",
    "kimi-linear": "<|im_end|> [EOS]", "granitehybrid": "<|end_of_text|>", "falcon-h1": "<|im_end|> <|end_of_text|>",
    "nemotron_h": "<|im_end|>", "nemotron_h_moe": "<|im_end|>", "idefics3": "<end_of_utterance>",
    "llava": "</s>", "mistral3": "</s>", "minimax-m2": "[e~[",
    "deepseek2": "<|endoftext|> <|user|> <|observation|> <｜end▁of▁sentence｜>", "laguna": "</assistant>",
    "glm5-next": "<|endoftext|> <|user|> <|observation|>",
    "olmo-hybrid": "<|im_end|> <|endoftext|>", "muse-glimmer": "<|eot|>", "lfm3": "<|im_end|>",
}  # fmt: skip
"""Control tokens that end an answer of each architecture, in addition to the ends that the model's file declares."""
MEMBERS = (
    Member(("llama",), "Llama 3.1, 3.2 and 3.3", WHOLE),
    Member(("llama",), "Llama 3.1 with tools of its own, `<\\|python_tag\\|>`", PYTHON_TAG),
    Member(("llama",), "Llama 3.2 and ToolACE in Python's form", WHOLE_PYTHON),
    Member(("llama",), "Llama 3.1's custom form, Functionary 3.1", FUNCTION),
    Member(("llama",), "Functionary 3.2", SECTIONS),
    Member(("llama",), "Hermes, SmolLM 2", TAGGED),
    Member(("llama",), "SmolLM 3", TAGGED, "<think>"),
    Member(("llama",), "Mistral 7B v0.3, Nemo, Small 3", MISTRAL_LIST),
    Member(("llama",), "Mistral Small 3.2, Devstral", MISTRAL),
    Member(("llama",), "Magistral", MISTRAL, "[THINK]"),
    Member(("mistral3",), "Ministral 3", MISTRAL, "[THINK]"),
    Member(("llama", "qwen2"), "DeepSeek-R1 Distill", DEEPSEEK, "<think>"),
    Member(("llama",), "Llama Nemotron Nano", NEMOTRON, "<think>"),
    Member(("phi3",), "Phi 4 mini", PHI),
    Member(("phi3",), "Phi 4 mini as its page shows it", FUNCTOOLS),
    Member(("phi3",), "Phi 3, Phi 4 reasoning", TAGGED, "<think>"),
    Member(("gemma2", "gemma3"), "Gemma 2 and 3", TAGGED),
    Member(("gemma3",), "Gemma 3 as its page shows it", TOOL_CODE),
    Member(("gemma3",), "FunctionGemma", FUNCTION_GEMMA),
    Member(("gemma4",), "Gemma 4", GEMMA4, "<|channel>thought"),
    Member(("gpt-oss",), "gpt-oss", HARMONY, "<|channel|>analysis"),
    Member(("qwen2", "qwen3", "qwen3moe", "qwen3next"), "Qwen 2.5, QwQ, Qwen 3", TAGGED, "<think>"),
    Member(("qwen3moe", "qwen3next", "qwen35", "qwen35moe"), "Qwen 3 Coder, Qwen 3.5", PARAMETERS, "<think>"),
    Member(("qwen3-vl",), "Qwen 3 VL", TAGGED, "<think>"),
    Member(("glm4moe",), "GLM 4.5 to 4.7", GLM, "<think>"),
    Member(("minimax-m2",), "MiniMax M2, M2.1", INVOKES, "<think>"),
    Member(("deepseek2",), "GLM 4.7 Flash", GLM, "<think>"),
    Member(("glm5-next",), "GLM 5.3 Flash", GLM, "<think>"),
    Member(("deepseek2",), "DeepSeek V3 and R1", DEEPSEEK, "<think>"),
    Member(("laguna",), "Laguna", GLM, "<think>"),
    Member(("muse-glimmer",), "Muse Glimmer", ATEM),
    Member(("olmo-hybrid",), "OLMo Hybrid", LINES, "<think>"),
    Member(("lfm2", "lfm2moe", "lfm3"), "LFM 2, LFM 2.5, LFM 3", LFM2, "<think>"),
    Member(("kimi-linear",), "Kimi Linear", KIMI),
    Member(("granitehybrid",), "Granite 4 H", TAGGED),
    Member(("falcon-h1",), "Falcon-H1, Falcon-H1R", TAGGED, "<think>"),
    Member(("nemotron_h",), "Nemotron Nano 2", NEMOTRON, "<think>"),
    Member(("nemotron_h", "nemotron_h_moe"), "Nemotron 3 and 3.5", PARAMETERS, "<think>"),
    Member(("idefics3", "llava"), "SmolVLM, LLaVA", TAGGED),
)
"""A row for every family of the README, and for each of its public members that writes another form."""


def form_of(template: str | None, controls: Iterable[str] = ()) -> CallForm:
    """The form that a model with this chat template is trained on.

    controls: control tokens of its vocabulary, which tell it where the template does not.
    """
    text, known = template or "", set(controls)
    by_template = next((form for form in FORMS if any(sign in text for sign in form.signs)), None)
    if by_template is not None or forms.TAG in text:
        return by_template or TAGGED
    return next((form for form in FORMS if known.intersection(form.signs)), TAGGED)
