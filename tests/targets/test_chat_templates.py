"""A chat template sees and can do the same as in transformers: constructs of published templates."""

from __future__ import annotations

import re

import pytest
from spec_targets.tokenizer.templates.chat import render_chat

from spec_core import UsageError
from tests.support.conversations import CALL, CONVERSATIONS, SPECIAL, TOOL, USER

CONSTRUCTS = {
    "tojson": "{{ tools | tojson }}",
    "tojson of html": "{{ messages | tojson }}",
    "tojson with indent": "{{ tools | tojson(indent=4) }}",
    "tojson with a positional indent": "{{ tools | tojson(false, 2) }}",
    "tojson with separators": "{{ tools | tojson(separators=(',', ':')) }}",
    "tojson with sorted keys": "{{ tools | tojson(sort_keys=true) }}",
    "tojson in ascii": "{{ messages | tojson(ensure_ascii=true) }}",
    "generation": "{% for m in messages %}a {% generation %}{{ m.content }}{% endgeneration %} b{% endfor %}",
    "generation that sets": "{% set x = 1 %}{%- generation -%} {% set x = 2 %}{{ x }} {%- endgeneration -%}{{ x }}",
    "documents": "{% if documents is not none %}docs{% else %}none{% endif %}{{ documents is defined }}",
    "tools that are none": "{{ tools is none }}{{ tools is defined }}{% if tools %}x{% endif %}",
    "an undefined variable": "{{ nothing is defined }}{{ nothing }}{{ enable_thinking | default('on') }}",
    "special tokens": "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ unk_token is defined }}{{ unk_token }}",
    "break and continue": "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 4 %}{% break %}"
    "{% endif %}{{ i }}{% endfor %}",
    "namespace": "{% set ns = namespace(found=false, n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    "{% set ns.found = true %}{% endfor %}{{ ns.found }}{{ ns.n }}",
    "dict": "{{ dict(a=1, b='x') }}{{ dict.fromkeys(['a'], 1) }}{{ dict([('a', 2)]).items() | list }}",
    "loop variables": "{% for m in messages %}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}"
    "{% endfor %}",
    "previous items": "{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined }}"
    "{{ loop.nextitem.role if loop.nextitem is defined else 'end' }}{% endfor %}",
    "slices": "{{ messages[1:] | length }}{{ messages[::-1][0].role }}{{ messages[-1]['content'][:4] }}",
    "tests of types": "{% for v in ['a', 1, 1.5, true, none, [1], {'a': 1}] %}{{ v is string }}{{ v is number }}"
    "{{ v is mapping }}{{ v is sequence }}{{ v is iterable }}{{ v is boolean }}{{ v is integer }}{{ v is none }}"
    "{% endfor %}",
    "content of parts": "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{{ p.type }}={{ p['text'] }}{% endfor %}{% endif %}{% endfor %}",
    "selectattr": "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
    "{{ messages | rejectattr('role', 'eq', 'user') | map(attribute='role') | join(',') }}",
    "arguments of calls": "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}"
    "{% for k, v in c.function.arguments | items %}<{{ k }}>{{ v }}{% endfor %}{{ c.function.arguments | tojson }}"
    "{% endfor %}{% endfor %}",
    "dictsort": "{{ messages[0] | dictsort }}",
    "methods of texts": "{{ ' a b '.strip() }}{{ 'a</think>b'.split('</think>')[-1].lstrip('\\n') }}"
    "{{ 'x'.startswith('x') }}{{ 'aXb'.replace('X', '-') }}{{ 'ab'.upper().title() }}{{ 'a,b'.rsplit(',', 1) }}",
    "methods of dicts": "{{ messages[0].get('name', 'none') }}{{ messages[0].keys() | list }}"
    "{{ 'role' in messages[0] }}",
    "trim and indent": "[{{ '\\n a \\n' | trim }}]{{ 'a\\nb' | indent(2) }}{{ 'a\\nb' | indent(2, true) }}",
    "white space control": "a\n  {%- if true -%}\n  b\n  {%- endif %}\n\n   {% if true %}\nc\n{% endif %}\nd "
    "{{- 'e' -}} \n f",
    "comments": "a{# no #}b\n{#- x -#}\n c",
    "raw": "{% raw %}{{ a }}{% endraw %}",
    "macros": "{% macro f(m, n=2) -%}\n{{ m.role }}{{ n }}{{ caller is defined }}\n{%- endmacro %}"
    "{{ f(messages[0]) }}{{ f(messages[0], n=3) }}",
    "call blocks": "{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}x{% endcall %}",
    "set blocks": "{% set x %}a{{ 1 }}{% endset %}{{ x }}{{ x | length }}",
    "filter blocks": "{% filter upper %}abc{% endfilter %}",
    "inline conditions": "{{ 'a' if messages | length > 1 else 'b' }}{{ ('x' if false) is defined }}{{ 'x' if false }}",
    "arithmetic": "{{ (7 // 2) ~ (7 % 3) ~ (2 ** 5) ~ (1 / 4) }}{{ loop_count | default(3) | int + 1 }}",
    "joins and formats": "{{ ['a', 1, none] | join('-') }}{{ '%s=%d' % ('a', 3) }}{{ '{}:{}'.format('a', 1) }}",
    "unique and groups": "{{ [1, 1, 2] | unique | list }}{% for g in messages | groupby('role') %}{{ g.grouper }}"
    "{% endfor %}",
    "batch and round": "{{ [1, 2, 3] | batch(2) | list }}{{ 2.567 | round(1) }}{{ -1 | abs }}{{ [3, 1] | sort }}"
    "{{ [1, 2] | sum }}",
    "recursive loops": "{% for k in [[1, [2]], [3, []]] recursive %}{{ k[0] }}{% if k[1] %}"
    "{{ loop([[k[1][0], []]]) }}{% endif %}{% endfor %}",
    "reasoning by any name": "{% for m in messages %}{{ m.reasoning_content }}|{{ m.thinking }};{% endfor %}",
    "its own exception": "{% if messages | length > 1 %}{{ raise_exception('too many') }}{% endif %}ok",
    "escapes": "{{ '<b>' | e }}{{ '&' | escape }}{{ ('<' ~ '>') | safe }}{{ 'ü<' | urlencode }}",
    "printing values": "{{ none }}{{ true }}{{ 1.0 }}{{ messages[0] }}{{ ['ü', \"'\"] }}{{ {'a': none} }}",
    "the date": "{{ strftime_now('%Y-%m-%d') | length }}{% if strftime_now is defined %}x{% endif %}",
    "tuples": "{% for a, b in [(1, 2), (3, 4)] %}{{ a }}{{ b }}{% endfor %}{{ (1, 2) }}{{ ['a', 'b'] | first }}"
    "{{ ('a', 'b') | last }}",
    "numbered ranges": "{{ range(3) | list }}{{ range(2, 8, 2) | list }}{% for i in range(100001) %}{% endfor %}",
    "unknown filters": "{{ 'a' | nonsense }}",
    "tojson with unknown arguments": "{{ tools | tojson(escape=true) }}",
    "changing messages": "{% set _ = messages.append(1) %}x",
    "hidden attributes": "{{ messages.__class__ }}{{ namespace(__class__=1) }}",
}  # fmt: skip


