"""What steps cost on a machine: learned from plain steps and others, one by one or by the medians of a plan."""

from __future__ import annotations

import pytest
from spec_control.machine import NEAR, Machine


def machine(depth=100):
    """With a plain step that was measured: its forward takes 1 ms, the rest of it 0.2 ms."""
    made = Machine()
    made.measured(made.costs(1, depth), 1, 1e-3, 0.2e-3)
    return made, made.costs(1, depth)


def test_a_changed_cost_is_surprising_and_replaces_the_old_one():
    """Two measurements that are far off: what was measured before counts no longer."""
    machine = Machine()
    costs = machine.costs(1, 64)
    for _ in range(10):
        machine.measured(costs, 1, 1.0, 0.1)
        machine.measured(costs, 5, 1.5, 0.1)
    assert costs.forwards.at(5) == pytest.approx(1.5) and not machine.surprised

    machine.measured(costs, 1, 1.0, 0.1)
    machine.measured(costs, 5, 4.5, 0.1)
    assert machine.surprised
    machine.measured(costs, 1, 1.0, 0.1)
    assert costs.forwards.at(5) == pytest.approx(4.5)


@pytest.mark.parametrize(
    "before, now, cost_of_row, expected",
    [(1, 2, 0.5e-3, 1 + 2 * 0.5 / 2.0), (1, 2, 0.0, 1.05), (4, 2, 0.5e-3, 3 / 2), (4, 2, 0.0, 3 / 2)],
)
def test_a_row_for_a_new_number_of_sequences_takes_as_long_as_one_of_others(before, now, cost_of_row, expected):
    machine = Machine()
    costs = machine.costs(before, 100)
    for rows in (before, 2 * before) * 3:
        machine.measured(costs, rows, 3e-3 + (rows - before) * cost_of_row, 1e-3)

    machine.measured(machine.costs(now, 100), now, 2e-3, 1e-3)

    assert machine.costs(now, 100).forwards.at(2 * now) == pytest.approx(expected)


def test_as_many_rows_for_a_new_number_of_sequences_take_as_long_as_of_others():
    """Once it is known how long a plain step of these takes; what is measured of them counts instead."""
    machine = Machine()
    costs = machine.costs(2, 100)
    for rows in (2, 8) * 3:
        machine.measured(costs, rows, 1e-3 + rows * 0.5e-3, 1e-3)
    machine.measured(costs, 5, 1e-3 + 5 * 0.5e-3, 1e-3)  # once: not for sure
    new = machine.costs(4, 100)
    assert not new.forwards.knows(8)

    machine.measured(new, 4, 3e-3, 1e-3)
    assert new.forwards.knows(8) and new.forwards.at(8) == pytest.approx(5 / 3)
    assert not new.forwards.times(5)

    machine.measured(new, 8, 6e-3, 1e-3)
    machine.measured(new, 4, 3e-3, 1e-3)
    assert new.forwards.at(8) == pytest.approx(2.0)


def test_a_new_depth_begins_with_what_the_nearest_costs():
    machine = Machine()
    machine.measured(machine.costs(2, 64), 2, 1.0, 0.1)
    for _ in range(3):
        machine.measured(machine.costs(2, 64), 6, 1.3, 0.1)
        machine.measured(machine.costs(2, 64), 2, 1.0, 0.1)

    assert machine.costs(2, 5000).forwards.at(6) == pytest.approx(1.3)
    assert machine.costs(3, 64).forwards.at(3) == 1.0


def test_the_forwards_of_a_plan_are_compared_with_its_plain_ones():
    """By their medians: that of three stands for three measurements."""
    made, costs = machine()

    assert made.held(costs, {1: [2e-3, 9e-3, 2e-3], 4: [6e-3, 6e-3, 60e-3], 8: [1.0]})

    assert costs.forwards.at(4) == pytest.approx(3.0)
    assert costs.forwards.knows(4)
    assert not costs.forwards.knows(8)
    assert (made.forward, made.plain) == (pytest.approx(2e-3), pytest.approx(2.4e-3))


def test_forwards_of_a_plan_without_plain_ones_are_compared_with_the_next():
    made, costs = machine()

    assert not made.held(costs, {4: [3.6e-3] * 3, 8: [6e-3] * 3})
    assert made.forward == pytest.approx(1e-3)  # what four rows cost is not known
    made.measured(costs, 1, 1.2e-3, 0.4e-3)

    assert costs.forwards.at(4) == pytest.approx(3.0)
    assert costs.forwards.at(8) == pytest.approx(5.0)


@pytest.mark.parametrize("apart", [1, NEAR, NEAR + 1])
@pytest.mark.parametrize("factor", [1.2, 2.0])
def test_a_plain_step_tells_no_new_cost_where_the_speed_has_changed(apart, factor):
    """The machine may have become slower after the drafts: they would be taken for cheap ones."""
    made, costs = machine()
    made.held(costs, {4: [6e-3] * 3})

    made.measured(costs, 1, factor * 1e-3, 0.2e-3, apart)

    assert bool(costs.compared(4)) == (factor < 1.5)
    assert made.surprised == (factor > 1.5), "it is measured again"
    assert made.forward == pytest.approx(factor * 1e-3), "the speed is known in any case"


