"""Modules of decoder-only transformers, shaped for a few rows at a time over cached ones."""
