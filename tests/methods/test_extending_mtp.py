"""mtp with ``extend``: its layer reads what another method drafted, behind its own states, and drafts on."""

from __future__ import annotations

import random

import attrs
import pytest
import torch
from safetensors.torch import load_file
from spec_cli.draft import next_draft
from spec_methods.mtp import Mtp

from spec_core import Draft, Needs, Run, Sampling, hookimpl, load
from spec_core.testing import DrafterConformance
from spec_core.toolkit import TokenDrafter, evaluate
from tests.methods.extending import SAMPLINGS, Begins, Witness, extensions, ran, requests, target_of, texts_of
from tests.support.golden import golden
from tests.support.pairs import every_pair
from tests.support.small_models import tiny_hybrid


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


class TestExtendingMtp(DrafterConformance):
    """It drafts as without ``extend`` where no other method drafts before it."""

    def make(self):
        return Mtp(p_min=0.0, draft_max=2, extend=True)

    def target(self):
        return load(tiny_hybrid(context=128), dtype="float32", device="cpu")

    def prompts(self):
        return [[1, 2, 3, 4, 1, 2, 3, 4, 1, 2], [7]]


BEGINNINGS = {"copied": {}, "wrong": {"right": 0.3}, "drawn": {"drawn": True}, "long": {"longest": 6}}


def extending(**more):
    return ("mtp", {"p_min": 0.0, "draft_max": 3, "extend": True, **more})


def start(begins, method, rule=None, witness=None, kernels="native", **more):
    methods = [("begins", begins), method, *([("witness", witness)] if witness else [])]
    return Run(target_of("hybrid", kernels), methods, rule=rule, **more)


def teacher_forced(run, text, drafted):
    """Logits of the layer alone: true states of the target for the text, its own behind every drafted token."""
    layer = next(c.plugin.layer for c in run.plugins if c.name == "mtp")
    memory = layer.memory()
    memory.take(0, text[1:], evaluate(run.target, text, Needs(final=True)).final[: len(text) - 1].clone(), {})
    state, rows = layer.forward([memory.pairs()])
    for i, token in enumerate(drafted, 1):
        state, rows = layer.forward([memory.own(i, token, state)])
    return rows[0]


@every_pair(sampling=SAMPLINGS, begins=BEGINNINGS, rule=[None, "rejection", "point-mass"], form=["native", "python"])
def test_it_appends_what_its_layer_says_behind_these_tokens(sampling, begins, rule, form, monkeypatch):
    """Tokens and rows, of three sequences together that have drafts of different lengths to read, or none."""
    if form == "python":
        monkeypatch.setattr(TokenDrafter, "limits", lambda *args, **named: None)
    asked = requests(SAMPLINGS[sampling])
    witness = Witness("mtp", lambda text, drafted: teacher_forced(run, list(text), drafted))
    run = start(Begins(texts_of(target_of("hybrid"), asked), **BEGINNINGS[begins]), extending(), rule, witness)
    ran(run, asked)

    assert witness.seen > 10 and len(witness.behind) > 1
    assert not witness.wrong


@attrs.define(eq=False)
class Given:
    """Drafts given tokens once the text has a certain length."""

    ids: list[int]
    after: int

    @hookimpl
    def draft(self, step):
        for seq, _ in step.undrafted:
            if len(seq.tokens) == self.after and self.ids:
                step.propose(seq, Draft(self.ids))


@pytest.mark.parametrize("arch", ["qwen3next", "qwen35", "qwen35moe", "glm4moe"])
@pytest.mark.parametrize("context", ["ctx20", "ctx33"])
@pytest.mark.parametrize("before", [1, 2, 4])
def test_it_drafts_on_as_independent_implementations_do(arch, context, before):
    """Their first tokens come from another method; tokens and logits of the others are the layer's."""
    expected = load_file(golden(f"mtp/{arch}") / "golden.safetensors")
    tokens = [*expected[f"{context}.tokens"].tolist(), int(expected[f"{context}.id_last"])]
    ids, rows = expected[f"{context}.draft_tokens"].tolist(), []
    target = load(golden(arch) / "model-f32.gguf", cache_dtype="float32")
    run = Run(target, [("given", Given(ids[:before], len(tokens))), extending(draft_max=5)], draft_max=5)
    run.plugins[1].plugin.watch = lambda token, row: rows.append(row.clone())
    draft = next_draft(run, tokens, 5)

    assert draft == ids
    own = torch.stack(rows[-(5 - before) :])
    assert (own - expected[f"{context}.draft_logits"][before:]).abs().max() < 5e-5


