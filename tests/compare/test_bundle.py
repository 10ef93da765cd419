"""Bundles: what was measured can be checked and recomputed from one file; a truncated or altered file is refused."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import random
import shutil
import tracemalloc
import zipfile

import pytest
from spec_cli.main import run_command
from spec_compare.exports import tables
from spec_compare.exports.bundle import MANIFEST, entry, zip_files
from spec_compare.records import reading

from spec_core import UsageError
from tests.compare.test_compare import begin, folder, words  # noqa: F401

LAPS, SUMMARY = "results.jsonl", "summary.json"


@pytest.fixture(scope="module")
def comparison_folder(tmp_path_factory):
    """A folder with the results of a comparison and their bundle, made once."""
    bundle = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        begin(patch, bundle)
        assert run_command(words("--method", "repeat", "--out", "out")) == 0
        assert run_command(["compare", "bundle", "out", "b.zip", "--no-report"]) == 0
    return bundle


@pytest.fixture
def bundle(comparison_folder, folder):  # noqa: F811
    """The path of a bundle without a report."""
    shutil.copytree(comparison_folder, folder, dirs_exist_ok=True)
    return folder / "b.zip"


def files(path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def refusal_of(path, capsys) -> str:
    """The message with which the bundle is refused."""
    code = run_command(["compare", "check", str(path)])
    out, err = capsys.readouterr()

    assert code == 2, err
    assert "Traceback" not in err and "speedup" not in out
    return err


def rebuild(path, change) -> None:
    """The bundle with other contents and a manifest that agrees with them."""
    contents = {name: data for name, data in files(path).items() if name != MANIFEST}
    change(contents)
    path.write_bytes(zip_files(contents))


def test_a_bundle_gives_the_table_again(bundle, folder, capsys):  # noqa: F811
    assert run_command(["compare", "show", "out"]) == 0
    shown = capsys.readouterr().out
    assert run_command(["compare", "check", "b.zip"]) == 0
    checked = capsys.readouterr()

    assert checked.out.startswith(shown)
    assert checked.out.endswith(f"sha256 {hashlib.sha256(bundle.read_bytes()).hexdigest()}\n")
    assert "hashes and figures agree with 6 laps" in checked.err


def test_a_bundle_has_the_records_their_schema_and_the_hashes_of_all(bundle, folder):  # noqa: F811
    contents = files(bundle)
    manifest = json.loads(contents.pop(MANIFEST))

    assert set(contents) == {LAPS, SUMMARY, "results.schema.json", "costs.jsonl", "prompts.jsonl"}
    assert contents[LAPS] == (folder / "out" / LAPS).read_bytes()
    assert manifest["files"] == {name: entry(data) for name, data in contents.items()}


def test_equal_results_make_equal_bundles(bundle, folder):  # noqa: F811
    run_command(["compare", "bundle", "out", "again.zip", "--no-report"])

    assert (folder / "again.zip").read_bytes() == bundle.read_bytes()


def test_a_bundle_has_the_report_if_it_can_be_made(bundle):
    pytest.importorskip("matplotlib")
    assert run_command(["compare", "bundle", "out", "full.zip"]) == 0

    assert files("full.zip")["report.html"].startswith(b"<!doctype html>")


def test_a_truncated_bundle_is_refused_wherever_it_ends(bundle, capsys):
    data = bundle.read_bytes()
    for share in (0.0, 0.1, 0.5, 0.9, 0.999):
        bundle.write_bytes(data[: int(len(data) * share)])
        assert "not a bundle" in refusal_of(bundle, capsys)


def test_a_bundle_with_one_other_byte_is_refused(bundle, capsys):
    """Or the byte means nothing: then the figures are the same."""
    data, rng = bundle.read_bytes(), random.Random(3)
    refusals = 0
    for _ in range(60):
        at = rng.randrange(len(data))
        altered = bytearray(data)
        altered[at] ^= 1 << rng.randrange(8)
        bundle.write_bytes(bytes(altered))
        code = run_command(["compare", "check", "b.zip"])
        output = capsys.readouterr()
        assert code in (0, 2) and "Traceback" not in output.err
        refusals += code == 2

    assert refusals > 50


def test_an_altered_file_is_refused_by_its_hash(bundle, capsys):
    contents = files(bundle)
    contents[SUMMARY] = contents[SUMMARY].replace(b'"prompts"', b'"Prompts"', 1)
    with zipfile.ZipFile(bundle, "w") as archive:
        for name, data in contents.items():
            archive.writestr(name, data)

    assert "summary.json is not what its manifest says" in refusal_of(bundle, capsys)


def test_a_summary_that_does_not_follow_from_the_records_is_refused(bundle, capsys):
    def faster(contents):
        body = json.loads(contents[SUMMARY])
        body["rows"][-1]["speedup"] *= 2
        contents[SUMMARY] = json.dumps(body).encode()

    rebuild(bundle, faster)
    assert "summary.json says speedup" in refusal_of(bundle, capsys)


def test_records_that_were_removed_are_noticed(bundle, capsys):
    def fewer(contents):
        contents[LAPS] = b"".join(contents[LAPS].splitlines(keepends=True)[:-1])

    rebuild(bundle, fewer)
    assert "5 of 6 laps: its records were cut" in refusal_of(bundle, capsys)


def test_records_that_were_changed_are_noticed_by_the_summary(bundle, capsys):
    """A lap that became twice as fast, with new hashes."""

    def faster(contents):
        *lines, last = contents[LAPS].splitlines()
        record = json.loads(last)
        record["decode_seconds"] /= 2
        contents[LAPS] = b"\n".join([*lines, json.dumps(record).encode(), b""])

    rebuild(bundle, faster)
    assert "the records give" in refusal_of(bundle, capsys)


HOSTILE = {
    "a path": ("../evil", "other files"),
    "an unknown file": ("more.txt", "which no bundle has"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_other_file_is_accepted(bundle, capsys, name):
    added, message = HOSTILE[name]

    if name == "a path":
        with zipfile.ZipFile(bundle, "a") as archive:
            archive.writestr(added, "x")
    else:
        rebuild(bundle, lambda contents: contents.update({added: b"x"}))
    assert message in refusal_of(bundle, capsys)


def pack(path, contents, manifest, method=zipfile.ZIP_DEFLATED) -> None:
    """A bundle of these contents whose manifest need not agree with them."""
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(MANIFEST, json.dumps(manifest))
        for name, data in contents.items():
            archive.writestr(name, data)


def check_memory(path, capsys) -> tuple[str, int]:
    """The message of a refusal, and the most memory that Python held."""
    tracemalloc.start()
    try:
        output = refusal_of(path, capsys)
        return output, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_file_that_unpacks_to_more_than_announced_is_not_unpacked(bundle, capsys):
    """A thousand times its size: no more than one byte too many is read."""
    contents = files(bundle)
    manifest = json.loads(contents.pop(MANIFEST))
    pack(bundle, {**contents, SUMMARY: b"0" * (50 << 20)}, manifest)
    output, held = check_memory(bundle, capsys)

    assert "summary.json is not what its manifest says" in output
    assert held < 20 << 20


@pytest.mark.parametrize("name", [LAPS, SUMMARY, "costs.jsonl"])
def test_contents_that_are_too_large_for_the_file_are_refused_before_they_are_unpacked(bundle, capsys, name):
    """Announced, with the right hash: 200 MB in a file of 200 KB."""
    contents = files(bundle)
    manifest = json.loads(contents.pop(MANIFEST))
    contents[name] = b"0" * (200 << 20)
    manifest["files"][name] = entry(contents[name])
    pack(bundle, contents, manifest)
    del contents
    output, held = check_memory(bundle, capsys)

    assert "announces contents of" in output and bundle.stat().st_size < 1 << 20
    assert held < 20 << 20


@pytest.mark.parametrize("announced", [-1, 1 << 60, "many", None, True, 1.5])
def test_an_announced_size_that_is_none_is_refused(bundle, capsys, announced):
    contents = files(bundle)
    manifest = json.loads(contents.pop(MANIFEST))
    manifest["files"][LAPS]["bytes"] = announced
    pack(bundle, contents, manifest)

    assert "b.zip" in refusal_of(bundle, capsys)


def test_a_bundle_by_another_method_of_compression_is_refused(bundle, capsys):
    """Such as one that reserves gigabytes before it unpacks a byte."""
    contents = files(bundle)
    manifest = json.loads(contents.pop(MANIFEST))
    pack(bundle, contents, manifest, zipfile.ZIP_LZMA)

    assert "compressed by method" in refusal_of(bundle, capsys)


def test_an_unfinished_comparison_is_not_bundled(bundle, folder, capsys):  # noqa: F811
    lines = (folder / "out" / LAPS).read_bytes().splitlines(keepends=True)
    (folder / "out" / LAPS).write_bytes(b"".join(lines[:-1]))

    assert run_command(["compare", "bundle", "out", "c.zip", "--no-report"]) == 2
    assert "out has 5 of 6 laps" in capsys.readouterr().err
    assert not (folder / "c.zip").exists()


@pytest.mark.parametrize("content", [b"", b"PK", b"text", b'{"format": 1}'])
def test_a_file_that_is_no_bundle_is_refused(folder, capsys, content):  # noqa: F811
    (folder / "x.zip").write_bytes(content)

    assert "not a bundle" in refusal_of(folder / "x.zip", capsys)


# values that a bundle may have


def random_text(size) -> str:
    return random.Random(1).randbytes(size // 2).hex()


@pytest.mark.parametrize("name", [LAPS, SUMMARY, "costs.jsonl", "prompts.jsonl"])
@pytest.mark.parametrize("item", [b"[],", b"{},", b"1,"])
def test_a_file_of_many_values_is_refused_before_it_is_read(bundle, capsys, name, item):
    """Paid for with random bytes in the report, which may be packed as little as they like."""
    contents = files(bundle)
    contents.pop(MANIFEST)
    contents[name] = b'{"kind":"header","x":[' + item * 5_000_000 + item[:-1] + b"]}\n"
    contents["report.html"] = random.Random(1).randbytes(1_500_000)
    bundle.write_bytes(zip_files(contents))
    del contents
    output, held = check_memory(bundle, capsys)

    assert "which no bundle has" in output and name in output
    assert held < 20 << 20


def test_values_are_counted_where_their_own_file_pays_for_them(bundle, capsys):
    """Random text in the same file: its size is right, its number of values is not."""
    contents = files(bundle)
    contents.pop(MANIFEST)
    contents[LAPS] = (
        b'{"kind":"header","x":"' + random_text(500_000).encode() + b'","y":[' + b"[]," * 3_000_000 + b"1]}\n"
    )
    bundle.write_bytes(zip_files(contents))
    del contents
    output, held = check_memory(bundle, capsys)

    assert "results.jsonl has more than" in output and held < 20 << 20


def test_more_packed_bytes_than_the_file_has_are_refused(bundle, capsys):
    data = bytearray(bundle.read_bytes())
    at = data.index(b"PK\x01\x02")  # the first entry of the central directory
    data[at + 20 : at + 24] = (1 << 30).to_bytes(4, "little")
    bundle.write_bytes(bytes(data))

    assert "b.zip" in refusal_of(bundle, capsys)


@pytest.mark.parametrize(
    "line", [b"[" * 600_000, b"[1," * 600_000, b"[" + b"1," * 5_000_000, b'["a",' + b'"a",' * 600_000]
)
def test_a_line_of_many_values_is_refused_before_it_is_read(tmp_path, line):
    (tmp_path / LAPS).write_bytes(line + b"\n")
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="line 1: more than"):
            reading.read_results(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_a_line_without_an_end_is_not_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LINE_BYTES", 1 << 10)
    (tmp_path / LAPS).write_bytes(b"a" * (1 << 20))

    with pytest.raises(UsageError, match="line 1: has more than"):
        reading.read_results(tmp_path)


# cells of a table

FORMULAS = ["=1+1", "+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "＝1", "|a", "\ufeff=1"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_cell_is_no_formula(text):
    [header, row] = csv.reader(io.StringIO(tables._csv([{text: text}]).decode(), newline=""))

    assert header == row == [f"'{text}"]


@pytest.mark.parametrize("value", ["a=1", "a", "", -1.5, 7, None, "1-2"])
def test_other_cells_are_as_they_are(value):
    assert tables.plain_cell(value) is value
