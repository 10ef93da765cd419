"""Several layers that predict further: head k serves draft k, against twins in torch that compute every draft anew."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence

import attrs
import pytest
import spec_best
import torch
import transformers
from safetensors.torch import load_file
from spec_best.costs import NotMeasured
from spec_cli.draft import drafted_by, next_draft
from spec_methods.mtp import Mtp
from torch import Tensor

from spec_core import Draft, Request, Run, Sampling, hookimpl, load
from spec_core.errors import Refused
from spec_core.testing import DrafterConformance
from spec_core.toolkit import TokenDrafter, next_token_layers
from spec_core.toolkit.pair_drafter import BACKLOG
from tests.methods.extending import Begins, texts_of
from tests.support import deep_mtp
from tests.support.golden import golden
from tests.support.small_models import tiny_gguf

GREEDY = ("mtp", {"p_min": 0.0, "draft_max": 6})
Head = Callable[[Tensor, Tensor], Tensor]
"""One layer: embeddings [n, D] and states [n, D] of its rows to its states [n, D], by attention over all of them."""


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def drafts(target, tokens: list[int], n: int, method=GREEDY) -> tuple[list[int], Tensor]:
    """Drafts through the hooks of a run, with hidden states of the target's own forward."""
    return drafted_by(Run(target, [method], draft_max=n), tokens, n)


def drafts_anew(
    hidden: Tensor,
    tokens: Sequence[int],
    heads: Sequence[Head],
    table: Tensor,
    outputs: Sequence[Tensor],
    n: int,
    begun: Sequence[int] = (),
) -> tuple[list[int], Tensor]:
    """Drafted tokens and their logits [n, V], all rows of all layers computed again for every token, without a cache.

    hidden: [T, D] of all tokens but the last. table: [V, D] embeddings. outputs: [V, D] of every layer.
    """
    text, rows = list(tokens), []
    for drafted in range(n):
        states, last = hidden, min(drafted, len(heads) - 1)
        for k in range(last + 1):
            before = states
            states = heads[k](table[text[k + 1 : k + 1 + len(hidden)]], states)
        inputs = before
        for _ in range(drafted - last):
            inputs = torch.cat([inputs, states[-1:]])
            states = heads[last](table[text[last + 1 : last + 1 + len(inputs)]], inputs)
        rows.append(states[-1] @ outputs[last].T)
        text.append(begun[drafted] if drafted < len(begun) else int(rows[-1].argmax()))
    return text[len(tokens) :], torch.stack(rows)


# a hybrid, whose layers are the zoo's own network


def hybrid_twin(depths: int, tokens: list[int], n: int, begun: Sequence[int] = ()) -> tuple[list[int], Tensor]:
    """begun: the first drafted tokens, where another method chose them."""
    _, trunk, layers = deep_mtp.hybrid(depths)
    with torch.no_grad():
        heads = [lambda e, h, layer=layer: layer(e[None], h[None])[0] for layer in layers]
        table = trunk.embed.weight
        return drafts_anew(trunk(torch.tensor(tokens[:-1])[None])[0], tokens, heads, table, [table] * depths, n, begun)


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("length", [2, 3, 9, 30])
@pytest.mark.parametrize("depths", [1, 2, 3])
def test_every_layer_drafts_its_own_token_and_the_last_one_all_further_ones(depths, length, kernels):
    target = load(deep_mtp.hybrid(depths)[0], dtype="float32", device="cpu", kernels=kernels, cache_dtype="float32")
    tokens = [(37 * i * i + 5) % 299 for i in range(length)]
    ids, rows = drafts(target, tokens, 6)
    expected, logits = hybrid_twin(depths, tokens, 6)

    assert ids == expected
    assert (rows - logits).abs().max() < 2e-4 * logits.abs().max()
    assert len(next_token_layers(target)) == depths


def test_layers_that_follow_change_the_later_tokens_only():
    tokens = [(11 * i + 3) % 299 for i in range(20)]
    one, two, three = (hybrid_twin(depths, tokens, 3)[1] for depths in (1, 2, 3))

    assert torch.equal(two[0], three[0]) and torch.equal(two[1], three[1])
    assert not torch.allclose(two[2], three[2], atol=1e-3)
    assert not torch.allclose(one[1], two[1], atol=1e-3)


# golden models, with layers of transformers' own


