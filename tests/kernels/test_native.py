"""Whole forwards in C: equal bits with any batched rows, refusals, threads, forks, memory."""

from __future__ import annotations

import os
import random
import threading
import weakref
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch
from spec_kernels import facts, native
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.native.executor import Native, Options

from spec_core import Draft, Request, Run, Sampling, UsageError, load
from spec_core.toolkit import DraftLimits
from tests.native.programs import compare_in_company, decode_one_by_one
from tests.support.small_models import tiny_gguf, tiny_hybrid
from tests.targets.drive import EVERYTHING, forward, fresh, part, sequence
from tests.targets.tiny import CLASSES, NEWER, model, save

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
ARCHS = (*CLASSES, *NEWER)
SMALL = [name for name in native.CACHES if name != "float32"]
SOME = ("qwen3", "qwen3moe", "qwen35")
"""Architectures that are run with every type of cache."""
SETS = native.instruction_sets()
PROMPT = [(7 * i * i + 3) % 96 for i in range(34)]


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def target(arch: str, isa: str | None = None, cache_dtype: str = "float32"):
    """A tiny random model of an architecture on an instruction set."""
    folder = directory(arch)
    target = load(folder, kernels="native", cache_dtype=cache_dtype, threads=1)
    executor = target.executor
    target.executor = Native(executor.model, executor.source, Options("int15", cache_dtype, False, isa))
    return target


@cache
def directory(arch: str):
    try:
        torch.manual_seed(0)
        return save(model(arch), mkdtemp())
    except (AttributeError, ImportError):
        pytest.skip(f"this transformers has no {arch}")


# equal bits


@pytest.mark.parametrize("arch, cache_dtype", [*((arch, "float32") for arch in ARCHS), *product(SOME, SMALL)])
def test_rows_in_any_company_have_the_bits_of_decoding(arch, cache_dtype):
    """On every instruction set, with other numbers of threads."""
    rng = random.Random(f"{arch} {cache_dtype}")
    tokens = [rng.randrange(96) for _ in range(90)]
    alone = decode_one_by_one(target(arch, cache_dtype=cache_dtype), tokens, 60)
    for number, isa in enumerate(SETS):
        torch.set_num_threads(1 + number % 4)

        assert compare_in_company(target(arch, isa, cache_dtype), tokens, 60, alone, rng) == [], isa


@pytest.mark.parametrize("rows", [1, 7, 8, 13])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_attention_cut_between_threads_has_the_bits_of_one_thread(rows, count):
    """Three kv heads: rows are cut where that ends a phase sooner. Big enough for the threads to be used."""
    of, tokens = load("zoo:pico", kernels="native", threads=1), list(range(100, 100 + 130))
    sizes = []
    for threads in (1, count):
        torch.set_num_threads(threads)
        seq = sequence(of, tokens)
        forward(of, part(seq, 0, tokens[:-rows], decides=False))
        sizes.append(forward(of, part(seq, len(tokens) - rows, tokens[-rows:])).logits)

    assert torch.equal(*sizes)


@pytest.mark.parametrize("activations", native.ACTIVATIONS)
@pytest.mark.parametrize("make", [tiny_gguf, tiny_hybrid])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_texts_are_those_of_plain_decoding(make, activations, temperature):
    of = load(make(), kernels="native", activations=activations)
    requests = [
        Request(
            [3 * i + 1, 4, i + 9, 4], max_tokens=40, seed=i, sampling=Sampling(temperature=temperature), ignore_eos=True
        )
        for i in range(3)
    ]
    methods = ["ngram", "suffix", "recycling"] + ([("mtp", {"p_min": 0.0})] if make is tiny_hybrid else [])
    plain = [Run(of).generate(r).result.tokens for r in requests]

    for method in methods:
        assert [Run(of, [method]).generate(r).result.tokens for r in requests] == plain, method


# drafts


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("make", [tiny_gguf, tiny_hybrid])
def test_a_draft_in_one_call_is_the_one_of_many(make, kernels, monkeypatch):
    """The draft model's own target and the NextN layer; a watched layer drafts token by token."""
    of = load(make(), kernels=kernels)
    chosen = (
        ("draft-model", {"file": str(tiny_gguf(1)), "p_min": 0.0}) if make is tiny_gguf else ("mtp", {"p_min": 0.0})
    )
    drafts: list[list[tuple[int, ...]]] = [[], []]
    for i, watched in enumerate((False, True)):
        run = Run(of, [chosen])
        method = next(c.plugin for c in run.plugins if c.name == chosen[0])
        if watched and make is tiny_hybrid:
            method.watch = lambda token, row: None
        elif watched:
            monkeypatch.setattr(type(method), "_all_at_once", lambda self, step, draft: None)
        run.observe(lambda step, i=i: drafts[i].extend(p.draft.ids for p in step.parts if p.draft))
        run.generate(Request([5, 9, 11, 2], max_tokens=24, ignore_eos=True)).result

    assert drafts[0] and drafts[0] == drafts[1]


