"""The differentiable heads against vectors of the originals: the same tokens, logits to 5e-5 of their range."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from spec_train.heads.dflash import DFlash
from spec_train.heads.dspark import MARKOV, DSpark
from spec_train.heads.eagle3 import Eagle3
from spec_train.heads.module import HeadModule
from spec_train.heads.shape import Shape

from spec_core import Target, load
from tests.support.golden import golden

HEADS = ("eagle3/llama-d2t", "eagle3/llama-full", "eagle3/qwen3-speculators", "dflash/qwen3", "dflash/qwen35")
RATIO = 5e-5


def vocab(file, target: Target, name: str) -> torch.Tensor:
    """A matrix of the head, or the target's."""
    return (file if name in file.names else target).tensor(name).float()


def eagle3(head: Eagle3, g, embedding, output, d2t):
    """A chain of five from the last pair, each on the outputs before it."""
    fused, drafts, rows = head.fuse(g["features"]), [], []
    known = torch.cat([g["tokens"][1:], g["id_last"]])
    for depth in range(1, 6):
        embedded = embedding[torch.cat([known, torch.tensor(drafts, dtype=torch.int64)])]
        padded = torch.cat([fused, fused.new_zeros(depth - 1, fused.shape[1])])
        y = head.unroll(embedded, padded, depth)[-1][-1]
        rows.append(head.hidden_rows(y) @ output.T)
        best = int(rows[-1].argmax())
        drafts.append(best if d2t is None else int(d2t[best]))
    return drafts, torch.stack(rows)


def dflash(head: DFlash, g, embedding, output, d2t):
    """One block after the whole context."""
    at = torch.tensor([len(g["tokens"])])
    hidden = head.blocks(embedding[g["block_tokens"]][None], head.fuse(g["features"]), at)[0, 1:]
    logits = hidden @ output.T
    return logits.argmax(-1).tolist(), logits


def of(file) -> HeadModule:
    """The module of a head that was read."""
    head = file.head
    cls = Eagle3 if head.kind == "eagle3" else DFlash
    return cls(Shape.of(head), {n: file.tensor(n) for n in file.names}, *file.rotation())


@pytest.mark.parametrize("context", ["ctx20.", "ctx33."])
@pytest.mark.parametrize("form", ["model-f32.gguf", "hf"])
@pytest.mark.parametrize("name", HEADS)
@torch.no_grad()
def test_a_published_head_drafts_what_its_original_drafts(name, form, context):
    file = load(golden(name) / form, weights=False)
    target = load(golden(name.split("/")[1].split("-")[0]) / "model-f32.gguf", dtype="float32")
    vectors = load_file(golden(name) / "golden.safetensors")
    g = {key.removeprefix(context): value for key, value in vectors.items() if key.startswith(context)}
    head = of(file)
    drafting = eagle3 if isinstance(head, Eagle3) else dflash
    matrices = (vocab(file, target, tensor) for tensor in ("token_embd.weight", "output.weight"))

    drafts, logits = drafting(head, g, *matrices, file.head.d2t)

    expected = g["draft_logits"]
    assert drafts == g["draft_tokens"].tolist()
    assert (logits - expected).abs().max() <= RATIO * (expected.max() - expected.min())


@pytest.mark.parametrize("context", ["ctx20.", "ctx33."])
@pytest.mark.parametrize("form", ["model-f32.gguf", "hf"])
@pytest.mark.parametrize("name", ["dspark/qwen3", "dspark/qwen3-bonus"])
@torch.no_grad()
def test_joined_rows_are_those_of_the_original(name, form, context):
    """Corrected logits and chances, each row after the original's token before it."""
    file = load(golden(name) / form, weights=False)
    target = load(golden("qwen3") / "model-f32.gguf", dtype="float32")
    vectors = load_file(golden(name) / "golden.safetensors")
    g = {key.removeprefix(context): value for key, value in vectors.items() if key.startswith(context)}
    head = DSpark(Shape.of(file.head), {n: file.tensor(n) for n in file.names}, *file.rotation())
    embedding, output = (vocab(file, target, tensor) for tensor in ("token_embd.weight", "output.weight"))
    at = torch.tensor([len(g["tokens"])])
    states = head.blocks(embedding[g["block_tokens"]][None], head.fuse(g["features"]), at)[0]
    drafted = g["draft_tokens"]
    rows = head.join_rows(states[-len(drafted) :], torch.cat([g["id_last"], drafted[:-1]]))
    logits = rows @ torch.cat([output, head[MARKOV[1]]], 1).T

    expected = g["draft_logits"]
    assert (logits - expected).abs().max() <= RATIO * (expected.max() - expected.min())
    if file.head.confidence == rows.shape[1]:  # one reads the state alone
        assert torch.allclose(head.confidence(rows), g["confidence_logit"], atol=1e-4)
