"""The page at ``/``: in a browser, with the keyboard, on a phone's width, and with nothing from elsewhere."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from tests.support.browser import CHROMIUM, browser

TEXT = "[...document.querySelectorAll('.turn:last-child .token')].map(t => t.textContent).join('')"
NUMBERS = "document.querySelector('.turn:last-child .numbers').textContent"


def test_the_page_is_one_file_that_asks_for_nothing_elsewhere(server):
    answer = server.get("/")

    assert answer.status_code == 200 and "text/html" in answer.headers["content-type"]
    assert re.findall(r"(?:src|href)=\"(?!data:)", answer.text) == []
    assert "http" not in answer.text.replace("http-equiv", "")
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_message_is_answered_with_sources_and_rejected_drafts(server, tmp_path):
    """By keyboard alone; the text is the server's, tokens that were drafted are marked, numbers come at the end."""
    prompt = "def add(a, b):"
    plain = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 128, "temperature": 0}
    expected = server.post("/v1/chat/completions", plain).json()
    with browser(tmp_path) as tab:
        tab.open(f"{server.url}/")
        tab.wait("document.title && document.querySelectorAll('#method option').length > 2")
        tab.wait("document.activeElement.id === 'prompt'")
        tab.type(prompt)
        tab.press("Enter")
        numbers = tab.wait(f"/seed/.test({NUMBERS}) && {NUMBERS}")

        assert tab.ask(TEXT) == expected["choices"][0]["message"]["content"]
        assert re.search(r"128 tokens in \d+ steps.* tokens per step.* \d+ of \d+ drafted accepted.* tokens/s", numbers)
        assert tab.ask("document.querySelectorAll('.turn:last-child .drafted').length") > 0
        assert tab.ask("document.querySelectorAll('.turn:last-child .rejected').length") > 0
        legend = tab.ask("document.getElementById('legend').textContent")
        assert all(words in legend for words in ("not marked", "drafted by", "ngram", "struck out"))
        assert tab.errors == []
        assert {url.split("/")[2] for url in tab.requests if url.startswith("http")} == {server.url.split("/")[2]}


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_page_fits_a_phone_and_both_colour_schemes_and_shows_errors(server, tmp_path):
    with browser(tmp_path) as tab:
        tab.open(f"{server.url}/")
        tab.call("Emulation.setDeviceMetricsOverride", width=360, height=640, deviceScaleFactor=1, mobile=True)
        tab.wait("document.querySelectorAll('#method option').length > 2")
        assert tab.ask("document.documentElement.scrollWidth") <= 360

        grounds = set()
        for scheme in ("light", "dark"):
            tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            grounds.add(tab.ask("getComputedStyle(document.body).backgroundColor"))
        assert len(grounds) == 2

        tab.ask("document.getElementById('temperature').value = '-1'; document.getElementById('prompt').value = 'x'")
        tab.ask("document.getElementById('form').noValidate = true; document.getElementById('form').requestSubmit()")
        assert "temperature" in tab.wait("document.querySelector('.error')?.textContent")


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_rejected_drafts_break_no_line_and_are_not_copied(server, tmp_path):
    """A step as the server reports it, whose rejected tokens have line breaks."""
    step = {
        "tokens": [{"text": "one", "source": None}, {"text": " two", "source": None}],
        "rejected": [{"text": "\n\n"}, {"text": "\tx\r\n"}],
        "drafted_by": ["ngram"],
    }
    with browser(tmp_path) as tab:
        tab.open(f"{server.url}/")
        tab.wait("document.querySelectorAll('#method option').length > 2")
        shown = f"const shown = turn('a'); show(shown, {json.dumps(step)}, {{ tokens: 0, steps: 0 }});"
        copied = tab.ask(f"{shown} getSelection().selectAllChildren(shown.text); getSelection().toString()")

        assert copied == "one two"
        assert tab.ask("document.querySelector('.turn .rejected').textContent") == "↵↵⇥x↵"
        assert tab.ask("document.querySelector('.turn .text').getBoundingClientRect().height") < 40


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [360, 800, 1200, 1920])
def test_settings_and_buttons_stand_in_rows_and_columns(server, tmp_path, width):
    """Nothing is outside of the form, the buttons are one column, and from 1,200 pixels on the settings one row."""
    edges = "[...document.querySelectorAll('{}')].map(e => e.getBoundingClientRect()).map(r => Math.round(r.{}))"
    with browser(tmp_path) as tab:
        tab.open(f"{server.url}/")
        tab.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        tab.wait("document.querySelectorAll('#method option').length > 2")
        right = tab.ask("document.getElementById('form').getBoundingClientRect().right")

        assert len(set(tab.ask(edges.format("button", "left")))) == 1
        assert len(set(tab.ask(edges.format("button", "width")))) == 1
        assert max(tab.ask(edges.format("label, label > *, button", "right"))) <= right + 1
        if width >= 1200:
            assert len(set(tab.ask(edges.format("fieldset > label", "bottom")))) == 1


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_its_own_policy_allows_its_icon(server, tmp_path):
    with browser(tmp_path) as tab:
        tab.open(f"{server.url}/")
        tab.wait("document.querySelectorAll('#method option').length > 2")
        image = "Object.assign(new Image(), { src: document.querySelector('link[rel=icon]').href })"
        load = f"{image}.decode().then(() => 'shown', () => 'blocked')"
        tab.ask(f"{load}.then(found => window.icon = found)")

        assert tab.wait("window.icon") == "shown"
