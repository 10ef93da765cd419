"""A hub on the loopback with the routes that ``huggingface_hub`` uses, and with every fault that a test wants."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import attrs

COMMIT = "1" * 40
API = re.compile(r"/api/models/(?P<repository>[^/]+/[^/]+)(/revision/(?P<revision>.+))?")
RESOLVE = re.compile(r"/(?P<repository>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
LFS_MIN = 1000
"""Files from this size on are served as LFS: by a redirect to another address."""


@attrs.define
class HubFile:
    """A file of a repository. size, digest: what the hub announces, by default the truth."""

    data: bytes
    size: int = -1
    digest: str = ""

    def __attrs_post_init__(self) -> None:
        self.size = len(self.data) if self.size < 0 else self.size
        self.digest = self.digest or self.true_digest

    @property
    def lfs(self) -> bool:
        return len(self.data) >= LFS_MIN

    @property
    def true_digest(self) -> str:
        if self.lfs:
            return hashlib.sha256(self.data).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(self.data) + self.data).hexdigest()


@attrs.define
class LocalHub:
    """breaks: of each next transfer, the number of bytes after which its connection is cut; None serves all.

    statuses: {part of a path: status} of requests that fail. loop: redirect every file to itself. ranges: whether
    ranges are honoured. requests: (method, path, headers) in order.
    """

    repositories: dict[str, dict[str, HubFile]] = attrs.field(factory=dict)
    commits: dict[str, str] = attrs.field(factory=lambda: {"main": COMMIT})
    breaks: list[int | None] = attrs.field(factory=list)
    statuses: dict[str, int] = attrs.field(factory=dict)
    loop: bool = False
    ranges: bool = True
    token: str | None = None
    requests: list[tuple[str, str, dict[str, str]]] = attrs.field(factory=list)
    endpoint: str = ""
    storage: str = ""

    def add(self, repository: str, **files: bytes | HubFile) -> None:
        """Publish files by path."""
        self.repositories[repository] = {
            path: file if isinstance(file, HubFile) else HubFile(file) for path, file in files.items()
        }

    def transfers(self) -> list[str]:
        """Paths of the requests for contents."""
        return [path for _, path, _ in self.requests if path.startswith("/lfs/") or "/resolve/" in path]

    def listing(self, repository: str, revision: str) -> dict[str, Any]:
        siblings = []
        for path, file in self.repositories[repository].items():
            lfs = {"sha256": file.digest, "size": file.size, "pointerSize": 130}
            entry = {"rfilename": path, "size": file.size, "blobId": file.digest}
            siblings.append({**entry, "blobId": "2" * 40, "lfs": lfs} if file.lfs else entry)
        return {"id": repository, "sha": self.commits.get(revision, revision), "siblings": siblings}


class HubServer(ThreadingHTTPServer):
    """A server whose clients may leave whenever they want: that is no error of the server."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serve_hub() -> Iterator[LocalHub]:
    """A hub, and a second server that stands for its storage of large files."""
    hub = LocalHub()
    servers = [HubServer(("127.0.0.1", 0), handler(hub)) for _ in range(2)]
    hub.endpoint, hub.storage = (f"http://127.0.0.1:{server.server_port}" for server in servers)
    threads = [Thread(target=server.serve_forever, args=(0.01,), daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()


def handler(hub: LocalHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append((self.command, path, {k.lower(): v for k, v in self.headers.items()}))
            if (status := next((s for part, s in hub.statuses.items() if part in path), None)) is not None:
                self.answer(status, b'{"error": "on purpose"}', {"Retry-After": "7"})
            elif match := API.fullmatch(path):
                self.list_files(match["repository"], match["revision"] or "main")
            elif match := RESOLVE.fullmatch(path):
                self.resolve(match["repository"], match["path"])
            elif path.startswith("/lfs/"):
                _, _, owner, name, *rest = path.split("/")
                self.send_file(hub.repositories[f"{owner}/{name}"]["/".join(rest)])
            else:
                self.answer(404, b"{}")

        do_HEAD = do_GET

        def list_files(self, repository: str, revision: str) -> None:
            if hub.token and self.headers.get("authorization") != f"Bearer {hub.token}":
                self.answer(401, b"{}")
            elif repository not in hub.repositories:
                self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            elif revision not in hub.commits and revision not in hub.commits.values():
                self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            else:
                self.answer(200, json.dumps(hub.listing(repository, revision)).encode())

        def resolve(self, repository: str, path: str) -> None:
            file = hub.repositories[repository][path]
            if hub.loop:
                self.answer(302, b"", {"Location": self.path})
            elif file.lfs:
                self.answer(302, b"", {"Location": f"{hub.storage}/lfs/{repository}/{path}"})
            else:
                self.send_file(file)

        def send_file(self, file: HubFile) -> None:
            start = 0
            if hub.ranges and (match := re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", ""))):
                start = int(match[1])
            data = file.data[start:]
            headers = {"ETag": f'"{file.digest}"', "Accept-Ranges": "bytes"}
            if start:
                headers["Content-Range"] = f"bytes {start}-{len(file.data) - 1}/{len(file.data)}"
            cut = hub.breaks.pop(0) if hub.breaks else None
            self.answer(206 if start else 200, data, headers, cut)

        def answer(self, status: int, data: bytes, headers: dict[str, str] | None = None, cut: int | None = None):
            self.send_response(status)
            for key, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data if cut is None else data[:cut])
            self.close_connection = cut is not None

        def log_message(self, *args: Any) -> None:
            """Nothing: the tests read ``requests``."""

    return Handler
