"""Tests of every draft head: the drafts of its original implementation, the target's own text, and refusals."""

from __future__ import annotations

import pytest
import torch
from spec_train.heads.export.write import write_head

from spec_core import Compat, DraftPlan, Limit, Run, Sampling, hookimpl, load
from spec_core.errors import Refused
from spec_core.toolkit import DraftLimits
from tests.methods.drafted import check_published, draft_file
from tests.methods.heads import METHODS, TARGETS, check_lossless, head_file, method, tiny
from tests.support.pairs import every_pair
from tests.support.small_heads import train
from tests.support.small_models import tiny_gguf

PUBLISHED = ("eagle3/llama-d2t", "eagle3/llama-full", "eagle3/qwen3-speculators", "dflash/qwen3", "dflash/qwen35")
KINDS = ("eagle3", "dflash")
LAYOUTS = [("eagle3", "safeailab"), ("eagle3", "speculators"), ("dflash", "z-lab"), ("dflash", "speculators")]


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@every_pair(name=PUBLISHED, file=["model-f32.gguf", "hf"], context=["ctx20", "ctx33"], kernels=["native", "reference"])
def test_a_published_head_drafts_what_its_original_drafts(name, file, context, kernels, tmp_path):
    check_published(name, file, context, kernels, tmp_path / "draft.safetensors")


@pytest.mark.parametrize("rows", [None, 120], ids=["whole", "reduced"])
@pytest.mark.parametrize(("kind", "layout"), LAYOUTS)
def test_a_head_drafts_the_same_from_every_layout(kind, layout, rows, tmp_path):
    """As ``spec train --format`` writes them."""
    torch.manual_seed(0)
    target = tiny("dense")
    head, drafts = train(kind, target, rows), []
    for form in ("gguf", layout):
        write_head(head, target, tmp_path / form, form, "f32")
        method, out = f"{kind}={tmp_path / form}", tmp_path / "draft.safetensors"
        drafts.append(draft_file(tiny_gguf(0, layers=4), method, [5, 9, 2, 77, 31, 8], 3, "auto", out))

    assert len(drafts[0]["tokens"]) == 3
    assert torch.equal(drafts[0]["tokens"], drafts[1]["tokens"])
    assert torch.equal(drafts[0]["logits"], drafts[1]["logits"])


def forwards(name: str, step) -> int:
    """Forwards of the head: one for each depth, all sequences together, or one in all."""
    depth = max((p.draft.depth for p in step.parts if p.draft), default=0)
    return depth if METHODS[name][0] == "eagle3" else min(depth, 1)


@pytest.mark.repeats(24)
@every_pair(name=METHODS, of=TARGETS, slots=[1, 5], temperature=[0.0, 0.8], rows=[None, 120])
def test_text_and_state_are_plain_and_forwards_are_counted(name, of, slots, temperature, rows):
    for step in check_lossless(name, of, rows, temperature, slots):
        count = step.forwards.get(METHODS[name][0], 0)
        assert count == forwards(name, step) or (name == "eagle3-few-nodes" and count > forwards(name, step))


@pytest.mark.repeats(17)
@every_pair(
    name=METHODS,
    of=["hybrid", "lfm2"],
    slots=[1, 5],
    strategy=["snapshot", "replay", "checkpoint"],
    temperature=[0.0, 0.8],
)
def test_text_and_state_are_plain_with_every_way_to_roll_back(name, of, slots, strategy, temperature):
    check_lossless(name, of, None, temperature, slots, rollback=("gdn-rollback", {"strategy": strategy}))


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("rows", [None, 120], ids=["whole", "reduced"])
def test_a_chain_in_one_call_is_the_chain_of_single_steps(rows, kernels):
    """Also if a row of logits is not the token of the same id; a head that shows its logits drafts step by step."""
    target = load(tiny_gguf(0, layers=4), dtype="float32", device="cpu", kernels=kernels)
    drafts = [[], []]
    for tokens, watch in zip(drafts, (None, lambda token, row: None), strict=True):
        run = Run(target, [method("eagle3", "dense", rows)])
        plugin = next(c.plugin for c in run.plugins if c.name == "eagle3")
        plugin.watch = watch
        run.observe(lambda step, tokens=tokens: tokens.extend(p.draft.ids for p in step.parts if p.draft))
        run.generate([1, 2, 3, 4], max_tokens=24, ignore_eos=True).result

    assert drafts[0] == drafts[1]
    assert max(map(len, drafts[0])) == 5


class Pauses:
    """A controller that lets nobody draft in most steps: for 3, 6 or 45 of them."""

    @hookimpl
    def compat(self):
        return Compat(drafts=())

    @hookimpl
    def draft(self, step):
        lengths = {part.seq.number: len(part.seq.tokens) - part.seq.prompt_len for part in step.parts}
        drafting = [number for number, length in lengths.items() if length in {4, 5, 12, 60, 61, 64}]
        step.plan(DraftPlan({}, dict.fromkeys(drafting, dict.fromkeys(step.methods, Limit()))))


@pytest.mark.repeats(8)
@pytest.mark.parametrize("of", TARGETS)
@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_states_that_are_read_after_a_pause_give_the_drafts_of_those_read_at_once(kind, slots, of, monkeypatch):
    """Of rows without a draft, the states are kept until the next one, or until there are many."""
    seen = []
    for later in (True, False):
        if not later:
            monkeypatch.setattr("spec_methods.block_drafters.drafter.BACKLOG", 0)
            monkeypatch.setattr("spec_methods.eagle3.Eagle3.later", lambda self, span: None)
        run, drafts = Run(tiny(of), [method(kind, of, None), ("pauses", Pauses())], max_sequences=slots), []
        run.observe(lambda step, drafts=drafts: drafts.extend(drafts_of(step)))
        ask = {"max_tokens": 80, "ignore_eos": True}
        requests = [run.generate([1, 2, 3 + i, 4], name=str(i), **ask) for i in range(5)]
        assert all(len(request.result.tokens) == 80 for request in requests)
        seen.append(sorted(drafts))

    assert seen[0] == seen[1]
    assert len({at for _, at, _ in seen[0]}) >= 4


