"""How the weights of a head are set before the first training step."""
