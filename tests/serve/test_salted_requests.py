"""The cache salt of a request, in every API: rows are reused by requests with the same salt alone."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_serve.routed_prompt import beginning_of_prompt

BEGINNING = 20
"""Rows with which a chat of any text begins: those of its template."""
LIMIT = {"max_tokens": 2}
ROUTES = {
    "/v1/completions": lambda text: {"prompt": text, "n": 2, **LIMIT},
    "/v1/completions echo": lambda text: {"prompt": text, "echo": True, "logprobs": 1, **LIMIT},
    "/v1/chat/completions": lambda text: {"messages": [{"role": "user", "content": text}], **LIMIT},
    "/v1/messages": lambda text: {"messages": [{"role": "user", "content": text}], **LIMIT},
    "/v1/responses": lambda text: {"input": text, "max_output_tokens": 2},
    "/completion": lambda text: {"prompt": text, "n_predict": 2},
}


@pytest.fixture
def ask_rows(server):
    """Reused rows of each text of a request, and of the texts that score a prompt."""
    rows = []
    note = lambda job, result: rows.append(result.reused)
    server.engine.finished.append(note)

    def ask(path, body):
        rows.clear()
        answer = server.post(path, body)
        assert answer.status_code == 200, answer.text
        return list(rows)

    yield ask
    server.engine.finished.remove(note)


@pytest.mark.parametrize("route", ROUTES)
def test_a_salt_separates_the_users_of_a_route(ask_rows, route):
    path, text = route.split()[0], " ".join(f"{route} {i}" for i in range(30))
    body = {"temperature": 0, **ROUTES[route](text)}
    assert min(ask_rows(path, {**body, "cache_salt": "one"})) < BEGINNING
    for salt, method in (("two", None), ("one ", None), (None, "none")):  # an echo's rows were seen by no method
        alone = {
            **body,
            "cache_salt": salt,
            "speculative": {"method": method},
            "n": None,
            "echo": None,
            "logprobs": None,
        }
        rows = ask_rows(path, {name: value for name, value in alone.items() if value is not None})
        assert max(rows) < BEGINNING, salt
    assert max(ask_rows(path, {**body, "cache_salt": "one"})) > 40


def test_a_router_of_several_servers_compares_salts_and_prompts():
    messages = b'{"messages": [{"content": "Be brief."}, {"content": [{"type": "text", "text": "Hi"}]}]}'
    assert beginning_of_prompt(messages) == "Be brief.textHi"
    assert beginning_of_prompt(b'{"prompt": [258, 361], "max_tokens": 4}') == "258 361 "
    assert beginning_of_prompt(b'{"tools": [], "prompt": "x =", "cache_salt": "a"}') == "a\0x ="
    wrong = (b"", b"[1]", b"3", b"{", b"[" * 100_000, b'"a"', b"null")
    assert [beginning_of_prompt(body) for body in wrong] == [""] * len(wrong)
    pairs = ((b"a", b"bc"), (b"ab", b"c"), (b"", b"abc"))
    assert len({beginning_of_prompt(b'{"cache_salt": "%s", "prompt": "%s"}' % pair) for pair in pairs}) == len(pairs)
