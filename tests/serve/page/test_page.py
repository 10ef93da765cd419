"""The page at ``/`` with a server of a model: its files, answers with their sources, a race, pictures, and the key."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_serve.page import KINDS

from tests.support.chat_page import READY, chat, click, count, put, send, text_of, wait_for_answer
from tests.support.golden import golden
from tests.support.served import serving

PROMPT = "def add(a, b):"
KEY = "secret-8d1f"
PARSERS = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|setHTML|document\.write|\beval\(|Function\(|DOMParser")
"""Ways in which a script could read a text as HTML or as a program."""
STORED = "JSON.stringify(sessionStorage) + JSON.stringify(localStorage) + document.cookie"
DROP = """
new Promise(done =>
  Object.assign(document.createElement("canvas"), { width: 40, height: 30 }).toBlob(blob => {
    const data = new DataTransfer();
    data.items.add(new File([blob], "a.png", { type: "image/png" }));
    document.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
    done(1);
  }))
"""
"""Drops a picture on the page."""


@pytest.fixture
def tab(chromium, server):
    """The page of a real server."""
    chromium.open(f"{server.url}/")
    chromium.wait(READY)
    yield chromium
    assert chromium.errors == []
    chromium.close()


def test_the_page_loads_its_own_files_and_nothing_else(server):
    """Every file is there, none has an address of another server, and nothing is written into the HTML."""
    page = server.get("/")
    texts = {name: server.get(f"/page/{name}") for name in KINDS}

    assert page.status_code == 200 and "text/html" in page.headers["content-type"]
    assert set(re.findall(r"(?:src|href)=\"(?!data:)([^\"]+)", page.text)) == {"page/page.css", "page/page.js"}
    assert re.findall(r"<script(?! type=\"module\" src)|<style|\son\w+=|style=|javascript:", page.text) == []
    imported = {name for text in texts.values() for name in re.findall(r"from \"\./([^\"]+)\"", text.text)}
    assert imported | {"page.js", "page.css"} == set(KINDS)
    for name, answer in texts.items():
        assert answer.status_code == 200 and answer.headers["content-type"].startswith(KINDS[name])
        assert "http" not in answer.text.replace("https?", "")
        assert (
            re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|DOMParser", answer.text) == []
        )
    for answer in (page, *texts.values()):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
    assert server.get("/page/nothing.js").status_code == 404


def test_a_message_is_answered_with_sources_and_rejected_drafts(tab, server):
    """By keyboard alone; the text is the server's, drafted parts are marked, numbers come at the end."""
    plain = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 128, "temperature": 0}
    expected = server.post("/v1/chat/completions", plain).json()
    put(tab, max_tokens="128", markdown=False)
    assert tab.ask("document.activeElement.id") == "prompt"
    chat(tab, PROMPT)

    shown = "[...document.querySelectorAll('.turn:last-child .answer :is(.rejected, .sign)')].forEach(e => e.remove());"
    numbers = text_of(tab, ".turn:last-child .numbers")
    assert re.search(r"tokens/s · 128 tokens in \d+ steps · .* tokens per step · \d+ of \d+ drafted accepted", numbers)
    assert re.search(r"prompt \d+ tokens, \d+ of them cached.* · seed \d+", numbers)
    assert "Cut at the limit of 128 tokens" in text_of(tab, ".turn:last-child .ended")
    assert "zoo:pico · ngram, draft-model" in text_of(tab, ".turn:last-child .who")
    assert count(tab, ".turn:last-child .drafted") > 0 and count(tab, ".turn:last-child .rejected") > 0
    legend = text_of(tab, "#legend")
    assert all(words in legend for words in ("Not marked", "Drafted by", "ngram", "draft-model", "struck out"))
    assert {url.split("/")[2] for url in tab.requests if url.startswith("http")} == {server.url.split("/")[2]}
    tab.ask(shown)
    assert text_of(tab, ".turn:last-child .answer") == expected["choices"][0]["message"]["content"]


