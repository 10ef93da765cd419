"""The torch runtime: caches, trees, ragged batches, and a row's result that does not depend on its neighbours."""

from __future__ import annotations

import pytest
import torch

from spec_core import Draft, Needs, Request, Run, Sampling, UsageError, Verdict, load
from spec_core.testing import Oracle, RandomTrees
from tests.targets.drive import EVERYTHING, forward, fresh, keep, part, sequence, step
from tests.targets.tiny import model, save

PROMPT = [5, 17, 80, 3, 3, 41, 29, 60, 11, 7]
TREE = Draft([10, 20, 30, 40, 50, 60, 70], parents=[-1, -1, 0, 0, 1, 2, 4])
BRANCHES = [[10, 30, 60], [10, 40], [20, 50, 70]]


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


SIZES = {
    "qwen3": {"head_dim": 16},
    "llama": {"num_key_value_heads": 4},
    "qwen3moe": {"num_key_value_heads": 1},
    "gemma4-e": {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2},
}


@pytest.fixture(scope="module", params=SIZES)
def directory(request, tmp_path_factory):
    return save(model(request.param, **SIZES[request.param]), tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def target(directory):
    return load(directory, dtype="float32")


def prefill(target, tokens, **fields):
    """A sequence whose tokens but the last are evaluated."""
    seq = sequence(target, tokens, **fields)
    forward(target, part(seq, 0, tokens[:-1], decides=False))
    return seq


def verify_draft(target, seq, draft, needs=EVERYTHING):
    return step(target, part(seq, len(seq.tokens) - 1, seq.tokens[-1:], draft), needs=needs)


# rows do not depend on each other


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [2, 3, 5, 9, 17])
def test_a_row_has_the_same_bits_alone_and_with_drafts(target, rows, threads):
    torch.set_num_threads(threads)
    alone = verify_draft(target, prefill(target, PROMPT), None).output.logits
    seq = prefill(target, PROMPT)

    beside = verify_draft(target, seq, Draft([(7 * i) % 96 for i in range(rows - 1)])).output.logits

    assert torch.equal(alone[0], beside[0])


def test_a_chain_of_drafts_has_the_bits_of_plain_decoding(target):
    chain = [10, 30, 60, 2, 9]
    plain = prefill(target, PROMPT)
    rows = [forward(target, part(plain, 9 + i, [t])).logits for i, t in enumerate([PROMPT[-1], *chain])]

    together = verify_draft(target, prefill(target, PROMPT), Draft(chain)).output.logits

    assert torch.equal(torch.cat(rows), together)


def test_bits_stay_equal_where_a_long_context_is_summed_in_pieces(target):
    """255 rows cached: the drafts reach over the boundary of a piece, the single row does not."""
    prompt = [(i * i) % 96 for i in range(255)]
    alone = verify_draft(target, prefill(target, prompt), None).output.logits

    beside = verify_draft(target, prefill(target, prompt), Draft([1, 2, 3])).output.logits

    assert torch.equal(alone[0], beside[0])


def test_a_sequence_has_the_same_bits_in_any_batch(target):
    alone = verify_draft(target, prefill(target, PROMPT), Draft([10, 20])).output.logits
    a, b, c = prefill(target, PROMPT[:4]), prefill(target, PROMPT), sequence(target, PROMPT[2:])
    parts = part(a, 3, [3], TREE), part(b, 9, [7], Draft([10, 20])), part(c, 0, PROMPT[2:])

    together = forward(target, *parts)

    assert torch.equal(alone, together.logits[8:11])
    torch.testing.assert_close(fresh(target, PROMPT[2:]).logits, together.logits[11:], rtol=0, atol=2e-5)


# trees


def test_every_branch_of_a_tree_is_a_sequence_of_its_own(target):
    output = verify_draft(target, prefill(target, PROMPT), TREE).output
    for branch in BRANCHES:
        nodes = [
            i for i in range(len(TREE)) if [TREE.ids[j] for j in TREE.ancestry(i)] == branch[: len(TREE.ancestry(i))]
        ]
        expected = fresh(target, PROMPT + branch).logits[-len(branch) :]

        torch.testing.assert_close(expected, output.logits[[1 + i for i in nodes]], rtol=0, atol=2e-5)


