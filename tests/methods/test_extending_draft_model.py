"""draft-model with ``extend``: what it appends to other methods' drafts, what that costs, and what it forgets."""

from __future__ import annotations

import json
import random

import attrs
import pytest
import torch
from spec_cli.main import run_command as spec
from spec_methods.draft_model import DraftModel

from spec_core import Refused, Run, Sampling, hookimpl, load
from spec_core.sampling import native
from spec_core.testing import DrafterConformance
from spec_core.toolkit import BranchPoint, TokenDrafter
from tests.methods.extending import SAMPLINGS, Begins, Witness, extensions, ran, requests, target_of, texts_of
from tests.support.pairs import every_pair
from tests.support.small_models import tiny_gguf

OTHER, SAME = str(tiny_gguf(1)), str(tiny_gguf(0, layers=4))


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


class TestExtendingDraftModel(DrafterConformance):
    """It drafts as without ``extend`` where no other method drafts before it."""

    def make(self):
        return DraftModel(file=str(tiny_gguf(1, context=128)), draft_max=2, p_min=0.0, extend=True)

    def target(self):
        return load(tiny_gguf(context=128), dtype="float32", device="cpu")

    def prompts(self):
        return [[1, 2, 3, 4, 1, 2, 3, 4, 1, 2]]


def extending(file=OTHER, **more):
    return ("draft-model", {"file": file, "p_min": 0.0, "draft_max": 4, "extend": True, **more})


def start(kind, begins, method, rule=None, witness=None, **more):
    """A run in which ``begins`` drafts first."""
    methods = [("begins", begins), method, *([("witness", witness)] if witness else [])]
    return Run(target_of(kind), methods, rule=rule, **more)


# what is appended


BEGINNINGS = {
    "copied": {},
    "wrong": {"right": 0.3},
    "drawn": {"drawn": True},
    "branching": {"branches": True},
}


@every_pair(
    sampling=SAMPLINGS,
    begins=BEGINNINGS,
    rule=[None, "rejection", "traversal", "point-mass"],
    form=["native", "python"],
)
def test_it_appends_what_it_drafts_alone_behind_the_same_text(sampling, begins, rule, form, monkeypatch):
    """Tokens and rows, from forwards of a new sequence of the draft model, with the noise of the very positions."""
    if form == "python":
        monkeypatch.setattr(TokenDrafter, "limits", lambda *args, **named: None)
    asked = requests(SAMPLINGS[sampling])
    begun = Begins(texts_of(target_of("dense"), asked), **BEGINNINGS[begins])
    witness = Witness("draft-model", lambda text, drafted: alone(run, [*text, *drafted]))
    run = start("dense", begun, extending(), rule, witness)
    ran(run, asked)

    assert witness.seen > 10 and len(witness.behind) > 1
    assert not witness.wrong


def alone(run, tokens):
    """The draft model's logits after a text, without anything kept."""
    plugin = next(c.plugin for c in run.plugins if c.name == "draft-model")
    return plugin.draft_logits(tokens, 1)[1][0]


def test_the_witness_finds_noise_of_another_position(monkeypatch):
    """Of the draft's own beginning, as if nothing had been drafted before it."""
    monkeypatch.setattr(native, "module", None)
    honest = TokenDrafter._sample
    shift_rows = lambda self, step, draft, row, mask: honest(
        self, step, attrs.evolve(draft, place=BranchPoint()), row, mask
    )
    monkeypatch.setattr(TokenDrafter, "_sample", shift_rows)
    asked = requests(SAMPLINGS["sampled"])
    witness = Witness("draft-model", lambda text, drafted: alone(run, [*text, *drafted]))
    run = start("dense", Begins(texts_of(target_of("dense"), asked)), extending(), None, witness)
    ran(run, asked)

    assert witness.wrong


# text


