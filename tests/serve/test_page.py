"""The page at ``/``: in a browser, with the keyboard, on a phone's width, and with nothing from elsewhere."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from tests.support.browser import CHROMIUM, browser

TEXT = "[...document.querySelectorAll('.turn:last-child .token')].map(t => t.textContent).join('')"
NUMBERS = "document.querySelector('.turn:last-child .numbers').textContent"


def test_the_page_is_one_file_that_asks_for_nothing_elsewhere(served):
    answer = served.get("/")

    assert answer.status_code == 200 and "text/html" in answer.headers["content-type"]
    assert re.findall(r"(?:src|href)=\"(?!data:)", answer.text) == []
    assert "http" not in answer.text.replace("http-equiv", "")
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_message_is_answered_with_sources_and_rejected_drafts(served, tmp_path):
    """By keyboard alone; the text is the server's, tokens that were drafted are marked, numbers come at the end."""
    prompt = "def add(a, b):"
    plain = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 128, "temperature": 0}
    expected = served.post("/v1/chat/completions", plain).json()
    with browser(tmp_path) as tab:
        tab.open(f"{served.url}/")
        tab.wait("document.title && document.querySelectorAll('#method option').length > 2")
        tab.wait("document.activeElement.id === 'prompt'")
        tab.type(prompt)
        tab.press("Enter")
        numbers = tab.wait(f"/seed/.test({NUMBERS}) && {NUMBERS}")

        assert tab.ask(TEXT) == expected["choices"][0]["message"]["content"]
        assert re.search(r"128 tokens in \d+ steps.* tokens per step.* \d+ of \d+ drafted accepted.* tokens/s", numbers)
        assert tab.ask("document.querySelectorAll('.turn:last-child .drafted').length") > 0
        assert tab.ask("document.querySelectorAll('.turn:last-child .rejected').length") > 0
        assert tab.ask("document.getElementById('legend').textContent.trim()")
        assert tab.errors == []
        assert {url.split("/")[2] for url in tab.requests if url.startswith("http")} == {served.url.split("/")[2]}


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_page_fits_a_phone_and_both_colour_schemes_and_shows_errors(served, tmp_path):
    with browser(tmp_path) as tab:
        tab.open(f"{served.url}/")
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
