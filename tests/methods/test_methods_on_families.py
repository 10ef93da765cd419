"""Every method on a random model of every family: texts and states are those of plain decoding.

The windows of these models are shorter than the texts, so drafts begin before, end at and cross the edge of a window,
and are rolled back across it. Two slots serve five requests, so that slots and their rows are used again.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch
from spec_train.heads.export.write import write_head

from spec_core import Request, Run, Sampling, Target, load
from tests.support.pairs import every_pair
from tests.support.small_heads import train
from tests.targets import convolved, gated, kimi, scanned, streamed, unwindowed
from tests.targets.gate import finish_checked
from tests.targets.random_families import FAMILIES, draw_model, lacking
from tests.targets.tiny import model, save

RECURRENT = (
    *unwindowed.HYBRID,
    *convolved.FAMILIES,
    *kimi.FAMILIES,
    *scanned.FAMILIES,
    gated.LFM3,
    gated.OLMO,
    *streamed.FAMILIES,
)
METHODS = ("ngram", "suffix", "recycling", "draft-model", "eagle3", "eagle3-tree", "dflash")
LAYERS = 3
"""Min layers: heads read three of them."""
WINDOWS = (7, 16)
TEXT = 24


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@cache
def make_target_of(family: str):
    """The first random model of a family that is deep enough, with a window that its texts leave, if it has one."""
    models = (draw_model(family, seed) for seed in count())
    return next(
        model
        for model in models
        if text_config(model).num_hidden_layers >= LAYERS
        and getattr(text_config(model), "sliding_window", None) in (None, *WINDOWS)
    )


def text_config(model):
    """The config of the text model, also where a class has a vision tower."""
    return model.config.get_text_config()


@cache
def place(family: str, noise: float = 0.0) -> Path:
    """Its directory. noise: of the weights, for a draft model that is often wrong."""
    of = make_target_of(family)
    kept = {name: value.clone() for name, value in of.state_dict().items()}
    torch.manual_seed(0)
    for value in of.parameters():
        value.data.mul_(1 + noise * torch.randn_like(value))
    folder = save(of, Path(mkdtemp()) / "hf")
    of.load_state_dict(kept)
    return folder


@cache
def dense(family: str) -> Path:
    """A draft model for a hybrid target: a recurrent state cannot be truncated."""
    sizes = {"hidden_size": 20, "intermediate_size": 20, "num_attention_heads": 2, "num_key_value_heads": 1}
    small = model(
        "qwen3", 0, vocab_size=text_config(make_target_of(family)).vocab_size, num_hidden_layers=1, head_dim=6, **sizes
    )
    return save(small, Path(mkdtemp()) / "hf")


@cache
def target(family: str) -> Target:
    return load(place(family), dtype="float32", device="cpu", threads=1)


@cache
def head(kind: str, family: str) -> Path:
    torch.manual_seed(0)
    mask = {"mask": target(family).info.vocab - 1} if kind == "dflash" else {}
    path = Path(mkdtemp()) / f"{kind}.gguf"
    write_head(train(kind, target(family), **mask), target(family), path, "gguf", "f32")
    return path


def choose_settings(method: str, family: str) -> tuple[str, dict]:
    name, tree, _ = method.partition("-tree")
    settings: dict = {"p_min": 0.0}
    if name == "ngram":
        settings["n_min"] = 1
    if name == "draft-model":
        settings["file"] = str(dense(family) if family in RECURRENT else place(family, 0.05))
    if name in ("eagle3", "dflash"):
        settings["file"] = str(head(name, family))
    if tree:
        settings |= {"width": 2, "draft_max": 3}
    return name, settings


def requests(family: str, temperature: float) -> list[Request]:
    """Prompts that repeat themselves, one of them longer than every window."""
    vocab, sampling = target(family).info.vocab, Sampling(temperature=temperature)
    prompts = [[(i * (k % (2 + i)) + 3) % vocab for k in range(5 + 9 * i)] for i in range(5)]
    return [Request(p, max_tokens=TEXT, seed=i, sampling=sampling, name=f"{i}") for i, p in enumerate(prompts)]


@cache
def plain(family: str, temperature: float) -> list[list[int]]:
    run = Run(target(family))
    return [run.generate(request).result.tokens for request in requests(family, temperature)]


@pytest.mark.repeats(40)
@every_pair(
    family=[family for family in FAMILIES if family != "gpt-oss-notruncate"],
    method=METHODS,
    temperature=[0.0, 0.8],
)
def test_texts_and_states_are_those_of_plain_decoding(family, method, temperature):
    if lacking(family):
        pytest.skip(f"this transformers has no classes of {family}")
    drafted = 0

    def count(step):
        nonlocal drafted
        drafted += sum(part.drafted for part in step.parts)

    run = Run(target(family), [choose_settings(method, family)], max_sequences=2)
    run.observe(count)

    results = finish_checked(run, requests(family, temperature))

    assert [result.tokens for result in results] == plain(family, temperature)
    assert drafted
