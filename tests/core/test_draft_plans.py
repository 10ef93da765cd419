"""Plans of a controller: what methods may draft while one lasts, when it ends, and what the controller reads of it.

Longer than our files are: all that a plan says is read beside each other.
"""

from __future__ import annotations

import math

import attrs
import pytest

from spec_core import Compat, Draft, DraftPlan, Limit, Needs, PluginError, Request, Run, hookimpl
from spec_core.testing import ToyTarget
from spec_core.toolkit.plan_follower import judge_chances

REQUEST = Request([3, 1, 4], max_tokens=30)
SECOND = Request([2, 7, 1], max_tokens=9)


@attrs.define(eq=False)
class Method:
    """Drafts as much as it may. calls: steps of each hook. offers: (step, budget, price)."""

    needs: Needs = Needs()
    catches_up: bool = False
    calls: dict[str, list[int]] = attrs.field(factory=lambda: {"draft": [], "rollback": [], "process": []})
    offers: list[tuple[int, int, float]] = attrs.field(factory=list)

    @hookimpl
    def compat(self):
        return Compat(needs=self.needs, catches_up=self.catches_up)

    @hookimpl
    def draft(self, step):
        self.calls["draft"].append(step.number)
        for seq, budget in step.undrafted:
            self.offers.append((step.number, budget, step.price(seq, None, 0.5)))
            step.propose(seq, Draft([1] * budget))

    @hookimpl
    def rollback(self, step):
        self.calls["rollback"].append(step.number)

    @hookimpl
    def process(self, rows):
        self.calls["process"].append(rows.step.number)


@attrs.define(eq=False)
class Controller:
    """Makes ``plan`` in step ``at``. calls, rolled: steps of its hooks. records: what it could read in each call."""

    plan: DraftPlan
    at: int = 2
    calls: list[int] = attrs.field(factory=list)
    rolled: list[int] = attrs.field(factory=list)
    records: list[list] = attrs.field(factory=list)

    @hookimpl
    def compat(self):
        return Compat(drafts=())

    @hookimpl
    def draft(self, step):
        self.calls.append(step.number)
        self.records.append(list(step.records))
        if step.number == self.at:
            step.plan(self.plan)

    @hookimpl
    def rollback(self, step):
        self.rolled.append(step.number)


def short(**options):
    return DraftPlan({"method": Limit(2, price=0.25)}, **options)


def play(plan, *requests, method=None, **settings):
    """Returns the method and the controller, after the texts were compared with plain decoding."""
    method, controller = method or Method(), Controller(plan)
    run = Run(ToyTarget(recurrent=False), [("method", method), controller], draft_max=4, **settings)
    tokens = [generation.result.tokens for generation in run.generate(list(requests or [REQUEST]))]
    assert tokens == [
        Run(ToyTarget(recurrent=False)).generate(request).result.tokens for request in requests or [REQUEST]
    ]
    return method, controller


def start(plan, method=None, **settings):
    """A run of REQUEST after four steps, two of which follow the plan."""
    method, controller = method or Method(), Controller(plan)
    run = Run(ToyTarget(recurrent=False), [("method", method), controller], draft_max=4, **settings)
    run.submit(REQUEST)
    for _ in range(4):
        run.step()
    return run, method, controller


# what it allows


def test_a_plan_counts_for_its_steps_and_the_controller_is_not_called_in_them():
    method, controller = play(short(steps=6))

    assert controller.calls[:4] == [1, 2, 8, 9]
    assert controller.rolled[:5] == [0, 1, 2, 8, 9]
    planned = [(step, 2, 0.25) for step in range(2, 8)]
    assert method.offers[:9] == [(1, 4, 0.5), *planned, (8, 4, 0.5), (9, 4, 0.5)]


