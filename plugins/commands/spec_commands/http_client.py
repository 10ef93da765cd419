"""HTTP to a server that may be hostile: time, bytes, events and repetitions are bounded, redirects are refused."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import attrs

from spec_core.errors import UsageError, quote_value

BYTES = 16 << 20
"""Max bytes of an answer."""
EVENTS = 100_000
"""Max events of a stream."""
TRIES = 6
"""Max tries of a request that the server puts off with 429 or 503."""
WAIT = 15.0
"""Max seconds between two tries."""
BUSY = (429, 503)
MESSAGE = 200
"""Max characters of a server's error that are shown."""


SECRET = "[key]"
"""What stands in place of the key where a server repeats it."""
SECRET_MIN = 6
"""Min characters of a key that is replaced: a shorter one occurs in texts by chance."""
URL = re.compile(r"(https?://)(?:[^/\s@]*@)?([^/\s?#]+)([/?#]\S*)?", re.IGNORECASE)


class Unreachable(UsageError):
    """A server that does not answer at all."""


@attrs.frozen
class Reply:
    """An answer. events: of a stream, with the seconds at which each came. body: of an answer that is no stream."""

    status: int
    body: Any
    seconds: float
    events: list[tuple[float, Any]] = attrs.field(factory=list)
    whole: bool = True

    @property
    def refused(self) -> bool:
        return self.status >= 400

    @property
    def error(self) -> str:
        """What the server said when it refused, in one line."""
        error = self.body.get("error", self.body) if isinstance(self.body, Mapping) else self.body
        text = error.get("message", error.get("detail", error)) if isinstance(error, Mapping) else error
        return " ".join(str(text).split())[:MESSAGE]


