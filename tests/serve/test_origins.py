"""Without a key only the server's own names and pages, and allowed ones, are answered."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_serve.origins import check_origins, origins_of
from spec_serve.settings import ServeSettings
from starlette.datastructures import Headers

from spec_core import UsageError
from tests.support.served import serving

BODY = {"prompt": "a", "max_tokens": 1}


@pytest.fixture(scope="module")
def server():
    with serving("zoo:pico", limits={"allowed_host": "models.lan, gpu", "allowed_origin": "https://a.org"}) as server:
        yield server


def is_answered(headers, **limits):
    origins = origins_of(ServeSettings(**limits))
    try:
        origins.check(Headers(headers))
    except Exception as error:
        assert error.status == 403
        return False
    return True


@pytest.mark.parametrize("path", ["/v1/completions", "/props", "/slots", "/", "/metrics", "/v1/models"])
def test_a_name_that_leads_here_is_not_answered(server, path):
    """A page whose name was given this machine's address after it was loaded."""
    ask = server.post if path == "/v1/completions" else server.get
    for headers in ({"Host": "evil.example"}, {"Host": "evil.example:8080"}, {"Host": "127.0.0.1.evil.example"}):
        more = {"body": BODY} if path == "/v1/completions" else {}
        assert ask(path, headers=headers, **more).status_code == 403
    assert ask(path, headers={"Host": "localhost:1"}, **more).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1"])
def test_pages_of_others_are_not_answered(server, origin):
    answer = server.post("/v1/completions", BODY, headers={"Origin": origin})

    assert answer.status_code == 403 and answer.json()["error"]["code"] == "origin_not_allowed"


def test_its_own_page_and_allowed_origins_are_answered(server):
    for origin in (server.url, "https://a.org"):
        assert server.post("/v1/completions", BODY, headers={"Origin": origin}).status_code == 200
    allowed = server.post("/v1/completions", BODY, headers={"Origin": "https://a.org"})
    assert allowed.headers["access-control-allow-origin"] == "https://a.org"


def test_a_browser_may_ask_first(server):
    asked = {"Origin": "https://a.org", "Access-Control-Request-Method": "POST"}
    more = {"Access-Control-Request-Headers": "authorization, content-type"}
    answer = server.client.options(f"{server.url}/v1/chat/completions", headers={**asked, **more})

    assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == "https://a.org"


def test_health_is_told_to_everyone(server):
    assert server.get("/health", headers={"Host": "evil.example", "Origin": "https://evil.example"}).status_code == 200


def test_a_server_with_a_key_checks_the_key():
    with serving("zoo:pico", limits={"api_key": "k"}) as server:
        headers = {"Host": "evil.example", "Origin": "https://evil.example"}
        assert server.post("/v1/completions", BODY, headers=headers).status_code == 401
        assert server.post("/v1/completions", BODY, headers={**headers, "Authorization": "Bearer k"}).status_code == 200


@pytest.mark.parametrize(
    ("host", "limits", "answered"),
    [
        ("localhost", {}, True),
        ("LOCALHOST.:80", {}, True),
        ("app.localhost", {}, True),
        ("127.0.0.1:8080", {}, True),
        ("127.8.9.1", {}, True),
        ("[::1]:8080", {}, True),
        ("::1", {}, True),
        ("192.168.0.7", {}, False),
        ("192.168.0.7", {"host": "192.168.0.7"}, True),
        ("192.168.0.7", {"host": "0.0.0.0"}, True),
        ("[fe80::1%eth0]:80", {"host": "::"}, True),
        ("evil.example", {"host": "0.0.0.0"}, False),
        ("gpu", {"allowed_host": "gpu"}, True),
        ("gpu.evil", {"allowed_host": "gpu"}, False),
        ("", {}, False),
        ("evil.example#localhost", {}, False),
        ("localhost@evil.example", {}, False),
    ],
)
def test_hosts(host, limits, answered):
    assert is_answered({"host": host}, **limits) is answered


def test_a_request_without_a_host_comes_from_no_browser():
    assert is_answered({})


def test_every_origin_can_be_allowed():
    assert is_answered({"host": "localhost", "origin": "https://x.org"}, allowed_origin="*")


@pytest.mark.parametrize("origin", ["example.org", "https://a.org/path", "https://"])
def test_an_origin_that_no_browser_sends_is_refused_at_the_start(origin):
    with pytest.raises(UsageError, match="an origin has a scheme"):
        check_origins(ServeSettings(allowed_origin=origin))
