"""Readers that check sizes, offsets, counts and types of a file before using them."""
