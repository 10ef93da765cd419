"""Readers that check what a file says before they use it: sizes, offsets, counts, types."""
