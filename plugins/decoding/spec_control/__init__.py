"""Control of draft length: which method drafts how many tokens, so that a run is hardly slower than plain decoding.

The table has all constants of the controller. A time without a unit is in plain steps.
"""

RECENT = 9
"""Plain steps whose median is the time of a plain step."""
CHANGED = 1.25
"""Factor between two times from which on the machine has changed its speed."""
ROW = 0.1
"""Cost of a row of a forward before any was measured, for one sequence."""
GROWTH = 4
"""Factor by which the rows of a forward may exceed the largest number that was measured."""
SLOW = 0.02
"""Weight of one more value in what is known of a method."""
QUICK = 0.1
"""Weight of one more value in what is known of a method in one text."""
CLIP = 3.0
"""Factor over the usual time that methods take, from which on a part of a step is not theirs."""
SPIKE = 0.5
"""Time that a part of a step may exceed that by."""
PRIOR = 0.6
"""Acceptance of a token before any was tested."""
PRIOR_TESTS = 4
"""Tests for which the prior counts."""
PRIOR_OFFERS = 0.5
"""Share of steps in which a method drafts, before it was asked."""
CHANCE_MIN = 0.02
"""The acceptance of a token lies between it and 1 minus it."""
PRICE_MIN = 0.2
"""Lowest price: texts that are easy say little about the next one."""
PRICE_MAX = 0.9
"""Highest price."""
USUAL = 0.3
"""Price before any draft was judged: that of most methods without a controller."""
HOLD = 16
"""Steps of a plan."""
FEW = 8
"""Steps of a plan whose costs or drafts are hardly known, and drafts from which on a kind of draft is known."""
PROBE = 3
"""Tokens of a draft that tests whether a method pays again."""
PROBE_LOSS = 1.0
"""Time that such a test may lose."""
PAUSE = 16
"""Steps before the first test; the number doubles after each that loses."""
PAUSE_MAX = 1024
"""Max steps between two tests."""
SETTLE = 3
"""Plain steps in a row that are measured, but for the first."""
RISK = 5.0
"""Divisor of the balance: the part of it that one step may lose."""
RISK_PAYING = 2.5
"""The same, for a step of methods whose drafts have gained so far."""
RESERVE = 2.0
"""Balance with which drafting begins again once it was used up."""
STANDING = 2.0
"""Time that a method may take while it does not draft, before it no longer serves a text."""
TREE_COST = 1.0
"""Time of all rows of a tree besides its longest path: a tree gains about a token over a chain."""