@every_pair(kind=["dense", "hybrid", "lfm2", "gemma4", "kimi-linear"], sampling=SAMPLINGS, begins=BEGINNINGS)
def test_texts_are_plain(kind, sampling, begins):
    """Sequences together, their drafts begun by another method or not, kept to any length."""
    asked = requests(SAMPLINGS[sampling], count=4)
    texts = texts_of(target_of(kind), asked)
    run = start(kind, Begins(texts, **BEGINNINGS[begins]), extending(), max_sequences=3)

    assert ran(run, asked) == texts
    assert run.stats.report()["methods"]["draft-model"]["drafts"] > 0


@pytest.mark.parametrize("seed", range(6))
def test_texts_are_plain_in_random_runs(seed):
    """Random methods before and after it, settings, rules, temperatures, stops and lengths."""
    rng = random.Random(seed)
    kind = rng.choice(["dense", "hybrid"])
    sampling = Sampling(temperature=rng.choice([0.0, 0.4, 0.8, 1.2]), top_p=rng.choice([1.0, 0.9]))
    asked = requests(sampling, count=6, n=rng.randint(1, 40))
    texts = texts_of(target_of(kind), asked)
    begun = Begins(texts, rng.random(), rng.randint(1, 5), confidence=rng.choice([None, 0.5, 0.9]), rng=rng)
    more = {"p_min": rng.choice([None, 0.0, 0.2]), "draft_max": rng.randint(1, 8)}
    others = rng.sample(["++ngram", "++suffix", "++recycling"], rng.randint(0, 2))
    methods = [("begins", begun), extending(rng.choice([OTHER, SAME]), **more)]
    methods += [(name[2:], {"extend": True}) for name in others]
    run = Run(target_of(kind), methods, max_sequences=rng.randint(1, 6), draft_max=rng.randint(1, 12))

    assert ran(run, asked) == texts, f"seed {seed}, {methods}"


# the cache


@pytest.mark.parametrize("sampling", ["greedy", "sampled"])
@pytest.mark.parametrize("begins", ["copied", "wrong", "branching"])
def test_rejected_tokens_are_forgotten(sampling, begins):
    """The target as its own draft is accepted wherever the tokens before it are: a row that stayed would shift it."""
    asked = requests(SAMPLINGS[sampling], n=40)
    begun = Begins(texts_of(target_of("dense"), asked), **BEGINNINGS[begins])
    run, counts = start("dense", begun, extending(SAME)), {"tested": 0, "right": 0, "rejected": 0}

    def look(step):
        for part in step.parts:
            for piece, _ in extensions(part, "draft-model"):
                if not piece.was_tested(part.full_verdict.path):
                    counts["rejected"] += 1
                    continue
                kept = len(piece.accepted_in(part.full_verdict.path))
                counts["tested"] += min(kept + 1, len(piece.draft))
                counts["right"] += kept

    run.observe(look)
    ran(run, asked)

    assert counts["rejected"] > 5, "no draft of the other method was rejected before an extension"
    assert counts["right"] == counts["tested"] > 10


def test_the_cache_holds_what_it_was_given():
    """After every step the rows that still count are of committed text."""
    asked = requests(SAMPLINGS["sampled"], n=40)
    run = start("dense", Begins(texts_of(target_of("dense"), asked), right=0.5), extending())
    plugin = next(c.plugin for c in run.plugins if c.name == "draft-model")
    model, checked = plugin.model, []

    def look(step):
        for part in step.parts:
            if (cache := part.seq.stash.get(plugin.cache)) is not None and part.seq.finish is None:
                valid = cache.agree(list(part.seq.tokens))
                assert cache.held[:valid] == part.seq.tokens[:valid]
                checked.append(valid)

    run.observe(look)
    ran(run, asked)

    assert model is plugin.model and len(checked) > 20


# costs


