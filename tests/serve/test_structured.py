"""Structured output over HTTP: the fields of OpenAI, llama-server and vLLM, and calls that follow their schemas."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("llguidance", reason="needs the extra grammar")

from spec_grammar import JsonSchema
from spec_serve import structured

from spec_core import Run, UsageError, load
from tests.support.served import serving

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}
PROMPT = "A person:\n"
ADD = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["a"]}
ADD["additionalProperties"] = False
TOOL = {"type": "function", "function": {"name": "add", "parameters": ADD, "strict": True}}
OTHER = {"type": "function", "function": {"name": "sub", "parameters": ADD}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}


@pytest.fixture(scope="module")
def server():
    with serving("zoo:pico", ["forced", "ngram"]) as server:
        yield server


def valid(text: str) -> bool:
    import jsonschema

    jsonschema.validate(json.loads(text), SCHEMA)
    return True


def ask(server, path: str = "/v1/completions", **body):
    fields = {"prompt": PROMPT, "max_tokens": 60, "temperature": 0.8, "seed": 3, **body}
    return server.post(path, {name: value for name, value in fields.items() if value is not None})


FIELDS = {
    "response_format": {"response_format": FORMAT},
    "json_schema": {"json_schema": SCHEMA},
    "structured_outputs": {"structured_outputs": {"json": SCHEMA}},
    "guided_json": {"guided_json": json.dumps(SCHEMA)},
}


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_of_a_schema_gives_the_text_of_generate_alone(server, name):
    (choice,) = ask(server, **FIELDS[name]).json()["choices"]
    alone = Run(load("zoo:pico")).generate(
        PROMPT, max_tokens=60, temperature=0.8, seed=3, constraint=JsonSchema(SCHEMA)
    )

    assert choice["text"] == alone.text and choice["finish_reason"] == "stop"
    assert valid(choice["text"])


PATTERNS = {
    "regex": ({"structured_outputs": {"regex": "[a-c]{2}[0-9]"}}, "[a-c]{2}[0-9]"),
    "guided_regex": ({"guided_regex": "[a-c]{2}[0-9]"}, "[a-c]{2}[0-9]"),
    "choice": ({"structured_outputs": {"choice": ["a+b", "(c)", "d/e\n"]}}, r"a\+b|\(c\)|d/e\n"),
    "guided_choice": ({"guided_choice": ["x y"]}, "x y"),
    "gbnf": ({"grammar": 'root ::= "v" [0-9]{3}'}, "v[0-9]{3}"),
    "lark": ({"guided_grammar": 'start: "v" N\nN: /[0-9]{2}/'}, "v[0-9]{2}"),
    "json_object": ({"structured_outputs": {"json_object": False}, "max_tokens": 3}, r"(?s).*"),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_the_text_matches(server, name):
    body, pattern = PATTERNS[name]

    assert re.fullmatch(pattern, ask(server, **body).json()["choices"][0]["text"])


TAG = {"begin": "<f>", "schema": ADD, "end": "</f>"}
CONTENTS = {
    "json_schema": ({"type": "json_schema", "json_schema": ADD}, r'\{"a": ?[0-9]\}'),
    "regex": ({"type": "regex", "pattern": "[0-9]{2}"}, "[0-9]{2}"),
    "grammar": ({"type": "grammar", "grammar": 'root ::= "v" [0-9]'}, "v[0-9]"),
}


def format_of(content, **more):
    tags = [{"type": "tag", "begin": "<f>", "content": content, "end": "</f>"}]
    return {"type": "triggered_tags", "triggers": ["<"], "tags": tags, **more}


STRUCTURES = {"structures": [TAG], "triggers": ["<"]}
TAGGED = {
    "response_format": {"response_format": {"type": "structural_tag", **STRUCTURES}},
    "response_format, format": {
        "response_format": {"type": "structural_tag", "format": format_of(CONTENTS["json_schema"][0])}
    },
    "structured_outputs": {"structured_outputs": {"structural_tag": {"type": "structural_tag", **STRUCTURES}}},
    "structured_outputs, text": {"structured_outputs": {"structural_tag": json.dumps(STRUCTURES)}},
}
MARK = {str(token): 60.0 for token in load("zoo:pico").tokenizer.encode("<", bos=False)}
"""Free text is the trigger."""


@pytest.mark.parametrize("name", TAGGED)
def test_a_tag_follows_its_trigger(server, name):
    text = ask(server, **TAGGED[name], logit_bias=MARK, max_tokens=80).json()["choices"][0]["text"]
    tag = f"<f>{CONTENTS['json_schema'][1]}</f>"

    assert re.match(f"(?:{tag}){{2,}}", text), text


@pytest.mark.parametrize("name", CONTENTS)
def test_contents_of_tags(name):
    content, pattern = CONTENTS[name]
    tag = structured.structural_tag({"format": format_of(content)})
    bias = {int(token): value for token, value in MARK.items()}
    run = Run(load("zoo:pico"))
    text = run.generate(PROMPT, max_tokens=60, temperature=0.8, logit_bias=bias, constraint=tag).result.text

    assert re.match(f"(?:<f>{pattern}</f>){{2,}}", text), text


WRONG_TAGS = {
    "no JSON": ("{", "is no JSON"),
    "neither form": ("{}", "needs either"),
    "both forms": ({**STRUCTURES, "format": format_of(CONTENTS["regex"][0])}, "needs either"),
    "two triggers": ({"structures": [TAG], "triggers": ["<f", "<"]}, "has 2 triggers"),
    "another begin": ({"structures": [TAG], "triggers": ["<g"]}, "does not begin with the trigger"),
    "no schema": ({"format": format_of({"type": "json_schema"})}, "needs 'json_schema'"),
    "another format": ({"format": {"type": "sequence", "elements": []}}, "elements"),
    "at least one": ({"format": format_of(CONTENTS["regex"][0], at_least_one=True)}, "at_least_one"),
    "a list": ("[]", "structural_tag"),
}


@pytest.mark.parametrize("name", WRONG_TAGS)
def test_a_wrong_tag_is_refused_with_its_reason(server, name):
    tag, reason = WRONG_TAGS[name]
    answer = ask(server, structured_outputs={"structural_tag": tag})

    assert answer.status_code == 400 and reason in answer.json()["error"]["message"]


def test_llama_servers_completion_ends_as_at_an_end_token(server):
    answer = ask(server, "/completion", max_tokens=None, n_predict=60, json_schema=SCHEMA).json()

    assert valid(answer["content"]) and answer["stop_type"] == "eos"


def test_a_streamed_chat_and_responses_have_the_same_schema(server):
    openai = pytest.importorskip("openai", reason="needs the openai client")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    messages = [{"role": "user", "content": PROMPT}]
    stream = client.chat.completions.create(
        model="zoo:pico", messages=messages, max_tokens=60, response_format=FORMAT, stream=True
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    form = {"format": {"type": "json_schema", "name": "person", "schema": SCHEMA, "strict": True}}
    answer = client.responses.create(model="zoo:pico", input=PROMPT, max_output_tokens=60, text=form)

    assert valid(text) and valid(answer.output_text)
    assert answer.status == "completed"


def test_json_object_is_an_object(server):
    body = {"response_format": {"type": "json_object"}, "logit_bias": {"92": 40.0}, "max_tokens": 30}

    assert ask(server, **body).json()["choices"][0]["text"].lstrip().startswith("{")


def test_free_text_may_be_asked_for(server):
    assert ask(server, response_format={"type": "text"}, grammar="").json() is not None
    assert ask(server, response_format={"type": "text"}).json()["choices"] == ask(server).json()["choices"]


# tools


def chat(server, **body):
    messages = [{"role": "user", "content": "Add 1."}]
    return server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 60, "tools": [TOOL, OTHER], **body})


@pytest.mark.parametrize("seed", range(3))
def test_a_demanded_call_is_made(server, seed):
    (choice,) = chat(server, tool_choice="required", parallel_tool_calls=False, seed=seed, temperature=0.9).json()[
        "choices"
    ]
    (call,) = choice["message"]["tool_calls"]

    assert choice["finish_reason"] == "tool_calls" and not choice["message"]["content"]
    assert call["function"]["name"] in ("add", "sub")
    assert 0 <= json.loads(call["function"]["arguments"])["a"] <= 9


def test_a_named_function_is_called(server):
    named = {"type": "function", "function": {"name": "sub"}}
    (call,) = chat(server, tool_choice=named).json()["choices"][0]["message"]["tool_calls"]

    assert call["function"]["name"] == "sub"


def legal(constraint, text: str) -> bool:
    target = load("zoo:pico")
    matcher = constraint.start(target)
    return all(matcher.advance(token) for token in target.tokenizer.encode(text, bos=False))


def test_strict_tools_bind_calls_in_free_text():
    constraint = structured.tools_constraint([TOOL, OTHER], "auto")

    assert legal(constraint, 'I add. <tool_call>\n{"name": "add", "arguments": {"a": 5}}\n</tool_call> done')
    assert not legal(constraint, 'I add. <tool_call>\n{"name": "add", "arguments": {"b"')
    assert not legal(constraint, '<tool_call>\n{"name": "mul"')


def test_without_strict_calls_are_free():
    assert structured.tools_constraint([OTHER], "auto") is None
    assert structured.tools_constraint([TOOL], "none") is None


def test_a_function_without_parameters_has_no_arguments():
    empty = {"type": "object", "properties": {}, "required": []}
    bare = [{"function": {"name": "now", "parameters": schema}} for schema in (None, {}, {"type": "object"}, empty)]
    for function in (*bare, {"function": {"name": "now"}}):
        constraint = structured.tools_constraint([function], "required")

        assert legal(constraint, '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>')
        assert not legal(constraint, '<tool_call>\n{"name": "now", "arguments": {"')


def test_tools_beside_a_format_allow_a_call_or_the_format():
    constraint = structured.tools_constraint([OTHER], "auto", constraint=JsonSchema({"enum": ["red", 1]}))

    assert legal(constraint, '"red"') and not legal(constraint, '"blue"')
    assert legal(constraint, '<tool_call>\n{"name": "sub", "arguments": {"a": 5}}\n</tool_call>')
    assert not legal(constraint, "I think")


@pytest.mark.parametrize("first", ["<", "{"])
def test_tools_beside_a_format_are_called_or_left(server, first):
    (token,) = load("zoo:pico").tokenizer.encode(first, bos=False)
    answer = chat(server, response_format=FORMAT, logit_bias={str(token): 50}, parallel_tool_calls=False)
    message = answer.json()["choices"][0]["message"]

    assert bool(message.get("tool_calls")) == (first == "<")
    assert first == "<" or valid(message["content"])


def test_white_space_between_parts_is_bounded():
    schema = JsonSchema({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})

    assert legal(schema, "{" + " " * 8 + '"a":\n\n"' + " " * 20 + '"}')
    assert not legal(schema, "{" + " " * 9 + '"')
    assert not legal(schema, '{"a"' + "\n" * 9)


def test_unique_items_that_are_not_demanded_are_accepted():
    """And nothing that only has this name is left out."""
    array = {"type": "array", "items": {"const": {"uniqueItems": False}}, "uniqueItems": False, "maxItems": 1}
    named = {"type": "object", "properties": {"uniqueItems": False, "a": array}, "required": ["a"]}

    assert legal(JsonSchema(named, compact=True), '{"a": [{"uniqueItems": false}]}')
    assert not legal(JsonSchema(named, compact=True), '{"a": [], "uniqueItems"')
    with pytest.raises(UsageError, match="uniqueItems"):
        JsonSchema({**array, "uniqueItems": True}).start(load("zoo:pico"))


@pytest.mark.parametrize(
    "more",
    [
        {"json_schema": SCHEMA, "compact": True},
        {"response_format": FORMAT, "compact": True},
        {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
    ],
)
def test_compact_json_has_no_other_white_space(server, more):
    text = ask(server, **more, temperature=1.0, seed=3, max_tokens=80).json()["choices"][0]["text"]

    assert valid(text) and text.startswith('{"name": ') and ', "age": ' in text


# refusals


REFUSED = {
    "two": ({"json_schema": SCHEMA, "grammar": 'root ::= "a"'}, "json_schema and grammar are both given"),
    "two-inside": ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "regex and choice"),
    "schema": ({"json_schema": {"type": "foo"}}, "cannot be used"),
    "no-schema": ({"response_format": {"type": "json_schema"}}, "needs a schema"),
    "type": ({"response_format": {"type": "xml"}}, "response_format"),
    "unknown": ({"structured_outputs": {"ebnf": "a"}}, "ebnf"),
    "no-choice": ({"guided_choice": []}, "a choice of no texts"),
    "grammar": ({"grammar": 'root ::= "a'}, "line 1 of the grammar"),
    "ignore-eos": ({"json_schema": SCHEMA, "ignore_eos": True}, "ignore_eos"),
    "deep": ({"json_schema": '{"items":' * 200 + "{}" + "}" * 200}, "nested"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_a_400(server, name):
    body, message = REFUSED[name]
    answer = ask(server, **body)

    assert answer.status_code == 400 and message in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"tool_choice": {"type": "function", "function": {"name": "mul"}}}, "none of the tools"),
        ({"tool_choice": "required", "response_format": FORMAT}, "constrained otherwise"),
    ],
)
def test_calls_that_cannot_be_demanded_are_a_400(server, body, message):
    answer = chat(server, **body)

    assert answer.status_code == 400 and message in answer.json()["error"]["message"]
