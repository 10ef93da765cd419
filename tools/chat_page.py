"""The picture of the chat page in the README: a race of a real run of the zoo's model, taken in Chromium.

``python -m tools.chat_page docs/_static/race.png`` needs Chromium and the extras ``serve`` and ``test``. The speeds are
medians of several races; run nothing else on the machine meanwhile.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

MODEL, METHODS = "zoo:smollm2", ("ngram", "suffix")
MESSAGE = """Explain this function line by line, and show its code again:
```python
def resize(image, factor):
    width = int(image.width * factor)
    height = int(image.height * factor)
    if width < 1 or height < 1:
        raise ValueError('the factor is too small')
    return image.resize((width, height))
```"""
TOKENS, SIZE, BYTES_MAX = 200, (1000, 780), 200_000
START_SECONDS, RACE_SECONDS, RACES = 120, 120, 5


@contextmanager
def serving() -> Iterator[str]:
    """A server of the model in a process of its own; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    methods = [word for name in METHODS for word in ("--method", name)]
    options = ["serve", "-m", MODEL, *methods, "--threads", "1", "--port", str(port)]
    process = subprocess.Popen([sys.executable, "-c", "from spec_cli.main import main; main()", *options])
    try:
        wait_for(f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait()


def wait_for(url: str) -> None:
    """Wait until the server answers."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            urlopen(url).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def take_picture(url: str, path: Path) -> None:
    """Send the message, race its answer against plain decoding, and take a picture of the result."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        view = {"width": SIZE[0], "height": SIZE[1]}
        page = browser.new_page(viewport=view, color_scheme="light", reduced_motion="reduce")
        page.goto(url)
        page.wait_for_selector("body[data-ready]")
        page.fill("#max_tokens", str(TOKENS))
        page.click("#settings summary")
        page.fill("#prompt", MESSAGE)
        page.press("#prompt", "Enter")
        page.wait_for_selector(".compare", timeout=1000 * RACE_SECONDS)
        page.click(".compare")
        for _ in range(RACES - 1):
            page.wait_for_selector(".verdict .ratio", timeout=1000 * RACE_SECONDS)
            page.click(".controls button:has-text('Race')")
            page.wait_for_selector(".race[aria-busy=true]")
        page.wait_for_selector(".verdict .ratio", timeout=1000 * RACE_SECONDS)
        frame(page)
        page.screenshot(path=path)
        print(page.inner_text(".verdict"))
        browser.close()


def frame(page: Any) -> None:
    """Scroll so that the race is in view, and the beginning of both texts."""
    page.evaluate("document.querySelectorAll('.lane-text').forEach(e => (e.scrollTop = 0))")
    page.evaluate("document.getElementById('log').scrollTop = 1e6")
    page.evaluate("document.activeElement.blur()")


def main() -> None:
    path = Path(sys.argv[1])
    with serving() as url:
        take_picture(url, path)
    size = path.stat().st_size
    print(f"{path}: {size} bytes")
    if size > BYTES_MAX:
        raise SystemExit(f"the picture has more than {BYTES_MAX} bytes")


if __name__ == "__main__":
    main()
