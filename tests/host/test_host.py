"""Methods in the loop of another engine: its text stays the same, and plugins see what they see in a run."""

from __future__ import annotations

import attrs
import pytest
import torch

from spec_core import (
    Compat,
    Draft,
    DraftPlan,
    Limit,
    Needs,
    PluginError,
    Refused,
    Request,
    Run,
    UsageError,
    hookimpl,
    load,
)
from spec_core.host import Host, Progress, Serves
from spec_core.testing import Oracle, RandomTrees, ToyConstraint, ToyTarget
from spec_core.toolkit import evaluate
from tests.methods.heads import head_file
from tests.support.fake_engine import EVERYTHING, FakeEngine, Recorder, model_of
from tests.support.small_models import tiny_gguf

PROMPTS = {"a": [1, 2, 3, 4, 1, 2, 3, 4, 1, 2], "b": [7], "c": [5, 5, 5, 5, 9, 5, 5]}
LENGTH = 24


@pytest.fixture
def target():
    return ToyTarget(context=128, recurrent=False)


def texts(target, host=None, prompts=None, **settings) -> dict[str, list[int]]:
    engine = FakeEngine(target, host, **settings)
    jobs = [engine.add(key, prompt, LENGTH) for key, prompt in (prompts or PROMPTS).items()]
    engine.run()
    return {job.key: job.tokens for job in jobs}


METHODS = ["ngram", "suffix", "recycling", ("recycling", {"width": 3}), ("ngram", {"extend": True})]


@pytest.mark.parametrize("trims", [False, True])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_method_changes_no_text_and_saves_steps(target, method, trims):
    host = Host(model_of(target), [method, "suffix"] if method == METHODS[-1] else [method], EVERYTHING)
    plain = texts(target)

    assert texts(target, host, trims=trims) == plain
    assert host.stats.report()["accepted"] > 0


@pytest.mark.parametrize("seed", range(4))
def test_random_drafts_change_no_text(target, seed):
    plain = texts(target)
    known = {key: PROMPTS[key] + plain[key] for key in PROMPTS}
    host = Host(model_of(target), [RandomTrees(known, seed, trees=bool(seed % 2))], EVERYTHING)

    assert texts(target, host, trims=seed > 1) == plain
    assert host.stats.report()["accepted"] > 0


def test_statistics_are_those_of_a_run(target):
    """The same method on the same texts, with every row of a prompt in one forward."""
    requests = [Request(p, max_tokens=LENGTH, name=key, ignore_eos=True) for key, p in PROMPTS.items()]
    run, host = Run(target, ["ngram"]), Host(model_of(target), ["ngram"])
    for generation in run.generate(requests):
        assert generation.result
    assert texts(target, host, chunk=256)
    ours, theirs = (of.stats.report() for of in (host, run))

    assert theirs["drafted"] > 0
    for timed in ("seconds", "lossy"):
        del ours[timed], theirs[timed]
    assert ours == theirs


@pytest.mark.parametrize("chunk", [1, 3, 256])
def test_every_committed_row_is_delivered_once_with_its_hidden_states(target, chunk):
    plain = texts(target)
    known = {key: PROMPTS[key] + plain[key] for key in PROMPTS}
    recorder = Recorder(Needs(hidden={0, 1}, final=True))
    oracle = Oracle(known, lambda i, seq: i < 2, vocab=48)
    assert texts(target, Host(model_of(target), [recorder, oracle], EVERYTHING), chunk=chunk) == plain

    for key, spans in recorder.rows.items():
        whole = evaluate(target, known[key], recorder.needs)
        assert [token for span in spans for token in span.tokens] == known[key][:-1]
        assert [token for span in spans for token in span.next] == known[key][1:]
        assert [span.start for span in spans[1:]] == [span.end for span in spans[:-1]]
        for i in (0, 1):
            assert torch.allclose(torch.cat([span.hidden[i] for span in spans]), whole.hidden[i][:-1])
        assert torch.allclose(torch.cat([span.final for span in spans]), whole.final[:-1])


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_head_drafts_as_in_a_run(kind):
    """It takes the embedding and the output matrix from what the engine shares."""
    target = load(tiny_gguf(0, layers=4), dtype="float32", device="cpu", kernels="reference")
    method = (kind, {"p_min": 0.0, "file": str(head_file(kind, "dense"))})
    run, host = Run(target, [method]), Host(model_of(target), [method], EVERYTHING)
    plain = {
        key: run.generate(prompt, max_tokens=LENGTH, ignore_eos=True).result.tokens for key, prompt in PROMPTS.items()
    }

    assert texts(target, host, chunk=256) == plain
    assert host.stats.report()["drafted"] == run.stats.report()["drafted"] > 0


def test_a_stop_token_inside_a_draft_ends_the_request(target):
    plain = texts(target)["a"]
    stop = plain[6]
    known = {"a": PROMPTS["a"] + plain}
    engine = FakeEngine(target, Host(model_of(target), [Oracle(known, length=16)], EVERYTHING))
    job = engine.add("a", PROMPTS["a"], LENGTH, frozenset({stop}))
    engine.run()

    assert job.tokens == plain[: plain.index(stop) + 1]


