"""The prompt cache is kept across a restart: equal texts, reused rows, and files of strangers are refused."""

from __future__ import annotations

import json
import os
import signal
from hashlib import sha256

import pytest
from spec_serve import prompt_cache

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("httpx", reason="needs httpx")

import httpx
from spec_serve.prompt_cache import Prefix

from spec_core import Request, Run, UsageError, load
from tests.serve.test_operation import program

FIRST = "def add(a, b):\n    return a + b\n\n\ndef mul(a, b):\n" * 6
OTHER = "import os\nimport sys\n\n\nclass Reader:\n    pass\n" * 6
METHODS = {"zoo:pico": ["ngram", "suffix", "draft-model", "eagle3", "dflash", "recycling"],
           "zoo:pico-hybrid": ["ngram", "suffix", "draft-model", "mtp", "recycling"]}  # fmt: skip
CASES = [(model, method) for model, methods in METHODS.items() for method in methods]


def generate(run, prompt, salt=""):
    return run.generate(Request(prompt, max_tokens=12, seed=3, cache_salt=salt)).result


@pytest.mark.parametrize(("model", "method"), CASES, ids=str)
def test_a_conversation_goes_on_after_a_restart(tmp_path, model, method):
    """A, B, restart, A with its answer, B, A: rows are reused at once, also by the method, and texts are plain."""
    target = load(model)
    room = 2000 + 4 * target.state_rows
    with Run(target, method, max_sequences=1, cache_tokens=room) as run:
        first = generate(run, FIRST)
        generate(run, OTHER)
        prompt_cache.save_prefixes(tmp_path / "cache", run)
    again = FIRST + first.text + "\nx = "
    with Run(target, method, max_sequences=1, cache_tokens=room) as run, Run(target, reuse=False) as plain:
        prompt_cache.evaluate_prefixes(run, prompt_cache.read_prefix_file(tmp_path / "cache", run))
        for prompt in (again, OTHER, FIRST):
            result = generate(run, prompt)
            assert result.tokens == generate(plain, prompt).tokens
            assert result.reused >= result.prompt_tokens // 2, (result.reused, result.prompt_tokens)


def test_the_file_has_prefixes_with_their_salts_and_is_its_owners_alone(tmp_path):
    path = tmp_path / "cache"
    with Run(load("zoo:pico"), max_sequences=2, cache_tokens=2000) as run:
        generate(run, FIRST, "one")
        generate(run, OTHER, "two")
        assert prompt_cache.save_prefixes(path, run) == 2
        prefixes = prompt_cache.read_prefix_file(path, run)
    assert [prefix.salt for prefix in prefixes] == ["one", "two"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["cache"]
    with Run(load("zoo:pico"), max_sequences=2, cache_tokens=2000) as run:
        prompt_cache.evaluate_prefixes(run, prefixes)
        assert generate(run, FIRST, "two").reused == 0
        assert generate(run, FIRST, "one").reused > 0


def file_of(contents):
    body = (contents if isinstance(contents, str) else json.dumps(contents)).encode()
    return prompt_cache.MAGIC + b" " + sha256(body).hexdigest().encode() + b"\n" + body


WRONG = {
    "empty": (b"", "another version"),
    "older": (b"spec-prompt-cache 0", "another version"),
    "no checksum": (prompt_cache.MAGIC, "cut or damaged"),
    "no json": ('{"model":MODEL', "Expecting"),
    "nested": ('{"model":MODEL,"prefixes":' + "[" * 100_000, "nested too deeply"),
    "no list": ('{"model":MODEL,"prefixes":{}}', "no list of prefixes"),
}
OTHERS = {
    "another name": {"model": {"name": "other"}, "prefixes": []},
    "another vocabulary": {"model": {"vocabulary": "x"}, "prefixes": []},
    "no model": {"vocabulary": "x", "prefixes": []},
    "a list": [],
}
PREFIXES = {
    "token too large": [[10**9], "", []],
    "negative": [[-1], "", []],
    "no tokens": [[], "", []],
    "truth": [[True], "", []],
    "salt": [[1], 1, []],
    "checkpoint": [[1], "", [2]],
    "order": [[1, 2], "", [2, 1]],
    "short": [[1]],
    "object": {},
}


@pytest.fixture(scope="module")
def run():
    with Run(load("zoo:pico"), max_sequences=1, cache_tokens=100) as second_run:
        yield second_run


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG)
def test_a_prompt_cache_that_cannot_be_used_is_a_warning(tmp_path, run, data, message, caplog):
    if isinstance(data, str):
        data = file_of(data.replace("MODEL", json.dumps(prompt_cache.identity(run))))
    (tmp_path / "cache").write_bytes(data)

    assert prompt_cache.read_prefix_file(tmp_path / "cache", run) == []
    assert message in caplog.text and "is replaced at the end" in caplog.text


