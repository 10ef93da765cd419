"""A comparison in one zip file that a paper can cite: its results, costs, schema and report, with their hashes."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
from spec_commands import common
from spec_commands.json_text import format_json

from spec_compare.figures.outcome import Outcome, recompute_outcome
from spec_compare.figures.summary import Row
from spec_compare.records import costs, prompts, schema
from spec_compare.records.reading import LAPS, SUMMARY, read_results
from spec_core.errors import UsageError, error_message, quote_value

MANIFEST, SCHEMA, REPORT = "manifest.json", "results.schema.json", "report.html"
FORMAT, VERSION = "spec-core bundle", "1.2"
NEEDED, OPTIONAL = (LAPS, SUMMARY, SCHEMA), (costs.NAME, prompts.NAME, REPORT)
DATE = (1980, 1, 1, 0, 0, 0)
"""Date of every entry, so that equal contents make equal bundles."""
LARGEST = 4 << 30
"""Max bytes of all entries."""
RATIO_MAX = 40
"""Max bytes of an entry for one of its packed bytes: records are compressed to a fifth."""
SMALL = 1 << 20
"""Bytes of an entry that may be compressed to any size, and signs of values that it may have."""
SIGNS_MAX = 4
"""Max brackets and commas for a packed byte: measured times alone take more than one."""
MANIFEST_LARGEST, SUMMARY_LARGEST = 1 << 20, 64 << 20
SIGNS = (b"[", b"{", b",")
"""A value of one of them takes Python up to a hundred bytes."""
PIECE = 1 << 20
"""Bytes that are unpacked and hashed at once."""
WORST = ("worst_family", "worst_speedup", "worst_low", "worst_high")
"""Figures that bundles of version 1.1 lack."""
NEW_FIGURE, ENDS = WORST[0], ("low", "high")
"""Version 1.1 had intervals of fewer than five prompts too."""
CLOSE = 1e-9
"""Relative difference that rounding on another machine may make."""
HINT = "get the bundle again from its source, or make it again with `spec compare bundle DIR FILE`"


def write_bundle(folder: Path, file: Path, report: bool, with_prompts: bool = True) -> str:
    """Write the bundle of a complete comparison; returns its SHA-256. report: with the HTML page.

    with_prompts: False leaves out the prompts, of the report too.

    Raises UsageError if the comparison is not complete, or the file cannot be written.
    """
    comparison = read_results(folder)
    if not comparison.complete:
        raise UsageError(
            f"{folder} has {len(comparison.laps)} of {comparison.header.laps} laps",
            hint="continue the comparison with the same command and --out",
        )
    result = recompute_outcome(comparison)
    data = zip_files(contents(folder, result if with_prompts else attrs.evolve(result, prompts=[]), report))
    try:
        common.write_file(file, data)
    except OSError as error:
        raise common.write_error(file, error) from error
    return hashlib.sha256(data).hexdigest()


def contents(folder: Path, outcome: Outcome, report: bool) -> dict[str, bytes]:
    """{name: data} of everything but the manifest. The summary is recomputed, as ``check_bundle`` will do."""
    files = {LAPS: (folder / LAPS).read_bytes(), SCHEMA: schema.FILE.read_bytes()}
    files[SUMMARY] = format_json(outcome.body(), indent=1).encode()
    left_out = () if outcome.prompts else (prompts.NAME,)
    for name in (costs.NAME, prompts.NAME):
        if (folder / name).exists() and name not in left_out:
            files[name] = (folder / name).read_bytes()
    if report:
        from spec_compare.report import page, svg

        svg.check_matplotlib()
        files[REPORT] = page.page(outcome).encode("utf-8", "replace")
    return files


def zip_files(files: Mapping[str, bytes]) -> bytes:
    manifest = {"format": FORMAT, "version": VERSION, "files": {name: entry(data) for name, data in files.items()}}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {MANIFEST: json.dumps(manifest, indent=1).encode(), **files}.items():
            archive.writestr(zipfile.ZipInfo(name, DATE), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def entry(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def check_bundle(file: Path) -> tuple[Outcome, str]:
    """The outcome recomputed from a bundle's records, and the SHA-256 of the bundle.

    Raises UsageError if the file is no bundle, is truncated, has other contents than its manifest says, or if its
    summary is not what its records give.
    """
    with TemporaryDirectory() as folder:
        unzip_bundle(file, Path(folder))
        comparison = read_results(Path(folder))
        if not comparison.complete:
            extent = f"{len(comparison.laps)} of {comparison.header.laps} laps"
            raise UsageError(f"{file} has {extent}: its records were cut", hint=HINT)
        result = recompute_outcome(comparison)
        _check_rows(file, (Path(folder) / SUMMARY).read_bytes(), result.rows)
    try:
        with file.open("rb") as stream:
            return result, hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{file}: {error_message(error)}", hint=HINT) from error


def unzip_bundle(file: Path, folder: Path) -> None:
    """Write the files of a bundle to a folder, each of the size and hash that the manifest says."""
    try:
        with zipfile.ZipFile(file) as archive:
            _check_methods(file, archive)
            listed = _manifest(file, archive)
            _check_names(file, archive, listed)
            _check_sizes(file, archive, listed)
            for name, facts in listed.items():
                _extract(file, archive, name, facts, folder / name)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, OSError, ValueError, NotImplementedError) as error:
        raise UsageError(f"{file} is not a bundle, or a damaged one: {error_message(error)}", hint=HINT) from error
    except (RuntimeError, zlib.error) as error:
        raise UsageError(f"{file} is damaged: {error_message(error)}", hint=HINT) from error


def _manifest(file: Path, archive: zipfile.ZipFile) -> dict[str, dict[str, Any]]:
    names = archive.namelist()
    if names.count(MANIFEST) != 1:
        raise UsageError(f"{file} is not a bundle: it has no {MANIFEST}", hint=HINT)
    if archive.getinfo(MANIFEST).file_size > MANIFEST_LARGEST:
        raise UsageError(f"{file}: {MANIFEST} is too large", hint=HINT)
    manifest = json.loads(archive.read(MANIFEST))
    if (
        not isinstance(manifest, dict)
        or manifest.get("format") != FORMAT
        or not isinstance(manifest.get("files"), dict)
    ):
        raise UsageError(f"{file}: {MANIFEST} is not one of {FORMAT}", hint=HINT)
    if str(manifest.get("version")).partition(".")[0] != VERSION.partition(".")[0]:
        raise UsageError(
            f"{file} has the format version {quote_value(manifest.get('version'))}, not {VERSION}", hint=HINT
        )
    return manifest["files"]


def _check_names(file: Path, archive: zipfile.ZipFile, listed: Mapping[str, Any]) -> None:
    names = sorted(archive.namelist())
    if names != sorted([MANIFEST, *listed]):
        raise UsageError(f"{file} has other files than its manifest lists: {quote_value(names)}", hint=HINT)
    if missing := [name for name in NEEDED if name not in listed]:
        raise UsageError(f"{file} has no {', '.join(missing)}", hint=HINT)
    if unknown := [name for name in listed if name not in (*NEEDED, *OPTIONAL)]:
        raise UsageError(f"{file} has {quote_value(unknown[0])}, which no bundle has", hint=HINT)


def _check_methods(file: Path, archive: zipfile.ZipFile) -> None:
    """Refuse other compression than deflate: some reserve the memory that an entry asks for before unpacking a byte."""
    if other := {entry.compress_type for entry in archive.infolist()} - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise UsageError(f"{file} is compressed by method {min(other)}, a bundle is by deflate", hint=HINT)


def _check_sizes(file: Path, archive: zipfile.ZipFile, listed: Mapping[str, Any]) -> None:
    """Refuse contents that are too large for their packed bytes, before anything is unpacked."""
    total, packed_total = 0, sum(entry.compress_size for entry in archive.infolist())
    if packed_total > (size := file.stat().st_size):
        raise UsageError(f"{file} has {size} bytes and announces {packed_total} packed ones", hint=HINT)
    for name, facts in listed.items():
        if not isinstance(facts, dict) or type(facts.get("bytes")) is not int or facts["bytes"] < 0:
            raise UsageError(f"{file}: {MANIFEST} has no size of {name}", hint=HINT)
        size, packed = facts["bytes"], archive.getinfo(name).compress_size
        if size > max(SMALL, RATIO_MAX * packed):
            raise UsageError(
                f"{file} announces contents of {size} bytes in the {packed} of {name}, which no bundle has", hint=HINT
            )
        total += size
    if total > LARGEST:
        raise UsageError(f"{file} announces contents of {total} bytes, which no bundle has", hint=HINT)
    if listed[SUMMARY]["bytes"] > SUMMARY_LARGEST:
        raise UsageError(f"{file}: {SUMMARY} is too large", hint=HINT)


def _extract(file: Path, archive: zipfile.ZipFile, name: str, facts: dict[str, Any], to: Path) -> None:
    """Unpack an entry in pieces. Reads no more than the manifest announces."""
    digest, count, signs = hashlib.sha256(), 0, 0
    signs_max = SMALL + SIGNS_MAX * archive.getinfo(name).compress_size
    with archive.open(name) as stream, to.open("wb") as out:
        while count <= facts["bytes"] and (piece := stream.read(min(PIECE, facts["bytes"] + 1 - count))):
            digest.update(piece)
            out.write(piece)
            count += len(piece)
            signs += sum(map(piece.count, SIGNS)) if name != REPORT else 0
            if signs > signs_max:
                raise UsageError(f"{file}: {name} has more than {signs_max} values, which no bundle has", hint=HINT)
    if {"bytes": count, "sha256": digest.hexdigest()} != facts:
        raise UsageError(f"{file}: {name} is not what its manifest says: its size or SHA-256 differs", hint=HINT)


def _check_rows(file: Path, summary: bytes, rows: list[Row]) -> None:
    """Raise UsageError for the first figure of the summary that the records do not give."""
    try:
        costs.LIMITS.check(summary)
        claimed = json.loads(summary)["rows"]
        names = [(row["contender"], row["family"]) for row in claimed]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{file}: {SUMMARY} is malformed: {error_message(error)}", hint=HINT) from error
    if names != [(row.contender, row.family) for row in rows]:
        raise UsageError(f"{file}: {SUMMARY} has other rows than the records", hint=HINT)
    for claim, row in zip(claimed, rows, strict=True):
        left_out = () if NEW_FIGURE in claim else (*WORST, *(ENDS if row.low is None else ()))
        for name, value in json.loads(common.as_json(attrs.asdict(row))).items():
            if name not in left_out and not same_numbers(claim.get(name), value):
                raise UsageError(
                    f"{file}: {SUMMARY} says {name} {quote_value(claim.get(name))} of {row.contender} on {row.family}, "
                    f"the records give {quote_value(value)}",
                    hint=HINT,
                )


def same_numbers(a: Any, b: Any) -> bool:
    """Whether numbers are equal up to rounding."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_numbers(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_numbers, a, b))
    if isinstance(a, float) or isinstance(b, float):
        numbers = type(a) in (int, float) and type(b) in (int, float)
        return numbers and math.isclose(a, b, rel_tol=CLOSE, abs_tol=CLOSE)
    return type(a) is type(b) and a == b
