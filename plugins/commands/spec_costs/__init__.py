"""What steps and drafts cost on this machine, and the bounds of a speedup that follow. A library of commands."""
