"""Control of draft length: which method drafts how many tokens, so that a run is hardly slower than plain decoding.

The table has all constants of the controller. A time without a unit is in plain steps.
"""

RECENT = 15
"""Plain steps whose median is the time of a plain step."""
CHANGED = 1.25
"""Factor between two times from which on the machine has changed its speed."""
ROW = 0.1
"""Cost of a row of a forward before any was measured, for one sequence."""
SLOW, QUICK = 0.02, 0.1
"""Weights of one more value: in what is known of a method, and of a method in one text."""
CLIP = 3.0
"""Factor over its mean to which a measured overhead is cut: more was another program."""
PRIOR, PRIOR_TESTS = 0.6, 4
"""Acceptance of a token before any was tested, and tests for which it counts."""
PRICE_MIN, PRICE_MAX = 0.02, 0.9
"""Bounds of a price; the acceptance of a token lies within the first and the rest to 1."""
BIAS_MAX = 2.0
"""Bound of the factor between the chances that a method gives itself and the accepted share."""
PROBE = 3
"""Tokens of a draft that is on trial."""
TRIAL, HOLD = 8, 32
"""Steps of a plan: of one with a trial, which ends after as many drafts, and of any other. Plain steps are measured
after the first trial, then after twice as many steps each time."""
TRIAL_LOSS, PROBE_LOSS = 4.0, 1.0
"""Time that the trial of a method may lose in a run, and a later probe."""
PAUSE, PAUSE_MAX = 16, 1024
"""Steps between two probes, doubled after each that loses."""
SETTLE = 3
"""Plain steps in a row that are measured, but for the first."""
RISK, RESERVE = 5.0, 4.0
"""One step may lose this part of the balance; and the balance with which drafting begins again once it was used up."""
STANDING = 2.0
"""Time that a method may take while it does not draft, before it no longer serves a text."""
TREE_COST = 1.0
"""Time of all rows of a tree beside its longest path: a tree gains about a token over a chain."""
