"""Initial weights of a head, before the first training step."""
