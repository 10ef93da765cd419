"""The twins in torch of vLLM's kernels, on small batches worked out by hand; no part of vLLM is needed."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest
import torch

from tests.support.vllm_kernels import vllm_kernels as twins


def murmur3(data: bytes) -> int:
    """MurmurHash3, x86, 32 bits, seed 0, as it was published."""
    mask, hashed = 0xFFFFFFFF, 0
    for (word,) in struct.iter_unpack("<I", data):
        word = word * 0xCC9E2D51 & mask
        word = (word << 15 | word >> 17) & mask
        hashed ^= word * 0x1B873593 & mask
        hashed = (hashed << 13 | hashed >> 19) & mask
        hashed = hashed * 5 + 0xE6546B64 & mask
    hashed ^= len(data)
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & mask
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & mask
    return hashed ^ hashed >> 16


@pytest.mark.parametrize(("seed", "pos", "token"), [(0, 0, 0), (7, 12, 300), (2**40 + 5, 3, 49151)])
def test_noise_is_the_published_hash_of_seed_position_and_token(seed, pos, token):
    u = twins.uniform(*(torch.tensor([value]) for value in (seed, pos, token)))
    assert u.item() == (murmur3(struct.pack("<QII", seed, pos, token)) + 0.5) / 2**32


def sample(logits, draft, temperature, seeds):
    """Tokens of requests with one draft and the same logits."""
    n, rows = len(seeds), 1 + len(draft)
    sampled, counts = twins.rejection_sample(
        logits.repeat(n, 1),
        None,
        torch.tensor([0, *draft] * n),
        torch.arange(0, n * rows + 1, rows),
        torch.arange(rows).repeat(n),
        torch.arange(n),
        torch.arange(n).repeat_interleave(rows),
        torch.arange(rows).repeat(n),
        torch.full((n,), temperature),
        torch.tensor(seeds),
        3,
    )
    return [row[:count] for row, count in zip(sampled.tolist(), counts.tolist(), strict=True)]


def test_a_draft_is_kept_up_to_the_first_token_that_is_not_the_best_one():
    logits = torch.eye(5)[[3, 1, 4, 2]]
    assert sample(logits, [3, 1, 4], 0.0, [0]) == [[3, 1, 4, 2]]
    assert sample(logits, [3, 0, 4], 0.0, [0]) == [[3, 1]]
    assert sample(logits, [-1, 1, 4], 0.0, [0]) == [[3]]


@pytest.mark.repeats(1)
@pytest.mark.parametrize("drafted", [0, 2, -1])
def test_a_sampled_token_has_the_distribution_of_the_model_whatever_was_drafted(drafted):
    torch.manual_seed(0)
    logits, n = torch.randn(2, 4), 4000
    first = torch.tensor([tokens[0] for tokens in sample(logits, [drafted], 1.0, list(range(n)))])
    shares = torch.bincount(first, minlength=4) / n
    assert torch.allclose(shares, logits[0].softmax(-1), atol=0.03)


def test_rows_of_prompts_and_of_drafts_are_written_where_vllm_reads_them():
    """Slot 1 evaluates the end of its prompt, slot 0 its last token and a draft of two."""
    texts = torch.tensor([[1, 2, 3, 9, 0, 0], [4, 5, 6, 7, 0, 0]], dtype=torch.int32)
    idx, starts, cu = torch.tensor([0, 1]), torch.tensor([0, 3, 5]), torch.tensor([0, 3, 4])
    computed, prompts = torch.tensor([3, 2]), torch.tensor([3, 4])
    ids, pos, lengths = torch.zeros(8, dtype=torch.int32), torch.zeros(8, dtype=torch.int64), torch.zeros(3).int()
    after = torch.full((1, 2), 8, dtype=torch.int32)
    twins.prepare_prefill_inputs(ids, after, idx, starts, texts, prompts, computed)
    twins.prepare_pos_seq_lens(idx, starts, computed, pos, lengths)
    rows = twins.combine_sampled_and_draft_tokens(
        ids, idx, torch.tensor([[9], [0]]), starts, lengths, prompts, torch.tensor([[7, 8], [0, 0]]), cu, 4
    )
    assert (ids[:5].tolist(), pos[:5].tolist()) == ([9, 7, 8, 6, 7], [3, 4, 5, 2, 3])
    assert (lengths.tolist(), rows.tolist(), after.tolist()) == ([6, 4, 0], [0, 1, 2, 4], [[8, 0]])
    slots, places = twins.expand_idx_mapping(idx, 4, cu, 3)
    assert (slots.tolist(), places.tolist()) == ([0, 0, 0, 1], [0, 1, 2, 0])


def test_texts_advance_by_the_tokens_and_rows_that_are_kept():
    texts, total, computed = torch.zeros(2, 8, dtype=torch.int32), torch.tensor([4, 3]), torch.tensor([3, 0])
    last, sampled = torch.zeros(2, 1, dtype=torch.int64), torch.tensor([[5, 6, -1], [-1, -1, -1]])
    counts, rejected = twins.get_num_sampled_and_rejected(
        torch.tensor([2, 1]), torch.tensor([6, 2]), torch.tensor([0, 3, 4]), torch.tensor([0, 1]), torch.tensor([3, 3])
    )
    starts = torch.tensor([0, 3, 5])
    twins.post_update(torch.tensor([0, 1]), computed, last, None, sampled, counts, rejected, starts, texts, total)
    assert (counts.tolist(), rejected.tolist()) == ([2, 0], [1, 0])
    assert (texts[0].tolist()[4:6], last[0].item()) == ([5, 6], 6)
    assert (total.tolist(), computed.tolist()) == ([6, 3], [5, 2])


def test_a_token_has_the_slot_of_its_block_and_padding_has_none():
    table = SimpleNamespace(gpu=torch.tensor([[0, 0], [5, 3]], dtype=torch.int32))
    tables = SimpleNamespace(slot_mappings=torch.zeros(1, 6).long(), block_tables=[table], block_sizes=[4])
    slots = twins.compute_slot_mappings(
        tables, torch.tensor([1, -1]), torch.tensor([0, 2, 3]), torch.tensor([3, 4, 0]), 4
    )
    assert slots.tolist() == [[23, 12, -1, -1]]