@pytest.mark.parametrize("temperature", ["0", "0.9"])
def test_the_same_without_drafts_gives_equal_text_and_both_speeds(tab, temperature):
    put(tab, max_tokens="48", temperature=temperature)
    chat(tab, PROMPT)
    click(tab, ".compare")
    tab.wait("/one run each/.test(document.querySelector('.verdict')?.textContent)")

    verdict = text_of(tab, ".verdict")
    assert verdict.startswith("= Equal text: all 48 tokens.")
    assert re.search(r"all methods [\d.]+ tokens/s, no drafts [\d.]+ tokens/s: [\d.]+ times", verdict)
    assert count(tab, ".lane:first-child .drafted") > 0 and count(tab, ".lane:last-child .drafted") == 0


def test_two_methods_are_set_against_each_other(tab):
    put(tab, max_tokens="32")
    chat(tab, PROMPT)
    click(tab, ".compare")
    tab.wait("/one run each/.test(document.querySelector('.verdict')?.textContent)")
    tab.ask("document.querySelectorAll('.race select').forEach((s, i) => (s.value = ['ngram', 'draft-model'][i]))")
    click(tab, ".controls button", "Race")
    tab.wait("/ngram .*draft-model .*one run each/.test(document.querySelector('.verdict')?.textContent)")

    assert text_of(tab, ".verdict").startswith("= Equal text: all 32 tokens.")
    sources = "[...document.querySelectorAll('.lane:{}-child .drafted')].map(e => e.title)"
    assert set(tab.ask(sources.format("first"))) <= {"drafted by ngram", ""}
    assert "drafted by draft-model" in tab.ask(sources.format("last"))


def test_a_refused_message_goes_back_to_where_it_was_typed(tab):
    put(tab, temperature="-1")
    tab.ask("document.getElementById('form').noValidate = true")
    send(tab, "a long thought")

    assert "temperature" in tab.wait("document.getElementById('problem').textContent")
    assert tab.ask("document.getElementById('prompt').value") == "a long thought"
    assert count(tab, ".turn") == 0
    put(tab, temperature="0", max_tokens="4")
    tab.press("Enter")
    wait_for_answer(tab)
    assert text_of(tab, "#problem") == ""


def test_its_own_policy_allows_its_icon(tab):
    image = "Object.assign(new Image(), { src: document.querySelector('link[rel=icon]').href })"
    assert tab.ask(f"{image}.decode().then(() => 'shown', () => 'blocked')") == "shown"


def test_a_page_without_a_key_says_so_names_its_field_and_keeps_the_message(chromium):
    with serving("zoo:pico", [], {"api_key": KEY}) as keyed:
        chromium.open(f"{keyed.url}/")
        assert "This server needs an API key" in chromium.wait("document.getElementById('problem')?.textContent")
        assert "“API key”" in text_of(chromium, "#problem")
        assert chromium.ask("[document.activeElement.id, document.getElementById('settings').open]") == ["key", True]
        send(chromium, "kept")
        chromium.wait("document.getElementById('prompt').value === 'kept' && !document.querySelector('.turn')")

        put(chromium, key="wrong")
        chromium.wait("/is wrong/.test(document.getElementById('problem').textContent)")
        put(chromium, key="schlüssel–")
        chromium.wait("/is wrong/.test(document.getElementById('problem').textContent)")
        put(chromium, key=KEY, max_tokens="4")
        chromium.wait(f"{READY} && !document.getElementById('problem').textContent")
        assert chromium.ask("document.getElementById('prompt').value") == "kept"
        send(chromium, "")
        wait_for_answer(chromium)
        assert (
            chromium.ask("JSON.stringify(sessionStorage) + JSON.stringify(localStorage) + document.cookie").find(KEY)
            < 0
        )
        chromium.close()


def test_a_model_with_eyes_is_sent_pictures(chromium):
    pytest.importorskip("transformers", reason="needs the extra vision")
    pytest.importorskip("PIL", reason="needs the extra vision")
    from spec_core import load

    with serving(load(str(golden("vision-llava") / "hf"))) as seeing:
        assert seeing.get("/props").json()["modalities"]["vision"] is True
        chromium.open(f"{seeing.url}/")
        chromium.wait(READY)
        assert chromium.ask("document.getElementById('picture').hidden") is False
        put(chromium, max_tokens="4")
        assert chromium.ask(DROP) == 1
        chromium.wait("document.querySelector('#attached img') !== null")
        chat(chromium, "What is this?")

        assert count(chromium, ".turn.user img") == 1 and count(chromium, "#attached img") == 0
        assert "Cut at" in text_of(chromium, ".turn:last-child .ended")
        chromium.close()