def test_a_draft_ends_where_it_is_not_sure():
    of = load(tiny_gguf(), kernels="native")
    limits = lambda p_min, stops: DraftLimits(8, 8, 1, p_min, frozenset(stops), 0.9)
    draft = lambda p_min, stops: of.draft([(sequence(of, [5]), 0, [5, 9])], [limits(p_min, stops)]).found[0]
    ids, chances = draft(0.0, set()).tokens, draft(0.0, set()).chances

    assert len(ids) == len(chances) == 8
    assert draft(1.0, set()).tokens == ids[:1]
    assert draft(0.0, {ids[2]}).tokens == ids[: ids.index(ids[2]) + 1]


# rotations


def test_rotations_of_longer_texts_have_equal_bits_and_take_the_place_of_shorter_ones():
    """Twice the positions are computed, up to those of the longest text; an executor holds what its program reads."""
    of = load(tiny_gguf(context=3000), kernels="native", context=3000).executor
    head = of.with_layers(of.model, of.source)
    of._extend_rotary(1200)
    head._extend_rotary(1200)
    begin, shorter = of._rotary[0][0].clone(), weakref.ref(of._rotary[0][0])

    assert head._rotary[0][0] is shorter() and len(begin) == 3072
    of._extend_rotary(3100)
    assert len(of._rotary[0][0]) == 4096 and torch.equal(of._rotary[0][0][:3072], begin)
    assert shorter() is head._rotary[0][0]
    head._extend_rotary(3200)
    assert shorter() is None and head._rotary[0][0] is of._rotary[0][0]


# threads and processes


def test_several_threads_of_python_and_a_fork():
    of = load(tiny_gguf(), kernels="native")
    expected = fresh(of, PROMPT).logits
    torch.set_num_threads(2)
    sizes = []

    def once() -> bool:
        """Uses no threads of torch, which do not survive a fork."""
        rows = len(PROMPT)
        one_sequence = SequenceRows(of.executor.cache(rows), 0, rows, 0)
        return torch.equal(
            expected, of.executor.run(ForwardBatch(torch.tensor(PROMPT), torch.arange(rows), [one_sequence]))["logits"]
        )

    def work():
        sizes.extend(once() for _ in range(20))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    children = [_run_forked(once) for _ in range(3)]
    for worker in workers:
        worker.join()

    assert sizes == [True] * 60
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]


