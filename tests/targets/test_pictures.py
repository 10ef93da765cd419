"""Pictures in prompts: vectors of transformers, the place of each picture, and what is refused."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import attrs
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from spec_methods.draft_model import DraftModel
from spec_methods.draft_model.pictures import SEEN, UNSEEN

from spec_core import Needs, Part, Request, Run, UsageError, load
from spec_core.toolkit import forward, open_sequence
from tests.support.golden import golden as folder_of
from tests.support.pages import follow

FOLDERS = ("gemma3", "idefics3", "llava", "qwen3vl")
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
    if encoded.positions is not None:
        assert encoded.positions.equal(tensors[f"positions_{case}"])
    assert torch.allclose(
        rows, tensors[f"image_features_{case}"], rtol=0, atol=5e-2
    )  # versions of pillow round differently


@pytest.mark.parametrize(("name", "case"), CASES)
def test_rows_are_those_of_transformers_from_the_same_pixels(golden, name, case):
    """The tower alone: processors differ by versions of pillow."""
    target, tensors, _ = golden(name)
    _, tower = target.image_encoder._read_parts()
    pixels = tensors[f"pixel_values_{case}"]

    inputs = {"pixel_values": pixels[None] if name == "idefics3" else pixels}
    grid = f"image_grid_thw_{case}"
    picture = tower.read(inputs | ({"image_grid_thw": tensors[grid]} if grid in tensors else {}))

    assert torch.allclose(picture.rows, tensors[f"image_features_{case}"], rtol=0, atol=2e-5)
    for index, rows in enumerate(picture.added):
        assert torch.allclose(rows, tensors[f"deepstack_{index}_{case}"], rtol=0, atol=2e-5)


@pytest.mark.parametrize(("name", "case"), CASES)
@pytest.mark.parametrize(("kernels", "tolerance"), [("native", 2e-4), ("reference", 2e-4)])
def test_logits_are_those_of_transformers(golden, name, case, kernels, tolerance):
    """With a cache of float32, as theirs."""
    _, tensors, facts = golden(name)
    more = {"cache_dtype": "float32"} if kernels == "native" else {}
    target = load(str(folder_of(f"vision-{name}") / "hf"), kernels=kernels, **more)

    assert torch.allclose(logits_of(target, tensors, facts, case), tensors[f"logits_{case}"], rtol=0, atol=tolerance)


def logits_of(target, tensors, facts, case):
    """Of a prompt with the rows of transformers' tower."""
    encoded = target.image_encoder.encode_prompt(facts["prompts"][case], pictures(tensors, case))
    rows = dict(zip(sorted(encoded.embeds), tensors[f"image_features_{case}"], strict=True))
    added = tuple(
        dict(zip(sorted(encoded.embeds), tensors[f"deepstack_{i}_{case}"], strict=True))
        for i in range(len(encoded.added))
    )
    return torch.cat(list(logits_of_parts(target, attrs.evolve(encoded, embeds=rows, added=added))))


def logits_of_parts(target, encoded):
    """Of each part of a prompt: blocks of rows that see each other, and the rows between them."""
    seq, ends = open_sequence(target, encoded.embeds), {0, len(encoded.tokens)}
    seq.encoded, seq.prompt_len = encoded, len(encoded.tokens)
    for start, end in pairwise(sorted(ends.union(*encoded.blocks))):
        part = Part(seq, start, encoded.tokens[start:end], decides=True)
        yield forward(target, [part], Needs(all_logits=True)).output.logits.clone()


@pytest.mark.parametrize("chunk", [5, 16, 64])
@pytest.mark.parametrize("name", FOLDERS)
def test_prompts_in_turns_and_in_chunks_give_the_same_texts(golden, name, chunk):
    """Two pictures and their order, with rows of texts before; rows are reused for an equal beginning alone."""
    target, tensors, facts = golden(name)
    one, other = pictures(tensors, "b")
    run, reused = Run(target, ["ngram"], prefill_chunk=chunk, draft_max=4, max_sequences=1), []
    for images in ((one, other), (other, one), (one, one), (one, other), (one, other)):
        request = Request(facts["prompts"]["b"], images=images, max_tokens=8, ignore_eos=True)
        result = run.generate(request).result

        assert result.tokens == Run(target).generate(request).result.tokens
        reused.append(result.reused)

    before, rest = facts["image_rows"]["b"][0][0], result.prompt_tokens - 1
    assert reused[1] <= before < reused[3] < reused[4] == rest