def test_an_empty_plan_is_plain_decoding_without_draft_hooks():
    method, controller = play(DraftPlan({}, steps=6))

    assert method.calls["draft"][:4] == controller.calls[:4] == [1, 2, 8, 9]
    assert method.calls["process"][:9] == method.calls["rollback"][:9] == list(range(9))
    assert [record.plain for record in controller.records[2]] == [False, *[True] * 5]


def test_a_method_without_a_limit_does_not_draft():
    methods = {name: Method() for name in ("one", "other")}
    controller = Controller(DraftPlan({"other": Limit(1)}, steps=99))
    run = Run(ToyTarget(recurrent=False), [*methods.items(), controller], draft_max=4)
    run.generate(REQUEST).result
    offers = {name: {step for step, _, _ in method.offers} for name, method in methods.items()}

    assert offers["one"] == {1}
    assert min(offers["other"]) == 2


def test_a_limit_without_a_length_allows_what_the_run_allows():
    method, _ = play(DraftPlan({"method": Limit()}, steps=9))

    assert method.offers[:3] == [(1, 4, 0.5), (2, 4, 0.5), (3, 4, 0.5)]


def test_a_sequence_may_have_limits_of_its_own():
    budgets = {}
    plan = DraftPlan({"method": Limit(3)}, {1: {"method": Limit(1)}, 2: {}}, steps=3)
    run = Run(ToyTarget(recurrent=False), [("method", Method()), Controller(plan)], draft_max=4)
    run.observe(lambda step: budgets.setdefault(step.number, [len(part.draft or ()) for part in step.parts]))
    for _ in range(3):
        run.submit(REQUEST)
    list(run)

    assert [budgets[step] for step in range(1, 6)] == [[4, 4, 4], [3, 1, 0], [3, 1, 0], [3, 1, 0], [4, 4, 4]]


def test_a_limit_of_nodes_bounds_a_tree():
    nodes = []

    class Tree(Method):
        @hookimpl
        def draft(self, step):
            nodes.extend(step.nodes(seq) for seq, _ in step.undrafted)

    play(DraftPlan({"method": Limit(3, nodes=5)}, steps=2), method=Tree(Needs(trees=True)), nodes_max=9)

    assert nodes[:4] == [9, 5, 5, 9]


# when it ends


@pytest.mark.parametrize("plan", [short(steps=20), DraftPlan({}, steps=20)], ids=["drafts", "plain"])
def test_a_sequence_that_joins_ends_it(plan):
    run, method, controller = start(plan)
    run.submit(SECOND)
    list(run)

    assert controller.calls[:3] == [1, 2, 4]
    assert method.calls["draft"][-1] > 4


def test_a_sequence_that_ends_ends_it():
    _, controller = play(short(steps=20), attrs.evolve(SECOND, max_tokens=5), REQUEST)

    assert controller.calls[:2] == [1, 2]
    assert controller.calls[2] < 8


def test_it_ends_when_its_steps_lost_too_much():
    _, controller = play(short(steps=6, loss_max=0.0))
    assert controller.calls[:4] == [1, 2, 3, 4]

    _, controller = play(short(steps=6, loss_max=0.0, plain_seconds=1e9))
    assert controller.calls[:3] == [1, 2, 8]


def test_what_one_step_gains_pays_for_no_loss_of_a_later_one():
    class Early(Method):
        @hookimpl
        def draft(self, step):
            if step.number < 5:
                super().draft(step)

    class Timed(DraftPlan):
        """Its first steps gain much, the others lose a second each."""

        def loss_of(self, record):
            return 1.0 if record.number >= 5 else -100.0

    _, controller = play(Timed({"method": Limit(2)}, steps=20, loss_max=3.5), method=Early())

    assert controller.calls[:3] == [1, 2, 9]


# requests, plugins


def test_a_request_that_wants_no_control_drafts_as_it_likes():
    method, controller = play(DraftPlan({}, steps=6), REQUEST, attrs.evolve(REQUEST, control=False))

    assert method.calls["draft"][:6] == [1, 2, 3, 4, 5, 6]
    assert [budget for step, budget, _ in method.offers if step == 3] == [4]
    assert controller.calls[:3] == [1, 2, 8]


