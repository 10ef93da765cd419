"""Control of draft length: which method drafts how many tokens, so that a run is hardly slower than plain decoding.

The table has all constants of the controller. A time without a unit is in plain steps.
"""

RECENT = 15
"""Plain steps whose median is the time of a plain step."""
CHANGED = 1.25
"""Factor between two times from which on the machine has changed its speed."""
ROW = 0.1
"""Cost of a row of a forward before any was measured, for one sequence."""
SLOW = 0.02
"""Weight of one more value in what is known of a method."""
QUICK = 0.1
"""Weight of one more value in what is known of a method in one text."""
CLIP = 3.0
"""Factor over its mean to which a measured overhead is cut: more was another program."""
PRIOR = 0.6
"""Acceptance of a token before any was tested."""
PRIOR_TESTS = 4
"""Tests for which the prior counts."""
PRICE_MIN = 0.02
"""Lowest price; the acceptance of a token lies between it and 1 minus it."""
PRICE_MAX = 0.9
"""Highest price."""
BIAS_MAX = 2.0
"""Bound of the factor between the chances that a method gives itself and the accepted share."""
PROBE = 3
"""Tokens of a draft that is on trial."""
TRIAL = 8
"""Steps of a plan with a trial, which ends after 8 drafts; plain steps are first measured after it."""
HOLD = 32
"""Steps of any other plan."""
TRIAL_LOSS = 4.0
"""Time that the trial of a method may lose in a run."""
PROBE_LOSS = 1.0
"""Time that a later probe may lose."""
PAUSE = 16
"""Steps before the first probe; the number doubles after each that loses."""
PAUSE_MAX = 1024
"""Most steps between two probes."""
SETTLE = 3
"""Plain steps in a row that are measured, but for the first."""
RISK = 5.0
"""Divisor of the balance: the part of it that one step may lose."""
RESERVE = 4.0
"""Balance with which drafting begins again once it was used up."""
STANDING = 2.0
"""Time that a method may take while it does not draft, before it no longer serves a text."""
TREE_COST = 1.0
"""Time of all rows of a tree beside its longest path: a tree gains about a token over a chain."""