@pytest.mark.parametrize(("name", "case"), CASES)
def test_texts_are_those_of_transformers(golden, name, case):
    target, tensors, facts = golden(name)
    request = Request(facts["prompts"][case], images=pictures(tensors, case), max_tokens=24, ignore_eos=True)

    assert Run(target, ["ngram"]).generate(request).result.tokens == tensors[f"greedy_tokens_{case}"].tolist()


def drafting(target, file, request, blind=False):
    """(tokens, share of drafted tokens that were accepted) with a draft model; blind: it reads no pictures."""
    method = DraftModel(file=str(file), p_min=0.0)
    run = Run(target, [method])
    if blind:
        method.model.image_encoder = None
    for _ in range(2):  # the second time from the rows of the first
        result = run.generate(request).result
    return result.tokens, result.stats["accepted"] / result.stats["drafted"]


@pytest.mark.parametrize("name", FOLDERS)
def test_a_draft_model_reads_the_pictures_if_it_can(golden, name):
    """The target's own weights draft: with the pictures every token is right, without them few are."""
    target, tensors, facts = golden(name)
    request = Request(facts["prompts"]["b"], images=pictures(tensors, "b"), max_tokens=24, ignore_eos=True)
    file = folder_of(f"vision-{name}") / "hf"
    plain = tensors["greedy_tokens_b"].tolist()
    tokens, seeing = drafting(target, file, request)
    tokens_too, blind = drafting(target, file, request, blind=True)

    assert tokens == tokens_too == plain
    assert seeing == 1.0 > blind


def test_another_picture_is_read_by_the_draft_model_too(golden):
    """In turns: rows of the picture before are not taken for those of the next."""
    target, tensors, facts = golden("llava")
    method = DraftModel(file=str(folder_of("vision-llava") / "hf"), p_min=0.0)
    run = Run(target, [method], max_sequences=1)
    images = pictures(tensors, "b")
    for image in (*images, *images):
        request = Request(facts["prompts"]["a"], images=[image], max_tokens=16, ignore_eos=True)
        result = run.generate(request).result

        assert result.tokens == Run(target).generate(request).result.tokens
        assert result.stats["accepted"] == result.stats["drafted"] > 0


@pytest.mark.parametrize("name", FOLDERS)
def test_a_text_after_a_picture_is_drafted_without_the_picture(golden, name):
    """In the slot of a prompt with pictures: the draft model keeps no row, position or picture of it."""
    target, tensors, facts = golden(name)
    run = Run(target, [DraftModel(file=str(folder_of(f"vision-{name}") / "hf"), p_min=0.0)], max_sequences=1)
    run.generate(Request(facts["prompts"]["b"], images=pictures(tensors, "b"), max_tokens=8, ignore_eos=True)).result
    before = tensors["prompt_b"].tolist()[: facts["image_rows"]["b"][0][0]]
    text = before + target.tokenizer.encode("say what it is, " * 6, bos=False)
    result = run.generate(Request(text, max_tokens=16, ignore_eos=True)).result

    assert result.reused > 0
    assert result.stats["accepted"] == result.stats["drafted"] > 0


@pytest.mark.parametrize(
    "method", ["ngram", "suffix", "recycling", "draft-model:file=zoo:pico-draft,translate=true", "prediction"]
)
def test_other_methods_change_no_text(golden, method):
    target, tensors, facts = golden("idefics3")
    for case in "ab":
        images = pictures(tensors, case)
        request = Request(facts["prompts"][case], images=images, max_tokens=24, ignore_eos=True, prediction="What is")

        assert Run(target, [method]).generate(request).result.tokens == tensors[f"greedy_tokens_{case}"].tolist()