def test_a_method_that_catches_up_is_not_called_in_plain_steps():
    method, _ = play(DraftPlan({}, steps=6), method=Method(catches_up=True))

    assert method.calls["draft"][:4] == [1, 2, 8, 9]
    assert method.calls["rollback"][:3] == [1, 8, 9]
    assert method.calls["process"] == [0]


def test_a_method_that_catches_up_is_called_after_the_draft_hook_only_for_drafts_and_prompts():
    class Seldom(Method):
        @hookimpl
        def draft(self, step):
            self.calls["draft"].append(step.number)
            for seq, _ in step.undrafted:
                if step.number % 3 == 0:
                    step.propose(seq, Draft([1]))

    method, _ = play(DraftPlan({"method": Limit()}, steps=99), method=Seldom(catches_up=True))

    assert method.calls["draft"][:8] == list(range(1, 9))
    assert method.calls["rollback"][:3] == [3, 6, 9]
    assert method.calls["process"] == [0]


def test_rows_of_a_prompt_are_delivered_to_a_method_that_catches_up():
    run, method, _ = start(DraftPlan({}, steps=20), Method(catches_up=True))
    run.submit(SECOND)
    list(run)

    assert method.calls["process"] == [0, 4]


def test_a_plugin_that_judges_is_called_in_plain_steps():
    class Judging(Method):
        @hookimpl
        def accept(self, step):
            self.calls.setdefault("accept", []).append(step.number)

    method, _ = play(DraftPlan({}, steps=6), method=Judging(catches_up=True))

    assert method.calls["accept"][:9] == method.calls["process"][:9] == list(range(9))


def test_a_dropped_method_is_not_called_and_its_hidden_states_are_not_computed(monkeypatch):
    needs, forward = [], ToyTarget.forward
    monkeypatch.setattr(ToyTarget, "forward", lambda self, batch, n: needs.append(n) or forward(self, batch, n))
    method, _ = play(short(drop=["method"]), method=Method(Needs(hidden={0}, final=True)))

    assert method.calls["draft"] == [1, 2]
    assert max(method.calls["process"]) == max(method.calls["rollback"]) == 2
    assert [bool(n.hidden) and n.final for n in needs[:7]] == [True] * 3 + [False] * 4


def test_a_dropped_method_serves_the_next_request_which_reuses_only_what_it_has_seen():
    method = Method()
    run = Run(ToyTarget(recurrent=False), [("method", method), Controller(short(drop=["method"]))], max_sequences=1)
    first = run.generate(REQUEST).result.tokens
    calls = len(method.calls["draft"])
    second = run.submit(Request([3, 1, 4, *first[:20]], max_tokens=5))
    list(run)

    assert len(method.calls["draft"]) > calls
    assert 3 <= second.reused < 10


# what a controller reads


def test_a_controller_reads_what_became_of_all_steps_since_its_last_call():
    drafts = []
    controller = Controller(short(steps=6))
    run = Run(ToyTarget(recurrent=False), [("method", Method()), controller], draft_max=4)

    def watch(step):
        part = step.parts[0]
        if part.budget:
            drafts.append((step.number, part.drafted, len(part.full_verdict.path), len(part.emitted), part.start))

    run.observe(watch)
    run.generate(REQUEST).result
    records = [record for call in controller.records for record in call]

    assert [record.number for record in controller.records[2]] == [2, 3, 4, 5, 6, 7]
    assert [
        (record.number, attempt.drafted, attempt.accepted, record.tokens, record.depth)
        for record in records
        for attempt in record.attempts
    ] == [draft for draft in drafts if draft[0] <= records[-1].number]
    assert {(a.method, a.budget) for record in controller.records[2] for a in record.attempts} == {("method", 2)}
    assert all(record.total_seconds > record.seconds["verify"] > 0 for record in records)