def test_a_tree_behind_several_pending_rows(target):
    seq = sequence(target, PROMPT)
    forward(target, part(seq, 0, PROMPT[:4], decides=False))

    output = forward(target, part(seq, 4, PROMPT[4:], TREE))

    expected = fresh(target, [*PROMPT, 20, 50, 70]).logits[-1]
    torch.testing.assert_close(expected, output.logits[6 + 6], rtol=0, atol=2e-5)


@pytest.mark.parametrize("path", [(), (0,), (1,), (0, 3), (0, 2, 5), (1, 4, 6)])
def test_after_a_kept_path_the_cache_is_that_of_a_fresh_forward(target, path):
    seq = prefill(target, PROMPT)
    keep(verify_draft(target, seq, TREE), {seq: Verdict(path, 33)})
    kept = PROMPT + [TREE.ids[i] for i in path]

    after = forward(target, part(seq, len(kept), [33, 34]))

    torch.testing.assert_close(fresh(target, [*kept, 33, 34]).logits[-2:], after.logits, rtol=0, atol=2e-5)


@pytest.mark.parametrize("count", [0, 2, 4])
def test_rejected_drafts_of_a_chain_are_overwritten(target, count):
    seq = prefill(target, PROMPT)
    keep(verify_draft(target, seq, Draft([1, 2, 3, 4])), {seq: Verdict(tuple(range(count)), 33)})
    kept = PROMPT + [1, 2, 3, 4][:count]

    after = forward(target, part(seq, len(kept), [33]))

    torch.testing.assert_close(fresh(target, [*kept, 33]).logits[-1:], after.logits, rtol=0, atol=2e-5)


# what a forward delivers


def test_logits_are_those_of_deciding_rows_only(target):
    a, b, c = prefill(target, PROMPT), sequence(target, PROMPT), sequence(target, PROMPT)
    parts = [part(a, 9, [7], Draft([1, 2])), part(b, 0, PROMPT[:6], decides=False), part(c, 0, PROMPT)]

    some = forward(target, *parts, needs=Needs()).logits
    every = forward(target, *parts, needs=EVERYTHING).logits

    assert len(every) == 3 + 6 + 10
    assert torch.equal(every[[0, 1, 2, 18]], some)


def test_a_chunk_that_decides_nothing_has_no_logits(target):
    seq = sequence(target, PROMPT)

    assert forward(target, part(seq, 0, PROMPT[:5], decides=False), needs=Needs()).logits.shape == (0, 96)


def test_only_hidden_states_that_were_asked_for(target):
    output = fresh(target, PROMPT, Needs(hidden={0, 2}, final=True))

    assert {0, 2} == set(output.hidden)
    assert {(10, 32)} == {tuple(h.shape) for h in (*output.hidden.values(), output.final)}
    assert fresh(target, PROMPT, Needs()).final is None


def test_hidden_states_of_a_single_row_are_one_row(target):
    output = verify_draft(target, prefill(target, PROMPT), None, Needs(hidden={0, 1, 2}, final=True)).output

    assert {(1, 32)} == {tuple(h.shape) for h in (*output.hidden.values(), output.final, output.logits[:, :32])}


def test_hidden_states_outlive_the_next_layers(target):
    """They are taken while the stream moves on; nothing may write into them."""
    one_by_one = [fresh(target, PROMPT, Needs(hidden={i})).hidden[i].clone() for i in range(3)]
    together = fresh(target, PROMPT, Needs(hidden=range(3))).hidden

    assert all(torch.equal(one_by_one[i], together[i]) for i in range(3))


def embed_token(target, token: int) -> tuple[int, torch.Tensor]:
    """A token and the row that enters the first block for it; token 0 where blocks have embeddings of their own, since
    these are token 0's for a row in place of a token."""
    token = 0 if target.config.per_layer else token
    return token, target.tensor("token_embd.weight")[token] * target.config.embed_scale


