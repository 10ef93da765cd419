"""Forms of calls: every one, with and without its closings, read alike however the text is cut, in linear time."""

# ruff: noqa: E501
from __future__ import annotations

import json
import random
import re
from itertools import pairwise
from pathlib import Path
from time import process_time

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_serve.calls.families import ENDS, FORMS, MEMBERS, OPENINGS, SECTIONS, TAGGED, WORDS, form_of
from spec_serve.harmony import HarmonyReader
from spec_serve.parts import Mark
from spec_serve.thinking import FORMS as THOUGHTS
from spec_serve.thinking import ThoughtReader
from spec_serve.tool_calls import CallReader
from spec_targets.tokenizer.base import END_TEXTS

from tools.answers import write_table

TOOLS = {"f": {"properties": {"a": {}, "b": {"type": "string"}}}, "g": {}}
EXAMPLES = {form.name: form.example for form in FORMS}
PARAMETER = "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n"
PAIR = "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n"
KIMI = '<|tool_call_begin|>functions.{}<|tool_call_argument_begin|>{{"a": 1}}<|tool_call_end|>'
ONE, TWO = [("f", {"a": 1})], [("f", {"a": 1}), ("g", {})]

WRITTEN = {
    # a text, what it says, what it calls
    "gemma-text": ('<|tool_call>call:f{a:1,b:<|"|>x, "y"}<|"|>}<tool_call|>', "", [("f", {"a": 1, "b": 'x, "y"}'})]),
    "gemma-nested": (
        '<|tool_call>call:f{a:{c:[1,true,<|"|>x<|"|>],<|"|>d e<|"|>:null}}<tool_call|>',
        "",
        [("f", {"a": {"c": [1, True, "x"], "d e": None}})],
    ),
    "gemma-without-opening": ("call:f{a:1}<tool_call|>", "", ONE),
    "gemma-two": ("<|tool_call>call:f{a:1}<tool_call|><|tool_call>call:g{}<tool_call|>", "", TWO),
    "gemma-two-in-one": ("<|tool_call>call:f{a:1}<tool_call|>call:g{}<tool_call|>", "", TWO),
    "gemma-no-closing": ("<|tool_call>call:f{a:1}", "", ONE),
    "gemma-cut": ("<|tool_call>call:f{a:1", "<|tool_call>call:f{a:1", []),
    "gemma-another-tool": ("<|tool_call>call:h{a:1}<tool_call|>", "<|tool_call>call:h{a:1}<tool_call|>", []),
    "function-gemma": (
        "<start_function_call>call:f{b:<escape>x<escape>}<end_function_call>",
        "",
        [("f", {"b": "x"})],
    ),
    "object-in-function": ('<function=f>{"a": 1}</function>', "", ONE),
    "object-in-function-no-closing": ('<function=f>{"a": 1}\nDone.', "Done.", ONE),
    "object-in-function-two": ('<function=f>{"a": 1}</function><function=g>{}</function>', "", TWO),
    "objects-with-semicolon": ('{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}', "", TWO),
    "objects-in-lines": ('{"name": "f", "parameters": {"a": 1}}\n{"name": "g"}', "", TWO),
    "whole-list": ('[{"name": "f", "arguments": {"a": 1}}, {"name": "g"}]', "", TWO),
    "nested-as-openai": ('{"type": "function", "function": {"name": "f", "arguments": "{\\"a\\": 1}"}}', "", ONE),
    "python-list": ("[f(a=1), g()]", "", TWO),
    "python-semicolon": ("f(a=1)", "f(a=1)", []),
    "python-values": (
        "[f(a=[1, -2.5, True, None, {'k': ('x',)}], b='it\\'s \"q\"')]".replace("('x',)", "('x')"),
        "",
        [("f", {"a": [1, -2.5, True, None, {"k": ["x"]}], "b": 'it\'s "q"'})],
    ),
    "python-tag": ('<|python_tag|>{"name": "f", "parameters": {"a": 1}}; {"name": "g"}', "", TWO),
    "python-tag-built-in": ("<|python_tag|>f.call(a=1)", "", ONE),
    "lfm2": ("Sure.<|tool_call_start|>[f(a=1), g()]<|tool_call_end|>Done.", "Sure.Done.", TWO),
    "lfm2-objects": ('<|tool_call_start|>[{"name": "f", "arguments": {"a": 1}}]<|tool_call_end|>', "", ONE),
    "lfm2-no-closing": ("<|tool_call_start|>[f(a=1)]", "", ONE),
    "lfm2-no-bracket": ("<|tool_call_start|>[f(a=1)<|tool_call_end|>", "", ONE),
    "kimi-two": (
        f"<|tool_calls_section_begin|>{KIMI.format('f:0')}{KIMI.format('g:1')}<|tool_calls_section_end|>",
        "",
        [("f", {"a": 1}), ("g", {"a": 1})],
    ),
    "kimi-no-section": (f"{KIMI.format('f:0')}", "", ONE),
    "kimi-no-closing": (f"<|tool_calls_section_begin|>{KIMI.format('f:0').removesuffix('<|tool_call_end|>')}", "", ONE),
    "mistral-names": ('[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}', "", TWO),
    "mistral-id": ('[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{"a": 1}', "", ONE),
    "mistral-no-mark": ('[TOOL_CALLS]f{"a": 1}', "", ONE),
    "mistral-no-bracket": ('[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}', "", ONE),
    "deepseek-3.1": ('<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>', "", ONE),
    "parameters-no-closing": (f"{PARAMETER}</function>\nDone.", "Done.", ONE),
    "parameters-no-function-closing": (f"{PARAMETER}</tool_call>", "", ONE),
    "parameters-no-closings": (PARAMETER, "", ONE),
    "parameters-no-closings-then-text": (f"{PARAMETER}Done.", "Done.", ONE),
    "parameters-not-closed": (PARAMETER.replace("</parameter>", "") + "</function></tool_call>", "", ONE),
    "parameters-two": (f"{PARAMETER}</function>\n<tool_call>\n<function=g>\n</function>\n</tool_call>", "", TWO),
    "parameters-spelled": ("<function=f><parameter=b>True</parameter></function>", "", [("f", {"b": "True"})]),
    "pairs-no-closing": (f"{PAIR}<tool_call>g</tool_call>", "", TWO),
    "pairs-then-text": (f"{PAIR}Done.", "Done.", ONE),
    "pairs-no-lines": ("<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>", "", ONE),
    "two-objects-in-a-tag": (
        '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n{"name": "g"}\n</tool_call>', "", TWO,
    ),
    "list-in-a-tag": ('<tool_call>[{"name": "f", "arguments": {"a": 1}}, {"name": "g"}]</tool_call>', "", TWO),
    "line-end-in-a-text": ('<tool_call>{"name": "f", "arguments": {"b": "x\ny"}}</tool_call>', "", [("f", {"b": "x\ny"})]),
    "code-printed": ("```tool_code\nprint(f(a=1))\nprint(g())\n```\nDone.", "Done.", TWO),
    "code-listed": ("```tool_code\n[f(a=1), g()]\n```", "", TWO),
    "code-no-closing": ("Sure.\n```tool_code\nf(a=1)", "Sure.", ONE),
    "code-of-another-tool": ("```tool_code\nh(a=1)\n```", "```tool_code\nh(a=1)\n```", []),
    "sections": ('>>>all\nSure.>>>f\n{"a": 1}>>>g\n{}', "Sure.", TWO),
    "a-doctest": (">>> f(a=1)\n2", ">>> f(a=1)\n2", []),
    "an-index": ("[1, 2, 3]", "[1, 2, 3]", []),
    "a-link": ("[f](http://x)", "[f](http://x)", []),
    "call-in-prose": ("call:me maybe", "call:me maybe", []),
    **{f"{name}-example": (text, "", ONE) for name, text in EXAMPLES.items()},
    **{f"{name}-then-text": (f"{text}\nDone.", "Done.", ONE) for name, text in EXAMPLES.items() if "whole" not in name},
    **{f"{name}-after-text": (f"Sure.\n{text}", "Sure.", ONE) for name, text in EXAMPLES.items() if "whole" not in name},
    **{f"{name}-twice": (text * 2, "", ONE * 2) for name, text in EXAMPLES.items() if "whole" not in name},
}  # fmt: skip