class Client:
    """Requests to one server.

    url: without the path of the API. key: sent as a bearer token. transport: of httpx, for tests. sleep: for tests.
    """

    def __init__(
        self,
        url: str,
        key: str | None,
        seconds: float,
        transport: Any = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        import httpx

        self.url, self.shown, self.seconds, self.sleep = url, hide_secrets(url), seconds, sleep
        self.key = key if key and len(key) >= SECRET_MIN else None
        headers = {"Accept-Encoding": "identity", "User-Agent": "spec-core"}
        self.http = httpx.Client(
            base_url=url,
            headers=headers | ({"Authorization": f"Bearer {key}"} if key else {}),
            timeout=httpx.Timeout(seconds, connect=min(10, seconds), pool=None),
            limits=httpx.Limits(max_connections=64),
            follow_redirects=False,
            trust_env=False,  # no credentials from .netrc
            transport=transport,
        )

    def close(self) -> None:
        self.http.close()

    def get(self, path: str) -> Reply:
        """An answer to GET; its body is JSON, or a text if it is none."""
        return self._patiently("GET", path, None, None)

    def post(self, path: str, body: Mapping[str, Any], events_max: int | None = None) -> Reply:
        """An answer to POST.

        events_max: of a stream; after these the connection is closed, as by a client that leaves.
        """
        return self._patiently("POST", path, body, events_max)

    def _patiently(self, method: str, path: str, body: Any, events_max: int | None) -> Reply:
        for attempt in range(TRIES):
            reply, after = self._send(method, path, body, events_max)
            if reply.status not in BUSY:
                return reply
            if attempt + 1 < TRIES:
                self.sleep(min(WAIT, after if after is not None else 0.5 * 2**attempt))
        raise UsageError(
            f"{self.shown} answered {reply.status} to {TRIES} tries: {quote_value(reply.error)}",
            hint="lower --concurrency, or try again when the server is less busy",
        )

    def _send(self, method: str, path: str, body: Any, events_max: int | None) -> tuple[Reply, float | None]:
        import httpx

        began = time.monotonic()
        # Escapes: a text of the server, which may have halves of surrogates, is a part of later prompts.
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if content else {}
        try:
            with self.http.stream(method, path, content=content, headers=headers) as response:
                if 300 <= response.status_code < 400:
                    raise UsageError(
                        f"{self.shown}{path} redirects to {quote_value(self._location(response))}",
                        hint="pass the address of the server itself",
                    )
                after = _retry_after(response.headers.get("retry-after", ""))
                if "text/event-stream" in response.headers.get("content-type", "") and response.status_code < 400:
                    return self._stream(response, began, events_max), after
                raw = b"".join(self._pieces(response, began))
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            reason = str(error) or type(error).__name__
            raise Unreachable(
                f"{self.shown} does not answer: {quote_value(reason[:MESSAGE])}",
                hint="check the address, and that the server runs; --timeout sets the seconds of a request",
            ) from error
        return Reply(response.status_code, self._parse(raw, path, response), time.monotonic() - began), after

    def _parse(self, raw: bytes, path: str, response: Any) -> Any:
        """The body as JSON. Raises UsageError for a successful answer of the API that is none."""
        try:
            return self.without_key(json.loads(raw))
        except (ValueError, RecursionError) as error:
            if response.status_code < 400 and path != "/metrics":
                shown = quote_value(self.without_key(raw[:MESSAGE].decode("utf-8", "replace"))[:60])
                raise UsageError(
                    f"{self.shown}{path} answered {response.status_code} without JSON: {shown}",
                    hint="pass the address of a server with OpenAI's API",
                ) from error
            return self.without_key(raw.decode("utf-8", "replace"))

    def _location(self, response: Any) -> str:
        """Where an answer redirects to, without what may be secret."""
        return hide_secrets(self.without_key(response.headers.get("location", "")))[:MESSAGE]

    def without_key(self, value: Any) -> Any:
        """A value of JSON in which the key, which a server may repeat, is replaced."""
        if self.key is None:
            return value
        if isinstance(value, str):
            return value.replace(self.key, SECRET)
        if isinstance(value, list):
            return [self.without_key(one) for one in value]
        if isinstance(value, dict):
            return {self.without_key(name): self.without_key(one) for name, one in value.items()}
        return value

    def _pieces(self, response: Any, began: float) -> Iterator[bytes]:
        """Bytes as they come. Raises UsageError when there are too many, or they take too long."""
        size = 0
        for piece in response.iter_raw():
            size += len(piece)
            if size > BYTES:
                raise UsageError(
                    f"{self.shown} sent more than {BYTES >> 20} MiB in one answer", hint="check the server"
                )
            if time.monotonic() - began > self.seconds:
                raise UsageError(
                    f"{self.shown} did not finish an answer in {self.seconds:g} s", hint="pass a larger --timeout"
                )
            yield piece

    def _stream(self, response: Any, began: float, events_max: int | None) -> Reply:
        events: list[tuple[float, Any]] = []
        for data in _data_of(self._pieces(response, began)):
            now = time.monotonic() - began
            if data == b"[DONE]":
                return Reply(response.status_code, None, now, events)
            try:
                events.append((now, self.without_key(json.loads(data))))
            except (ValueError, RecursionError) as error:
                shown = quote_value(self.without_key(data[:MESSAGE].decode("utf-8", "replace"))[:60])
                raise UsageError(f"{self.shown} streamed what is no JSON: {shown}", hint="check the server") from error
            if events_max is not None and len(events) >= events_max:
                return Reply(response.status_code, None, now, events, whole=False)
            if len(events) > EVENTS:
                raise UsageError(f"{self.shown} streamed more than {EVENTS} events", hint="check the server")
        return Reply(response.status_code, None, time.monotonic() - began, events)


def _data_of(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The data of each event of a stream."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()
    if rest.startswith(b"data:"):
        yield rest[5:].strip()


def _retry_after(text: str) -> float | None:
    """Seconds that a server asks to wait; None for a date or anything else."""
    return float(text) if text.isdecimal() and len(text) < 9 else None


def check_url(url: str) -> str:
    """The address of a server without the path of the API. Raises UsageError for what is no address."""
    import httpx

    hint = "write http://HOST:PORT, or https://HOST"
    try:
        parsed, _ = httpx.URL(url.strip()), urlsplit(url)
    except (httpx.InvalidURL, TypeError, ValueError) as error:
        raise UsageError(f"{quote_value(hide_secrets(url)[:MESSAGE])} is no address", hint=hint) from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError(f"{quote_value(hide_secrets(url)[:MESSAGE])} is no address of a server", hint=hint)
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise UsageError(
            f"the address of {parsed.host} contains a password, a query or a fragment",
            hint="a key is passed by the name of its variable: --key-env NAME",
        )
    return str(parsed).rstrip("/").removesuffix("/v1").rstrip("/")


def hide_secrets(text: str) -> str:
    """A text whose addresses have their scheme, host and port alone: a password, a path or a query may be secret."""
    return URL.sub(lambda match: f"{match[1]}{match[2]}{_short_path(match[3] or '')}", text)


def _short_path(path: str) -> str:
    return path if path.rstrip("/") in ("", "/v1") else "/..."