def test_a_prompt_row_may_be_an_embedding(target):
    token, row = embed_token(target, PROMPT[3])
    tokens = [*PROMPT[:3], -1, *PROMPT[4:]]
    seq = sequence(target, tokens, embeds={3: row})

    output = forward(target, part(seq, 0, tokens))

    assert torch.equal(fresh(target, [*PROMPT[:3], token, *PROMPT[4:]]).logits, output.logits)


def test_a_single_row_may_be_an_embedding(target):
    token, row = embed_token(target, PROMPT[0])
    expected = fresh(target, [token]).logits
    seq = sequence(target, [-1], embeds={0: row})

    assert torch.equal(expected, forward(target, part(seq, 0, [-1])).logits)


# memory


def test_a_cache_grows_without_losing_rows(target):
    tokens = [(i * 7) % 96 for i in range(255)]
    seq = sequence(target, tokens)
    for start in range(0, 255, 50):
        forward(target, part(seq, start, tokens[start : start + 50], decides=False), needs=Needs())

    after = forward(target, part(seq, 254, tokens[254:]))

    torch.testing.assert_close(fresh(target, tokens).logits[-1:], after.logits, rtol=0, atol=2e-5)


def test_a_reused_prefix_continues_where_it_was_cut(target):
    seq = sequence(target, PROMPT)
    forward(target, part(seq, 0, PROMPT))

    assert target.open(seq, 6) == 6
    after = forward(target, part(seq, 6, [90, 91]))

    torch.testing.assert_close(fresh(target, [*PROMPT[:6], 90, 91]).logits[-2:], after.logits, rtol=0, atol=2e-5)


def test_a_closed_slot_starts_again(target):
    seq = sequence(target, PROMPT)
    target.close(seq)

    assert seq.slot.state is None
    assert target.open(seq, 6) == 0


def test_a_context_beyond_the_model_is_refused(directory):
    with pytest.raises(UsageError, match="context 600 was requested, the model declares 512"):
        load(directory, context=600)


# weights


def test_tensors_have_the_names_and_shapes_of_gguf(target):
    assert tuple(target.tensor("token_embd.weight").shape) == (96, 32)
    assert tuple(target.tensor("output.weight").shape) == (96, 32)
    assert tuple(target.tensor("blk.1.attn_norm.weight").shape) == (32,)


def test_an_unknown_tensor_is_a_key_error(target):
    with pytest.raises(KeyError):
        target.tensor("blk.9.attn_q.weight")


# in a run


def partly_right(text):
    return Oracle(text, right=lambda i, seq: (len(seq.tokens) + i) % 3 > 0, vocab=96)


def branching(text):
    return RandomTrees(text, vocab=96)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("drafter", [partly_right, branching])
def test_a_run_with_drafts_gives_the_text_of_plain_decoding(target, drafter, temperature):
    sampling = Sampling(temperature=temperature)
    requests = [
        Request(PROMPT[i:], max_tokens=24, seed=i, sampling=sampling, ignore_eos=True, name=str(i)) for i in range(3)
    ]
    plain = [Run(target).generate(r).result.tokens for r in requests]
    text = {r.name: list(r.prompt) + tokens for r, tokens in zip(requests, plain, strict=True)}
    run = Run(target, methods=[drafter(text)], max_sequences=3)
    submitted = [run.submit(r) for r in requests]
    for _ in run:
        pass

    assert plain == [run.take(seq).tokens for seq in submitted]


def test_what_is_not_finite_does_not_outlive_its_sequence(target):
    """A slot is reused by another sequence; masked rows are multiplied by 0, and 0 times NaN is NaN."""
    seq = sequence(target, [-1] * 8, embeds={i: torch.full((32,), torch.nan) for i in range(8)})
    forward(target, part(seq, 0, [-1] * 8))
    seq.embeds = {}

    after = forward(target, part(seq, 0, PROMPT[:3]))

    assert torch.equal(fresh(target, PROMPT[:3]).logits, after.logits)
