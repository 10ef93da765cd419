"""Tests of spec-pass: the kit's promises and plain texts, with vectors that are embeddings of common tokens."""

from functools import cache

import pytest
import torch
from safetensors.torch import save_file
from spec_pass import Pass

from spec_core import Refused, Run, UsageError, load
from spec_core.testing import DrafterConformance, ToyTarget

load_target = cache(lambda: load("zoo:pico", threads=1))


def write_vectors(path, target, ids):
    embedding = target.tensor("token_embd.weight")
    save_file({"vectors": embedding[ids].float().contiguous()}, path)
    return str(path)


class TestPass(DrafterConformance):
    @pytest.fixture(autouse=True)
    def vectors(self, tmp_path):
        self.file = write_vectors(tmp_path / "vectors.safetensors", ToyTarget(), [3, 5])

    def make(self):
        return Pass(self.file)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    target = load_target()
    ids = target.tokenizer.encode(" 1,")[-2:]
    return write_vectors(tmp_path_factory.mktemp("vectors") / "vectors.safetensors", target, ids)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_texts_are_plain_alone_and_in_a_batch(check_plain, file, temperature):
    assert check_plain(lambda: Pass(file), temperature)["accepted"] > 0


def test_files_that_do_not_fit_are_refused(tmp_path):
    save_file({"vectors": torch.zeros(2, 7)}, tmp_path / "narrow")
    with pytest.raises(Refused, match="has 2 vectors of width 7, pico has width"):
        Run(load_target(), [Pass(str(tmp_path / "narrow"))])
    save_file({"other": torch.zeros(2, 7)}, tmp_path / "other")
    for name in ("other", "missing"):
        with pytest.raises(UsageError, match="no tensor vectors"):
            Run(load_target(), [Pass(str(tmp_path / name))])
    save_file({"vectors": torch.full((2, load_target().info.width), torch.nan)}, tmp_path / "nan")
    with pytest.raises(UsageError, match="a vector is not finite"):
        Run(load_target(), [Pass(str(tmp_path / "nan"))])
