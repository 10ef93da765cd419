"""Devices and settings of GPU kernels, as far as a machine without a device can test them."""

from __future__ import annotations

import attrs
import pytest
import torch
from spec_cli.main import run_command as run_command
from spec_kernels.gpu import support
from spec_kernels.native.executor import Native
from spec_targets.runtime.load import choose_device

from spec_core import Sequence, UsageError, load
from spec_core.toolkit import open_sequence
from tests.support.small_models import tiny_gguf


@pytest.fixture
def one_card(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)


@pytest.mark.parametrize("device", ["cuda:7", "cuda:1"])
def test_a_card_that_is_not_there_is_refused(one_card, device):
    with pytest.raises(UsageError, match=f"device {device} was requested, torch finds 1 CUDA device") as error:
        choose_device(device)
    assert error.value.hint == "give one of cuda:0"


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_a_card_that_is_there_is_taken(one_card, device):
    assert choose_device(device) == torch.device(device)


def test_other_devices_of_torch_are_refused():
    with pytest.raises(UsageError, match="device 'mps' is not supported"):
        choose_device("mps")


def test_a_type_that_the_card_lacks_is_refused(one_card, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Old Card")

    assert support.problem(torch.device("cuda"), torch.bfloat16) == "Old Card has no bfloat16"
    assert support.problem(torch.device("cuda"), torch.float16) is None


def test_without_the_interpreter_a_cpu_is_refused(monkeypatch):
    monkeypatch.setattr(support, "is_interpreted", lambda: False)
    with pytest.raises(
        UsageError, match="kernels=gpu was requested, but GPU kernels are for CUDA devices, this is cpu"
    ):
        load(tiny_gguf(0), kernels="gpu", device="cpu", weights=False)


def test_a_model_larger_than_the_memory_is_refused_before_anything_is_read(monkeypatch):
    monkeypatch.setattr("spec_targets.runtime.plan.free_bytes", lambda device: 1000)
    with pytest.raises(UsageError, match=r"the weights need \d+ MiB, 0 MiB are free on cpu"):
        load(tiny_gguf(0), kernels="gpu", device="cpu", dtype="float32")


def test_rows_of_drafts_are_where_the_executor_reads_them():
    """On CUDA the reference indexes a table there: rows of drafts on the host ended draft-model."""
    target = load(tiny_gguf(0), kernels="reference", device="cpu", threads=1)
    seq: Sequence = open_sequence(target)
    target.info = attrs.evolve(target.info, device="meta")

    batch = target._continuing([(seq, 0, [1, 2])], [3], [0])

    assert {batch.tokens.device.type, batch.positions.device.type} == {"meta"}


@pytest.mark.parametrize("error", ["AcceleratorError", "OutOfMemoryError"])
def test_a_device_that_vanishes_ends_the_texts_without_a_traceback(error, monkeypatch, capsys):
    """Torch's own message has many lines; its first says what happened."""
    forwards = []

    def run(self, batch, original=Native.run):
        forwards.append(batch)
        if len(forwards) > 40:
            raise getattr(torch, error)("CUDA error: unspecified launch failure\nmore words")
        return original(self, batch)

    monkeypatch.setattr(Native, "run", run)

    assert (
        run_command(["generate", "-m", str(tiny_gguf(0)), "-p", "x", "-n", "80", "--ignore-eos", "--threads", "1"]) == 1
    )
    output = capsys.readouterr().err
    assert "CUDA error: unspecified launch failure" in output
    assert "more words" not in output
    assert "Traceback" not in output
