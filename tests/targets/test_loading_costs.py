"""Loading reads a file once, gives its pages back, and computes nothing twice."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest
import torch
from spec_cli.main import run_command
from spec_kernels import native
from spec_kernels.model import rotary
from spec_kernels.native import weights
from spec_kernels.native.weights import TILE
from spec_targets.formats import mapped
from spec_targets.formats.gguf import open_gguf
from spec_targets.runtime import plan, thread_choice

from benchmarks.support.random_gguf import write
from spec_core import load
from tests.native.programs import program
from tests.support.small_models import tiny_gguf

compiled = pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
PEAK = """
import sys
import spec_kernels.native.executor, spec_targets.formats.gguf_weights, spec_targets.runtime.load
import spec_targets.tokenizer.gguf_vocabulary
from spec_core import load

def peak():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM:"))

before = peak()
load(sys.argv[1], kernels="native", threads=2)
print(peak() - before)
"""


@compiled
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_peak_of_memory_is_little_more_than_the_file(tmp_path):
    path = tmp_path / "model.gguf"
    write(path, "90m", "Q8_0")
    done = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True)

    assert int(done.stdout) < 1.15 * path.stat().st_size + (48 << 20)


@compiled
def test_every_stored_row_is_released_once_it_is_repacked(monkeypatch):
    path, released, before = tiny_gguf(1), [], torch.get_num_threads()
    monkeypatch.setattr(weights, "PART_MIN", 1)
    monkeypatch.setattr(plan, "release_rows", lambda rows: released.append((rows.data_ptr(), rows.nbytes)))
    try:
        target = load(path, kernels="native", threads=2)
    finally:
        torch.set_num_threads(before)
    places = {tensor.bytes().data_ptr(): tensor for tensor in target.weights.file.tensors.values()}

    for address, tensor in places.items():
        if len(tensor.shape) == 2:
            inside = [size for at, size in released if address <= at < address + tensor.nbytes]
            assert sum(inside) == tensor.nbytes, tensor.name
            assert len(inside) == len(range(0, tensor.shape[0], TILE * max(1, tensor.shape[0] // 2 // TILE)))


def test_rows_of_a_mapped_file_are_released_and_read_again():
    tensor = next(t for t in open_gguf(tiny_gguf(2)).tensors.values() if len(t.shape) == 2)
    rows, ours = tensor.bytes(), torch.arange(1 << 16)
    before, kept = rows.clone(), ours.clone()
    mapped.release_rows(rows)
    mapped.release_rows(rows[3:5])
    mapped.release_rows(ours)

    assert torch.equal(rows, before) and torch.equal(ours, kept)


@compiled
def test_weights_have_equal_bytes_from_any_number_of_threads(monkeypatch):
    """Also of mixtures, and rows in another order."""
    before, drawn = torch.get_num_threads(), [program(seed) for seed in range(40)]
    assert any(one.weights.interleaved for one in drawn) and any(one.config.experts for one in drawn)
    try:
        for one in drawn:
            executor = one.target(kernels="native").executor
            alone, parts = (_arena(monkeypatch, executor, *way) for way in ((1, 1 << 18), (3, 1)))
            assert torch.equal(alone, parts)
    finally:
        torch.set_num_threads(before)


def _arena(monkeypatch, executor, threads, part_min):
    torch.set_num_threads(threads)
    monkeypatch.setattr(weights, "PART_MIN", part_min)
    return weights.Arena(executor.model, executor.source, False).memory


@compiled
def test_executors_that_share_weights_share_rotations(monkeypatch):
    calls, real = [], rotary.cos_and_sin
    monkeypatch.setattr(rotary, "cos_and_sin", lambda *args: calls.append(args) or real(*args))
    executor = load(tiny_gguf(4), kernels="native", threads=1).executor
    other = executor.with_layers(executor.model, executor.source)
    executor._extend_rotary(10)
    other._extend_rotary(20)
    assert len(calls) == 1

    other._extend_rotary(5000)
    executor._extend_rotary(10)
    assert len(calls) == 2


def test_a_slow_forward_is_timed_three_times_for_each_number_of_threads(monkeypatch):
    clock, calls = iter(range(1000)), []
    monkeypatch.setattr(thread_choice, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(thread_choice, "use_threads", lambda count: None)
    thread_choice.measure_threads(lambda: calls.append(1), 2)

    assert len(calls) == 2 * thread_choice.ROUNDS_MIN


def test_a_model_with_much_weight_is_measured_on_few_of_its_blocks(monkeypatch):
    chosen, before = [], torch.get_num_threads()
    monkeypatch.setattr(thread_choice, "_chosen", {})
    probe = lambda executor, context, blocks: chosen.append(len(blocks)) or executor
    monkeypatch.setattr(thread_choice, "Probe", probe)
    monkeypatch.setattr(thread_choice, "measure_threads", lambda forward, now: (1, {1: 1.0}))
    executor = load(tiny_gguf(5, layers=4), threads=1).executor
    executor.one_row = None
    try:
        for size in (1, 1 << 28, 1 << 29, 1 << 40):
            torch.set_num_threads(2)
            monkeypatch.setattr(thread_choice, "_chosen", {})
            thread_choice.choose_threads(0, executor, size)
    finally:
        torch.set_num_threads(before)

    assert chosen == [4, 4, 2, 1]


def test_a_run_reads_the_entry_points_of_installed_packages_once(monkeypatch, capsys):
    reads, real = [], metadata.entry_points
    monkeypatch.setattr(metadata, "entry_points", lambda **keywords: reads.append(keywords) or real(**keywords))

    assert (
        run_command(["generate", "-m", "zoo:pico", "-p", "def area(", "-n", "2", "--method", "ngram", "--threads", "1"])
        == 0
    )
    assert len(reads) == 1
