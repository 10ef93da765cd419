"""A server that sends the chat page and answers it as a test says, also with answers that no model gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import Thread
from typing import Any

import attrs
from spec_serve.page import HEADERS, KINDS

TIMINGS = {
    "cache_n": 20, "prompt_n": 5, "prompt_ms": 12.5, "predicted_n": 2, "predicted_ms": 10.0,
    "predicted_per_second": 100.0, "draft_n": 4, "draft_n_accepted": 3,
}  # fmt: skip
PROPS = {
    "model_alias": "model", "chat_template": "x", "modalities": {"vision": False},
    "default_generation_settings": {"n_ctx": 4096, "params": {"temperature": 0.0}},
    "speculative": {
        "types": ["ngram", "suffix"], "switched_off": {}, "shares_learning": False,
        "may_differ": {"greedy": False, "sampled": False},
    },
}  # fmt: skip
Token = tuple[str, str | None]
"""Text and source."""
Event = dict[str, Any]


def step(*tokens: Token | str, rejected: Sequence[str] = (), kind: str = "content") -> Event:
    """The event of a step. kind: ``content`` or ``reasoning_content``."""
    pairs = [(token, None) if isinstance(token, str) else token for token in tokens]
    text = "".join(text for text, _ in pairs)
    traced = {
        "tokens": [{"id": 1, "text": text, "source": source} for text, source in pairs],
        "rejected": [{"id": 1, "text": text, "source": "ngram"} for text in rejected],
        "drafted_by": ["ngram"] if rejected else [],
    }
    return {"choices": [{"delta": {kind: text}, "speculative": traced, "finish_reason": None}]}


def ending(reason: str = "stop", tokens: int = 2, speed: float = 100.0, prompt: int = 25) -> list[Event]:
    """The last events of an answer."""
    usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
    return [
        {"choices": [{"delta": {}, "finish_reason": reason}]},
        {"choices": [], "usage": usage, "timings": {**TIMINGS, "predicted_per_second": speed}, "seed": 7},
    ]


def saying(text: str, size: int = 4) -> Iterator[Event]:
    """An answer in steps of so many characters, every second one drafted."""
    for at in range(0, len(text), size):
        yield step((text[at : at + size], "ngram" if at // size % 2 else None))
    yield from ending()


@attrs.define
class PageServer:
    """url: of the page. answer: makes the events of a request's body. bodies: of requests, in their order.

    open: requests that are being answered; most: of them at once.
    """

    url: str = ""
    answer: Callable[[Any], Iterable[Event]] = lambda body: saying("Hello.")
    props: Any = attrs.field(factory=lambda: json.loads(json.dumps(PROPS)))
    status: int = 200
    bodies: list[Any] = attrs.field(factory=list)
    open: int = 0
    most: int = 0
    is_busy: bool = False


def _handler(server: PageServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

        def do_GET(self) -> None:
            if self.path in ("/props", "/slots"):
                self._send_json(server.props if self.path == "/props" else [{"is_processing": server.is_busy}])
                return
            name = self.path.removeprefix("/page/") if self.path != "/" else "page.html"
            body = files("spec_serve").joinpath("web", name).read_bytes()
            self._send(200, {**HEADERS, "Content-Type": KINDS.get(name, "text/html")}, body)

        def do_POST(self) -> None:
            server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            if server.status != 200:
                self._send_json({"error": {"message": "refused by the test"}}, server.status)
                return
            server.open += 1
            server.most = max(server.most, server.open)
            try:
                self._stream(server.answer(server.bodies[-1]))
            except OSError:
                pass  # the page has left
            finally:
                server.open -= 1

        def _stream(self, events: Iterable[Event]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for event in events:
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def _send_json(self, value: Any, status: int = 200) -> None:
            self._send(status, {"Content-Type": "application/json"}, json.dumps(value).encode())

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    return Handler


@contextmanager
def page_server() -> Iterator[PageServer]:
    server = PageServer()
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    server.url = f"http://127.0.0.1:{http.server_port}"
    thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
