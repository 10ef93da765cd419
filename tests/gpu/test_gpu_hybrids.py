"""Hybrids on GPU kernels: against the reference, rows and states against plain decoding, every rollback strategy.

In triton's interpreter where there is no device, in float32.
"""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from spec_kernels.gpu import executor as executors
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.recurrence import Lines, Recurrence, RecurrentSlot

from spec_core import Request, Run, load
from spec_core.testing import RandomTrees
from tests.support.small_models import tiny_hybrid, tiny_kimi, tiny_lfm2, tiny_scanned

OPTIONS = {"device": "cuda" if torch.cuda.is_available() else "cpu", "dtype": "float32"}
TOKENS = torch.randint(300, (200,), generator=torch.Generator().manual_seed(1)).tolist()
TREE = [-1, -1, 0, 1, 2]
RATIO = 3e-6
"""Max root mean square difference from the reference, relative to its values."""


FILES = {
    "qwen35": lambda: tiny_hybrid(0, mtp=False, small=True),
    "falcon-h1": lambda: tiny_scanned("falcon-h1"),
    "lfm2": tiny_lfm2,
    "kimi-linear": tiny_kimi,
}
"""A gated delta net, Mamba-2, short convolutions, and a decay of every channel with latents. Golden vectors measure the
other families."""


@pytest.fixture(scope="module", params=FILES)
def file(request):
    return FILES[request.param]()


@pytest.fixture(scope="module")
def target(file):
    torch.set_num_threads(1)
    return load(file, kernels="gpu", **OPTIONS)


class Text:
    """A sequence of an executor."""

    def __init__(self, executor, pool):
        self.cache, self.slot = executor.cache(140), RecurrentSlot(pool)

    @property
    def state(self):
        return self.slot.copy()


class Model:
    """An executor and its states."""

    def __init__(self, target):
        self.executor, self.pool = target.executor, target.pool

    def text(self):
        return Text(self.executor, self.pool)

    def run(self, *parts, kind=None):
        """Logits, and the trace. parts: (text, start, tokens, parents of drafts), or with the number of a chain's."""
        lines, tokens, positions, sequences = Lines(), [], [], []
        for text, start, some, drafts in parts:
            chain = isinstance(drafts, int)
            parents = list(range(-1, drafts - 1)) if chain else drafts
            kept = text.slot.spare(len(parents)) if kind == "states" else []
            sequences.append(SequenceRows(text.cache, len(tokens), len(some), start, None if chain else parents))
            lines.add(text.slot.current, start, len(some) - len(parents), parents, kept, len(parents))
            depths = []
            for parent in parents:
                depths.append(1 + (depths[parent] if parent >= 0 else 0))
            pending = len(some) - len(parents)
            positions += [*range(start, start + pending), *(start + pending - 1 + depth for depth in depths)]
            tokens += some
        states = Recurrence(self.pool, lines.lineage(), kind, lines.drafts)
        batch = ForwardBatch(torch.tensor(tokens), torch.tensor(positions), sequences, recurrence=states)
        return self.executor.run(batch)["logits"].clone(), states.trace


@pytest.fixture(scope="module")
def plain(target):
    """A text after a prompt of 66 tokens, then 5 steps of one token: rows of logits, and the state after each."""
    model, rows, states = Model(target), [], []
    text = model.text()
    model.run((text, 0, TOKENS[:66], 0))
    begin = text.state
    for i in range(66, 71):
        rows.append(model.run((text, i, TOKENS[i : i + 1], 0))[0][0])
        states.append(text.state)
    return begin, rows, states, text


@pytest.fixture
def continuation(target, plain):
    """The text after its prompt, with keys and values of its own."""
    text = Model(target).text()
    text.cache = plain[3].cache.copy()
    text.slot.put(plain[0])
    return text


def differences(a, b):
    return [((x - y.cpu()).norm() / x.norm()).item() for x, y in zip(a, b, strict=True) if x.numel()]


