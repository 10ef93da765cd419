"""Keys, certificates, log lines and ``/health`` of a server that other machines may reach."""

from __future__ import annotations

import logging
import signal
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep

import httpx
import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_serve.command import limits_of
from spec_serve.keys import Keys, keys_of
from spec_serve.logs import Refusals
from spec_serve.server import listening_socket, warn_of_everyone
from spec_serve.settings import ServeSettings

from spec_core import UsageError
from spec_core.commands import resolve_layers, setting_owners
from tests.serve.test_operation import LONG, program, wait_until
from tests.support.served import serving, slowly

SHORT = {"prompt": "x", "max_tokens": 1}


def test_each_key_of_a_file_is_accepted_beside_the_settings_own(tmp_path):
    file = tmp_path / "keys"
    file.write_text("first\n\n# a comment\n second \n", "utf-8")
    with serving("zoo:pico", limits={"api_key": "own", "api_key_file": str(file)}) as server:
        codes = {
            key: server.post("/v1/completions", SHORT, headers={"Authorization": f"Bearer {key}"}).status_code
            for key in ("own", "first", "second", "third", "# a comment")
        }

    assert codes == {"own": 200, "first": 200, "second": 200, "third": 401, "# a comment": 401}
    assert "first" not in repr(keys_of(ServeSettings(api_key_file=str(file))))


@pytest.mark.parametrize("text", [None, "", "# nothing\n"])
def test_a_file_without_a_key_is_refused(tmp_path, text):
    file = tmp_path / "keys"
    if text is not None:
        file.write_text(text, "utf-8")
    with pytest.raises(UsageError, match="api-key-file"):
        keys_of(ServeSettings(api_key_file=str(file)))
    assert not Keys()


def certificate(folder):
    """A self-signed certificate for localhost, made by the system's openssl."""
    files = [str(folder / "cert.pem"), str(folder / "key.pem")]
    arguments = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", files[0], "-keyout", files[1]]
    try:
        subprocess.run(["openssl", *arguments, *names], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs openssl: {error}")
    return files


def test_the_program_speaks_https(tmp_path):
    cert, key = certificate(tmp_path)
    (tmp_path / "spec.toml").write_text('model = "zoo:pico"\n[serve]\nport = 0\n')
    secure = {"SPEC_SERVE__SSL_CERT_FILE": cert, "SPEC_SERVE__SSL_KEY_FILE": key}
    with program(tmp_path, **secure) as (_, url):
        assert url.startswith("https://")
        answer = httpx.post(
            f"{url}/v1/completions", json=SHORT, verify=ssl.create_default_context(cafile=cert), timeout=30
        )

    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ssl_cert_file": "cert.pem"}, "needs its key"),
        ({"ssl_cert_file": "none.pem", "ssl_key_file": "none.pem"}, "none.pem"),
        ({"chat_template_kwargs": "[1]"}, "chat-template-kwargs"),
        ({"chat_template_file": "none.jinja"}, "none.jinja"),
        ({"reasoning_format": "deep"}, "reasoning_format"),
    ],
)
def test_a_wrong_setting_is_refused_before_the_model_is_read(settings, message):
    flags = {f"serve.{name}": value for name, value in settings.items()}
    with pytest.raises(UsageError, match=message):
        limits_of(resolve_layers(flags, {}, {}, setting_owners()))


def test_health_is_503_while_texts_finish(tmp_path):
    (tmp_path / "spec.toml").write_text('model = "zoo:pico"\n[serve]\nport = 0\n')
    with program(tmp_path, SPEC_SERVE__SHUTDOWN_SECONDS="90") as (process, url), ThreadPoolExecutor(1) as pool:
        body = {**LONG, "max_tokens": 1500, "n": 4}
        running = pool.submit(httpx.post, f"{url}/v1/completions", json=body, timeout=60)
        wait_until(lambda: any(slot["is_processing"] for slot in httpx.get(f"{url}/slots").json()))
        process.send_signal(signal.SIGTERM)
        sleep(0.2)
        health = httpx.get(f"{url}/health")
        refused = httpx.post(f"{url}/v1/completions", json=SHORT)
        answer = running.result()
        code, output = process.wait(timeout=30), process.stderr.read()

    assert health.status_code == 503 and health.json() == {"status": "shutting down"}
    assert refused.status_code == 503 and refused.json()["error"]["code"] == "shutting_down"
    assert [choice["finish_reason"] for choice in answer.json()["choices"]] == ["length"] * 4
    assert code == 0 and "SIGTERM: 4 texts have 90 seconds to finish" in output and "stopped" in output