def expected_prompt(template: str, asked: dict) -> str | None:
    """The prompt of transformers, None where it refuses."""
    from transformers.utils.chat_template_utils import render_jinja_template

    more = {"add_generation_prompt": True, **SPECIAL, **asked}
    messages = [{k: v for k, v in m.items() if v is not None} for m in more.pop("messages")]
    try:
        return render_jinja_template(conversations=[messages], chat_template=template, **more)[0][0]
    except Exception:
        return None


def render_prompt(template: str, asked: dict) -> str | None:
    more = {key: value for key, value in asked.items() if key != "messages"}
    try:
        return render_chat(template, asked["messages"], special=SPECIAL, **more)
    except UsageError:
        return None


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_a_construct_gives_what_transformers_gives(name):
    """For every conversation; where one refuses, so does the other."""
    for asked in CONVERSATIONS.values():
        assert render_prompt(CONSTRUCTS[name], asked) == expected_prompt(CONSTRUCTS[name], asked)


def test_what_is_unknown_is_refused_with_its_name():
    with pytest.raises(UsageError, match=re.escape("unexpected keyword argument 'escape'")):
        render_chat("{{ tools | tojson(escape=true) }}", [USER], tools=[TOOL])


def test_values_reach_a_template_as_they_are():
    """Numbers, tuples, keys that are no text, half a surrogate pair; anything else as the name of its type."""
    messages = [{"role": "user", "content": "\ud800", "n": 1 << 70, "t": (1, 2), "d": {1: 2.5}, "o": object()}]
    text = render_chat("{% for k, v in messages[0].items() %}{{ v }};{% endfor %}", messages)

    assert text == f"user;\ud800;{1 << 70};(1, 2);{{1: 2.5}};<object>;"


def test_messages_are_not_changed_and_keys_without_a_value_are_left_out():
    message = {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning": "Hm."}
    text = render_chat("{{ messages[0].content is defined }}{{ messages[0].reasoning_content }}", [message])

    assert text == "FalseHm." and set(message) == {"role", "content", "tool_calls", "reasoning"}


def test_a_nested_value_without_end_is_refused():
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(UsageError, match="the chat template failed"):
        render_chat("x", [{"role": "user", "content": deep}])