def read(pieces, tools=TOOLS, form=None):
    form = form or (SECTIONS if ">>>" in "".join(pieces) else TAGGED)
    reader = CallReader(tools, form=form)
    parts = [part for piece in pieces for part in reader.put(piece)] + reader.end()
    calls = [part for part in parts if not isinstance(part, str)]
    assert calls == reader.calls
    assert len({call.id for call in calls}) == len(calls)
    return "".join(part for part in parts if isinstance(part, str)), [(c.name, json.loads(c.arguments)) for c in calls]


def cut(text, random_cuts):
    ends = [0, *sorted(random_cuts.randrange(len(text) + 1) for _ in range(4)), len(text)]
    return [text[a:b] for a, b in pairwise(ends)]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_form_is_read_whole_and_cut_at_every_character(name):
    text, content, calls = WRITTEN[name]

    assert read([text]) == (content, calls)
    assert read(list(text)) == (content, calls)
    for at in range(1, len(text)):
        assert read([text[:at], text[at:]]) == (content, calls), text[:at]


def broken_texts(count, seed):
    """Texts of the forms with parts left out, doubled and mixed."""
    chance = random.Random(seed)
    words = [*WORDS, "f", "g", "h", "(", ")", "{", "}", "[", "]", '"', "'", ":", ",", ";", " ", "\n", "Done.", "<", "call:",
             "<function=f>", "<parameter=a>", "</parameter>", "</function>", '{"name": "f"}', "1", '{"name": "f",', "</tool_call>"]  # fmt: skip
    for _ in range(count):
        parts = []
        for text, _, _ in chance.sample(list(WRITTEN.values()), 2):
            tokens = list(_tokens(text))
            kept = [t for t in tokens if chance.random() > 0.12]
            if chance.random() < 0.5:
                kept.insert(chance.randrange(len(kept) + 1), chance.choice(words))
            parts += kept
        yield "".join(parts)


