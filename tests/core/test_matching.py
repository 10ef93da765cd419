"""Owners, proposals, needs and rules are matched before a weight is read; what does not fit is refused together."""

from __future__ import annotations

import attrs
import pytest
from toys import STRATEGIES, Drafts, Fixed, Says, dense, finish, ones, plain, toy_run

from spec_core import Compat, Draft, DraftPlan, Needs, Refusal, Refused, Request, Run, hookimpl
from spec_core.errors import PhaseError, PluginError
from spec_core.testing import RandomTrees, ToyRollback, ToyTarget

DENSE = {"recurrent": False}


def test_recurrent_state_without_an_owner_is_refused_when_drafting():
    """Leaving it out is not a crash, it is wrong text."""
    with pytest.raises(Refused, match="no plugin owns the target's 'recurrent' state"):
        Run(ToyTarget(), [ones()])


def test_plain_decoding_needs_no_owner():
    """Nothing is drafted, nothing is rolled back."""
    assert Run(ToyTarget(), []).generate([1], max_tokens=3).result.finish_reason == "length"


def test_two_owners_of_one_state_are_refused():
    """Two plugins would restore the same state."""
    with pytest.raises(Refused, match="one and two would roll back the target's 'recurrent' state"):
        Run(ToyTarget(), [ones(), ("one", ToyRollback()), ("two", ToyRollback())])
    with pytest.raises(Refused, match="says and target would roll back the target's 'attention' state"):
        dense([ones(), Says(owns={"attention"}, drafts=())])


@pytest.mark.parametrize("methods", [[ones()], []], ids=["drafting", "plain"])
def test_a_state_that_the_target_does_not_have_is_not_owned(methods):
    """A misspelt state, or one of another target, is refused."""
    with pytest.raises(Refused, match="says owns 'atention' state, this target has none") as error:
        dense([*methods, Says(owns={"atention"}, drafts=())])
    assert "nearest first: attention; or run without says" in error.value.hint


def test_weights_that_the_target_does_not_give_are_refused_by_name():
    """A target of another engine may give the matrices of draft heads only."""
    target = ToyTarget(recurrent=False)
    reads = Says(needs=Needs(weights={"output.weight", "output_norm.weight"}), drafts=())
    assert Run(target, [reads]).needs.weights == {"output.weight", "output_norm.weight"}
    target.info = attrs.evolve(target.info, tensors={"output.weight"})
    with pytest.raises(Refused, match=r"says reads the target's output_norm.weight; toy-0 gives output.weight\n"):
        Run(target, [reads])


def test_an_owner_may_be_named_among_the_methods():
    """Its position in the list does not matter."""
    for methods in ([ones(), ToyRollback()], [ToyRollback(), ones()]):
        result = Run(ToyTarget(), methods).generate([1, 2], max_tokens=6).result
        assert plain(Request([1, 2], max_tokens=6)).tokens == result.tokens


# refusals


def test_all_refusals_are_shown_together():
    """One run of the command, every reason and every hint."""
    refusing = [
        ("a", Says(refusals=[Refusal("too wide", "take a narrow one"), Refusal("too deep", "take a flat one")])),
        ("b", Says(refusals=[Refusal("no weights", "name a file")])),
    ]

    with pytest.raises(Refused) as error:
        dense([*refusing, ("c", ones())])

    for text in ("a: too wide", "a: too deep", "b: no weights", "take a narrow one", "take a flat one", "name a file"):
        assert text in str(error.value)


def test_no_weight_is_read_before_all_answers_are_clean():
    """``load`` is called in the user's order, and not at all if a plugin refuses."""
    loaded = []

    def loads(name, **more):
        return name, Says(load=lambda target: loaded.append((name, target.info.name)), drafts=(), **more)

    with pytest.raises(Refused):
        dense([loads("a"), loads("b", refusals=[Refusal("no", "yes")])])
    assert not loaded

    dense([loads("b"), loads("a")])
    assert loaded == [("b", "toy-0"), ("a", "toy-0")]


@pytest.mark.parametrize("layer", [-1, 3, 7])
def test_hidden_states_that_do_not_exist_are_refused(layer):
    """The toy has streams 0 to 2."""
    with pytest.raises(Refused, match="reads hidden states"):
        Run(ToyTarget(), [Says(needs=Needs(hidden={layer}), drafts=())])


def test_trees_on_a_target_of_chains_are_refused():
    """Before anything is drafted."""
    with pytest.raises(Refused, match="drafts trees"):
        Run(ToyTarget(recurrent=False, trees=False), [RandomTrees({})])


def test_two_kinds_of_trace_are_refused():
    """A forward records one kind of trace, so two different kinds are refused."""
    with pytest.raises(Refused, match="needs a trace of inputs"):
        Run(ToyTarget(), [ones(), Says(needs=Needs(trace="inputs"), drafts=())], rollback=ToyRollback("snapshot"))