@pytest.mark.parametrize("contents", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("damaged", [False, True])
def test_the_file_of_another_model_is_neither_used_nor_replaced(tmp_path, run, contents, damaged, caplog):
    if isinstance(contents, dict) and "model" in contents:
        contents = {**contents, "model": {**prompt_cache.identity(run), **contents["model"]}}
    data = file_of(json.dumps(contents, separators=(",", ":")))[: -1 if damaged else None]
    (tmp_path / "cache").write_bytes(data)

    assert prompt_cache.read_prefix_file(tmp_path / "cache", run) is None
    assert "neither used nor replaced" in caplog.text
    prompt_cache.write_prefixes(tmp_path / "cache", run)  # as if another server had written it meanwhile
    assert (tmp_path / "cache").read_bytes() == data and "is not replaced" in caplog.text


def test_a_server_leaves_the_prompt_cache_of_another_model(tmp_path):
    """Models with one vocabulary too: the file stays as it is, and one line says so."""
    (tmp_path / "spec.toml").write_text('model = "zoo:pico"\n[serve]\nport = 0\nprompt_cache = "cache"\n')
    with Run(load("zoo:pico-hybrid"), max_sequences=1) as other:
        generate(other, FIRST)
        prompt_cache.save_prefixes(tmp_path / "cache", other)
    before = (tmp_path / "cache").read_bytes()

    with program(tmp_path) as (process, url):
        assert httpx.get(f"{url}/health", timeout=30).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    assert (tmp_path / "cache").read_bytes() == before


def test_a_file_of_another_kind_is_refused(tmp_path, run):
    """It would be replaced at the end."""
    (tmp_path / "model.gguf").write_bytes(b"GGUF\x03\x00")
    with pytest.raises(UsageError, match="is no prompt cache"):
        prompt_cache.read_prefix_file(tmp_path / "model.gguf", run)


def test_what_is_written_is_under_the_limit_of_what_is_read(tmp_path, run, monkeypatch):
    """Long texts of many salts: the most recently used ones have room."""
    prefixes = [Prefix((1,) * 200, f"salt {i}") for i in range(100)]
    monkeypatch.setattr(prompt_cache, "BYTES_MAX", 20_000)
    monkeypatch.setattr(prompt_cache, "prefixes", lambda run: prefixes)

    count = prompt_cache.save_prefixes(tmp_path / "cache", run)

    assert 10 < count < 100 and (tmp_path / "cache").stat().st_size < 20_000
    assert prompt_cache.read_prefix_file(tmp_path / "cache", run) == prefixes[-count:]


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
def test_a_prefix_that_cannot_be_one_is_refused(run, prefix):
    right = {"model": prompt_cache.identity(run), "prefixes": [[[1, 2], "", [1]]]}
    assert prompt_cache.read_prefixes(file_of(right), run) == [Prefix((1, 2), "", (1,))]
    with pytest.raises(ValueError, match="a prefix must be"):
        prompt_cache.read_prefixes(file_of({**right, "prefixes": [prefix]}), run)


def test_every_cut_and_every_changed_byte_is_found(run):
    whole = file_of({"model": prompt_cache.identity(run), "prefixes": [[[1, 2], "", []]]})
    for at in range(len(whole)):
        for data in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
            with pytest.raises(ValueError, match=r"cut or damaged|another version"):
                prompt_cache.read_prefixes(data, run)


def test_the_latest_prefixes_are_taken_where_there_is_no_room_for_all(run):
    context = run.target.info.context
    prefixes = [Prefix((1,) * (context - 1)), Prefix((2,) * context), Prefix((3,) * 60), Prefix((4,) * 60)]
    assert prompt_cache.fitting_prefixes(prefixes, run) == prefixes[2:]


def test_a_prefix_that_fills_the_context_is_left_out(run):
    """No token could follow it."""
    prefixes = [Prefix((1,) * (run.target.info.context - n)) for n in (1, 0)]

    assert prompt_cache.fitting_prefixes(prefixes[:1], run) == prefixes[:1]
    assert prompt_cache.fitting_prefixes(prefixes[1:], run) == []


def test_files_that_cannot_be_read_or_written_are_refused_at_the_start(tmp_path, run):
    with pytest.raises(UsageError, match="cannot be read"):
        prompt_cache.read_prefix_file(tmp_path, run)
    with pytest.raises(UsageError, match="does not exist or cannot be written"):
        prompt_cache.check_folder(tmp_path / "none" / "cache")
    assert prompt_cache.read_prefix_file(tmp_path / "none", run) == []


def test_a_server_starts_again_with_what_it_had(tmp_path):
    """The command: SIGTERM writes the file, the next server reuses the prompt, and a damaged file is refused."""
    (tmp_path / "spec.toml").write_text(
        'model = "zoo:pico"\nmethods = ["ngram"]\n[serve]\nport = 0\nprompt_cache = "cache"\n'
    )
    body = {"prompt": FIRST, "max_tokens": 8, "temperature": 0}
    answers = []
    for _ in range(2):
        with program(tmp_path) as (process, url):
            answers.append(httpx.post(f"{url}/v1/completions", json=body, timeout=30).json())
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
    cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
    assert cached[0] == 0 and cached[1] == answers[1]["usage"]["prompt_tokens"] - 1
    assert answers[0]["choices"][0]["text"] == answers[1]["choices"][0]["text"]