def test_a_controller_reads_the_confidence_of_drafts():
    class Sure(Method):
        @hookimpl
        def draft(self, step):
            for seq, budget in step.undrafted:
                step.propose(seq, Draft([1] * budget, confidence=[0.75] * budget))

    _, controller = play(short(), method=Sure())

    [attempt] = controller.records[2][0].attempts
    assert [chance for chance, _ in attempt.judged] == [0.75] * min(2, attempt.accepted + 1)


def test_a_controller_reads_what_became_of_the_chances_of_a_tree():
    """Two first tokens are tested, and what follows the accepted one; the text is known."""
    text = Run(ToyTarget(recurrent=False)).generate(REQUEST).result.tokens

    class Branching(Method):
        @hookimpl
        def draft(self, step):
            for seq, budget in step.undrafted:
                after = text[len(seq.tokens) - len(REQUEST.prompt) :][:2] if budget > 1 else []
                if len(after) == 2:
                    (first, then), wrong = after, [(token + 1) % 5 for token in after]
                    ids, chances = [wrong[0], first, then, wrong[1], 0], [0.25, 0.75, 0.5, 0.125, 1.0]
                    step.propose(seq, Draft(ids, parents=[-1, -1, 1, 1, 0], confidence=chances))

    plan = DraftPlan({"method": Limit(2, price=0.25, nodes=5)})
    _, controller = play(plan, method=Branching(Needs(trees=True)))

    judged = [attempt.judged for record in controller.records[2] for attempt in record.attempts]
    assert judged[0] == ((0.25, False), (0.75, True), (0.5, True), (0.125, False))


def test_a_draft_behind_a_rejected_one_judges_no_chances():
    draft = Draft([1, 2, 3], parents=[-1, -1, 1], confidence=[0.5, 0.25, 0.75])

    assert judge_chances(draft, None) == ()
    assert judge_chances(draft, ()) == ((0.5, False), (0.25, False))
    assert judge_chances(draft, (1,)) == ((0.5, False), (0.25, True), (0.75, False))
    assert judge_chances(Draft([1, 2]), (0,)) is None


def test_records_of_an_endless_plan_are_bounded(monkeypatch):
    monkeypatch.setattr("spec_core.toolkit.plan_follower.RECORDS_MAX", 5)
    run, _, controller = start(DraftPlan({}, steps=10**9))
    run.submit(SECOND)
    for _ in range(3):
        run.step()

    for _ in range(9):
        run.step()
    assert all(len(records) <= 5 for records in controller.records)


# mistakes


def test_only_a_controller_may_plan():
    class Plans(Method):
        @hookimpl
        def draft(self, step):
            step.plan(DraftPlan({}))

    run = Run(ToyTarget(recurrent=False), [("method", Plans()), ("other", Method())], on_error="isolate")
    run.generate(REQUEST).result

    assert "is for controllers" in run.stats.switched_off["method"]


def test_two_plans_in_a_step_and_unknown_methods_are_refused():
    class Twice(Controller):
        @hookimpl
        def draft(self, step):
            step.plan(self.plan)
            step.plan(self.plan)

    for controller, message in (
        (Twice(short()), "call step.plan once"),
        (Controller(DraftPlan({"ngrm": Limit()})), "ngrm"),
    ):
        run = Run(ToyTarget(recurrent=False), [("method", Method()), ("control", controller)])
        with pytest.raises(PluginError, match=message):
            run.generate(REQUEST).result


@pytest.mark.parametrize(
    "make",
    [
        lambda: Limit(-1),
        lambda: Limit(nodes=-1),
        lambda: Limit(price=1.5),
        lambda: Limit(price=math.nan),
        lambda: DraftPlan({}, steps=0),
        lambda: DraftPlan({}, loss_max=math.nan),
        lambda: DraftPlan({}, plain_seconds=-1.0),
    ],
)
def test_values_outside_of_their_range_are_refused(make):
    with pytest.raises(ValueError, match=r"0 or more|0 to 1|one step or more"):
        make()