def equal(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.repeats(2)
def test_a_prompt_a_step_and_a_tree(file, target, plain):
    """As the reference computes them; the prompt has a run and rows behind it."""
    model = Model(load(file, kernels="reference", **OPTIONS | {"device": "cpu"}))
    text = model.text()
    model.run((text, 0, TOKENS[:66], 0))
    assert max(differences(text.state, plain[0])) < RATIO
    row = model.run((text, 66, TOKENS[66:67], 0))[0]
    assert max(differences(row, [plain[1][0]])) < RATIO
    tree = (67, TOKENS[67:73], TREE)
    text_alone = Model(target).text()
    text_alone.cache = plain[3].cache.copy()
    text_alone.slot.put(plain[2][0])
    assert max(differences(model.run((text, *tree))[0], Model(target).run((text_alone, *tree))[0])) < RATIO


@pytest.mark.repeats(1)
def test_a_row_has_the_same_bits_in_a_batch_in_a_tree_and_in_chunks(target, plain, continuation, monkeypatch):
    """A path of the tree is the text; the chunks cut pieces of a run and rows, and no drafts."""
    model, rows = Model(target), plain[1]
    tree = [TOKENS[66], 5, TOKENS[67], TOKENS[68], 9, TOKENS[69]], [-1, -1, 1, 0, 2]
    assert model.pool.places > 1
    batched, _ = model.run((model.text(), 0, TOKENS[3:5], 0), (continuation, 66, *tree))
    for row, i in ((2, 0), (4, 1), (5, 2), (7, 3)):
        assert torch.equal(batched[row], rows[i])
    assert equal(continuation.state, plain[2][0])

    monkeypatch.setattr(executors, "rows_max", lambda pieces, heads: 23)
    other, text = model.text(), model.text()
    again, _ = model.run((other, 0, TOKENS[7:12], 0), (text, 0, TOKENS[:71], 4))
    assert equal(text.state, plain[2][0])
    assert all(torch.equal(a, b) for a, b in zip(again[-5:], rows, strict=False))


@pytest.mark.repeats(3)
@pytest.mark.parametrize("kind", ["states", "inputs"])
def test_states_after_a_rollback_are_those_of_plain_decoding(target, plain, continuation, kind):
    """Of every length of a path of a tree; a step of another text comes before the rollback."""
    model, path = Model(target), [1, 3, 6]
    tokens, parents = [TOKENS[66], TOKENS[67], 7, TOKENS[68], 7, 8, TOKENS[69]], [-1, -1, 0, 1, 3, 2]
    other = model.text()
    _, trace = model.run((other, 0, [1, 2], 1), (continuation, 66, tokens, parents), kind=kind)
    assert equal(continuation.state, plain[2][0])
    shape = target.pool.shape
    assert trace.nbytes == (7 * target.pool.layers * shape.record_bytes if kind == "inputs" else 0)
    model.run((model.text(), 0, TOKENS[:9], 8), kind=kind)

    rows = [2 + row for row in path]
    for count in range(1, 4):
        if kind == "states":
            continuation.slot.pick(trace.places[rows[count - 1]])
        else:
            continuation.slot.put(plain[2][0])
            continuation.slot.replay(trace, rows[:count])
        assert equal(continuation.state, plain[2][count])


def test_states_of_another_executor_are_refused(target):
    with pytest.raises(ValueError, match="in places of its executor"):
        target.executor.run(ForwardBatch(torch.tensor([1]), torch.tensor([0]), [SequenceRows(None, 0, 1, 0)]))


@pytest.mark.repeats(1)
def test_drafts_and_trees_change_no_text(target):
    """Of two sequences at a time; ``tests/campaigns/gpu_models.py`` has the other strategies, and more texts."""
    requests = [Request(prompt, max_tokens=3, seed=5, name=str(i)) for i, prompt in enumerate(([1, 2], [4]))]
    texts = lambda methods, **settings: [
        g.result.tokens for g in Run(target, methods, max_sequences=2, **settings).generate(requests)
    ]
    plain = texts([])
    whole = {r.name: [*r.prompt, *text] for r, text in zip(requests, plain, strict=True)}
    replay = ("gdn-rollback", {"strategy": "replay"})

    assert texts([RandomTrees(whole, vocab=target.info.vocab)], rollback=replay) == plain