def test_compat_says_whether_a_draft_model_sees(golden):
    target, _, _ = golden("llava")
    notes = [DraftModel(file=file).compat(target=target).notes for file in (str(target.info.file), "zoo:pico-draft")]

    assert notes == [(SEEN,), (UNSEEN,)]


@pytest.mark.parametrize(
    ("prompt", "count", "reason"),
    [
        ("<image> and <image>", 1, "places for pictures: 2, pictures: 1"),
        ("<image>", 2, "places for pictures: 1, pictures: 2"),
        ([1, 2, 3], 1, "pictures are given with token ids"),
    ],
)
def test_each_picture_has_a_place(golden, prompt, count, reason):
    target, tensors, _ = golden("llava")
    with pytest.raises(UsageError, match=reason):
        Run(target).generate(Request(prompt, images=pictures(tensors, "b")[:count]))


def test_a_text_without_a_place_begins_with_its_pictures(golden):
    target, tensors, _ = golden("llava")
    images = pictures(tensors, "a")
    texts = {
        Run(target).generate(Request(text, images=images, max_tokens=8)).result.text for text in ("<image>\nA", "A")
    }

    assert len(texts) == 1


def test_the_name_of_a_place_in_a_message_is_text(golden):
    target, tensors, _ = golden("llava")
    message = [{"type": "image", "image": pictures(tensors, "a")[0]}, {"type": "text", "text": "What is <image>?"}]
    request = Request([{"role": "user", "content": message}], max_tokens=8)
    result = Run(target).generate(request).result

    assert result.prompt_tokens > 16 and result.tokens


def test_a_target_of_text_refuses_pictures():
    request = Request([{"role": "user", "content": [{"type": "image", "image": "a.png"}]}])
    with pytest.raises(UsageError, match="the prompt has pictures, and pico reads text alone"):
        Run("zoo:pico").generate(request)


@pytest.mark.parametrize("images", ["a.png", b"bytes", 7, {"a": 1}])
def test_images_are_a_list(images):
    with pytest.raises(UsageError, match="images is of type"):
        Run("zoo:pico").generate(Request("a", images=images))


@attrs.frozen
class Reader:
    """Runs the page's programs as this user, but for the installation."""

    def shell(self, script, cwd):
        commands = [line for line in script.splitlines() if line.startswith("spec ")]
        return "".join(self._run([sys.executable, "-m", "spec_core", *shlex.split(line)[1:]], cwd) for line in commands)

    def python(self, source, cwd):
        return self._run([sys.executable, "-c", source], cwd)

    def _run(self, command, cwd):
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.mark.release
@pytest.mark.slow
def test_the_page_of_pictures_can_be_followed(tmp_path):
    """With a small model of random weights in the place of the reader's."""
    (tmp_path / "model").symlink_to(folder_of("vision-llava") / "hf")

    follow(Path(__file__).parents[2] / "docs" / "pictures.md", Reader(), tmp_path)


def test_pictures_are_compared_from_a_file_of_prompts(golden, tmp_path):
    target, tensors, _ = golden("llava")
    Image.fromarray(pictures(tensors, "a")[0]).save(tmp_path / "a.png")
    parts = [{"type": "image", "image": str(tmp_path / "a.png")}, {"type": "text", "text": "What is this?"}]
    line = {"id": "1", "family": "see", "messages": [{"role": "user", "content": parts}]}
    (tmp_path / "prompts.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    words = f"compare -m {target.info.file} --method ngram --repeats 1 -n 8 --prompts prompts.jsonl --out out"
    done = subprocess.run([sys.executable, "-m", "spec_core", *words.split()], cwd=tmp_path, check=False)
    rows = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))["rows"]

    assert done.returncode == 0
    assert {row["contender"]: row["identical"] for row in rows if row["family"] == "all"} == {"plain": 1, "ngram": 1}