def transformers_drafts(depths: int, tokens: list[int]) -> tuple[list[int], Tensor]:
    """Tokens and logits of transformers' MtpModel, from an empty cache."""
    from transformers.cache_utils import MtpCache
    from transformers.modeling_layers import MtpModel

    path = deep_mtp.directory("glm4moe", depths)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype="float32").eval()
    layers = MtpModel(model, depths).eval()
    for depth, layer in enumerate(layers.layers):
        fill(layer, "mtp_block.", load_file(path / "model.safetensors"), f"model.layers.{3 + depth}.")
    with torch.no_grad():
        hidden = model.model(torch.tensor(tokens[:-1])[None], use_cache=False).last_hidden_state
        cache = MtpCache(config=model.config.get_mtp_config())
        places = torch.arange(1, len(tokens))[None]
        ids, rows, _ = layers(torch.tensor(tokens[1:])[None], hidden, None, places, cache)
    return ids[0].tolist(), rows[0]


def fill(module: torch.nn.Module, block: str, tensors: dict[str, Tensor], prefix: str) -> None:
    """Set the weights of a layer of transformers from a directory's. block: prefix of its decoder layer."""
    own = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
    own["post_norm.weight"] = own.get("shared_head.norm.weight")
    values = {}
    for name, value in module.state_dict().items():
        stem = name.removeprefix(block)
        if "experts." in stem and "shared" not in stem:
            each = [own[f"mlp.experts.{e}.{part}_proj.weight"] for e in range(len(value)) for part in parts_of(stem)]
            values[name] = torch.stack([torch.cat(each[i : i + len(parts_of(stem))]) for i in starts(each, stem)])
        else:
            values[name] = own[stem]
    module.load_state_dict(values)


def parts_of(name: str) -> tuple[str, ...]:
    """Stored matrices that transformers has in one tensor."""
    return ("gate", "up") if "gate_up" in name else ("down",)


def starts(each: list[Tensor], name: str) -> range:
    return range(0, len(each), len(parts_of(name)))


@pytest.mark.parametrize("file", ["directory", "file"])
@pytest.mark.parametrize("context", ["ctx20", "ctx33"])
@pytest.mark.parametrize("depths", [2, 3])
def test_glm4moe_drafts_as_transformers_does(depths, context, file):
    expected = load_file(golden("mtp/glm4moe") / "golden.safetensors")
    tokens = [*expected[f"{context}.tokens"].tolist(), int(expected[f"{context}.id_last"])]
    ids, rows = drafts(load(getattr(deep_mtp, file)("glm4moe", depths), cache_dtype="float32"), tokens, depths)
    golden_ids, logits = transformers_drafts(depths, tokens)

    assert ids == golden_ids
    assert (rows - logits).abs().max() < 5e-5
    assert ids[0] == int(expected[f"{context}.draft_tokens"][0])
    assert (rows[0] - expected[f"{context}.draft_logits"][0]).abs().max() < 5e-5