@pytest.mark.parametrize("drafted", ["sampled", "unknown"])
def test_a_rule_that_cannot_judge_a_method_is_refused(drafted):
    """Proposals are matched at start: never guessed."""

    class Rule(Says):
        @hookimpl
        def accept(self, step):
            pass

    with pytest.raises(Refused, match=f"drafts {drafted}"):
        dense([Drafts(drafts={drafted})], rule=("rule", Rule(judges={"deterministic"}, drafts=())))
    assert dense([Drafts(drafts={drafted})], rule=("rule", Rule(judges={"deterministic", drafted}, drafts=())))


def test_a_method_that_can_give_rows_must_where_a_rule_reads_them():
    """A drafter may leave the rows out if no rule reads them."""

    class Rule(Says):
        @hookimpl
        def accept(self, step):
            pass

    class Withholds(Drafts):
        @hookimpl
        def draft(self, step):
            for seq, _ in step.undrafted:
                step.propose(seq, Draft([1], proposal="unknown"))

    method = Withholds(drafts={"sampled", "unknown"})
    assert dense([method]).generate([1], max_tokens=4).result.tokens
    run = dense([method], rule=("rule", Rule(judges={"sampled"}, drafts=())))
    with pytest.raises(PluginError, match=r"a .unknown. draft, but compat declared sampled"):
        run.generate([1], max_tokens=4).result


@pytest.mark.parametrize(
    "judges, expected", [(None, False), ({"deterministic"}, False), ({"sampled", "deterministic"}, True)]
)
def test_probs_are_made_only_when_a_rule_wants_them(judges, expected):
    """Rows of probabilities cost K x V floats a sequence."""
    seen = set()

    class Rule(Says):
        @hookimpl
        def accept(self, step):
            pass

    method = Fixed(lambda step, seq, budget: seen.add(step.wants_probs))
    list(dense([method], rule=("rule", Rule(judges=judges, drafts=()))).generate([1], max_tokens=4))

    assert {expected} == seen


def test_the_first_decision_stands():
    """A rule may skip sequences; the core's lossless rule decides them."""
    from spec_core import Verdict

    class Always(Says):
        @hookimpl
        def accept(self, step):
            for seq in step.undecided:
                if seq.name == "mine":
                    step.decide(seq, Verdict((), 5))

    run = dense([ones()], rule=("always", Always(lossy="always 5", drafts=())))
    own, other = run.submit([1, 2], max_tokens=4, name="mine"), run.submit([1, 2], max_tokens=4, name="other")
    finish(run)

    assert run.take(own).tokens == [5, 5, 5, 5]
    assert plain(Request([1, 2], max_tokens=4), **DENSE).tokens == run.take(other).tokens
    assert run.stats.report()["lossy"] == "always 5"


def test_the_rule_may_be_named_or_given():
    """``coupled`` is the default, by name and as an instance."""
    from spec_core.loop.coupled import Coupled

    for rule in (None, "coupled", Coupled()):
        assert dense([ones()], rule=rule).generate([1], max_tokens=3).result.finish_reason == "length"


# noise


def test_shared_noise_is_the_one_that_decides():
    """argmax(log p + noise) of the target's own p is the target's own choice: everything is accepted."""
    from toys import forward

    from spec_core import Sampling

    target = ToyTarget(**DENSE)

    def make(step, seq, budget):
        tokens = list(seq.tokens)
        for i in range(min(budget, 3)):
            row = forward(target, tokens)[1].logits[-1]
            tokens.append(int((row / 1.3 + step.noise(seq, i)).argmax()))
        return Draft(tokens[len(seq.tokens) :], proposal="unknown")

    class Samples(Fixed):
        @hookimpl
        def compat(self):
            return Compat(drafts={"unknown"})

    run = Run(ToyTarget(**DENSE), [Samples(make)])
    stats = run.generate(
        [1, 2], max_tokens=13, seed=5, noise_stream=2, offset=7, sampling=Sampling(temperature=1.3)
    ).result.stats

    assert stats["accepted"] == stats["drafted"] > 0


def test_noise_is_private_when_the_rule_says_so():
    """Drafters get new noise in every round, so that a rule with look-ahead never sees the same numbers twice."""
    import torch

    drawn = []

    class Rule(Says):
        @hookimpl
        def accept(self, step):
            pass

    def make(step, seq, budget):
        again = step.noise(seq, 0)
        drawn.append((seq.output_position, step.noise(seq, 0), step.noise(seq, 1)))
        assert torch.equal(again, drawn[-1][1])

    from spec_core.sampling.noise import gumbel

    run = dense([Fixed(make)], rule=("rule", Rule(noise="private", drafts=())))
    list(run.generate([1], max_tokens=6, seed=3))

    (t, first, second), (later, same_position, _) = drawn[0], drawn[1]
    assert t + 1 == later
    assert not torch.equal(second, same_position)
    assert not torch.equal(first, gumbel(3, t, 48))


