"""Drafts that follow draft rows of the last forward: equal bits, and void after whatever else writes rows."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch

from spec_core import Draft, Needs, Part, Probes, Sequence, Slot, load
from spec_core.contract.probes import create_piece
from spec_core.contract.splice import explicit_parents
from spec_core.toolkit import DraftLimits, evaluate, follow_problem, forward, open_sequence, partial_forward
from tests.support.assistants import tiny_gemma4

TREES = Needs(trees=True, hidden=frozenset({1}), final=True)
OPTIONS = {
    "native": ("zoo:pico", {}),
    "q8 cache": ("zoo:pico", {"cache_dtype": "q8"}),
    "float cache": ("zoo:pico", {"cache_dtype": "float32", "threads": 3}),
    "reference": ("zoo:pico", {"kernels": "reference"}),
}


@cache
def target_of(name):
    location, options = OPTIONS[name]
    return load(location, **{"threads": 1, **options})


def random_tree(draws, count, vocab):
    """A draft whose first tokens may be a chain; equal siblings are allowed."""
    parents = [draws.randrange(-1, i) if draws.random() < 0.6 else i - 1 for i in range(count)]
    return Draft([draws.randrange(1, vocab) for _ in range(count)], parents=parents)


def beginning(draft, count):
    return Draft(draft.ids[:count], parents=explicit_parents(draft)[:count])


def rows_of(step, part, first):
    """Logits, hidden states and final states of drafts from ``first`` on."""
    logits = step.output.logits[part.logits_row + 1 + first : part.logits_row + 1 + part.drafted]
    batch = slice(part.first_draft_row + first, part.first_draft_row + part.drafted)
    return [logits, step.output.hidden[1][batch], step.output.final[batch]]


@pytest.mark.parametrize("name", OPTIONS)
def test_trees_in_several_forwards_have_the_bits_of_one(name):
    """Several sequences at once, of other lengths, with other trees; some leave early."""
    target, draws = target_of(name), random.Random(name)
    for _ in range(6):
        texts = [[draws.randrange(1, 200) for _ in range(draws.randint(1, 70))] for _ in range(3)]
        drafts = [random_tree(draws, draws.randint(3, 24), 200) for _ in texts]
        expected, parts = [], {}
        for text, draft in zip(texts, drafts, strict=True):
            part = Part(open_sequence(target), 0, text, True, draft=draft)
            step = forward(target, [part], TREES)
            expected.append([rows.clone() for rows in rows_of(step, part, 0)])
        growing = list(range(3))
        parts = {i: Part(open_sequence(target), 0, texts[i], True) for i in growing}
        step = forward(target, parts.values(), TREES)
        while growing := [i for i in growing if parts[i].drafted < len(drafts[i])]:
            for i in growing:
                count = min(len(drafts[i]), parts[i].drafted + draws.randint(1, 5))
                parts[i] = Part(parts[i].seq, len(texts[i]), [], True, draft=beginning(drafts[i], count))
            step = forward(target, [parts[i] for i in growing], TREES, follows=step)
            assert step.batch.tokens.numel() == sum(parts[i].drafted - parts[i].held for i in growing)
            for i in growing:
                for piece, whole in zip(rows_of(step, parts[i], parts[i].held), expected[i], strict=True):
                    assert torch.equal(piece, whole[parts[i].held : parts[i].drafted])


def test_the_batch_says_what_its_rows_follow():
    """Rows that the slot holds are -1, as committed ones."""
    target = target_of("native")
    part = Part(open_sequence(target), 0, [5, 6, 7], True, draft=Draft([8, 9]))
    step = forward(target, [part])
    more = Part(part.seq, 3, [], True, draft=Draft([8, 9, 1, 2], parents=[-1, 0, 0, 2]))
    after = forward(target, [more], Needs(trees=True), follows=step)

    assert step.batch.parents == [-1, 0, 1, 2, 3]
    assert after.batch.parents == [-1, 0]
    assert after.batch.positions.tolist() == [4, 5]


def fork(target, seq):
    copied = Sequence([], 0, 0, seq.sampling, seq.stop)
    copied.slot = Slot()
    target.copy(copied, seq.slot, 3)
    return copied


WRITES = {
    "a forward": lambda target, seq: forward(target, [Part(seq, 3, [1], True)]),
    "a forward with other drafts": lambda target, seq: forward(target, [Part(seq, 2, [7], True, draft=Draft([1, 9]))]),
    "a part of the blocks": lambda target, seq: partial_forward(target, [0]).forward([(seq, 3, [1])]),
    "a slot that is opened again": lambda target, seq: target.open(seq, 3),
    "a draft in one call": lambda target, seq: target.draft([(seq, 2, [7])], [limits()]),
}


def limits():
    return DraftLimits(2, 2, 1, 0.0)


@pytest.mark.parametrize("write", WRITES)
def test_rows_are_void_after(write):
    """Whatever may write after the committed rows."""
    target = target_of("native")
    seq = open_sequence(target)
    step = forward(target, [Part(seq, 0, [5, 6, 7], True, draft=Draft([8, 9]))])
    WRITES[write](target, seq)

    with pytest.raises(ValueError, match="the 2 draft rows that a forward follows are void"):
        forward(target, [Part(seq, 3, [], True, draft=Draft([8, 9, 1]))], follows=step)


def test_a_fork_has_no_draft_rows_and_leaves_those_of_its_source():
    """It holds committed rows."""
    target = target_of("native")
    seq = open_sequence(target)
    part = Part(seq, 0, [5, 6, 7], True, draft=Draft([8, 9]))
    step = forward(target, [part])
    copied = fork(target, seq)
    step.parts.append(Part(copied, 0, [5, 6, 7], True, draft=Draft([8, 9])))

    with pytest.raises(ValueError, match="are void"):
        forward(target, [Part(copied, 3, [], True, draft=Draft([8, 9, 1]))], follows=step)
    assert forward(target, [Part(seq, 3, [], True, draft=Draft([8, 9, 1]))], follows=step).output


def test_rows_are_void_after_a_failure():
    """It is not known what was written."""
    target = target_of("native")
    seq = open_sequence(target)
    step = forward(target, [Part(seq, 0, [5, 6, 7], True, draft=Draft([8, 9]))])
    with pytest.raises(ValueError, match="outside the embedding"):
        forward(target, [Part(seq, 3, [], True, draft=Draft([8, 9, 1 << 20]))], follows=step)
    with pytest.raises(ValueError, match="are void"):
        forward(target, [Part(seq, 3, [], True, draft=Draft([8, 9, 1]))], follows=step)


MISTAKES = {
    "begins at 3, without pending rows, got 2": lambda seq: Part(seq, 2, [7], True, draft=Draft([8, 9, 1])),
    "more draft tokens than the one before": lambda seq: Part(seq, 3, [], True, draft=Draft([8, 9])),
    "give the whole draft": lambda seq: Part(seq, 3, [], True),
    "begins with the whole draft of the one before": lambda seq: Part(seq, 3, [], True, draft=Draft([8, 1, 2])),
    "parents must be -1 or an earlier": lambda seq: Part(seq, 3, [], True, draft=Draft([8, 9, 1], parents=[-1, 0, 2])),
    "2 parents for 3 tokens": lambda seq: Part(seq, 3, [], True, draft=Draft([8, 9, 1], parents=[-1, 0])),
    "without this sequence": lambda seq: Part(open_sequence(target_of("native")), 3, [], True, draft=Draft([8, 9, 1])),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_part_that_does_not_follow_is_refused(message):
    """Before anything is evaluated."""
    target = target_of("native")
    seq = open_sequence(target)
    step = forward(target, [Part(seq, 0, [5, 6, 7], True, draft=Draft([8, 9]))])

    with pytest.raises(ValueError, match=message):
        forward(target, [MISTAKES[message](seq)], follows=step)


def test_a_step_of_another_target_is_refused():
    """Its rows are elsewhere."""
    target, other = target_of("native"), target_of("reference")
    seq = open_sequence(target)
    step = forward(target, [Part(seq, 0, [5], True, draft=Draft([8]))])
    with pytest.raises(ValueError, match="of another target"):
        forward(other, [Part(seq, 1, [], True, draft=Draft([8, 9]))], follows=step)


def test_a_target_that_keeps_no_rows_says_why():
    """From metadata, and where it is asked to."""
    hybrid = load("zoo:pico-hybrid", threads=1)
    seq = open_sequence(hybrid)
    step = forward(hybrid, [Part(seq, 0, [5], True)])

    assert follow_problem(load("zoo:pico", weights=False)) is None
    assert follow_problem(hybrid) == "its recurrent blocks keep a state"
    assert follow_problem(object()) == "it keeps no rows of drafts for another forward"
    with pytest.raises(ValueError, match=r"pico-hybrid evaluates no drafts that follow .*: its recurrent blocks"):
        forward(hybrid, [Part(seq, 1, [], True, draft=Draft([8]))], follows=step)


def test_layers_that_share_a_cache_follow_drafts_too():
    """Blocks of Gemma 4 read the keys of earlier ones, within a window."""
    target = load(tiny_gemma4(), device="cpu", context=128)
    draft = random_tree(random.Random(1), 12, target.info.vocab)
    whole = Part(open_sequence(target), 0, [5, 6, 7, 8], True, draft=draft)
    expected = forward(target, [whole], TREES).output.logits[1:].clone()
    part = Part(open_sequence(target), 0, [5, 6, 7, 8], True)
    step, rows = forward(target, [part], TREES), []
    for count in (3, 7, 12):
        part = Part(part.seq, 4, [], True, draft=beginning(draft, count))
        step = forward(target, [part], TREES, follows=step)
        rows.append(step.output.logits.clone())

    assert torch.equal(torch.cat(rows), expected)
    assert evaluate(target, [5, 6]).logits.isfinite().all()


@pytest.mark.parametrize("name", OPTIONS)
def test_probes_have_the_bits_of_drafts_and_leave_no_trace(name):
    """Random trees whose last rows are probes, in a batch; a vector is that of a token."""
    target, draws = target_of(name), random.Random(name)
    embedding = target.tensor("token_embd.weight").float()
    for _ in range(4):
        parts, expected, texts = [], [], []
        for _ in range(3):
            text, draft = [draws.randrange(1, 200) for _ in range(draws.randint(1, 40))], random_tree(draws, 9, 200)
            whole = Part(open_sequence(target), 0, text, True, draft=draft)
            output = forward(target, [whole], TREES).output
            expected.append((output.logits.clone(), output.final[-9:].clone()))
            cut = draws.randint(1, 8)
            ids = [token if i % 2 else -1 for i, token in enumerate(draft.ids[cut:])]
            vectors = {i: embedding[token] for i, token in enumerate(draft.ids[cut:]) if ids[i] < 0}
            probes = Probes(ids, draft.parents[cut:], vectors)
            piece = create_piece("a", probes, cut, 0, 9, target.info.vocab, target.info.width)
            seq = open_sequence(target)
            parts.append(Part(seq, 0, text, True, draft=beginning(draft, cut), probes=[piece]))
            texts.append(text)
        step = forward(target, parts, TREES)
        for part, (logits, final) in zip(parts, expected, strict=True):
            assert torch.equal(step.output.logits[part.logits_row : part.logits_row + 10], logits)
            assert torch.equal(step.output.final[part.first_draft_row : part.first_draft_row + 9], final)
        after = forward(target, [Part(part.seq, part.end, [7], True) for part in parts]).output.logits.clone()
        for row, text in zip(after, texts, strict=True):
            assert torch.equal(row, evaluate(target, [*text, 7]).logits[-1])
