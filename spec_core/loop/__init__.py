"""The loop: who runs, one step, the default rule, and what is counted."""
