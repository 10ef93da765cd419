"""``spec bench``: time of a step by rows, and of products of the native forward by weight type."""
