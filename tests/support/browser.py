"""Chromium without a window, driven through its debugging pipe: no package is needed for it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import attrs

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

KEYS = {"Enter": (13, "\r"), "Escape": (27, "")}
"""Code of each key, and the text that it types."""


@attrs.define
class Tab:
    """One page. requests: URLs that it asked for. errors: what its scripts raised, and what its policy blocked."""

    orders: int
    answers: Any
    session: str | None = None
    target: str | None = None
    number: int = 0
    requests: list[str] = attrs.field(factory=list)
    errors: list[str] = attrs.field(factory=list)

    def call(self, method: str, **parameters: Any) -> Any:
        """The result of a command of the browser."""
        answer = self.send(method, **parameters)
        assert "error" not in answer, answer
        return answer["result"]

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to a command of the browser: its result, or its error."""
        self.number += 1
        order = {"id": self.number, "method": method, "params": parameters}
        order |= {"sessionId": self.session} if self.session else {}
        os.write(self.orders, json.dumps(order).encode() + b"\0")
        while (message := self._next()).get("id") != self.number:
            self._note(message)
        return message

    def _next(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self.answers.read(1)) != b"\0":
            assert byte, "the browser has ended"
            data += byte
        return json.loads(data)

    def _note(self, message: dict[str, Any]) -> None:
        if message["method"] == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        if message["method"] == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(message["params"])[:500])
        if message["method"] == "Log.entryAdded" and message["params"]["entry"]["source"] == "security":
            self.errors.append(message["params"]["entry"]["text"])

    def open(self, url: str) -> None:
        self.session = None
        self.target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=url)

    def close(self) -> None:
        """Close the page; another one can be opened."""
        self.session = None
        self.call("Target.closeTarget", targetId=self.target)
        self.requests.clear()
        self.errors.clear()

    def ask(self, script: str) -> Any:
        """The value of an expression, or of its promise; None while another page is loaded."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "navigated" in answer.get("error", {}).get("message", ""):
            return None
        assert "error" not in answer, answer
        return answer["result"]["result"].get("value")

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def wait(self, script: str, seconds: float = 20) -> Any:
        """Wait until an expression is true, and return its value."""
        end = monotonic() + seconds
        while not (value := self.ask(script)):
            assert monotonic() < end, f"{script}: {self.errors}"
            sleep(0.02)
        return value

    def press(self, key: str) -> None:
        code, text = KEYS[key]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)


@contextmanager
def browser(folder: Path) -> Iterator[Tab]:
    """A tab of a fresh browser, whose profile lies in the folder."""
    here, orders = os.pipe()
    answers, there = os.pipe()
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (here, there)]

    def place_descriptors() -> None:
        """The browser reads from descriptor 3 and writes to 4."""
        os.dup2(ends[0], 3)
        os.dup2(ends[1], 4)

    flags = f"--headless=new --no-sandbox --disable-gpu --no-first-run --remote-debugging-pipe --user-data-dir={folder}"
    process = subprocess.Popen(
        [str(CHROMIUM), *flags.split()], preexec_fn=place_descriptors, pass_fds=(3, 4), stderr=subprocess.DEVNULL
    )
    for end in (here, there, *ends):
        os.close(end)
    try:
        with open(answers, "rb") as reading:
            yield Tab(orders, reading)
    finally:
        process.kill()
        process.wait()
        os.close(orders)