# one step


def host_of(target, plugin, serves=None, **settings) -> Host:
    host = Host(model_of(target), [plugin], serves, **settings)
    host.begin("x", [1, 2, 3], max_tokens=20, ignore_eos=True)
    return host


class Drafts:
    """Proposes the same tokens always."""

    def __init__(self, *ids: int) -> None:
        self.ids, self.seen, self.budgets = ids, [], []

    @hookimpl
    def draft(self, step):
        for seq, budget in step.undrafted:
            self.budgets.append(budget)
            step.propose(seq, Draft(self.ids[:budget]))

    @hookimpl
    def rollback(self, step):
        self.seen += [
            (share.draft.ids, share.full_verdict.path, share.full_verdict.next_token) for _, share in step.draft_results
        ]


def test_verdicts_are_those_of_the_engine(target):
    method = Drafts(4, 5, 6)
    host = host_of(target, method)

    assert host.step({"x": Progress([9])})["x"].ids == (4, 5, 6)
    host.step({"x": Progress([4, 5, 8])})
    host.step({"x": Progress([4, 7], checked=1)})
    host.step({"x": Progress([7], checked=0)})
    assert method.seen == [((4, 5, 6), (0, 1), 8), ((4,), (0,), 7)]
    assert host.end("x")["drafted"] == 4


def test_a_budget_shortens_drafts(target):
    method = Drafts(4, 5, 6)
    host = host_of(target, method)

    assert host.step({"x": Progress([9])}, {"x": 2})["x"].ids == (4, 5)
    assert host.step({"x": Progress([9])}, {"x": 0}) == {}
    assert method.budgets == [2]


def test_a_draft_ends_with_the_output(target):
    host = Host(model_of(target), [Drafts(4, 5, 6)])
    host.begin("x", [1, 2, 3], max_tokens=3)

    assert host.step({"x": Progress([9])})["x"].ids == (4,)
    assert host.step({"x": Progress([8])}) == {}


@pytest.mark.parametrize(
    "reported, message",
    [
        ({"y": Progress([1])}, "no request has the key 'y'"),
        ({"x": Progress([9, 9])}, "2 tokens were committed, and only the first 0 were drafted"),
        ({"x": Progress([4, 9, 9])}, "3 tokens were committed, and only the first 1 were drafted"),
        ({"x": Progress([4, 5, 1], checked=1)}, "3 tokens were committed, and only the first 1 were drafted"),
        ({"x": Progress([1], start=5)}, "rows 3 to 4 were left out"),
    ],
)
def test_progress_that_contradicts_the_draft_is_refused(target, reported, message):
    host = host_of(target, Drafts(4, 5, 6))
    host.step({"x": Progress([1])})
    with pytest.raises(UsageError, match=message):
        host.step(reported)
    assert host.step({"x": Progress([4, 5, 9])})["x"].ids == (4, 5, 6)


@pytest.mark.parametrize(
    "needs, progress, message",
    [
        (Needs(final=True), Progress([9]), "3 rows from position 0 on were needed, got final: 0"),
        (Needs(hidden={1}), Progress([9], hidden={1: torch.zeros(2, 12)}), r"got hidden\[1\]: 2"),
        (Needs(logits=True), Progress([9]), "1 rows of logits were needed, got 0"),
    ],
)
def test_progress_without_what_plugins_need_is_refused(target, needs, progress, message):
    host = host_of(target, Recorder(needs), EVERYTHING)
    with pytest.raises(UsageError, match=message):
        host.step({"x": progress})


def test_a_key_is_used_once_at_a_time(target):
    host = host_of(target, Drafts(4))
    with pytest.raises(UsageError, match="a request with the key 'x' is running"):
        host.begin("x", [1])
    host.end("x")
    host.begin("x", [1])
    with pytest.raises(UsageError, match="no request has the key 'y'"):
        host.end("y")


# failures


@attrs.define(eq=False)
class Breaks:
    """Raises in one hook."""

    hook: str

    @hookimpl
    def draft(self, step):
        self._turn("draft")

    @hookimpl
    def rollback(self, step):
        self._turn("rollback")

    @hookimpl
    def process(self, rows):
        self._turn("process")

    def _turn(self, hook: str) -> None:
        if hook == self.hook:
            raise RuntimeError("broken")


@pytest.mark.parametrize("hook", ["draft", "rollback", "process"])
def test_a_plugin_that_fails_is_switched_off_and_others_go_on(target, hook, caplog):
    plain = texts(target)
    host = Host(model_of(target), [Breaks(hook), "suffix"], EVERYTHING, on_error="isolate")

    assert texts(target, host) == plain
    report = host.stats.report()
    assert "broken" in report["switched_off"]["breaks"]
    assert report["accepted"] > 0


@pytest.mark.parametrize("hook", ["draft", "rollback", "process"])
def test_a_plugin_that_fails_raises_where_that_is_asked_for(target, hook):
    host = host_of(target, Breaks(hook))
    with pytest.raises(PluginError, match="broken"):
        host.step({"x": Progress([9])})


