"""The account of ``control=auto`` on a simulated clock: ``python benchmarks/account.py`` writes results/control.json.

Drafts are right in four of five tokens; from step 400 to 800 they are always wrong. A forward of n rows takes
1 + 0.12 (n - 1) plain forwards, with 5 % noise.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.support.results import save
from benchmarks.support.tables import heading, row
from tests.control.simulator import Simulation, middle

STEPS, BAD, EVERY = 1200, range(400, 800), 10


def main() -> None:
    right = lambda simulation, i: simulation.step not in BAD and simulation.rng.random() < 0.8
    simulation, lines = Simulation(middle, right, noise=0.05, seed=3), heading(["step", "balance", "draft"])
    for step in range(0, STEPS, EVERY):
        simulation.run(EVERY)
        account = simulation.planner.account
        lines.append(row([step, f"{account.balance:.1f}", sum(simulation.drafted[-EVERY:]) / EVERY]))
    save("control", lambda name: lines if name == "account" else None)


if __name__ == "__main__":
    main()
