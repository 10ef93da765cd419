"""``spec bench``: what a step costs by rows, and what products of the native forward cost by type."""