def test_a_second_signal_cancels_what_runs(tmp_path):
    (tmp_path / "spec.toml").write_text('model = "zoo:pico"\n[serve]\nport = 0\n')
    with program(tmp_path) as (process, url), ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            httpx.post, f"{url}/v1/completions", json={**LONG, "max_tokens": 1900, "n": 16}, timeout=60
        )
        wait_until(lambda: any(slot["is_processing"] for slot in httpx.get(f"{url}/slots").json()))
        began = monotonic()
        process.send_signal(signal.SIGTERM)
        sleep(0.1)
        process.send_signal(signal.SIGTERM)
        reasons = {choice["finish_reason"] for choice in running.result().json()["choices"]}
        code = process.wait(timeout=30)

    assert code == 0 and "cancelled" in reasons and monotonic() - began < 20


def test_an_idle_server_ends_at_once(tmp_path):
    (tmp_path / "spec.toml").write_text('model = "zoo:pico"\n[serve]\nport = 0\n')
    with program(tmp_path) as (process, url):
        httpx.get(f"{url}/health")  # signals are its own from now on
        began = monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0 and monotonic() - began < 10


@pytest.mark.parametrize(
    ("host", "key", "warned"),
    [("0.0.0.0", None, True), ("0.0.0.0", "secret", False), ("127.0.0.1", None, False), ("localhost", None, False)],
)
def test_a_public_address_without_a_key_is_said(caplog, host, key, warned):
    limits = ServeSettings(host=host, port=0, api_key=key)
    with caplog.at_level(logging.INFO, "spec_serve"), listening_socket(limits) as listener:
        warn_of_everyone(listener, limits)

    assert (f"everyone who reaches {host} can use this server" in caplog.text) == warned
    assert "secret" not in caplog.text


def test_refusals_are_logged_without_what_was_sent(caplog):
    with caplog.at_level(logging.INFO, "spec_serve"), serving("zoo:pico", limits={"api_key": "k"}) as server:
        server.post("/v1/completions", {**SHORT, "a_secret": 1}, headers={"Authorization": "Bearer k"})
        server.post("/v1/completions", SHORT, headers={"Authorization": "Bearer another_secret"})
        server.get("/no/such/path", headers={"Authorization": "Bearer k"})

    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("refused")]
    assert [line.split(" client=127.0.0.1 request_id=")[0] for line in lines] == [
        "refused status=400 path='/v1/completions' why=unknown_field",
        "refused status=401 path='/v1/completions' why=invalid_api_key",
        "refused status=404 path='/no/such/path' why=not_found_error",
    ]
    assert "secret" not in caplog.text


def test_a_flood_of_refusals_does_not_fill_the_log(caplog):
    from spec_serve.errors import ApiError

    refusals = Refusals(most=3)
    with caplog.at_level(logging.INFO, "spec_serve"):
        for _ in range(100):
            refusals.note(ApiError(400, "x"), "/")

    assert len(caplog.records) <= 8


def test_metrics_have_the_cache_and_the_process(server):
    server.post("/v1/completions", {**SHORT, "prompt": "a text whose rows are kept"})
    answer = server.get("/metrics")
    values = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))

    assert float(values["spec:prompt_cache_tokens"]) > 0 and float(values["spec:prompt_cache_texts"]) > 0
    assert float(values["llamacpp:prompt_tokens_cached_total"]) >= 0 and "llamacpp:n_tokens_max" in values
    assert float(values["llamacpp:n_busy_slots_per_decode"]) >= 1
    assert int(answer.headers["Process-Start-Time-Unix"]) > 0
    assert not sys.platform.startswith("linux") or float(values["process_resident_memory_bytes"]) > 1e6


def test_a_forward_is_counted_once_for_all_its_texts():
    with serving("zoo:pico") as server, slowly(server):
        server.post("/v1/completions", {**SHORT, "n": 4, "max_tokens": 40, "ignore_eos": True})
        counts = server.engine.counters

    assert counts.forwards < counts.generated == 160 and counts.parts > 2 * counts.forwards