def next_heads(depths: int) -> tuple[list[Head], torch.nn.Module]:
    """Layers of transformers' decoder block for Qwen3-Next, and the model."""
    from transformers.modeling_layers import MtpLayer

    path = deep_mtp.directory("qwen3next", depths)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype="float32", attn_implementation="eager").eval()
    stored, full = load_file(path / "model.safetensors"), model.config.layer_types.index("full_attention")
    shared = {"eh_proj": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden"}
    heads = []
    for depth in range(depths):
        block = model.model.layers[full]
        layer = MtpLayer(model.config, type(block), type(block.input_layernorm), full).eval()
        prefix = f"mtp.layers.{depth}."
        own = {f"{prefix}{name}.weight": stored[f"mtp.{theirs}.weight"] for name, theirs in shared.items()}
        own[f"{prefix}shared_head.norm.weight"] = stored["mtp.norm.weight"]
        fill(layer, "mtp_block.", stored | own, prefix)
        heads.append(head_of(layer, model.model.rotary_emb))
    return heads, model


def head_of(layer: torch.nn.Module, rotary: torch.nn.Module) -> Head:
    def head(embedded: Tensor, states: Tensor) -> Tensor:
        n = len(embedded)
        places = torch.arange(n)[None]
        mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
        turned = rotary(embedded[None], places)
        return layer(embedded[None], states[None], turned, mask, places, None)[0]

    return head


@pytest.mark.parametrize("file", ["directory", "file"])
@pytest.mark.parametrize("context", ["ctx20", "ctx33"])
@pytest.mark.parametrize("depths", [1, 2, 3])
def test_qwen3next_drafts_as_blocks_of_transformers_do(depths, context, file):
    expected = load_file(golden("mtp/qwen3next") / "golden.safetensors")
    tokens = [*expected[f"{context}.tokens"].tolist(), int(expected[f"{context}.id_last"])]
    target = load(getattr(deep_mtp, file)("qwen3next", depths), cache_dtype="float32")
    ids, rows = drafts(target, tokens, 5)
    with torch.no_grad():
        heads, model = next_heads(depths)
        table, output = model.get_input_embeddings().weight, model.lm_head.weight
        hidden = expected[f"{context}.hidden"]
        twin_ids, logits = drafts_anew(hidden, tokens, heads, table, [output] * depths, 5)

    assert ids == twin_ids
    assert (rows - logits).abs().max() < 5e-5
    if depths == 1:
        assert ids == expected[f"{context}.draft_tokens"].tolist()


# sidecar files


@pytest.mark.parametrize("arch", ["glm4moe", "qwen3next"])
def test_layers_in_a_file_of_their_own_draft_the_same(arch):
    target, tokens = load(deep_mtp.file(arch, 2)), [5, 9, 2, 77, 31, 8]
    apart = deep_mtp.file(arch, 2, apart=True)
    own = drafts(target, tokens, 4)
    other = drafts(target, tokens, 4, ("mtp", {**GREEDY[1], "file": str(apart)}))
    single = drafts(load(golden(arch) / "model-f32.gguf"), tokens, 4, ("mtp", {**GREEDY[1], "file": str(apart)}))

    assert apart.name.startswith("mtp-")
    assert own[0] == other[0] == single[0]
    assert torch.equal(own[1], other[1]) and torch.equal(own[1], single[1])


def refuse_costs(info, drafters):
    raise NotMeasured("a test measures nothing")


def test_best_takes_the_layers_that_lie_beside_a_model(tmp_path, monkeypatch):
    """A file without a trunk, under the name by which llama.cpp finds it."""
    monkeypatch.setattr(spec_best, "costs_of", refuse_costs)
    whole = deep_mtp.dense(2)
    model = deep_mtp.open_model(whole)
    for name in [name for name in model.tensors if name.startswith("blk.0.")]:
        del model.tensors[name]
    (tmp_path / "mtp-model.gguf").write_bytes(model.bytes())
    shutil.copy(tiny_gguf(0, layers=1), tmp_path / "model.gguf")
    trunk = load(tmp_path / "model.gguf")
    (file,) = (c.plugin.file for c in Run(trunk, ["best"]).plugins if c.name == "mtp")

    assert file == str(tmp_path / "mtp-model.gguf")
    beside = drafts(trunk, [1, 2, 3, 4], 4, ("mtp", {**GREEDY[1], "file": file}))
    assert beside[0] == drafts(load(whole), [1, 2, 3, 4], 4)[0]


def test_a_layer_that_a_file_counts_and_lacks_is_left_out():
    tokens = [5, 9, 2, 77, 31, 8]
    whole = deep_mtp.file("glm4moe", 2)
    model = deep_mtp.open_model(whole)
    for name in [name for name in model.tensors if name.startswith("blk.4.")]:
        del model.tensors[name]
    lacking = whole.with_name("lacking.gguf")
    lacking.write_bytes(model.bytes())
    target = load(lacking)

    assert len(next_token_layers(target)) == 1
    assert drafts(target, tokens, 4)[0] == drafts(load(golden("glm4moe") / "model-f32.gguf"), tokens, 4)[0]


def test_a_damaged_second_layer_is_refused_by_the_name_of_its_tensor():
    whole = deep_mtp.file("glm4moe", 2)
    model = deep_mtp.open_model(whole)
    del model.tensors["blk.4.nextn.hnorm.weight"]
    damaged = whole.with_name("damaged.gguf")
    damaged.write_bytes(model.bytes())

    with pytest.raises(Refused, match=r"tensor 'blk.4.nextn.hnorm.weight' of the NextN layer is missing"):
        Run(load(damaged, weights=False), ["mtp"])


# in a run


@pytest.fixture(scope="module", params=[2, 3])
def deep(request):
    return load(deep_mtp.hybrid(request.param)[0], dtype="float32", device="cpu", cache_dtype="float32")


def steps_of(run: Run, requests: list[Request]) -> tuple[list[list[int]], list]:
    steps = []
    run.observe(steps.append)
    seqs = [run.submit(r) for r in requests]
    while run.busy:
        run.step()
    return [run.take(seq).tokens for seq in seqs], steps


def requests_of(count: int, temperature: float = 0.0, tokens: int = 24) -> list[Request]:
    sampling = Sampling(temperature=temperature)
    return [
        Request([3 * i + 1, 4, i + 9][: 1 + i % 3], max_tokens=tokens, seed=i, sampling=sampling, name=f"{i}")
        for i in range(count)
    ]


@pytest.mark.parametrize("p_min", [0.0, 0.05])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("slots", [1, 4])
def test_text_is_plain_and_every_drafted_token_costs_a_forward(deep, temperature, slots, p_min):
    requests = requests_of(5, temperature)
    plain = [Run(deep).generate(r).result.tokens for r in requests]
    texts, steps = steps_of(Run(deep, [("mtp", {"p_min": p_min, "draft_max": 5})], max_sequences=slots), requests)

    assert texts == plain
    assert max(p.drafted for step in steps for p in step.parts) == 5 if p_min == 0 else True
    for step in steps:
        depths = {min(p.drafted, d) for p in step.parts for d in range(1, 6) if p.drafted >= d}
        assert step.forwards.get("mtp", 0) >= len(depths)
        if slots == 1:
            assert step.forwards.get("mtp", 0) == max((p.drafted for p in step.parts), default=0)


def test_drafts_after_accepted_and_rejected_ones_are_those_of_the_text_alone(deep):
    """Rows that read rejected tokens are computed again, and a text that begins like an earlier one drafts the same."""
    depths = len(next_token_layers(deep))
    first = Request([4, 9, 2, 7, 5, 5, 1, 3], max_tokens=90, ignore_eos=True, name="first")
    second = Request([4, 9, 2, 7, 5, 6], max_tokens=90, ignore_eos=True, name="second")
    begins = Begins(texts_of(deep, [first, second]), right=0.8)
    run = Run(deep, [("begins", begins), ("mtp", {"p_min": 0.0, "draft_max": 4})], max_sequences=1)
    for request in (first, second):
        watch = Offers()
        run.observe(watch)
        tokens = [*request.prompt, *run.generate(request).result.tokens]
        assert len(watch.drafts) > 8 and len(watch.accepted) > 2
        for length, ids in watch.drafts.items():
            assert ids == hybrid_twin(depths, tokens[:length], len(ids))[0]


class Offers:
    """Drafts of mtp by the length of the text before them, and the numbers of accepted tokens of all drafts."""

    def __init__(self) -> None:
        self.drafts: dict[int, list[int]] = {}
        self.accepted: set[int] = set()

    def __call__(self, step) -> None:
        for part in step.parts:
            if part.drafted and part.source == "mtp":
                self.drafts[part.start + len(part.pending)] = list(part.draft.ids)
            if part.drafted:
                self.accepted.add(len(part.full_verdict.path))


@attrs.define(eq=False)
class Given:
    """Drafts these tokens once the text has a certain length."""

    ids: list[int]
    after: int

    @hookimpl
    def draft(self, step):
        for seq, _ in step.undrafted:
            if len(seq.tokens) == self.after:
                step.propose(seq, Draft(self.ids))


@pytest.mark.parametrize("form", ["native", "python"])
@pytest.mark.parametrize("before", [1, 2, 4])
def test_behind_the_draft_of_another_method_the_layer_of_that_place_drafts(deep, before, form, monkeypatch):
    if form == "python":
        monkeypatch.setattr(TokenDrafter, "limits", lambda *args, **named: None)
    depths, tokens, begun = len(next_token_layers(deep)), [4, 9, 2, 7, 5, 5, 1, 3], [8, 1, 30, 2][:before]
    method = ("mtp", {"p_min": 0.0, "draft_max": 3, "extend": True})
    run = Run(deep, [("given", Given(begun, len(tokens))), method], draft_max=before + 3)
    draft = next_draft(run, tokens, before + 3)

    assert draft[:before] == begun
    assert draft[before:] == hybrid_twin(depths, tokens, before + 3, begun=begun)[0][before:]


def test_a_long_prompt_is_caught_up_with_in_pieces_at_every_layer(deep):
    prompt = [(11 * i * i) % 299 for i in range(2 * BACKLOG + 30)]
    target = load(deep_mtp.hybrid(len(next_token_layers(deep)), context=1024)[0], dtype="float32", device="cpu")
    counts = []
    run = Run(target, [GREEDY], prefill_chunk=50)
    run.observe(lambda step: counts.append((step.forwards.get("mtp", 0), step.rows.get("mtp", 0))))
    chunked = drafted_by(run, prompt, 4)
    whole = drafts(target, prompt, 4)

    assert whole[0] == chunked[0]
    assert (whole[1] - chunked[1]).abs().max() < 1e-4
    assert max(rows / forwards for forwards, rows in counts if forwards) <= BACKLOG + 50


class TestDeepMtp(DrafterConformance):
    """Two layers, and drafts that are longer."""

    def make(self):
        return Mtp(p_min=0.0, draft_max=3, extend=True)

    def target(self):
        return load(deep_mtp.hybrid(2)[0], dtype="float32", device="cpu")

    def prompts(self):
        return [[1, 2, 3, 4, 1, 2, 3, 4, 1, 2], [7]]
