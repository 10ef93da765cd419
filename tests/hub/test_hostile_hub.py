"""A hub that lies: everything that it may serve is refused, and nothing is written outside of the cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from spec_hub.client import connect_hub
from spec_hub.fetch import fetch_model
from spec_hub.hub_name import parse_name
from spec_hub.remote_file import HubError

from spec_core import UsageError, load
from tests.support.local_hub import HubFile, LocalHub

DATA = b"x" * 50_000


@pytest.fixture(autouse=True)
def nothing_outside(cache: Path, tmp_path: Path) -> Iterator[None]:
    """After every test the folder has the cache and nothing else, and the cache no file but under its repository."""
    yield
    files = [path for path in tmp_path.rglob("*") if path.is_file() or path.is_symlink()]
    allowed = cache / "models--o--n", cache / ".locks" / "models--o--n"
    assert not [path for path in files if not any(path.is_relative_to(folder) for folder in allowed)]


def refuse(hub: LocalHub, words: str) -> None:
    """Every file is refused, and none of them is part of a snapshot."""
    with pytest.raises(HubError, match=words):
        fetch_model(parse_name("o/n"), connect_hub())


@pytest.mark.parametrize(
    "path",
    [
        "../evil.gguf", "a/../../../evil.gguf", "/tmp/evil.gguf", "a//b.gguf", "./x.gguf", "..", "", "a\\..\\b.gguf",
        "a/./b.gguf", "x\n.gguf", "x\x1b[2J.gguf", "a/",
    ],
)  # fmt: skip
def test_a_path_that_leaves_its_folder_is_refused(hub: LocalHub, path):
    hub.add("o/n", **{"x.gguf": DATA, path: DATA})

    refuse(hub, "a path inside the repository is needed")
    assert not hub.transfers()


@pytest.mark.parametrize("digest", ["../../../../evil", "0" * 63, "Z" * 64, "", "a" * 40 + "/x"])
def test_a_hash_that_is_none_is_refused(hub: LocalHub, digest):
    hub.add("o/n", **{"x.gguf": HubFile(DATA)})
    hub.repositories["o/n"]["x.gguf"].digest = digest

    refuse(hub, "a SHA-256 or a SHA-1 of git is needed")
    assert not hub.transfers()


@pytest.mark.parametrize("commit", ["../../evil", "main", "", "A" * 40])
def test_a_commit_that_is_none_is_refused(hub: LocalHub, commit):
    hub.add("o/n", **{"x.gguf": DATA})
    hub.commits["main"] = commit

    refuse(hub, "with a commit")


@pytest.mark.parametrize("data", [DATA, b"short"])
def test_a_file_longer_than_announced_is_cut_off_and_removed(hub: LocalHub, cache, data):
    hub.add("o/n", **{"x.gguf": HubFile(data, size=len(data) - 1)})

    refuse(hub, f"longer than the {len(data) - 1} bytes")
    assert not [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_a_file_shorter_than_announced_is_refused(hub: LocalHub):
    hub.add("o/n", **{"x.gguf": HubFile(DATA, size=len(DATA) + 1)})

    refuse(hub, "ends before its 50001 bytes|status 416")


@pytest.mark.parametrize("data", [DATA, b"short"])
def test_a_file_of_another_hash_is_refused_and_removed(hub: LocalHub, cache, data):
    digest = HubFile(data[::-1] + b".").true_digest
    hub.add("o/n", **{"x.gguf": HubFile(data, digest=digest)})

    refuse(hub, f"the hub announced {digest}")
    assert not [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_a_resumed_file_of_another_hash_is_refused(hub: LocalHub, cache):
    """What lies in the cache may be damaged too: it is removed, and the next download begins again."""
    hub.add("o/n", **{"x.gguf": DATA})
    partial = cache / "models--o--n" / "blobs" / f"{HubFile(DATA).digest}.incomplete"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"y" * 1000)

    refuse(hub, "has the hash")
    assert fetch_model(parse_name("o/n"), connect_hub()).read_bytes() == DATA


def test_an_endless_redirect_is_refused(hub: LocalHub):
    hub.add("o/n", **{"x.gguf": DATA})
    hub.loop = True

    refuse(hub, "redirects without end")
    assert len(hub.transfers()) < 30


def test_a_config_of_ten_gigabytes_is_refused(hub: LocalHub):
    hub.add("o/n", **{"config.json": HubFile(b"{}", size=10 << 30), "model.safetensors": DATA})

    refuse(hub, "config.json with 10737418240 bytes; at most")
    assert not hub.transfers()


def test_a_link_of_git_stays_a_small_text(hub: LocalHub):
    """git stores a link as a file with a path; it is never made a link of the file system."""
    hub.add("o/n", **{"x.gguf": b"../../../../etc/passwd"})

    path = fetch_model(parse_name("o/n"), connect_hub())

    assert path.read_bytes() == b"../../../../etc/passwd"
    assert path.resolve().parent.name == "blobs"
    with pytest.raises(UsageError, match="does not begin with GGUF"):
        load("hub:o/n")


def test_a_negative_size_is_refused(hub: LocalHub):
    hub.add("o/n", **{"x.gguf": DATA})
    hub.repositories["o/n"]["x.gguf"].size = -5

    refuse(hub, "-5 bytes")
