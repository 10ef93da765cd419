"""Where contenders run: in this process, or on the workers of a Ray cluster."""
