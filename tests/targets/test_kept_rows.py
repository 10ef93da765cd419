"""Layers with a window give rows back: memory, where a text can go on, and errors in place of rows that are gone."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest
import torch
from spec_kernels.model import kept_rows
from spec_kernels.model.batch import ForwardBatch, SequenceRows, numbers
from spec_kernels.model.kept_rows import STEP, Horizon, first_needed, kept_max, recent_max
from spec_targets.runtime import slot_memory

from spec_core import Compat, Draft, EncodedPrompt, Run, Slot, hookimpl, load
from spec_core.toolkit import cache_reader, partial_forward
from tests.campaigns.windows import ROUND, directory, keeping_all, play_round
from tests.campaigns.windows import make_target as make_campaign_target
from tests.support.family_models import FAMILIES, tiny_family
from tests.targets.drive import forward, part, sequence

WINDOW = 9
TEXT = [3 + 7 * i % 190 for i in range(400)]
EXECUTORS = ("native", "reference")
CASES = [
    *[("gemma3", "q8"), ("gemma4-e", "float32"), ("gpt-oss", "float16"), ("assistant", "float32")],
    *(pytest.param(family, form, marks=pytest.mark.release) for family in FAMILIES for form in ("q8", "reference")),
]


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def make_target(kernels: str = "native", family: str = "gemma3", rewind: int = 20, **options):
    target = load(directory(family), threads=1, dtype="float32", kernels=kernels, context=500, **options)
    target.rewind = rewind
    return target


def evaluate(target, tokens, chunk: int = 32, prompt: int = 0):
    """A sequence with these rows, and the logits of the last."""
    seq = sequence(target, tokens)
    seq.prompt_len = prompt
    for start in range(0, len(tokens), chunk):
        logits = forward(target, part(seq, start, tokens[start : start + chunk])).logits[-1]
    return seq, logits.clone()


def starts_of(seq) -> tuple[tuple[int, int], ...]:
    return seq.slot.state.cache.starts


# memory


@pytest.mark.parametrize("kernels", EXECUTORS)
@pytest.mark.parametrize("family", FAMILIES)
def test_layers_with_a_window_keep_it_and_no_more(family, kernels):
    target = make_target(kernels, family)
    seq, logits = evaluate(target, TEXT, prompt=200)
    cache = seq.slot.state.cache
    whole, expected = evaluate(keeping_all(target), TEXT)

    assert cache.first > 0 and cache.recent <= recent_max(WINDOW, target.rewind, 32) < len(TEXT)
    assert whole.slot.state.cache.first == 0 and whole.slot.state.cache.recent >= len(TEXT)
    assert cache.nbytes < whole.slot.state.cache.nbytes
    assert torch.equal(logits, expected)


@pytest.mark.parametrize("kernels", EXECUTORS)
def test_the_plan_is_what_a_long_text_takes(monkeypatch, tmp_path, kernels):
    monkeypatch.setattr(slot_memory, "REWIND", 4)
    folder = tiny_family("gemma2", tmp_path / "gemma2", sliding_window=200, max_position_embeddings=1024, head_dim=16)
    options = {"dtype": "float32", "cache_dtype": "float32", "kernels": kernels}
    target = load(folder, threads=1, **options)
    target.rewind = 4
    cache = evaluate(target, [*TEXT, *TEXT, *TEXT[:100]], 100, prompt=266)[0].slot.state.cache
    info = load(folder, weights=False, **options).info

    assert cache.marked is not None
    page = target.plan.memory.page
    unused = 4 * page * info.windowed.row_bytes if page > STEP else 0.05 * cache.nbytes  # at both ends of rows
    assert info.windowed == target.info.windowed and info.windowed.rows == kept_max(200, 4, page)
    assert 0 <= info.rows_bytes(cache.length, 100) - cache.nbytes <= unused
    assert info.rows_bytes(40) == 40 * info.row_bytes


def test_memory_of_a_slot_counts_as_what_it_takes():
    target = make_target()
    seq, _ = evaluate(target, TEXT)
    slot, size = seq.slot, seq.slot.state.cache.nbytes

    assert slot.reserved == -(-size // target.info.row_bytes) < slot.state.cache.length


def test_a_model_without_windows_keeps_all_rows_and_says_so():
    target = load("zoo:pico", threads=1)
    seq, _ = evaluate(target, TEXT[:300])

    assert target.info.windowed is None
    assert target.info.rows_bytes(1000, 5) == 1000 * target.info.row_bytes
    assert starts_of(seq) == () and seq.slot.start_at(3) == 3 and seq.slot.reserved == seq.slot.state.cache.length


# where a text can go on


def test_a_slot_says_where_it_can_go_on():
    state = attrs.make_class("State", {"starts": attrs.field()})
    slot = Slot(state=state(((40, 50), (90, 200))))

    assert [slot.start_at(want) for want in (0, 39, 40, 50, 60, 89, 90, 150)] == [0, 0, 40, 50, 50, 50, 90, 150]
    assert [Slot(state=state(())).start_at(want) for want in (0, 7)] == [0, 7] and Slot().start_at(7) == 7
    blocks = EncodedPrompt([1] * 200, {}, blocks=((45, 48), (80, 100)))
    assert [slot.start_at(want, blocks) for want in (44, 45, 46, 95, 99, 120)] == [44, 45, 45, 50, 50, 120]


@pytest.mark.parametrize("kernels", EXECUTORS)
def test_a_text_goes_on_a_little_before_its_end_with_equal_bits(kernels):
    target = make_target(kernels)
    seq, logits = evaluate(target, TEXT)
    low, high = starts_of(seq)[-1]

    for start in (low, low + 1, len(TEXT) - 1):
        assert target.open(seq, start) == start
        assert torch.equal(forward(target, part(seq, start, TEXT[start:])).logits[-1], logits)
    assert high >= len(TEXT) > low + target.rewind


@pytest.mark.parametrize("kernels", EXECUTORS)
@pytest.mark.parametrize("start", [201, 200, 190, 185])
def test_another_text_goes_on_at_the_end_of_the_prompt(start, kernels):
    """From the copy of rows that was made when they were given back, which stays for the next one."""
    target = make_target(kernels)
    seq, _ = evaluate(target, TEXT, prompt=200)
    other = [*TEXT[:start], *range(20, 60)]
    expected = evaluate(target, other)[1]

    assert (len(starts_of(seq)), target.open(seq, start)) == (2, min(start, 200))
    start = min(start, 200)
    assert torch.equal(forward(target, part(seq, start, other[start:])).logits[-1], expected)
    again = [*TEXT[: start - 1], *range(60, 90)]
    evaluate_more(target, seq, start, [*other, *TEXT])
    assert target.open(seq, start - 1) == start - 1
    got = forward(target, part(seq, start - 1, again[start - 1 :])).logits[-1]
    assert torch.equal(got, evaluate(target, again)[1])


def evaluate_more(target, seq, start, tokens):
    for at in range(start, len(tokens), 32):
        forward(target, part(seq, at, tokens[at : at + 32]))


@pytest.mark.parametrize("kernels", EXECUTORS)
def test_a_text_that_cannot_go_on_starts_again_and_never_reads_what_is_gone(kernels):
    target = make_target(kernels)
    seq, logits = evaluate(target, TEXT)
    with pytest.raises(ValueError, match="cannot go on at position 100"):
        forward(target, part(seq, 100, TEXT[100:110]))

    assert target.open(seq, 100) == 0
    for start in range(0, len(TEXT), 50):
        again = forward(target, part(seq, start, TEXT[start : start + 50])).logits[-1]
    assert torch.equal(again, logits)


@pytest.mark.parametrize("kernels", EXECUTORS)
def test_an_executor_refuses_rows_that_see_what_is_gone(kernels):
    target = make_target(kernels)
    cache = evaluate(target, TEXT)[0].slot.state.cache
    for start in (cache.first - 1, cache.first, cache.oldest - 1):
        rows = ForwardBatch(numbers([5]), numbers([start]), [SequenceRows(cache, 0, 1, start)])
        with pytest.raises(ValueError, match=f"{cache.first}"):
            target.executor.run(rows)
    target.executor.run(ForwardBatch(numbers([5]), numbers([start + 1]), [SequenceRows(cache, 0, 1, start + 1)]))
    with pytest.raises(ValueError, match=r"kept|keeps"):
        cache.compact(cache.first - 1, [cache.first])


@pytest.mark.parametrize("kernels", EXECUTORS)
def test_keys_that_are_gone_are_an_error_and_others_are_read(kernels):
    target = make_target(kernels)
    seq, _ = evaluate(target, TEXT)
    rows, first = cache_reader(target).rows(seq, len(TEXT)), seq.slot.state.cache.first
    whole = cache_reader(target).rows(evaluate(keeping_all(target), TEXT)[0], len(TEXT))

    for block, shape in enumerate(cache_reader(target).shapes):
        if shape.window:
            with pytest.raises(ValueError, match=f"from {first} on"):
                rows.read(block, first - 1)
        for start in (first, len(TEXT) - 3) if shape.window else (0, 7):
            assert all(map(torch.equal, rows.read(block, start), whole.read(block, start)))


@pytest.mark.parametrize("kernels", EXECUTORS)
def test_a_copy_goes_on_where_its_source_can(kernels):
    target = make_target(kernels)
    seq, logits = evaluate(target, TEXT, prompt=200)
    for want, start in ((len(TEXT) - 1, len(TEXT) - 1), (200, 200), (195, 195), (100, 0)):
        copy = sequence(target, TEXT)
        assert target.copy(copy, seq.slot, want) == start
        for at in range(start, len(TEXT), 32):
            got = forward(target, part(copy, at, TEXT[at : at + 32])).logits[-1]
        assert torch.equal(got, logits)
    assert torch.equal(forward(target, part(seq, len(TEXT) - 1, TEXT[-1:])).logits[-1], logits)


def test_a_part_longer_than_the_window_and_single_rows_have_equal_bits():
    target = make_target(rewind=2)
    expected = evaluate(keeping_all(target), TEXT, 400)[1]

    for chunk in (1, 7, 64, 300, 400):
        seq, logits = evaluate(target, TEXT, chunk)
        assert torch.equal(logits, expected)
    assert seq.slot.state.cache.first == 0


# runs


def test_a_prompt_that_is_repeated_after_a_long_answer_is_reused():
    target = make_target()
    run = Run(target, max_sequences=1)
    first = run.generate(TEXT[:200], max_tokens=200, ignore_eos=True).result
    slot = run.free_slots[0]
    again = run.generate(TEXT[:200], max_tokens=200, ignore_eos=True).result
    turn = run.generate([*TEXT[:200], *first.tokens, 5, 6, 7], max_tokens=3).result

    assert len(slot.state.starts) == 2
    assert (first.reused, again.reused, turn.reused) == (0, 199, 398)
    assert again.tokens == first.tokens
    assert turn.tokens == Run(target).generate([*TEXT[:200], *first.tokens, 5, 6, 7], max_tokens=3).result.tokens


def test_a_prefix_whose_rows_are_gone_is_evaluated_again():
    target = make_target()
    run = Run(target, max_sequences=1)
    run.generate(TEXT[:380], max_tokens=80, ignore_eos=True)
    prompt = [*TEXT[:100], *range(20, 60)]
    result = run.generate(prompt, max_tokens=20).result

    assert result.reused == 0
    assert result.tokens == Run(keeping_all(target)).generate(prompt, max_tokens=20).result.tokens


def test_a_draft_model_with_windows_reads_a_text_again_from_its_start():
    target, draft = load(directory("mistral"), threads=1, dtype="float32", context=500), directory("gemma3")
    prompts = [TEXT[:390], [*TEXT[:60], *range(20, 40)], TEXT[:390]]
    method = ("draft-model", {"file": str(draft), "dtype": "float32", "p_min": 0.0})
    with Run(target, [method], max_sequences=1, cache_tokens=0) as run:
        results = [run.generate(prompt, max_tokens=12, ignore_eos=True).result for prompt in prompts]

    for prompt, result in zip(prompts, results, strict=True):
        assert result.tokens == Run(target).generate(prompt, max_tokens=12, ignore_eos=True).result.tokens
        assert result.stats["drafted"] > 0


def test_parts_of_a_target_have_sinks_in_blocks_that_keep_them():
    """A block with a window has given the first rows back: its window is narrowed, and no more."""
    target = make_target(family="gemma2")
    seq, _ = evaluate(target, TEXT[:399])
    seq.tokens, seq.evaluated = TEXT, 399
    rows = [(seq, 399, TEXT[399:])]
    narrow = [partial_forward(target, range(4), 4, sinks=sinks).forward(rows) for sinks in (0, 3)]
    one = [partial_forward(target, [0], 4, sinks=sinks).forward(rows) for sinks in (0, 3)]

    assert torch.equal(*one) and not torch.equal(*narrow)


class Rejected:
    """Drafts that are always rejected, longer than a window."""

    @hookimpl
    def compat(self):
        return Compat(drafts={"deterministic"})

    @hookimpl
    def draft(self, step):
        for seq, budget in step.undrafted:
            step.propose(seq, Draft([299] * budget))


@pytest.mark.parametrize("kernels", EXECUTORS)
def test_drafts_longer_than_the_window_are_taken_back(kernels):
    target = make_target(kernels, rewind=2)
    plain = Run(keeping_all(target)).generate(TEXT[:250], max_tokens=25, ignore_eos=True).result.tokens
    run = Run(target, [Rejected()], draft_max=40)

    assert run.generate(TEXT[:250], max_tokens=25, ignore_eos=True).result.tokens == plain


@pytest.mark.parametrize("family, form", CASES)
def test_random_requests_have_the_texts_of_a_target_that_keeps_all_rows(monkeypatch, family, form):
    """The small form of ``tests/campaigns/windows.py``."""
    monkeypatch.setattr(kept_rows, "AHEAD", 16)
    target, did = make_campaign_target(family, form), Counter()
    for seed in (1, 2):
        play_round(target, family, seed, did)

    assert did["requests"] == 2 * ROUND
    assert min(did[kind] for kind in ("given back", "reused", "drafted")) > 0


# positions


def test_rows_that_are_needed_follow_from_the_window():
    assert [first_needed(start, 9, 2) for start in (0, 73, 74, 138, 1000)] == [0, 0, 64, 128, 960]
    assert recent_max(512, 128, 256) == 960 and kept_max(512, 128) == 1408


def test_memory_is_taken_in_advance_up_to_the_limit():
    cache = make_target().executor.cache(16)
    cache.reserve(70, Horizon(0, limit=100))
    assert cache.length == 80
    cache.reserve(90, Horizon(70, limit=100))
    assert cache.length == 112
    cache.reserve(130, Horizon(90, limit=100))
    assert cache.length == 144