def _tokens(text):
    """The text at the borders of its marks and signs."""
    at = 0
    while at < len(text):
        word = next((w for w in sorted(WORDS, key=len, reverse=True) if text.startswith(w, at)), "")
        if not word:
            end = at + 1
            while end < len(text) and text[at].isalnum() and text[end].isalnum():
                end += 1
            word = text[at:end]
        yield word
        at += len(word)


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        ("all\nHello.", ("Hello.", [])),
        ('f\n{"a": 1}>>>g\n{}', ("", TWO)),
        ('all\nSure.\n>>>f\n{"a": 1}', ("Sure.", ONE)),
        ("allocate\nit", ("allocate\nit", [])),
        ('h\n{"a": 1}', ('h\n{"a": 1}', [])),
    ],
)
def test_an_answer_whose_opening_ends_the_prompt(text, read_as):
    assert read([text], form=SECTIONS) == read(list(text), form=SECTIONS) == read_as
    assert read(["all\nHello."], {}, SECTIONS) == ("Hello.", [])
    assert read(["all\nHello."]) == ("all\nHello.", [])


@pytest.mark.parametrize("seed", range(4))
def test_a_broken_text_is_read_alike_however_it_is_cut(seed):
    chance = random.Random(seed)
    for text in broken_texts(250, seed):
        whole = read([text])
        assert read(list(text)) == whole, text
        assert read(cut(text, chance)) == whole, text


LONG = [
    *(opening for opening in OPENINGS),
    *(opening + rest for opening in OPENINGS for rest in ("[", "{", '[{"name":"', '{"name":"f","arguments":{"a":"', "f")),
    "<function=f>", "<function=f><parameter=a>", "<function=f><parameter=a>x</parameter> ", "<tool_call>f<arg_key>",
    "<tool_call>f<arg_key>a</arg_key><arg_value>", "<|tool_call>call:f{a:", '<|tool_call>call:f{a:<|"|>',
    "<|tool_call_start|>[f(a='", '<|tool_call_start|>[f(a="', "[TOOL_CALLS]f[CALL_ID]", '{"name":[', "[f(a=[", "\n",
    '<tool_call>{"name":"f"}{"a":"', "<function=f><parameter=",
    '<invoke name="f">', '<minimax:tool_call><invoke name="f"><parameter name="a">', '<invoke name="f"><parameter name="',
    '<minimax:tool_call><invoke name="f"><parameter name="a">x</parameter> ',
    '<atem:function_calls><atem:invoke name="f"><atem:parameter name="a">', "<function_calls>f(a=1)\nf(a='",
]  # fmt: skip


@pytest.mark.repeats(20)
@pytest.mark.parametrize("repeated", LONG)
def test_reading_takes_time_in_proportion_to_the_text(repeated):
    def seconds(count):
        """The shortest of three times: others run meanwhile."""
        times = []
        for _ in range(3):
            reader = CallReader({"f": {}})
            began = process_time()
            reader.put(repeated * count)
            reader.end()
            times.append(process_time() - began)
        return min(times)

    count = 40_000 // len(repeated)

    assert seconds(4 * count) < 12 * max(seconds(count), 0.02)


BAD_NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999", "[1, NaN]", '{"b": -1e400}')


