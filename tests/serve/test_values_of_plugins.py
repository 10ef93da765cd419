"""Values of a request for plugins, over HTTP: they reach the plugin, and wrong ones are refused with 400."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_core import Compat, Draft, Run, hookimpl, load
from tests.support.installed import ROOT
from tests.support.served import serving

BODIES = {
    "/v1/completions": {"prompt": "x = 1\n", "max_tokens": 4},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4},
    "/completion": {"prompt": "x = 1\n", "n_predict": 4},
    "/v1/responses": {"input": "x", "max_output_tokens": 4},
    "/v1/messages": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4},
}


class Repeats:
    """Drafts a token of the request."""

    def __init__(self):
        self.seen = []

    @hookimpl
    def compat(self):
        return Compat(request_values={"token": self.check_token})

    def check_token(self, value):
        if type(value) is not int or not 0 <= value < 100:
            raise ValueError("give a token id below 100")
        return value

    @hookimpl
    def draft(self, step):
        for seq, _ in step.undrafted:
            values = step.request_values(seq)
            self.seen.append(values.get("token"))
            if "token" in values:
                step.propose(seq, Draft([values["token"]]))


METHOD = Repeats()


@pytest.fixture(scope="module")
def server():
    with serving("zoo:pico", [("repeats", METHOD)]) as server:
        yield server


@pytest.mark.parametrize("path", BODIES)
def test_values_reach_the_plugin_on_every_path(server, path):
    METHOD.seen.clear()
    answer = server.post(path, {**BODIES[path], "plugin_values": {"repeats": {"token": 7}}})

    assert answer.status_code == 200, answer.text
    assert {*METHOD.seen} == {7}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"repeats": {"token": "x"}}, "give a token id below 100"),
        ({"repeats": {"tokens": 7}}, "reads no value 'tokens'"),
        ({"ngram": {}}, "reads no values of requests"),
        ({"repeats": {"token": "a" * (1 << 16)}}, "more than 65536 characters"),
        ({"repeats": 3}, "plugin_values"),
        ([], "plugin_values"),
    ],
)
def test_wrong_values_are_refused(server, path, values, message):
    answer = server.post(path, {**BODIES[path], "plugin_values": values})

    assert answer.status_code == 400
    assert message in answer.text


def test_values_of_two_texts_reach_each(server):
    METHOD.seen.clear()
    server.post("/v1/completions", {**BODIES["/v1/completions"], "n": 2, "plugin_values": {"repeats": {"token": 9}}})
    server.post("/v1/completions", BODIES["/v1/completions"])

    assert {*METHOD.seen} == {9, None}


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_guided_texts_with_drafts_are_those_without(monkeypatch, temperature):
    """The rule of an outside package: its negative prompt comes with the request."""
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "out_of_tree" / "spec-guidance"))
    from spec_guidance import Guidance

    values = {"guidance": {"negative_prompt": "import os\n", "scale": 9.0}}
    body = {"prompt": "def add(a, b):\n", "max_tokens": 24, "temperature": temperature, "seed": 3, "n": 8}
    target = load("zoo:pico")
    run = Run(target, rule=("guidance", Guidance()))
    plain = [
        run.generate(
            body["prompt"], max_tokens=24, temperature=temperature, seed=3, noise_stream=i, plugin_values=request_values
        )
        for request_values in (values, {})
        for i in range(8)
    ]
    guided, free = [one.result.text for one in plain[:8]], [one.result.text for one in plain[8:]]
    with serving(target, ["ngram", ("guidance", Guidance())]) as server:
        ask = lambda **more: server.post("/v1/completions", {**body, **more}).json()["choices"]

        assert [choice["text"] for choice in ask(plugin_values=values)] == guided
        assert [choice["text"] for choice in ask()] == free
    assert guided != free