def test_the_reference_reads_the_same():
    """Without the native executor."""
    asked = requests(SAMPLINGS["greedy"], n=12)
    lengths = {}
    for kernels in ("native", "reference"):
        run = start(Begins(texts_of(target_of("hybrid"), asked), right=1.0), extending(), kernels=kernels)
        drafts = lengths[kernels] = []
        run.observe(lambda step, drafts=drafts: drafts.extend(part.draft.ids for part in step.parts if part.draft))
        ran(run, asked)

    assert lengths["native"] == lengths["reference"]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("begins", [*BEGINNINGS, "branching"])
def test_texts_are_plain(sampling, begins):
    asked = requests(SAMPLINGS[sampling], count=4)
    texts = texts_of(target_of("hybrid"), asked)
    begun = Begins(texts, **BEGINNINGS.get(begins, {"branches": True}))
    run = start(begun, extending(), max_sequences=3)

    assert ran(run, asked) == texts
    assert run.stats.report()["methods"]["mtp"]["drafts"] > 0


@pytest.mark.parametrize("seed", range(6))
def test_texts_are_plain_in_random_runs(seed):
    """Random methods before and after it, settings, rollback, temperatures and lengths."""
    rng = random.Random(seed)
    sampling = Sampling(temperature=rng.choice([0.0, 0.4, 0.8, 1.2]), top_p=rng.choice([1.0, 0.9]))
    asked = requests(sampling, count=6, n=rng.randint(1, 40))
    texts = texts_of(target_of("hybrid"), asked)
    begun = Begins(texts, rng.random(), rng.randint(1, 5), confidence=rng.choice([None, 0.5, 0.9]), rng=rng)
    extension = extending(p_min=rng.choice([None, 0.0, 0.2]), draft_max=rng.randint(1, 8))
    others = [(name, {"extend": True}) for name in rng.sample(["ngram", "suffix", "recycling"], rng.randint(0, 2))]
    rollback = ("gdn-rollback", {"strategy": rng.choice(["snapshot", "replay", "checkpoint"])})
    limits = {"max_sequences": rng.randint(1, 6), "draft_max": rng.randint(1, 12)}
    run = Run(target_of("hybrid"), [("begins", begun), extension, *others], rollback=rollback, **limits)

    assert ran(run, asked) == texts, f"seed {seed}, {extension}, {others}, {limits}"


@pytest.mark.parametrize("sampling", ["greedy", "sampled"])
def test_its_memory_after_a_step_is_of_committed_text(sampling):
    """A draft of its own after extensions that were rejected equals that of a run in which there were none."""
    asked = requests(SAMPLINGS[sampling], n=40)
    texts = texts_of(target_of("hybrid"), asked)
    lengths = {}
    for name, begun in {"rejected": Begins(texts, right=0.2), "none": Begins(texts, longest=0)}.items():
        run, drafts = start(begun, extending(draft_max=2)), lengths.setdefault(name, {})

        def look(step, drafts=drafts):
            for part in step.parts:
                if part.draft is not None and part.source == "mtp":
                    drafts[part.seq.name, len(part.seq.tokens) - len(part.emitted)] = part.draft.ids

        run.observe(look)
        ran(run, asked)
    both = lengths["rejected"].keys() & lengths["none"].keys()

    assert len(both) > 10
    assert all(lengths["rejected"][where] == lengths["none"][where] for where in both)


def test_its_forwards_and_rows_are_counted():
    """One for each token of the other method that it reads, and one for each that it appends."""
    asked = requests(SAMPLINGS["greedy"], count=1, n=40)
    run = start(Begins(texts_of(target_of("hybrid"), asked), right=0.6), extending())
    lengths = []

    def look(step):
        (part,) = step.parts
        for piece, path in extensions(part, "mtp"):
            lengths.append((len(path) + len(piece.draft), step.forwards["mtp"], step.rows["mtp"]))

    run.observe(look)
    run.generate(asked[0]).result

    assert len(lengths) > 5
    assert all(forwards == whole <= rows for whole, forwards, rows in lengths)