def test_its_forwards_and_rows_are_counted():
    """One forward for each of its own tokens; the rows of the tokens before them are computed in the first."""
    asked = requests(SAMPLINGS["greedy"], count=1, n=40)
    run = start("dense", Begins(texts_of(target_of("dense"), asked), right=0.6), extending())
    drafts = []

    def look(step):
        (part,) = step.parts
        for piece, path in extensions(part, "draft-model"):
            drafts.append((len(path), len(piece.draft), step.forwards["draft-model"], step.rows["draft-model"]))

    run.observe(look)
    run.generate(asked[0]).result

    assert len(drafts) > 5
    assert all(forwards == own for _, own, forwards, _ in drafts)
    assert all(rows >= before + own for before, own, _, rows in drafts[1:])
    assert any(rows == before + own for before, own, _, rows in drafts[1:])


def test_it_stops_by_the_chance_of_all_tokens_before():
    """By their confidence, if the other method gives one."""
    lengths = {}
    for confidence in (1.0, 0.5, 0.2):
        asked = requests(SAMPLINGS["greedy"], n=30)
        begun = Begins(texts_of(target_of("dense"), asked), right=1.0, longest=1, confidence=confidence)
        run = start("dense", begun, extending(SAME, p_min=0.25, draft_max=8))
        seen = lengths[confidence] = []
        run.observe(
            lambda step, seen=seen: seen.extend(
                len(piece.draft) for part in step.parts for piece, _ in extensions(part, "draft-model")
            )
        )
        ran(run, asked)

    mean = {confidence: sum(seen) / max(1, len(seen)) for confidence, seen in lengths.items()}
    assert mean[1.0] > mean[0.5] > 0 and not lengths[0.2]


def test_it_stops_extending_what_is_never_accepted():
    """Without confidences it learns how often the tokens before it are accepted; its own drafts go on."""
    counts = {}
    for right in (0.0, 1.0):
        asked = requests(SAMPLINGS["greedy"], n=40)
        begun = Begins(texts_of(target_of("dense"), asked), right=right, longest=2)
        run = start("dense", begun, extending(SAME, p_min=0.35))
        offered, extended = [], []

        def look(step, offered=offered, extended=extended):
            for part in step.parts:
                offered.extend(piece for piece in part.pieces if piece.source == "begins")
                extended.extend(extensions(part, "draft-model"))

        run.observe(look)
        ran(run, asked)
        counts[right] = len(extended) / len(offered)

    assert counts[0.0] < 0.5 < counts[1.0]


# where it is named


def test_it_is_named_on_the_command_line_in_a_file_and_in_python(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prompt = "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n"
    ask = [*"generate -m zoo:pico -n 48 --temperature 0 --json -o control=fixed".split(), "-p", prompt]
    spec([*ask, "--method", "ngram++draft-model"])
    (tmp_path / "spec.toml").write_text('methods = ["ngram", "draft-model"]\n\n[draft-model]\nextend = true\n')
    spec(ask)
    named, filed = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    target = load("zoo:pico")
    run, drafts = Run(target, ["ngram++draft-model"]), []
    run.observe(lambda step: drafts.extend(extensions(step.parts[0], "draft-model")))
    result = run.generate(prompt, max_tokens=48, sampling=Sampling(temperature=0.0)).result

    assert drafts
    assert named["text"] == filed["text"] == target.tokenizer.decode(result.tokens)
    assert named["stats"]["methods"] == filed["stats"]["methods"]
    assert named["stats"]["methods"]["draft-model"]["drafts"] == result.stats["methods"]["draft-model"]["drafts"] > 0


def test_a_rule_that_was_not_written_for_mixed_drafts_is_refused_by_name():
    class Ratios:
        @hookimpl
        def compat(self):
            from spec_core import Compat

            return Compat(judges={"deterministic", "sampled"}, noise="private")

        @hookimpl
        def accept(self, step):
            """Never asked."""

    with pytest.raises(Refused, match="draft-model may extend what ngram drafts"):
        Run(target_of("dense"), ["ngram", extending()], rule=("ratios", Ratios()))
