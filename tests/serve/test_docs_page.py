"""Pages about the server, followed against a server: their commands answer, their Python prints what they say."""

from __future__ import annotations

import shlex
from pathlib import Path

import attrs
import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("openai", reason="needs the openai client")

from spec_serve.settings import ServeSettings

from spec_core.commands import construct_plugin, read_file, resolve_layers, setting_owners
from tests.support.pages import Skimmer, follow

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / f"{name}.md" for name in ("serve", "serve-chats", "serve-operate")]
HERE = "http://localhost:8080"


class Asking(Skimmer):
    """Sends what ``curl`` would send to the server of the test."""

    server = None

    def python(self, source, cwd):
        return super().python(source.replace(HERE, self.served.url), cwd)

    def shell(self, script, cwd):
        super().shell(script, cwd)
        for line in script.replace("\\\n", " ").splitlines():
            words = shlex.split(line)
            if words[:1] == ["curl"]:
                self.curl(words)

    def curl(self, words):
        (url,) = [word for word in words if word.startswith(HERE)]
        headers = dict(words[i + 1].split(": ") for i, word in enumerate(words) if word == "-H")
        path, body = url.removeprefix(HERE), words[words.index("-d") + 1] if "-d" in words else None
        request = {"content": body.encode(), "headers": headers} if body else {}
        answer = self.served.client.request("POST" if body else "GET", self.served.url + path, **request)
        assert answer.status_code == 200, f"{words}: {answer.text}"
        self.answers.append((path, answer))


def test_the_pages_can_be_followed(server, tmp_path):
    reader = Asking()
    reader.served, reader.answers = server, []
    for page in PAGES:
        follow(page, reader, tmp_path)

    paths = {path for path, _ in reader.answers}
    assert {"/v1/completions", "/completion", "/tokenize", "/apply-template", "/slots", "/metrics"} <= paths
    file = resolve_layers({}, {}, read_file(tmp_path / "spec.toml", {}), setting_owners())
    assert construct_plugin(ServeSettings, file.values_of("serve"), "serve").queue == 16


def test_the_pages_name_every_metric_and_every_field(server):
    """Ours one by one; llama-server's by their prefix."""
    text = "".join(page.read_text("utf-8") for page in PAGES)
    names = {line.split()[2] for line in server.get("/metrics").text.splitlines() if line.startswith("# TYPE spec:")}
    fields = {name for kind in ("Completion", "Chat") for name in schema_of(server, kind)}
    common = {"model", "prompt", "messages", "stream", "stream_options", "user", "speculative", "cache_prompt"}

    short = lambda name: name if f"`{name}`" in text else f"...{name.removeprefix('spec:spec_decode')}"
    assert [name for name in names if f"`{short(name)}`" not in text and not name.endswith("_created")] == []
    assert [name for name in fields - common if f"`{name}`" not in text] == []
    assert [name for name in schema_of(server, "Speculative") if f"`speculative.{name}`" not in text] == []


def schema_of(server, kind):
    return server.get("/openapi.json").json()["components"]["schemas"][kind]["properties"]


def test_every_setting_of_the_server_is_in_the_table():
    text = (DOCS / "settings.md").read_text("utf-8")

    assert [f.name for f in attrs.fields(ServeSettings) if f"| `{f.name}` |" not in text] == []
    assert "## `spec serve`" in text