@pytest.mark.parametrize("number", BAD_NUMBERS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_arguments_are_json(name, number):
    example = EXAMPLES[name]
    text = example.replace("1", number, 1) if name != "kimi" else example.replace('"a": 1', f'"a": {number}')
    _, calls = read([text], {"f": {}})

    for call in calls:
        json.dumps(call[1], allow_nan=False)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize(
    "form", ["tagged", "function", "glm", "parameters", "gemma4", "lfm2", "mistral", "whole", "harmony"]
)
def test_nested_arguments_are_a_call_or_text_at_every_depth(form, opening):
    for depth in (10, 150, 199, 200, 201, 300, *range(940, 1010), 100_000):
        closing = "]" if opening == "[" else "}"
        value = opening * depth + ("1" if opening != "[" else "") + closing * depth
        if form == "harmony":
            reader = HarmonyReader({"f": {}})
            for piece in (Mark("<|channel|>"), "commentary to=functions.f", Mark("<|message|>"), f'{{"a":{value}}}'):
                reader.put(piece)
            reader.end()
        else:
            reader = CallReader({"f": {}})
            example = EXAMPLES[form]
            reader.put(example.replace("1", value, 1))
            reader.end()
        for call in reader.calls:
            json.loads(call.arguments)
        assert depth > 150 or reader.calls


@pytest.mark.parametrize("form", THOUGHTS)
@pytest.mark.parametrize(
    "written",
    [
        "{o}{l}\nWe  add.\n\n{c}\n\nfour",
        "{o}{l}\nWe add.",
        "\n {o}{l}{c}four",
        "four {o}",
        "{o}{l}\nWe{c",
        "{o}{l} a {c}b{c}",
    ],
)
def test_thinking_is_read_alike_however_it_is_cut(form, written):
    text = written.replace("{o}", form.opening).replace("{l}", form.label).replace("{c}", form.closing)
    text = text.replace("{c", form.closing[:4])

    def thoughts(pieces):
        reader = ThoughtReader(form)
        return tuple(map("".join, zip(*[reader.put(piece) for piece in pieces], reader.end(), strict=True)))

    chance = random.Random(0)
    whole = thoughts([text])

    assert thoughts(list(text)) == whole
    assert all(thoughts(cut(text, chance)) == whole for _ in range(50))


def test_a_long_thought_of_white_space_takes_linear_time():
    def seconds(count):
        reader = ThoughtReader()
        reader.put("<think>a")
        began = process_time()
        for _ in range(count):
            reader.put("\n")
        reader.end()
        return process_time() - began

    assert seconds(40_000) < 12 * max(seconds(10_000), 0.05)


README = Path(__file__).parents[2] / "README.md"
PAGE = Path(__file__).parents[2] / "docs" / "serve-chats.md"


def families_of_the_readme():
    (line,) = [line for line in README.read_text("utf-8").splitlines() if line.startswith("Targets: ")]
    named = re.sub(r"\([^)]*\)", "", line.removeprefix("Targets: ").split("; from GGUF")[0])
    named = named.replace("[pictures]", "").replace("with", ",").replace("and the hybrids", ",").replace(" and ", ",")
    return {name.strip(" ;,") for name in re.split(r"[,;]", named) if name.strip(" ;,")}


def test_every_family_of_the_readme_has_a_row():
    families = {family for member in MEMBERS for family in member.families}

    assert families_of_the_readme() == families == set(ENDS)


def test_the_table_of_the_page_is_that_of_the_readers():
    page = PAGE.read_text("utf-8")

    assert write_table(page) == page


def test_ends_of_families_end_a_text():
    # Only the files of GLM, Laguna and Muse Glimmer say that these end a text.
    declared = {"<|user|>", "<|observation|>", "</assistant>", "<|eot|>"}
    assert {end for ends in ENDS.values() for end in ends.split()} <= set(END_TEXTS) | declared


@pytest.mark.parametrize(
    ("template", "controls", "name"),
    [
        ("{{ tools }} <tool_call>", (), "tagged"),
        ("<tool_call> <function=x> <parameter=y>", (), "parameters"),
        ("<tool_call> <arg_key>", (), "glm"),
        ("[TOOL_CALLS]", (), "mistral-list"),
        ("[TOOL_CALLS] [ARGS]", (), "mistral"),
        ("{{ tools }}", ("[TOOL_CALLS]",), "mistral-list"),
        ("<|tool_list_start|>", (), "lfm2"),
        ("{{ tools }}", ("<|tool_call_start|>",), "lfm2"),
        ("<|tool|>", (), "phi"),
        ("<|tool_call>", (), "gemma4"),
        ("<start_function_call>", (), "function-gemma"),
        ("<|tool_calls_section_begin|>", (), "kimi"),
        ("dictionary of argument name and its value", ("<|python_tag|>",), "whole"),
        ("<think>", (), "tagged"),
        (None, (), "tagged"),
    ],
)
def test_the_form_of_a_family_is_told_by_its_template_and_vocabulary(template, controls, name):
    assert form_of(template, controls).name == name