def _run_forked(question) -> int:
    """Runs the check in a child process; exit code 0 for success."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if question() else 1)
        finally:
            os._exit(2)
    return child


# memory


def test_weights_stay_as_large_as_their_file():
    of = load("zoo:pico", kernels="native")
    stored = of.weights.file.nbytes

    assert of.executor.arena.memory.nbytes <= 1.15 * stored
    assert {t.type for t in of.executor.arena.tiles.values()} == {"Q8_0"}


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="no smaps")
def test_a_loaded_file_is_in_memory_once():
    of = load("zoo:pico", kernels="native")
    path, size = str(of.weights.file.path), of.weights.file.nbytes

    lines = Path("/proc/self/smaps").read_text().splitlines()
    lines_here = [i for i, line in enumerate(lines) if line.endswith(path)]
    resident = [next(line for line in lines[i:] if line.startswith("Rss:")) for i in lines_here]

    assert lines_here
    assert sum(int(line.split()[1]) << 10 for line in resident) <= 0.15 * size


def test_floats_become_blocks_where_that_is_asked_for():
    plain, small = (load(directory("qwen3"), kernels="native", weights=w) for w in ("auto", "q8_0"))
    expected, got = (fresh(t, PROMPT).logits for t in (plain, small))

    assert {t.type for t in small.executor.arena.tiles.values()} >= {"Q8_0"}
    assert small.executor.arena.memory.nbytes < 0.5 * plain.executor.arena.memory.nbytes
    assert not torch.equal(expected, got)
    assert (expected - got).abs().max() < 0.1 * (expected.max() - expected.min())


class Unknown:
    """A source whose down projections are of a type that has no native form."""

    def __init__(self, source) -> None:
        self.source = source

    def type(self, name: str) -> str:
        return "Q3_K" if "ffn_down" in name else self.source.type(name)

    def __getattr__(self, name: str):
        return getattr(self.source, name)


def test_weights_without_a_native_form_become_floats_and_are_named():
    of = load(tiny_gguf(), kernels="native")
    other = Native(of.executor.model, Unknown(of.executor.source))
    named = f"; weights without a native form: {of.info.layers} of Q3_K as F32"

    assert other.describe().endswith(named)
    assert other.describe().removesuffix(named) == of.executor.describe()
    of.executor = other
    assert fresh(of, PROMPT).logits.isfinite().all()


@pytest.mark.parametrize("cache_dtype", native.CACHES)
def test_a_cache_grows_and_is_moved_together(cache_dtype):
    of = target("qwen3", cache_dtype=cache_dtype)
    tokens = [(i * 7) % 96 for i in range(70)]
    seq = sequence(of, tokens)
    seq.slot.state.cache = of.executor.cache(16)
    forward(of, part(seq, 0, tokens[:40], decides=False))
    forward(of, part(seq, 40, tokens[40:41], Draft([1, tokens[41], 2, tokens[42]], parents=[-1, -1, 0, 1])))
    seq.slot.state.cache.compact(41, [42, 44])

    rows = forward(of, part(seq, 43, tokens[43:])).logits

    assert torch.equal(decode_one_by_one(of, tokens, 43), rows)


# what is refused


@pytest.mark.parametrize(
    "options, message",
    [
        ({"kernels": "fast"}, "kernels 'fast' is unknown"),
        ({"activations": "int4"}, "activations 'int4' is unknown"),
        ({"cache_dtype": "q4"}, "cache_dtype 'q4' is unknown"),
        ({"weights": "q4_0"}, "weights 'q4_0' is unknown"),
        ({"kernels": "native", "dtype": "bfloat16"}, "native kernels compute in float32, dtype is bfloat16"),
        ({"kernels": "reference", "activations": "int8"}, "activations=int8 is for native kernels"),
        ({"dtype": "bfloat16", "cache_dtype": "q8"}, "cache_dtype=q8 is for native kernels"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        load(tiny_gguf(), **options, **({} if "weights" in options else {"weights": False}))


def test_the_reference_takes_the_type_that_its_cache_has():
    target = load(tiny_gguf(), kernels="reference", dtype="float32", cache_dtype="float32", weights=False)

    assert target.info.kernels == "reference (requested)"


def test_without_the_extension_the_reference_runs_and_says_so(monkeypatch):
    monkeypatch.setattr(native, "_native", None)

    of = load(tiny_gguf())

    assert of.info.kernels.startswith("reference (the extension was not built")
    assert Run(of).generate(Request([5, 9], max_tokens=4)).result.tokens
    with pytest.raises(UsageError, match="needs a C compiler"):
        load(tiny_gguf(), kernels="native")


WRONG = {
    "a token is outside": {"tokens": [300, 1]},
    "a token is outside the embedding": {"tokens": [-1, 1]},
    "exceeds the model's rotary table": {"positions": [0, 1 << 30]},
    "a cache has too few places": {"start": 4000},
    "fewer rows than the batch": {"rows": 1},
    "must come before its child": {"parents": (5,)},
    "picks: row out of range": {"logits": [2]},
    "picks: rows must ascend": {"logits": [1, 0]},
    "picks: a list of rows": {"logits": [0, 1, 1]},
    "given: row out of range": {"given": {7: torch.zeros(32)}},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_a_forward_cannot_be_asked_is_refused_before_anything_is_computed(message):
    of = load(tiny_gguf(), kernels="native")
    wrong = {"tokens": [1, 2], "positions": [0, 1], "start": 0, "rows": 2, "parents": None} | WRONG[message]
    one_sequence = SequenceRows(of.executor.cache(32), 0, wrong["rows"], wrong["start"], wrong["parents"])
    tokens, positions = (torch.tensor(wrong[name]) for name in ("tokens", "positions"))
    batch = ForwardBatch(tokens, positions, [one_sequence], given=wrong.get("given", {}), logits=wrong.get("logits"))

    with pytest.raises(ValueError, match=message):
        of.executor.run(batch)


def test_weights_of_nan_make_numbers_that_are_none_and_nothing_else():
    of = load(tiny_gguf(), kernels="native")
    of.executor.arena.memory.fill_(0x7E)

    assert not fresh(of, PROMPT).logits.isfinite().all()
    assert EVERYTHING.all_logits


@pytest.mark.parametrize(
    "sets, words", [(("neon", "generic"), "neon; equal bits with generic"), (("generic",), "generic")]
)
def test_the_environment_names_the_instruction_sets(monkeypatch, sets, words):
    monkeypatch.setattr(native, "instruction_sets", lambda: sets)

    assert facts.kernels().startswith(f"native on cpu in float32 ({words}), weights")