@pytest.mark.parametrize("apart, compared", [(NEAR, True), (NEAR + 1, False)])
def test_a_known_cost_may_be_found_wrong_soon_after_the_drafts(apart, compared):
    made, costs = machine()
    made.held(costs, {1: [1e-3] * 3, 4: [3e-3] * 3})
    before = costs.pairs[4]
    made.held(costs, {4: [3e-3] * 3})

    made.measured(costs, 1, 2e-3, 0.2e-3, apart)

    assert (costs.pairs[4] > before) == compared
    assert made.surprised


def test_one_plain_forward_makes_nobody_sure():
    """A cost that follows from the last one before is not used to tell how fast the machine is."""
    made, costs = machine()

    made.held(costs, {4: [3e-3] * 8})

    assert costs.forwards.at(4) == pytest.approx(3.0, rel=0.4)
    assert costs.share(4) is None
    assert made.forward == pytest.approx(1e-3)
    assert made.surprised, "a plain step tells"


def test_more_rows_never_cost_less_than_a_plain_forward():
    """Where they seem to, the machine became slower after the drafts: nothing is learned, and a plain step tells."""
    made, costs = machine()
    made.held(costs, {2: [0.5e-3] * 3})

    made.measured(costs, 1, 1e-3, 0.2e-3, apart=3)

    assert not costs.compared(2) and costs.forwards.at(1) == 1.0 and costs.forwards.at(2) >= 1.0
    assert made.surprised


def test_beside_forwards_that_are_known_the_cost_of_others_is_learned():
    made, costs = machine()
    made.held(costs, {1: [1e-3] * 3, 4: [3e-3] * 3})

    made.held(costs, {4: [6e-3] * 3, 8: [10e-3] * 3})

    assert made.forward == pytest.approx(2e-3)
    assert costs.forwards.at(8) == pytest.approx(5.0)


def test_a_cost_that_is_known_at_one_depth_is_expected_at_others():
    made, costs = machine(depth=100)
    made.measured(made.costs(1, 1000), 1, 1e-3, 0.2e-3)
    made.held(costs, {1: [1e-3] * 3, 4: [3e-3] * 3})
    deep = made.costs(1, 1000)
    assert deep.forwards.at(4) == pytest.approx(3.0)

    made.held(deep, {1: [1e-3] * 3, 4: [2e-3] * 3})

    assert deep.forwards.at(4) == pytest.approx(2.0)
    assert costs.forwards.at(4) == pytest.approx(3.0)


def test_a_plain_step_at_another_depth_tells_what_was_never_compared():
    made, costs = machine(depth=100)
    made.held(costs, {4: [6e-3] * 3})

    made.measured(made.costs(1, 1000), 1, 2e-3, 0.4e-3)

    assert costs.forwards.at(4) == pytest.approx(3.0)
    assert not costs.compared(4)


def test_a_forward_that_was_never_compared_says_nothing_of_a_plain_step():
    made, costs = machine()

    assert made.expected(costs, 16, 99.0) == pytest.approx(1.2e-3)
    made.held(costs, {1: [1e-3] * 3, 4: [3e-3] * 3})
    assert made.expected(costs, 4, 6e-3) == pytest.approx(2.4e-3)


def test_a_plain_step_is_of_as_many_sequences_as_there_are_now():
    made = Machine()
    made.measured(made.costs(1, 100), 1, 1e-3, 0.2e-3)
    made.measured(made.costs(4, 100), 4, 3e-3, 0.6e-3)

    made.at(1, 100)
    assert made.plain == pytest.approx(1.2e-3)
    made.at(4, 100)
    assert (made.forward, made.plain) == (pytest.approx(3e-3), pytest.approx(3.6e-3))


def test_a_forward_among_those_that_were_measured_says_how_fast_the_machine_is():
    made, costs = machine()
    made.held(costs, {1: [1e-3] * 3, 4: [3e-3] * 3, 8: [3.6e-3] * 3})

    assert made.expected(costs, 6, 6e-3) == pytest.approx(1.2 * 6e-3 / 3.3)
    assert costs.shares(9) == {rows: pytest.approx(costs.share(rows)) for rows in (1, 4, 5, 6, 7, 8)}
    assert costs.share(9) is None, "no more were measured"
    assert costs.share(2) is None, "one row and four differ too much"


def test_forwards_of_a_plan_that_are_not_as_expected_ask_for_a_plain_step():
    """Either the machine is slower, or the cost was wrong."""
    made, costs = machine()
    made.held(costs, {1: [1e-3] * 3, 4: [2e-3] * 3})
    assert not made.surprised

    made.held(costs, {4: [2.1e-3] * 3})
    assert not made.surprised
    made.held(costs, {4: [4e-3] * 3})
    assert made.surprised


def test_forwards_of_a_plan_are_compared_with_a_plain_step_right_before_it_if_nothing_else_is_known():
    made, costs = machine()

    made.held(costs, {4: [3e-3] * 3})

    assert costs.forwards.at(4) == pytest.approx(3.0)
    assert not costs.compared(4)
