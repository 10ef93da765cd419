"""Twins in torch of the triton kernels on a step of vLLM's second model runner, whose CPU build has placeholders.

For tests: with them the second runner decodes on a CPU. A twin replaces the function that launches a kernel, and takes
its arguments. Not replaced, and so not to be used in tests: log-probabilities, penalties, biases, structured outputs,
min-p, context parallelism, watermarks, drafts with probabilities.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

GPU = "vllm.v1.worker.gpu"
MASK = 0xFFFFFFFF
DRAFT_SALT = 1 << 30
"""Distance of the positions whose noise a drafting sampler uses."""
UNIFORM_DOMAIN = 0x51ED270B
"""Domain of the hash for acceptance, apart from that of the noise of tokens."""
NONE = -1
"""Filler for a draft token or a slot that does not exist."""


def install() -> None:
    """Replace the functions where the second runner was asked for, and let vLLM choose it without triton.

    vLLM calls it in each of its processes, by its entry point.
    """
    if os.environ.get("VLLM_USE_V2_MODEL_RUNNER", "0") == "0":
        return
    import_module("vllm.config.vllm").HAS_TRITON = True
    import_module("vllm.v1.worker.cpu.shm")
    import_module("vllm.v1.worker.gpu_worker").HAS_TRITON = True
    import_module(f"{GPU}.model_runner")
    for name, twin in FUNCTIONS.items():
        module, _, attribute = name.rpartition(".")
        replace(attribute, getattr(import_module(f"{GPU}.{module}"), attribute), twin)
    for name, twin in METHODS.items():
        module, kind, attribute = name.rsplit(".", 2)
        setattr(getattr(import_module(f"{GPU}.{module}"), kind), attribute, twin)


def replace(name: str, original: Any, twin: Any) -> None:
    """Put a twin in place of a function in the modules that have imported it."""
    for holder in list(sys.modules.values()):
        if getattr(holder, "__dict__", {}).get(name) is original:
            setattr(holder, name, twin)


# writes that the host staged


def apply_write(tensor: Any) -> None:
    """Write every staged piece to its row."""
    start = 0
    ends = tensor._staged_write_cu_lens
    for row, first, end in zip(tensor._staged_write_indices, tensor._staged_write_starts, ends, strict=True):
        values = torch.tensor(tensor._staged_write_contents[start:end], dtype=tensor.gpu.dtype)
        offset = tensor.gpu.storage_offset() + row * tensor.gpu.stride(0) + first
        torch.as_strided(tensor.gpu, (len(values),), (1,), offset).copy_(values)
        start = end
    tensor.clear_staged_writes()


def apply_writes(_writer: Any, tensors: Any, *_: Any) -> None:
    """Write the staged pieces of several tensors."""
    for tensor in tensors:
        apply_write(tensor)


# blocks of the cache


def gather_block_tables(tables: Any, idx_mapping: Tensor, num_reqs_padded: int, *_: Any, **more: Any) -> Any:
    """Block tables of the requests of a batch; padded rows are zero."""
    gathered = more.get("out") or tuple(tables.input_block_tables)
    n = len(idx_mapping)
    for table, rows in zip(tables.block_tables, gathered, strict=True):
        rows[:n] = table.gpu[idx_mapping]
        rows[n:num_reqs_padded] = 0
    return tuple(rows[:num_reqs_padded] for rows in gathered)


def compute_slot_mappings(
    tables: Any,
    idx_mapping: Tensor,
    query_start_loc: Tensor,
    positions: Tensor,
    num_tokens_padded: int,
    out: Tensor | None = None,
) -> Tensor:
    """Slot of every token of a batch; padded tokens have none."""
    slots = tables.slot_mappings if out is None else out
    requests = owners(query_start_loc, len(idx_mapping))
    of, n = idx_mapping[requests].long(), len(requests)
    at = positions[:n].long()
    slots.fill_(NONE)
    for row, table, size in zip(slots, tables.block_tables, tables.block_sizes, strict=True):
        row[:n] = torch.where(of >= 0, table.gpu[of.clamp(min=0), at // size].long() * size + at % size, NONE)
    return slots[:, :num_tokens_padded]


def owners(starts: Tensor, n: int) -> Tensor:
    """Number of the request in the batch for every row. starts: [n + 1]."""
    counts = (starts[1 : n + 1] - starts[:n]).long()
    return torch.repeat_interleave(torch.arange(n), counts)


# rows of a step


def prepare_prefill_inputs(
    input_ids: Tensor,
    next_prefill_tokens: Tensor,
    idx_mapping: Tensor,
    query_start_loc: Tensor,
    all_token_ids: Tensor,
    prefill_len: Tensor,
    num_computed_tokens: Tensor,
) -> None:
    """Write the rows of prompts, and the tokens after them."""
    starts = query_start_loc.tolist()
    for i, slot in enumerate(idx_mapping.tolist()):
        done, length = int(num_computed_tokens[slot]), int(prefill_len[slot])
        if done >= length:
            continue
        end = done + starts[i + 1] - starts[i]
        input_ids[starts[i] : starts[i + 1]] = all_token_ids[slot, done:end]
        after = all_token_ids[slot, end : min(length, end + len(next_prefill_tokens))]
        next_prefill_tokens[:, slot] = 0
        next_prefill_tokens[: len(after), slot] = after


def prepare_pos_seq_lens(
    idx_mapping: Tensor, query_start_loc: Tensor, num_computed_tokens: Tensor, pos: Tensor, seq_lens: Tensor
) -> None:
    """Write positions of rows, and lengths of texts after the step."""
    n = len(idx_mapping)
    done = num_computed_tokens[idx_mapping]
    starts = query_start_loc[: n + 1]
    seq_lens[n:] = 0
    seq_lens[:n] = done + (starts[1:] - starts[:-1])
    requests = owners(starts, n)
    pos[: len(requests)] = done[requests] + torch.arange(len(requests)) - starts[:-1][requests]


def combine_sampled_and_draft_tokens(
    input_ids: Tensor,
    idx_mapping: Tensor,
    last_sampled_tokens: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    prefill_len: Tensor,
    draft_tokens: Tensor,
    cu_num_logits: Tensor,
    num_logits: int,
    num_new_sampled_tokens: int = 1,
) -> Tensor:
    """Write the last token and the draft of each request that decodes; returns the rows whose logits are computed."""
    indices = torch.empty(num_logits, dtype=torch.int64)
    ends, at = query_start_loc.tolist()[1:], cu_num_logits.tolist()
    for i, slot in enumerate(idx_mapping.tolist()):
        count = at[i + 1] - at[i]
        first = ends[i] - count
        indices[at[i] : at[i + 1]] = torch.arange(first, ends[i])
        length, prompt = int(seq_lens[i]), int(prefill_len[slot])
        if length <= prompt:
            continue
        if num_new_sampled_tokens and length - count >= prompt:
            input_ids[first] = last_sampled_tokens.view(-1)[slot]
        if drafted := count - num_new_sampled_tokens:
            input_ids[ends[i] - drafted : ends[i]] = draft_tokens[slot, :drafted]
    return indices


def expand_idx_mapping(idx_mapping: Tensor, total: int, cu_num_logits: Tensor, _longest: int) -> tuple[Tensor, Tensor]:
    """Slot and place in its request, of every row of logits."""
    requests = owners(cu_num_logits, len(idx_mapping))
    places = torch.arange(total) - cu_num_logits[:-1].long()[requests]
    return idx_mapping[requests], places.int()


# what a step committed


def get_num_sampled_and_rejected(
    num_sampled: Tensor, seq_lens: Tensor, cu_num_logits: Tensor, idx_mapping: Tensor, prefill_len: Tensor
) -> tuple[Tensor, Tensor]:
    """Numbers of committed and of rejected tokens: none while more of a prompt follows."""
    n = len(idx_mapping)
    part = seq_lens[:n] < prefill_len[idx_mapping]
    num_sampled.masked_fill_(part, 0)
    logits = cu_num_logits[1 : n + 1] - cu_num_logits[:n]
    return num_sampled, (logits - num_sampled).masked_fill(part, 0).to(num_sampled.dtype)


def post_update(
    idx_mapping: Tensor,
    num_computed_tokens: Tensor,
    last_sampled_tokens: Tensor,
    output_bin_counts: Tensor | None,
    sampled_tokens: Tensor,
    num_sampled: Tensor,
    num_rejected: Tensor,
    query_start_loc: Tensor | None,
    all_token_ids: Tensor,
    total_len: Tensor,
    *_: Any,
) -> None:
    """Append the committed tokens to the texts, and advance by the rows that are kept."""
    starts = [0] * (len(idx_mapping) + 1) if query_start_loc is None else query_start_loc.tolist()
    for i, slot in enumerate(idx_mapping.tolist()):
        if slot < 0:
            continue
        count, length = int(num_sampled[i]), int(total_len[slot])
        tokens = sampled_tokens[i, :count]
        if count:
            last_sampled_tokens.view(-1)[slot] = tokens[-1]
            total_len[slot] = length + count
            all_token_ids[slot, length : length + count] = tokens
            if output_bin_counts is not None:
                output_bin_counts[slot].index_add_(0, tokens, torch.ones(count, dtype=output_bin_counts.dtype))
        num_computed_tokens[slot] += starts[i + 1] - starts[i] - int(num_rejected[i])


def post_update_num_computed_tokens(idx_mapping: Tensor, num_computed_tokens: Tensor, query_start_loc: Tensor) -> None:
    """Advance by all rows."""
    n = len(idx_mapping)
    num_computed_tokens[idx_mapping.long()] += (query_start_loc[1 : n + 1] - query_start_loc[:n]).to(
        num_computed_tokens.dtype
    )


# the choice of tokens


def apply_temperature(logits: Tensor, expanded_idx_mapping: Tensor, temperature: Tensor) -> None:
    """Divide rows by their temperatures; 0 leaves a row as it is."""
    of = temperature[expanded_idx_mapping]
    logits /= torch.where(of == 0, 1.0, of)[:, None]


def gumbel_sample(
    logits: Tensor,
    expanded_idx_mapping: Tensor,
    temperature: Tensor,
    seed: Tensor,
    pos: Tensor,
    apply_temperature: bool,
    is_drafting: bool,
    *_: Any,
    **__: Any,
) -> Tensor:
    """A token of each row: the best one at temperature 0, else the best after the noise of seed and position."""
    of = expanded_idx_mapping.long()
    terms = temperature[of].float()
    rows = logits.float()
    if apply_temperature:
        rows = rows / torch.where(terms == 0, 1.0, terms)[:, None]
    if not terms.any():
        return rows.argmax(-1)
    noise = gumbel_noise(seed[of], pos + is_drafting * DRAFT_SALT, rows.shape[1])
    return torch.where((terms == 0)[:, None], rows, rows + noise).argmax(-1)


def gumbel_noise(seeds: Tensor, pos: Tensor, vocab: int) -> Tensor:
    """[rows, vocab], float32: from seed, position and token."""
    u = uniform(seeds[:, None].long(), pos[:, None].long(), torch.arange(vocab)[None])
    return -torch.log(-torch.log1p(-u)).float()


def uniform(seed: Tensor, pos: Tensor, offset: Tensor, domain: int = 0) -> Tensor:
    """A number between 0 and 1, float64: the hash of vLLM (MurmurHash3) of seed, position and offset."""
    hashed = torch.zeros_like(seed) ^ domain
    for word in (seed & MASK, (seed >> 32) & MASK, pos & MASK, offset):
        hashed = mix(hashed, word)
    hashed = hashed ^ 16
    hashed = (hashed ^ (hashed >> 16)) * 0x85EBCA6B & MASK
    hashed = (hashed ^ (hashed >> 13)) * 0xC2B2AE35 & MASK
    return ((hashed ^ (hashed >> 16)).double() + 0.5) * 2.0**-32


def mix(hashed: Tensor, word: Tensor) -> Tensor:
    """The hash after one more word of 32 bits."""
    word = rotate(word * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
    return rotate(hashed ^ word, 13) * 5 + 0xE6546B64 & MASK


def rotate(word: Tensor, bits: int) -> Tensor:
    """A word of 32 bits, rotated to the left."""
    return (word << bits | word >> (32 - bits)) & MASK


# verification


def gather_draft_sampled(
    input_ids: Tensor,
    positions: Tensor,
    logits_indices: Tensor,
    expanded_idx_mapping: Tensor,
    expanded_local_pos: Tensor,
    prefill_len: Tensor,
) -> tuple[Tensor, Tensor]:
    """Token and position of every row of logits; draft rows that start inside a prompt have no token."""
    ids, pos = input_ids[logits_indices], positions[logits_indices]
    inside = (expanded_local_pos > 0) & (pos - expanded_local_pos < prefill_len[expanded_idx_mapping])
    return torch.where(inside, NONE, ids), pos


def rejection_sample(
    target_logits: Tensor,
    draft_logits: Tensor | None,
    draft_sampled: Tensor,
    cu_num_logits: Tensor,
    pos: Tensor,
    idx_mapping: Tensor,
    expanded_idx_mapping: Tensor,
    expanded_local_pos: Tensor,
    temperature: Tensor,
    seed: Tensor,
    num_speculative_steps: int,
    *_: Any,
    **__: Any,
) -> tuple[Tensor, Tensor]:
    """Tokens [requests, steps + 1] and their numbers: drafts are point masses."""
    assert draft_logits is None, "no twin for drafts with probabilities"
    n, at = len(idx_mapping), cu_num_logits.tolist()
    sampled = torch.full((n, num_speculative_steps + 1), NONE, dtype=torch.int64)
    counts = torch.zeros(n, dtype=torch.int32)
    for i, slot in enumerate(idx_mapping.tolist()):
        rows = slice(at[i], at[i + 1])
        tokens = verify_draft(
            target_logits[rows].float(), draft_sampled[rows][1:].tolist(), pos[rows], temperature[slot], seed[slot]
        )
        sampled[i, : len(tokens)] = torch.tensor(tokens)
        counts[i] = len(tokens)
    return sampled, counts


def verify_draft(logits: Tensor, draft: list[int], pos: Tensor, temperature: Tensor, seed: Tensor) -> list[int]:
    """Accepted tokens of a draft, and the one after them. logits: [1 + draft, V], after the temperature."""
    if temperature == 0:
        best = logits.argmax(-1).tolist()
        kept = next((i for i, (a, b) in enumerate(zip(draft, best, strict=False)) if a != b), len(draft))
        return best[: kept + 1]
    tokens: list[int] = []
    for i, token in enumerate(draft):
        u = uniform(seed.long().view(1), pos[i].long().view(1), torch.zeros(1, dtype=torch.int64), UNIFORM_DOMAIN)
        if token < 0 or logits[i].log_softmax(-1)[token] <= u.log():
            row = logits[i].clone()
            if token >= 0:
                row[token] = float("-inf")
            break
        tokens.append(token)
    else:
        row = logits[len(draft)]
    noise = gumbel_noise(seed.view(1), pos[len(tokens)].view(1), logits.shape[1])[0]
    return [*tokens, int((row + noise).argmax())]


FUNCTIONS = {
    "input_batch.prepare_prefill_inputs": prepare_prefill_inputs,
    "input_batch.prepare_pos_seq_lens": prepare_pos_seq_lens,
    "input_batch.combine_sampled_and_draft_tokens": combine_sampled_and_draft_tokens,
    "input_batch.expand_idx_mapping": expand_idx_mapping,
    "input_batch.get_num_sampled_and_rejected": get_num_sampled_and_rejected,
    "input_batch.post_update": post_update,
    "input_batch.post_update_num_computed_tokens": post_update_num_computed_tokens,
    "sample.gumbel.apply_temperature": apply_temperature,
    "sample.gumbel.gumbel_sample": gumbel_sample,
    "spec_decode.rejection_sampler.gather_draft_sampled": gather_draft_sampled,
    "spec_decode.rejection_sampler_utils.rejection_sample": rejection_sample,
}
METHODS = {
    "buffer_utils.StagedWriteTensor.apply_write": apply_write,
    "buffer_utils.FusedStagedWriter.apply": apply_writes,
    "block_table.BlockTables.gather_block_tables": gather_block_tables,
    "block_table.BlockTables.compute_slot_mappings": compute_slot_mappings,
}