# refusals


class Loads:
    """Says when its weights are read."""

    def __init__(self, needs: Needs) -> None:
        self.needs, self.loaded = needs, False

    @hookimpl
    def compat(self):
        return Compat(needs=self.needs, load=self.load)

    @hookimpl
    def draft(self, step):
        """Nothing."""

    def load(self, target):
        self.loaded = True


@pytest.mark.parametrize(
    "needs, field, message",
    [
        (Needs(logits=True), "logits", r"it needs rows of logits; this engine serves tokens\n"),
        (Needs(hidden={1}), "hidden", r"it needs hidden states between blocks \(1\)"),
        (Needs(final=True), "final", "it needs the hidden state after the final norm"),
        (Needs(trees=True), "trees", "drafts trees, toy-0 takes chains only"),
        (Needs(constraints=True), "constraints", "it needs constraints of requests"),
        (Needs(predictions=True), "predictions", "it needs predictions of requests"),
        (Needs(runs_target=True), None, "it evaluates sequences of its own on the target"),
        (Needs(trace="states"), None, "needs a trace of states and owns no state"),
        (Needs(probes=2), None, "adds rows to forwards that are no drafts"),
        (Needs(all_logits=True), None, "it reads logits of all rows of a prompt"),
    ],
)
def test_what_an_engine_does_not_serve_is_refused_before_weights_are_read(target, needs, field, message):
    plugin = Loads(needs)
    with pytest.raises(Refused, match=message):
        Host(model_of(target), [plugin], Serves())
    assert not plugin.loaded
    if field is not None:
        Host(model_of(target), [plugin], Serves(**{field: True}))
        assert plugin.loaded


def test_weights_that_an_engine_does_not_share_are_refused_by_name(target):
    plugin = Loads(Needs(weights={"output.weight"}))
    with pytest.raises(Refused, match=r"it needs weights \(output.weight\); this engine serves tokens\n"):
        Host(model_of(target), [plugin])
    with pytest.raises(Refused, match=r"\(output.weight\); this engine shares \(token_embd.weight\)"):
        Host(model_of(target), [plugin], Serves(weights={"token_embd.weight"}))
    assert not plugin.loaded
    Host(model_of(target), [plugin], Serves(weights={"output.weight"}))
    assert plugin.loaded


def test_a_constraint_follows_what_the_engine_commits_until_it_ends(target):
    """``forced`` drafts what the constraint leaves no choice about, and nothing once the text left it."""
    constraint = ToyConstraint(seed=1, share=0.0, length=6)
    text, matcher = [], constraint.start(target)
    while len(text) < 6:
        text += matcher.forced_tokens(1)
        matcher.advance(text[-1])
    host = Host(model_of(target), ["forced"], EVERYTHING)
    for key in ("follows", "leaves"):
        host.begin(key, [1, 2], constraint=constraint)
    drafts = host.step({"follows": Progress(text[:1]), "leaves": Progress([text[0] + 1])})

    assert "leaves" not in drafts and drafts["follows"].ids == tuple(text[1:])
    assert host.step({"follows": Progress(text[1:3])})["follows"].ids == tuple(text[3:])
    assert host.step({"follows": Progress(text[3:])}) == {}


def test_a_prediction_is_drafted_where_the_engine_gives_it(target):
    host = Host(model_of(target), ["prediction"], EVERYTHING)
    host.begin("x", [1, 2], prediction=[5, 6, 7, 8])

    assert host.step({"x": Progress([5])})["x"].ids == (6, 7, 8)


def test_all_refusals_are_shown_together(target):
    with pytest.raises(Refused) as caught:
        Host(model_of(target), [("one", Loads(Needs(logits=True))), ("two", Loads(Needs(final=True)))])

    assert [line.split(":")[0] for line in caught.value.reason.splitlines()] == ["one", "two"]


class Decides:
    @hookimpl
    def accept(self, step):
        """Nothing."""


def test_a_rule_is_refused(target):
    with pytest.raises(Refused, match="it decides which drafts are accepted; this engine decides itself"):
        Host(model_of(target), [Decides()])


class Limits:
    @hookimpl
    def compat(self):
        return Compat(drafts=())

    @hookimpl
    def draft(self, step):
        step.plan(DraftPlan(dict.fromkeys(step.methods, Limit(1))))


def test_a_controller_limits_drafts_where_the_engine_allows_it(target):
    host = Host(model_of(target), [Limits(), Drafts(4, 5)])
    host.begin("x", [1])

    assert host.step({"x": Progress([9])})["x"].ids == (4,)
    with pytest.raises(Refused, match="it limits the lengths of drafts; this engine asks for one length"):
        Host(model_of(target), [Limits()], Serves(limits=False))


def test_a_plugin_cannot_run_the_model_of_the_engine(target):
    with pytest.raises(UsageError, match="called forward of toy-0, which another engine runs"):
        model_of(target).forward(None, None)


def test_an_option_of_a_target_is_refused(target):
    with pytest.raises(UsageError, match="a host has no threads"):
        Host(model_of(target), [], threads=2)
