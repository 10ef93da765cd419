"""``results.jsonl``: its schema, its header, and the refusal of files that are wrong."""

from __future__ import annotations

import hashlib
import json
import os

import attrs
import pytest
from spec_cli.main import run_command
from spec_compare.figures import summary_schema
from spec_compare.figures.outcome import recompute_outcome
from spec_compare.measuring.measure import add_step
from spec_compare.records import schema
from spec_compare.records.reading import read_results
from spec_compare.records.record import Steps, statistics_of

from spec_core import Draft, Part, UsageError, Verdict
from spec_core.toolkit import DraftStatistics
from tests.support.toy_plugins import install

PROMPTS = [{"id": i, "family": f, "prompt": p} for i, f, p in (("a", "u", "HELLO"), ("b", "v", "MORE WORDS"))]
N = 12


@pytest.fixture
def out(monkeypatch, tmp_path):
    """The directory of a small comparison with traces."""
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith("SPEC_")]:
        monkeypatch.delenv(name)
    install(monkeypatch)
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, PROMPTS)))
    command = [
        "compare",
        "-m",
        "toy:dense",
        "--prompts",
        "prompts.jsonl",
        "-n",
        str(N),
        "--no-bounds",
        "--method",
        "repeat",
    ]
    assert run_command([*command, "--trace", "--repeats", "2", "--out", "out"]) == 0
    return tmp_path / "out"


def lines(out) -> list[dict]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text("utf-8").splitlines()]


def test_the_shipped_schema_is_up_to_date():
    """Regenerate with ``python -m tools.document docs``."""
    assert schema.FILE.read_text("utf-8") == schema.text(schema.results())
    assert summary_schema.FILE.read_text("utf-8") == schema.text(summary_schema.summary())


def test_the_summary_fits_its_schema(out):
    jsonschema = pytest.importorskip("jsonschema", reason="a part of the extra [test]")
    validator = jsonschema.Draft202012Validator(json.loads(summary_schema.FILE.read_text("utf-8")))
    written = json.loads((out / "summary.json").read_text("utf-8"))

    validator.validate(written)
    for name in ("speedup", "contender"):
        changed = json.loads(json.dumps(written))
        del changed["rows"][0][name]
        assert not validator.is_valid(changed)
    assert not validator.is_valid(written | {"repeats": "2"})


def test_every_line_fits_the_schema(out):
    jsonschema = pytest.importorskip("jsonschema", reason="a part of the extra [test]")
    validator = jsonschema.Draft202012Validator(json.loads(schema.FILE.read_text("utf-8")))
    written = lines(out)

    assert [line["kind"] for line in written] == ["header", *["record"] * 8]
    for line in written:
        validator.validate(line)
        del line[next(name for name in line if name != "kind")]
        assert not validator.is_valid(line), "a line without a required name"


def test_the_header_identifies_the_experiment(out):
    header, record, *_ = lines(out)
    plain, repeat = header["contenders"]

    assert (header["format"], header["version"]) == ("spec-core results", "1.2")
    assert header["prompts"]["families"] == {"u": 1, "v": 1} and len(header["prompts"]["sha256"]) == 64
    assert (plain["name"], plain["baseline"], repeat["baseline"]) == ("plain", "plain", "plain")
    assert repeat["settings"]["repeat.length"] == {"value": 3, "origin": "default"}
    assert repeat["settings"]["max_tokens"] == {"value": N, "origin": "flag"}
    assert header["laps"] == 8 and header["seed"] == 0
    assert record["seed"] != lines(out)[2]["seed"] or record["prompt"] == lines(out)[2]["prompt"]


def test_the_header_has_the_hashes_of_models_and_their_types(tmp_path):
    command = ["compare", "-m", "zoo:pico", "--method", "draft-model", "--method", "ngram", "--threads", "1"]
    assert run_command([*command, "-n", "2", "--limit", "1", "--family", "edit", "--out", str(tmp_path / "out")]) == 0
    header = read_results(tmp_path / "out").header
    target, by_name = header.targets[0], {c.name: c for c in header.contenders}

    assert [len(f.sha256) for f in target.files] == [64] and target.files[0].bytes > 10**6
    assert sum(target.quantisation.values()) > 10
    assert [f.path.rpartition("/")[2] for f in by_name["draft-model"].files] == ["pico-draft.gguf"]
    assert by_name["ngram"].files == [] == by_name["plain"].files


