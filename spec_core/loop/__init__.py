"""The loop: which sequences run, one step, the default rule, and what is counted."""
