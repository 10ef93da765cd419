"""Tests of spec-nemotron-labs: the kit's promises with random weights, and vectors of the published forward."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from spec_nemotron_labs import NemotronLabs

from spec_core import Part, Refused, Run, load
from spec_core.testing import DrafterConformance
from spec_core.toolkit import forward, open_sequence

GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden"
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


@pytest.mark.repeats(1)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("kernels", ["native", "reference"])
def test_texts_are_plain_alone_and_in_a_batch(check_plain, adapter, temperature, kernels):
    check_plain(lambda: NemotronLabs(adapter, block=4, mask=0, p_min=0.0), temperature, kernels=kernels)


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


def folders():
    """Every folder of vectors that is there."""
    paths = sorted(GOLDEN.glob("self-*/*/golden.json"))
    return [path.parent for path in paths if json.loads(path.read_text())["kind"].startswith("nemotron")]


def contexts(vectors):
    return sorted({name.split(".")[0] for name in vectors if name.endswith(".id_last") and "next" not in name})


@pytest.fixture(params=["reference", "native"])
def kernels(request):
    more = {} if request.param == "reference" else {"cache_dtype": "float32"}
    return {"kernels": request.param, **more}


def make(folder, target):
    block = len(load_file(folder / "golden.safetensors")["ctx20.block_tokens"])
    method = NemotronLabs(str(folder / "hf" / "linear_spec_lora"), block=block, p_min=0.0)
    assert method.misfit(target) is None
    return method


@pytest.mark.parametrize("folder", folders(), ids=lambda path: path.name)
def test_drafts_are_those_of_the_published_forward(folder, kernels):
    vectors, target = load_file(folder / "golden.safetensors"), load(str(folder / "hf"), **kernels)
    method = make(folder, target)
    method.load(target)
    for at in contexts(vectors):
        text, seq = [*vectors[f"{at}.tokens"].tolist(), *vectors[f"{at}.id_last"].tolist()], open_sequence(target)
        for round_ in ("", "next."):
            if round_:
                text += vectors[f"{at}.committed"].tolist()
                assert text[-1] == int(vectors[f"{at}.next.id_last"])
            forward(target, [Part(seq, seq.evaluated, text[seq.evaluated : -1], decides=True)])
            list.extend(seq.tokens, text[len(seq.tokens) :])
            seq.evaluated = len(text) - 1
            block = vectors[f"{at}.{round_}block_tokens"].tolist()
            assert method.block_tokens(seq) == block
            logits = method.rows.rows.forward_rows([(seq, len(text) - 1, block)], method.rows.first)[0]
            assert torch.allclose(logits, vectors[f"{at}.{round_}draft_logits"], atol=1e-4)
            assert logits.argmax(1).tolist() == vectors[f"{at}.{round_}draft_tokens"].tolist()


@pytest.mark.parametrize("folder", folders(), ids=lambda path: path.name)
def test_the_greedy_loop_is_that_of_the_published_forward(folder, kernels):
    """Its text, and the drafts accepted in each round."""
    vectors, target = load_file(folder / "golden.safetensors"), load(str(folder / "hf"), **kernels)
    for at in contexts(vectors):
        prompt, expected = vectors[f"{at}.tokens"].tolist(), vectors[f"{at}.rounds.generated"].tolist()
        run, accepted = Run(target, [make(folder, target)]), []
        run.observe(lambda step, seen=accepted: seen.extend(len(v.path) for v in step.verdicts.values()))
        result = run.generate(prompt, max_tokens=len(expected) + 20).result

        assert result.tokens[: len(expected)] == expected
        rounds = vectors[f"{at}.rounds.accepted"].tolist()
        assert accepted[1 : len(rounds) + 1] == rounds