def test_a_trace_has_the_draft_of_every_step(out):
    records = [line for line in lines(out) if line["kind"] == "record" and line["contender"] == "repeat"]
    for r in records:
        steps, trace = r["steps"], r["trace"]
        assert [len(ids) for ids in trace["ids"]] == steps["drafted"]
        assert [len(path) for path in trace["path"]] == steps["accepted"]
        assert [set(s) for s in trace["sources"]] == [{"repeat"} if ids else set() for ids in trace["ids"]]
        assert [len(t) for t in trace["texts"]] == steps["drafted"]
        assert "".join(r["pieces"]) == r["text"] and len(r["pieces"]) == len(r["tokens"])
        assert all("verify" in seconds for seconds in trace["seconds"])
        at = 1
        for ids, path, emitted in zip(trace["ids"], trace["path"], steps["emitted"], strict=True):
            assert [ids[i] for i in path] == r["tokens"][at : at + len(path)]
            at += emitted
    assert sum(sum(r["steps"]["accepted"]) for r in records)


def test_accepted_tokens_before_the_cut_are_recorded_and_older_files_lack_them(out):
    record = next(line for line in lines(out) if line["kind"] == "record" and any(line["steps"]["drafted"]))
    steps = record["steps"]
    assert all(v >= a for v, a in zip(steps["verified"], steps["accepted"], strict=True))

    change(out, lines(out).index(record), steps={k: v for k, v in steps.items() if k != "verified"})
    read_results(out)
    change(out, [line.get("prompt") for line in lines(out)].index(record["prompt"]), steps={**steps, "verified": [99]})
    with pytest.raises(UsageError):
        read_results(out)


def test_figures_have_the_names_of_other_programs(out):
    for r in (line for line in lines(out) if line["kind"] == "record"):
        steps, vllm, timings = r["steps"], r["vllm"], r["timings"]
        drafts = sum(d > 0 for d in steps["drafted"])

        assert vllm["num_spec_steps"] == drafts == sum(vllm["acceptance_histogram"])
        assert vllm["num_accepted_draft_tokens"] == timings["draft_n_accepted"] == sum(steps["accepted"])
        assert vllm["num_draft_tokens"] == timings["draft_n"] == sum(steps["drafted"])
        assert timings["predicted_n"] == N and timings["prompt_n"] == r["prompt_tokens"]
        assert timings["predicted_per_second"] == pytest.approx((N - 1) / r["decode_seconds"])
        if drafts:
            assert vllm["mean_acceptance_length"] == 1 + sum(steps["accepted"]) / drafts


def test_the_table_is_recomputed_from_the_records(out):
    """Every figure of summary.json, from results.jsonl alone."""
    body = recompute_outcome(read_results(out)).body()
    written = json.loads((out / "summary.json").read_text("utf-8"))

    assert json.loads(json.dumps(body, default=str)) == written


def test_counts_of_trees_are_those_of_the_steps():
    """Positions of a tree: a kept path may end while other branches go on."""
    steps, draft_statistics = Steps(), DraftStatistics()
    tree = Draft([1, 2, 3, 4], parents=[-1, -1, 0, 2])
    for path in ((0, 2), (1,), ()):
        part = Part(None, 0, [0], True, draft=tree, full_verdict=Verdict(path, 9), emitted=[7] * (len(path) + 1))
        add_step(steps, part, 0.1)
        draft_statistics.add(part)
    bare = Part(None, 0, [0], True, full_verdict=Verdict((), 9), emitted=[7])
    add_step(steps, bare, 0.1)
    draft_statistics.add(bare)

    assert attrs.evolve(draft_statistics, by_method={}) == statistics_of(steps)