@pytest.mark.parametrize("noise", ["shared", "private"])
def test_private_noise_is_new_for_every_branch(noise):
    """Shared noise depends on depth only: the target follows one branch, by one noise per position."""
    import torch

    class Rule(Says):
        @hookimpl
        def accept(self, step):
            pass

    drawn = []
    make = lambda step, seq, budget: drawn.append([step.noise(seq, 1, branch) for branch in (0, 0, 1, 2)])
    list(dense([Fixed(make)], rule=("rule", Rule(noise=noise, drafts=()))).generate([1], max_tokens=4))
    first, again, second, third = drawn[0]

    assert torch.equal(again, first)
    assert (noise == "shared") == torch.equal(first, second) == torch.equal(first, third)
    assert (noise == "shared") == torch.equal(second, third)


@pytest.mark.parametrize("noise", ["shared", "private"])
def test_noise_in_rollback_is_that_of_the_drafted_positions(noise):
    """A method that reads rows of logits after the verdict chooses from them with the noise of their positions."""
    import torch

    from spec_core import Sampling

    class Rule(Says):
        @hookimpl
        def accept(self, step):
            pass

    drafted, read = [], []

    class Reads:
        @hookimpl
        def draft(self, step):
            for seq, budget in step.undrafted:
                drafted.append([step.noise(seq, i) for i in range(budget)])
                step.propose(seq, Draft([1] * budget))

        @hookimpl
        def rollback(self, step):
            for seq, result in step.draft_results:
                read.append([step.noise(seq, i) for i in range(result.drafted)])

    run = dense([Reads()], rule=("rule", Rule(noise=noise, drafts=())))
    list(run.generate([1], max_tokens=8, sampling=Sampling(temperature=0.8)))

    assert len(drafted) == len(read) > 1
    assert all(torch.equal(torch.stack(one), torch.stack(other)) for one, other in zip(drafted, read, strict=True))


# phases

CALLS = {
    "undrafted": lambda step, seq: list(step.undrafted),
    "plan": lambda step, seq: step.plan(DraftPlan({})),
    "nodes": lambda step, seq: step.nodes(seq),
    "noise": lambda step, seq: step.noise(seq, 0),
    "propose": lambda step, seq: step.propose(seq, Draft([1])),
    "undecided": lambda step, seq: list(step.undecided),
    "logits": lambda step, seq: step.logits(seq),
    "history": lambda step, seq: step.history(seq, 0),
    "decide": lambda step, seq: step.decide(seq, None),
    "verdicts": lambda step, seq: step.verdicts,
    "kept_rows": lambda step, seq: step.kept_rows(seq),
    "rewind": lambda step, seq: step.rewind(seq, 0),
    "fail": lambda step, seq: step.fail(seq, ValueError()),  # kept last: it ends the sequence
}
ALLOWED = {
    "draft": {"undrafted", "plan", "nodes", "noise", "propose"},
    "accept": {"undecided", "logits", "history", "decide", "fail"},
    "rollback": {"noise", "logits", "history", "verdicts", "kept_rows", "rewind", "fail"},
    "process": {"logits", "history", "verdicts", "kept_rows"},
}


@pytest.mark.parametrize("hook", ALLOWED)
def test_a_call_in_the_wrong_phase_raises(hook):
    """A late proposal or verdict is an error: it would be lost, or change a decision."""
    refused = set()

    def probe(step):
        for name, call in CALLS.items():
            if name not in ALLOWED[hook]:
                with pytest.raises(PhaseError, match=f"step.{name} belongs to"):
                    call(step, step.parts[0].seq)
                refused.add(name)

    body = (lambda self, rows: probe(rows.step)) if hook == "process" else (lambda self, step: probe(step))
    probing = type("Probing", (), {hook: hookimpl(body)})
    run = dense([("m", ones()), ("p", probing())])
    list(run.generate([1, 2], max_tokens=5))

    assert set(CALLS) - ALLOWED[hook] == refused


def test_a_call_in_the_wrong_phase_is_the_plugins_error():
    """Raised out of the hook it names plugin and hook, and carries the PhaseError."""

    class Late:
        @hookimpl
        def process(self, rows):
            for seq, _ in rows.by_sequence():
                rows.step.propose(seq, Draft([1]))

    with pytest.raises(PluginError, match="plugin 'late' failed in process") as error:
        list(dense([Late()]).generate([1], max_tokens=3))
    assert isinstance(error.value.__cause__, PhaseError)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_plugin_switches_no_other_off_by_order(strategy):
    """Learners receive rows whether they are named before or after owners and methods."""
    received = []

    class Learns(Says):
        @hookimpl
        def process(self, rows):
            received.append(sum(len(span.tokens) for _, span in rows.by_sequence()))

    for place in range(3):
        received.clear()
        methods = [("m", ones()), ("owner", ToyRollback(strategy))]
        methods.insert(place, ("learns", Learns(drafts=())))
        list(Run(ToyTarget(), methods).generate([1, 2, 3], max_tokens=6))
        assert sum(received) == 8


def test_toy_runs_take_an_owner_by_keyword():
    """The helper of these tests runs what it says."""
    assert {"target", "toy-rollback", "fixed"} == {c.name for c in toy_run(ones()).plugins}
