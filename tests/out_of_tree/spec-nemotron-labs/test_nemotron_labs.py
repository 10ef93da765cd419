"""Tests of spec-nemotron-labs: the kit's promises, with random weights."""

import json

import pytest
import torch
from safetensors.torch import save_file
from spec_nemotron_labs import NemotronLabs

from spec_core import Part, Refused, Run, Sampling, load
from spec_core.testing import DrafterConformance
from spec_core.toolkit import forward, open_sequence

NAMES = {"attn_output": "self_attn.o_proj"}
PROMPTS = ["def add(a, b):\n", "x = [1, 1, 1, 1, "]
MASK = 400
CONFIG = {"peft_type": "LORA", "r": 4, "lora_alpha": 2, "bias": "none"}


def write_adapter(folder, change=None, **config):
    """A random adapter of pico, in PEFT's form."""
    target, draws = load("zoo:pico", threads=1), torch.Generator().manual_seed(1)
    tensors = {}
    for i in range(target.info.layers):
        for own, name in NAMES.items():
            n, k = target.tensor(f"blk.{i}.{own}.weight").shape
            for half, shape in {"A": (4, k), "B": (n, 4)}.items():
                tensor = 0.05 * torch.randn(shape, generator=draws)
                tensors[f"base_model.model.encoder.layers.{i}.{name}.lora_{half}.weight"] = tensor
    if change is not None:
        change(tensors)
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG | config))
    return str(folder)


@pytest.fixture(scope="session")
def adapter(tmp_path_factory):
    return write_adapter(tmp_path_factory.mktemp("nemotron"))


class TestNemotronLabs(DrafterConformance):
    @pytest.fixture(autouse=True)
    def folder(self, adapter):
        self.adapter = adapter

    def make(self):
        return NemotronLabs(self.adapter, block=4, mask=0, p_min=0.0)

    def target(self):
        return load("zoo:pico", threads=1)


def texts(methods, temperature, at_once=8, **options):
    run = Run(load("zoo:pico", threads=1, **options), methods, max_sequences=at_once)
    sampling = Sampling(temperature=temperature)
    seqs = [run.submit(PROMPTS[i % 2], max_tokens=24, sampling=sampling, seed=i) for i in range(8)]
    while run.busy:
        run.step()
    results = [run.take(seq) for seq in seqs]
    return [one.tokens for one in results], sum(one.stats["accepted"] for one in results)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("kernels", ["native", "reference"])
def test_texts_are_plain_alone_and_in_a_batch(adapter, temperature, kernels):
    plain, _ = texts([], temperature, kernels=kernels)
    for at_once in (1, 8):
        drafted, _ = texts([NemotronLabs(adapter, block=4, mask=0, p_min=0.0)], temperature, at_once, kernels=kernels)
        assert drafted == plain


def test_a_row_predicts_its_own_position(adapter):
    """The draft's first token is that of the first mask's row, with the adapter, where all rows see each other."""
    target = load("zoo:pico", threads=1)
    method = NemotronLabs(adapter, block=4, mask=MASK, p_min=0.0)
    method.load(target)
    drafts, text = [], target.tokenizer.encode(PROMPTS[0])
    run = Run(target, [method])
    run.observe(lambda step: drafts.extend(p.draft.ids for p in step.parts if p.draft is not None))
    tokens = [*text, *run.generate(text, max_tokens=8).result.tokens]

    seq = open_sequence(target)
    forward(target, [Part(seq, 0, text, decides=True)])
    list.extend(seq.tokens, tokens[: len(text) + 1])
    seq.evaluated = len(text)
    rows = method.rows.rows.forward_rows([(seq, len(text), method.block_tokens(seq))])[0].argmax(1).tolist()
    assert list(drafts[0]) == rows[1:] != rows[:3]


def test_what_does_not_fit_is_refused():
    with pytest.raises(Refused, match="no folder is named"):
        Run("zoo:pico", [NemotronLabs()])
    with pytest.raises(Refused, match="the mask token is 99999"):
        Run("zoo:pico", [NemotronLabs("nowhere", mask=99999)])
