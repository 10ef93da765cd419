"""Costs of steps and drafts on this machine, and the bounds of a speedup that follow. A library of commands."""
