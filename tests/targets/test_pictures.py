"""Pictures in prompts: vectors of transformers, the place of each picture, and what is refused."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from spec_core import Needs, Part, Request, Run, load
from spec_core.toolkit import forward, open_sequence
from tests.support.golden import golden as folder_of

FOLDERS = ("idefics3", "llava")
CASES = [(name, case) for name in FOLDERS for case in "ab"]


@pytest.fixture(scope="module")
def golden():
    """A function that returns (target, tensors, facts) of a folder."""
    pytest.importorskip("transformers")
    read = {}

    def read_folder(name):
        folder = folder_of(f"vision-{name}")
        if name not in read:
            facts = json.loads((folder / "golden.json").read_text("utf-8"))
            read[name] = load(str(folder / "hf")), load_file(folder / "golden.safetensors"), facts
        return read[name]

    return read_folder


def pictures(tensors, case):
    return [tensors[name].numpy() for name in sorted(tensors) if name.startswith(f"image_{case}_")]


def prompt_of(tensors, facts, case):
    """Ids of the prompt, -1 at the rows of pictures."""
    return [-1 if token == facts["placeholder_id"] else token for token in tensors[f"prompt_{case}"].tolist()]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_prompts_and_rows_are_those_of_transformers(golden, name, case):
    target, tensors, facts = golden(name)
    encoded = target.image_encoder.encode_prompt(facts["prompts"][case], pictures(tensors, case))
    rows = torch.stack([encoded.embeds[at] for at in sorted(encoded.embeds)])

    assert encoded.tokens == prompt_of(tensors, facts, case)
    assert torch.allclose(rows, tensors[f"image_features_{case}"], rtol=0, atol=2e-5)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_rows_are_those_of_transformers_from_the_same_pixels(golden, name, case):
    """The tower alone: processors differ by versions of pillow."""
    target, tensors, _ = golden(name)
    _, tower = target.image_encoder._read_parts()
    pixels = tensors[f"pixel_values_{case}"]

    rows = tower.rows({"pixel_values": pixels[None] if name == "idefics3" else pixels})

    assert torch.allclose(rows, tensors[f"image_features_{case}"], rtol=0, atol=2e-5)


@pytest.mark.parametrize(("name", "case"), CASES)
@pytest.mark.parametrize(("kernels", "tolerance"), [("native", 4e-3), ("reference", 2e-4)])
def test_logits_are_those_of_transformers(golden, name, case, kernels, tolerance):
    """The native cache holds float16."""
    _, tensors, facts = golden(name)
    target = load(str(folder_of(f"vision-{name}") / "hf"), kernels=kernels)
    encoded = target.image_encoder.encode_prompt(facts["prompts"][case], pictures(tensors, case))
    seq = open_sequence(target, encoded.embeds)
    logits = forward(target, [Part(seq, 0, encoded.tokens, decides=True)], Needs(all_logits=True)).output.logits

    assert torch.allclose(logits, tensors[f"logits_{case}"], rtol=0, atol=tolerance)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_texts_are_those_of_transformers(golden, name, case):
    target, tensors, facts = golden(name)
    request = Request(facts["prompts"][case], images=pictures(tensors, case), max_tokens=24, ignore_eos=True)

    assert Run(target, ["ngram"]).generate(request).result.tokens == tensors[f"greedy_tokens_{case}"].tolist()