@pytest.mark.parametrize("running", [False, True], ids=["ended", "running"])
@pytest.mark.parametrize("more", [16, 30])
@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_text_that_begins_as_another_drafts_the_same_though_its_states_were_not_read(kind, more, running):
    """Rows are reused from one that ended, or still runs, in a pause; ``more`` of them after its prompt."""
    seen, prompt = [], [(7 * i + i * i) % 290 for i in range(66)]
    for reuse in (True, False):
        run = Run(tiny("dense"), [method(kind, "dense", None), ("pauses", Pauses())], max_sequences=2, reuse=reuse)
        first = run.submit(prompt, max_tokens=40, ignore_eos=True)
        while len(first.tokens) < 66 + 36 if running else first.finish is None:
            run.step()
        drafts = []
        run.observe(lambda step, drafts=drafts: drafts.extend(one for one in drafts_of(step) if one[0] == "second"))
        second = run.submit([*first.tokens[: 66 + more], 7, 8], max_tokens=16, ignore_eos=True, name="second")
        while second.finish is None:
            run.step()
        assert second.reused == (65 + more if reuse else 0)
        seen.append(drafts)

    assert seen[0] == seen[1]
    assert seen[0]


def drafts_of(step):
    """(request, position, tokens) of each draft."""
    return [(p.seq.name, p.start, p.draft.ids) for p in step.parts if p.draft]


@pytest.mark.parametrize("bad", ["few", "beyond", "negative"])
def test_the_native_call_believes_no_map_of_tokens(bad):
    target = load(tiny_gguf(0, layers=4), dtype="float32", device="cpu", kernels="native")
    run = Run(target, [method("eagle3", "dense", 120)])
    layer = next(c.plugin for c in run.plugins if c.name == "eagle3").layer
    layer.ids = {"few": layer.ids[:100], "beyond": layer.ids + 300, "negative": layer.ids - 300}[bad].contiguous()
    memory = layer.memory()
    memory.take(0, [5, 9], layer.features([torch.randn(2, 32) for _ in range(3)]), {})
    memory.room(16)
    with pytest.raises(ValueError, match=r"outside the vocabulary|one token id per logit"):
        layer.draft([memory.pairs()], [DraftLimits(5, 5, 1, 0.0)])


@pytest.mark.repeats(24)
@every_pair(name=METHODS, rule=["rejection", "block", "traversal", "k-seq"], temperature=[0.3, 0.8])
def test_sampled_drafts_show_what_they_were_drawn_from(name, rule, temperature):
    """Chains with probabilities over the target's vocabulary: 0 for tokens that the head cannot draft."""
    run, drafts = Run(tiny("dense"), [method(name, "dense", 120)], rule=rule), []
    seq = run.submit([1, 2, 3, 4], max_tokens=16, seed=3, sampling=Sampling(temperature=temperature))
    run.observe(lambda step: drafts.append(step.part(seq).draft))
    while run.busy:
        run.step()
    seen = [d for d in drafts if d is not None]
    assert seen
    for d in seen:
        assert (d.proposal, d.parents) == ("sampled", None)
        assert d.probs.shape == (len(d), 300)
        assert torch.allclose(d.probs.sum(-1), torch.ones(len(d), dtype=d.probs.dtype))
        assert all(row[token] > 0 for row, token in zip(d.probs, d.ids, strict=True))
        assert ((d.probs > 0).sum(-1) <= 120).all()


@pytest.mark.parametrize(("rule", "proposal"), [(None, "unknown"), ("point-mass", "deterministic")])
def test_a_tree_says_how_its_tokens_were_chosen(rule, proposal):
    """With noise that the target shares, or by probability if drafters may not read the coins."""
    run, drafts = Run(tiny("dense"), [method("eagle3-tree", "dense")], rule=rule), []
    run.observe(lambda step: drafts.extend(p.draft for p in step.parts if p.draft))
    run.generate([1, 2, 3, 4], max_tokens=16, seed=3, sampling=Sampling(temperature=0.8)).result

    assert {d.proposal for d in drafts} == {proposal}
    assert any(d.depth < len(d) for d in drafts)


@pytest.mark.parametrize("kind", KINDS)
def test_another_kind_of_head_is_refused_before_a_weight_is_read(kind):
    (other,) = {*KINDS} - {kind}
    target = load(tiny_gguf(0, layers=4), weights=False)
    with pytest.raises(Refused, match=f"a head of kind {other}"):
        Run(target, [(kind, {"file": str(head_file(other, "dense"))})])


@pytest.mark.parametrize("kind", KINDS)
def test_no_head_is_refused_with_a_way_out(kind):
    with pytest.raises(Refused, match="no head is given") as refused:
        Run(tiny("dense"), [kind])
    assert f"spec train {kind}" in refused.value.hint


@pytest.mark.parametrize("kind", KINDS)
def test_p_min_cuts_a_draft(kind):
    """A random head is never confident: the first token is drafted, no other."""
    run = Run(tiny("dense"), [(kind, {"file": str(head_file(kind, "dense")), "p_min": 0.8})])
    seq, lengths = run.submit([1, 2, 3, 4], max_tokens=12), []
    run.observe(lambda step: lengths.append(step.part(seq).drafted))
    while run.busy:
        run.step()
    assert max(lengths) == 1