def change(out, number: int, **changes) -> None:
    """Change one line of the results."""
    written = lines(out)
    written[number] |= changes
    (out / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))


def test_a_record_of_another_major_version_is_refused_by_name(out):
    change(out, 0, version="2.0")
    with pytest.raises(UsageError) as error:
        read_results(out)

    assert "has the format version '2.0', this program reads 1.x" in error.value.reason


def test_names_of_a_later_minor_version_are_skipped(out):
    change(out, 0, version="1.7", weather="fair")
    change(out, 1, mood="good")

    assert read_results(out).complete


BAD = {
    "no header": (0, {"kind": "record"}, "line 1 is not a header"),
    "another format": (0, {"format": "x"}, "line 1 is not a header"),
    "unknown kind": (2, {"kind": "x"}, "line 3: its kind is 'x'"),
    "a text for a number": (1, {"repeat": "0"}, "line 2: int expected, got str in repeat"),
    "tokens that are none": (1, {"tokens": [1, None]}, "line 2: int expected"),
    "not finite": (1, {"first_seconds": float("nan")}, "line 2: NaN is not a JSON number"),
    "too large": (1, {"first_seconds": 10**400}, "line 2: a finite number of 64 bits"),
    "impossible counts": (
        1,
        {"steps": dict.fromkeys(attrs.fields_dict(Steps), [10**9]), "trace": None},
        "drafted tokens of depth",
    ),
    "short lists": (1, {"steps": dict.fromkeys(attrs.fields_dict(Steps), []) | {"depth": [1]}}, "different lengths"),
    "a lap that is a list": (1, {"lap": []}, "line 2: an object expected"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_line_that_is_wrong_is_named(out, name):
    number, changes, message = BAD[name]
    change(out, number, **changes)
    with pytest.raises(UsageError) as error:
        read_results(out)

    assert message in error.value.reason and "results.jsonl" in error.value.reason


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\n", b"[]\n", b"[" * 10**5 + b"\n", b"{}\n", b"\0" * 50])
def test_a_file_that_is_none_is_refused(tmp_path, content):
    (tmp_path / "results.jsonl").write_bytes(content)
    with pytest.raises(UsageError):
        read_results(tmp_path)


def test_a_lap_that_is_there_twice_is_refused(out):
    written = (out / "results.jsonl").read_bytes().splitlines(keepends=True)
    (out / "results.jsonl").write_bytes(b"".join([*written, written[1]]))
    with pytest.raises(UsageError, match="lap 0 is there twice"):
        read_results(out)


@pytest.mark.parametrize("size", [1, 50, 1000])
def test_a_record_that_was_cut_off_is_left_out(out, size):
    whole = (out / "results.jsonl").read_bytes()
    (out / "results.jsonl").write_bytes(whole[:-size])
    comparison = read_results(out)

    assert len(comparison.laps) == 7 and not comparison.complete
    assert whole[: comparison.end].endswith(b"\n") and comparison.end < len(whole) - size


@pytest.mark.parametrize("location", ["table.npz", "tables", "a-name-of-its-own", None])
def test_a_methods_file_that_is_no_model_is_hashed_as_it_is(out, location):
    """A file, every file of a folder that is not hidden, and nothing for a name that only the plugin understands."""
    (out.parent / "table.npz").write_bytes(b"one")
    (out.parent / "tables" / "deep").mkdir(parents=True)
    (out.parent / "tables" / "a.json").write_text("{}")
    (out.parent / "tables" / "deep" / "b.npz").write_bytes(b"two")
    (out.parent / "tables" / ".hidden").write_bytes(b"three")
    contents = {"table.npz": [b"one"], "tables": [b"{}", b"two"]}.get(location, [])
    method = "noted" if location is None else f"noted={location}"
    command = f"compare -m toy:dense --prompts prompts.jsonl -n 4 --no-bounds --method {method} --out noted"

    assert run_command(command.split()) == 0
    files = lines(out.parent / "noted")[0]["contenders"][1]["files"]

    assert [file["sha256"] for file in files] == [hashlib.sha256(content).hexdigest() for content in contents]
