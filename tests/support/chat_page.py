"""The chat page as a reader uses it: the selectors of its parts, and messages that are sent and answered."""

from __future__ import annotations

import json
from typing import Any

from tests.support.browser import Tab

LAST = "document.querySelector('.turn:last-child {}')"
READY = "document.body?.dataset.ready"


def text_of(tab: Tab, selector: str) -> str:
    """The text of the first element; empty if there is none."""
    return str(tab.ask(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''"))


def texts_of(tab: Tab, selector: str) -> list[str]:
    return list(tab.ask(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)"))


def count(tab: Tab, selector: str) -> int:
    return int(tab.ask(f"document.querySelectorAll({json.dumps(selector)}).length"))


def click(tab: Tab, selector: str, text: str = "") -> None:
    """Click the last element that has this text."""
    chosen = f"[...document.querySelectorAll({json.dumps(selector)})].filter(e => e.textContent.includes({text!r}))"
    assert tab.ask(f"(e => e && !e.disabled && (e.click(), true))({chosen}.at(-1))"), f"{selector} {text}"


def put(tab: Tab, **values: Any) -> None:
    """Set fields, and tell the page that they changed."""
    for name, value in values.items():
        field = f"document.getElementById({name!r})"
        way = "checked" if isinstance(value, bool) else "value"
        tab.ask(f"{field}.{way} = {json.dumps(value)}")
        tab.ask(f"{field}.dispatchEvent(new Event('change', {{ bubbles: true }}))")


def send(tab: Tab, message: str) -> None:
    """Type a message and send it with the keyboard."""
    tab.ask("document.getElementById('prompt').focus()")
    tab.type(message)
    tab.press("Enter")


def wait_for_answer(tab: Tab, turns: int = 2) -> None:
    """Wait until so many turns are there and the last one has ended."""
    tab.wait(f"document.querySelectorAll('.turn').length === {turns} && {LAST.format('.ended')}?.textContent")


def chat(tab: Tab, message: str = "Hi", turns: int = 2) -> None:
    send(tab, message)
    wait_for_answer(tab, turns)


def reload(tab: Tab) -> None:
    tab.call("Page.reload")
    tab.wait(f"performance.getEntriesByType('navigation')[0]?.type === 'reload' && {READY}")
