"""``spec get`` and ``hub:``: what is fetched, what is not fetched again, and what happens after a break."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from spec_cli.main import run_command
from spec_hub.client import connect_hub
from spec_hub.fetch import fetch_model, path_of
from spec_hub.hub_name import HubName, parse_name
from spec_hub.remote_file import HubError
from spec_zoo import path as zoo_path

from spec_core import Run, UsageError, load
from tests.support.hugging_face import directory
from tests.support.local_hub import HubFile, LocalHub
from tests.support.small_heads import directory as head_directory

SIZE = 100_000
DATA = random.Random(1).randbytes(SIZE)


def fetch_by_name(name: str) -> Path:
    return fetch_model(parse_name(name), connect_hub())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("org/name", HubName("org/name")),
        ("hub:org/name:Q4_K_M", HubName("org/name", part="Q4_K_M")),
        ("org/na.me@v1.0/a:dir/file.gguf", HubName("org/na.me", "v1.0/a", "dir/file.gguf")),
    ],
)
def test_a_name_is_read_and_written(text, name):
    assert parse_name(text) == name
    assert parse_name(str(name)) == name


@pytest.mark.parametrize(
    "text",
    ["", "name", "a/b/c", "../b", "org/..", "o/n@../../x", "o/n@/etc/x", "o/n@a//b", "o/n@a/", "org/name:", "o/n@"],
)
def test_what_is_no_name_is_refused(text):
    with pytest.raises(UsageError, match="not the name of a model on a hub"):
        parse_name(text)


def test_a_quantisation_means_one_file(hub: LocalHub):
    hub.add("o/n", **{"x-Q4_K_M.gguf": DATA, "x-Q4_K_S.gguf": b"s", "x-IQ4_XS.gguf": b"i", "mmproj-Q4_K_M.gguf": b"m"})

    path = fetch_by_name("o/n:q4_k_m")

    assert path.name == "x-Q4_K_M.gguf"
    assert path.read_bytes() == DATA
    assert len(hub.transfers()) == 2, "the redirect and the file, and no other"


@pytest.mark.parametrize("part", ["Q4_K", "Q4", "XS", "Q5_K_M", "x-Q4_K_M", "../x-Q4_K_M.gguf"])
def test_a_quantisation_that_is_not_there_is_refused_with_what_is(hub: LocalHub, part):
    hub.add("o/n", **{"x-Q4_K_M.gguf": DATA, "x-IQ4_XS.gguf": b"i"})

    if part in ("x-Q4_K_M",):
        assert fetch_by_name(f"o/n:{part}").name == "x-Q4_K_M.gguf"
        return
    with pytest.raises(UsageError) as error:
        fetch_by_name(f"o/n:{part}")
    assert "Q4_K_M" in error.value.hint
    assert not hub.transfers()


def test_several_models_without_a_preferred_one_are_listed(hub: LocalHub):
    hub.add("o/n", **{"x-Q8_0.gguf": b"8", "x-Q2_K.gguf": b"2"})

    with pytest.raises(UsageError, match=r"several models: x-Q8_0.gguf .*x-Q2_K.gguf"):
        fetch_by_name("o/n")

    hub.add("o/n", **{"x-Q8_0.gguf": b"8", "x-Q4_K_M.gguf": b"4"})
    assert fetch_by_name("o/n").read_bytes() == b"4"


def test_a_file_in_parts_is_fetched_whole(hub: LocalHub):
    hub.add("o/n", **{f"q/x-Q8_0-0000{i}-of-00003.gguf": bytes([i]) * 5 for i in (3, 1, 2)})

    path = fetch_by_name("o/n:Q8_0")

    assert path.name == "x-Q8_0-00001-of-00003.gguf"
    assert [file.read_bytes()[0] for file in sorted(path.parent.iterdir())] == [1, 2, 3]


def test_a_missing_part_is_refused_before_anything_is_fetched(hub: LocalHub):
    hub.add("o/n", **{f"x-Q8_0-0000{i}-of-00003.gguf": b"x" for i in (1, 3)})

    with pytest.raises(UsageError, match=r"lacks 1 of 3 parts, such as x-Q8_0-00002-of-00003.gguf"):
        fetch_by_name("o/n:Q8_0")
    assert not hub.transfers()


def test_a_directory_is_fetched_whole_and_its_config_last(hub: LocalHub):
    index = b'{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}'
    needed = {
        "config.json": b"{}",
        "tokenizer.json": b"{ }",
        "model.safetensors.index.json": index,
        "model-00001-of-00002.safetensors": DATA,
        "model-00002-of-00002.safetensors": DATA[:5000],
    }
    others = {"README.md": b"", "consolidated.safetensors": DATA, "original/a.json": b"", "pytorch_model.bin": b"p"}
    hub.add("o/n", **needed, **others)

    path = fetch_by_name("o/n")

    assert {file.name: file.read_bytes() for file in path.iterdir()} == needed
    assert hub.transfers()[-1].endswith("config.json")


def test_what_is_in_the_cache_needs_no_network(hub: LocalHub):
    hub.add("o/n", **{"x-Q8_0.gguf": DATA})
    path = fetch_by_name("o/n")
    hub.requests.clear()

    assert path_of(parse_name("o/n:Q8_0")) == path
    assert not hub.requests
    assert fetch_by_name("o/n") == path
    assert not hub.transfers(), "its listing is asked for the newest revision, and nothing has changed"


def test_a_new_revision_is_fetched_and_the_old_one_stays_pinned(hub: LocalHub):
    hub.add("o/n", **{"x.gguf": b"old"})
    old = fetch_by_name("o/n")
    hub.commits["main"] = "3" * 40
    hub.add("o/n", **{"x.gguf": b"new"})

    assert path_of(parse_name("o/n")) == old
    assert fetch_by_name("o/n").read_bytes() == b"new"
    assert path_of(parse_name("o/n")).read_bytes() == b"new"
    assert path_of(parse_name(f"o/n@{'1' * 40}")).read_bytes() == b"old"


def test_a_directory_with_a_missing_shard_is_not_whole(hub: LocalHub):
    index = b'{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}'
    shards = {f"model-0000{i}-of-00002.safetensors": b"s%d" % i for i in (1, 2)}
    hub.add("o/n", **{"config.json": b"{}", "model.safetensors.index.json": index, **shards})
    (fetch_by_name("o/n") / "model-00002-of-00002.safetensors").unlink()
    hub.requests.clear()

    path = path_of(parse_name("o/n"))

    assert hub.requests
    assert (path / "model-00002-of-00002.safetensors").read_bytes() == b"s2"


@pytest.mark.parametrize("ranges", [True, False])
def test_a_download_that_breaks_at_every_tenth_is_whole(hub: LocalHub, ranges):
    """In one process. With ranges every byte is sent once; without them the file begins again, and ends in time."""
    hub.add("o/n", **{"x.gguf": DATA})
    hub.ranges = ranges
    hub.breaks = [SIZE // 10] * 9 if ranges else [SIZE * i // 10 for i in range(1, 10)]

    path = fetch_by_name("o/n")

    assert hashlib.sha256(path.read_bytes()).hexdigest() == hashlib.sha256(DATA).hexdigest()
    starts = [headers.get("range") for _, p, headers in hub.requests if p.startswith("/lfs/")]
    assert starts == [None, *(f"bytes={SIZE * i // 10}-" for i in range(1, 10))]


@pytest.mark.parametrize("tenth", range(10))
def test_a_download_that_failed_at_any_tenth_goes_on_there(hub: LocalHub, cache, monkeypatch, tenth):
    monkeypatch.setattr("spec_hub.transfer.TRIES", 1)
    hub.add("o/n", **{"x.gguf": DATA})
    first = max(1, SIZE * tenth // 10)
    hub.breaks = [first, 0]

    with pytest.raises(HubError, match=r"connection to .* broke"):
        fetch_by_name("o/n")
    assert [file.stat().st_size for file in cache.rglob("*.incomplete")] == [first]
    assert not list(cache.rglob("*.gguf"))
    hub.requests.clear()
    path = fetch_by_name("o/n")

    assert hashlib.sha256(path.read_bytes()).hexdigest() == hashlib.sha256(DATA).hexdigest()
    assert [h["range"] for _, p, h in hub.requests if p.startswith("/lfs/")] == [f"bytes={first}-"]
    assert not list(cache.rglob("*.incomplete"))


def test_a_connection_that_never_brings_a_byte_is_tried_five_times(hub: LocalHub):
    hub.add("o/n", **{"x.gguf": DATA})
    hub.breaks = [0] * 20

    with pytest.raises(HubError, match=r"connection to .* broke"):
        fetch_by_name("o/n")
    assert len(hub.breaks) == 15


def test_a_server_that_is_not_there_is_a_plain_error(hub: LocalHub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")

    with pytest.raises(HubError, match=r"connection to http://127.0.0.1:9 broke: ConnectError"):
        fetch_by_name("o/n")


@pytest.mark.parametrize("where", ["/api/models", "/resolve/", "/lfs/"])
@pytest.mark.parametrize(
    ("status", "words"), [(401, "private, gated"), (403, "gated"), (404, "has no"), (429, "429"), (500, "500")]
)
def test_a_status_is_a_plain_error(hub: LocalHub, where, status, words, capsys):
    hub.add("o/n", **{"x.gguf": DATA})
    hub.statuses = {where: status}

    code = run_command(["get", "o/n"])

    error = capsys.readouterr().err
    assert code == (1 if status in (429, 500) else 2)
    assert words in error and "o/n" in error and "\n  " in error
    assert "Traceback" not in error
    assert status != 429 or "in 7 s" in error


@pytest.mark.parametrize("path", ["/o/n/resolve/main/x.gguf", "/lfs/o/n/x.gguf", "/api/models/o/n"])
@pytest.mark.parametrize("request_bytes", [b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n", b"GET %s HTTP/1.1\r\nHost"])
def test_a_client_that_leaves_early_prints_nothing(hub: LocalHub, path, request_bytes, capfd):
    """As after a status that ends a transfer: the hub of the tests has then nobody to answer to."""
    hub.add("o/n", **{"x.gguf": bytes(1 << 24)})
    request = request_bytes.replace(b"%s", path.encode())
    for address in (hub.endpoint, hub.storage):
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
            client.sendall(request)
    time.sleep(0.3)

    assert capfd.readouterr().err == ""


def test_a_page_that_is_no_listing_is_a_plain_error(hub: LocalHub, capsys):
    hub.statuses = {"/api/models": 200}

    assert run_command(["get", "o/n"]) == 1
    assert "the API of a hub is needed" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["o/absent", "o/n@absent"])
def test_what_the_hub_has_not_is_a_plain_error(hub: LocalHub, name):
    hub.add("o/n", **{"x.gguf": DATA})

    with pytest.raises(UsageError, match=f"has no hub:{name} \\(404\\)"):
        fetch_by_name(name)


def test_offline_nothing_is_requested(hub: LocalHub, monkeypatch):
    hub.add("o/n", **{"x.gguf": DATA})
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    with pytest.raises(UsageError, match=r"is not in the cache .* HF_HUB_OFFLINE forbids"):
        load("hub:o/n")
    assert not hub.requests
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    path = fetch_by_name("o/n")
    hub.requests.clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert fetch_by_name("o/n") == path
    assert not hub.requests


def test_a_token_goes_to_the_hub_and_not_to_its_storage(hub: LocalHub, monkeypatch):
    hub.add("o/n", **{"x.gguf": DATA})
    hub.token = "hf_secret"
    with pytest.raises(UsageError, match="private, gated"):
        fetch_by_name("o/n")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.requests.clear()

    assert fetch_by_name("o/n").read_bytes() == DATA
    tokens = {path.split("/")[1]: headers.get("authorization") for _, path, headers in hub.requests}
    assert tokens == {"api": "Bearer hf_secret", "o": "Bearer hf_secret", "lfs": None}


def test_without_the_package_the_command_that_installs_it_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)

    assert run_command(["get", "o/n"]) == 2
    assert "pip install 'spec-core[hub]'" in capsys.readouterr().err


def test_a_full_disk_is_refused_before_anything_is_written(hub: LocalHub, cache, monkeypatch):
    hub.add("o/n", **{"x.gguf": DATA})
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": SIZE - 1}))

    with pytest.raises(HubError, match=r"needs 0.00 GB more in .*, 0.00 GB are free"):
        fetch_by_name("o/n")
    assert not hub.transfers()
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_a_disk_that_fills_up_is_a_plain_error(hub: LocalHub, monkeypatch):
    hub.add("o/n", **{"x.gguf": DATA})
    monkeypatch.setattr(
        "spec_hub.transfer.os.replace", lambda *paths: (_ for _ in ()).throw(OSError(28, "No space left"))
    )

    with pytest.raises(HubError, match=r"cannot be stored in .*: No space left") as error:
        fetch_by_name("o/n")
    assert "HF_HUB_CACHE" in error.value.hint


def test_a_model_of_the_hub_writes_the_text_of_its_file(hub: LocalHub):
    file = zoo_path("pico")
    hub.add("spec/pico-GGUF", **{"pico-Q8_0.gguf": file.read_bytes()})

    texts = {Run(name).generate("def add(a, b):\n", max_tokens=8).text for name in ("hub:spec/pico-GGUF", file)}

    assert len(texts) == 1
    assert len([path for path in hub.transfers() if path.startswith("/lfs/")]) == 1


def test_a_path_of_that_name_wins(hub: LocalHub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hub:o").mkdir()
    (tmp_path / "hub:o" / "n").symlink_to(zoo_path("pico"))

    assert load("hub:o/n", weights=False).info.family == "qwen3"
    assert not hub.requests


def test_the_program_honours_the_environment(hub: LocalHub, tmp_path):
    """As a user runs it: address, home and token of the environment."""
    hub.add("o/n", **{"x.gguf": DATA})
    hub.token = "hf_secret"
    env = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": "hf_secret"}
    program = [sys.executable, "-m", "spec_cli.main", "get", "o/n"]

    done = subprocess.run(program, env=env, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.strip())
    assert path.read_bytes() == DATA
    assert path.is_relative_to(tmp_path / "hf" / "hub" / "models--o--n" / "snapshots")
    assert "spec generate -m hub:o/n --method best" in done.stderr


def test_the_cache_is_that_of_huggingface_hub(hub: LocalHub):
    """It finds what was fetched here, and what it fetched is not fetched here again."""
    huggingface_hub = pytest.importorskip("huggingface_hub")
    hub.add("o/n", **{"x.gguf": DATA, "small.gguf": b"small"})
    path = fetch_by_name("o/n:x.gguf")

    assert huggingface_hub.try_to_load_from_cache("o/n", "x.gguf") == str(path)
    assert [repo.repo_id for repo in huggingface_hub.scan_cache_dir().repos] == ["o/n"]
    assert HubFile(DATA).digest == path.resolve().name


def test_the_next_commands_are_named(hub: LocalHub, capsys):
    """Of a model: how to run it, and drafters for it; of a drafter: how to run it with its target."""
    hub.add("unsloth/Qwen3-8B-GGUF", **{"Qwen3-8B-Q4_K_M.gguf": b"m", "mtp-Qwen3-8B.gguf": b"d"})
    hub.add("z-lab/Qwen3-8B-DFlash-b16", **{"config.json": b"{}", "model.safetensors": b"w"})
    lines = []
    for name in ("unsloth/Qwen3-8B-GGUF", "unsloth/Qwen3-8B-GGUF:mtp-Qwen3-8B.gguf", "z-lab/Qwen3-8B-DFlash-b16"):
        assert run_command(["get", name]) == 0
        lines.append(capsys.readouterr().err)

    assert "spec generate -m hub:unsloth/Qwen3-8B-GGUF --method best" in lines[0]
    assert "spec get unsloth/Qwen3-8B-GGUF:mtp-Qwen3-8B.gguf" in lines[0]
    assert "a drafter for dflash is published for it: spec get z-lab/Qwen3-8B-DFlash-b16" in lines[0]
    assert "spec generate -m hub:unsloth/Qwen3-8B-GGUF --method best" in lines[1]
    assert "spec generate -m MODEL --method dflash=hub:z-lab/Qwen3-8B-DFlash-b16" in lines[2]


def test_a_directory_is_named_like_its_repository(hub: LocalHub, tmp_path):
    """A target and a head: the folder in the cache has a commit as its name."""
    for name, folder in {
        "o/pico": directory("zoo:pico"),
        "o/head": head_directory(tmp_path, "eagle3", "speculators"),
    }.items():
        hub.add(name, **{file.name: file.read_bytes() for file in folder.iterdir()})

    target, head = load("hub:o/pico"), load("hub:o/head", weights=False)

    assert (target.info.name, head.info.name) == ("pico", "head")
    assert load("hub:o/pico", weights=False).info.name == "pico"
