"""Readers that believe nothing a file says before it is checked: sizes, offsets, counts, types."""
