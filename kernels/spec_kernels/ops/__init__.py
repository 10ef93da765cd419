"""Operators in plain torch, one folder each: `reference.py` is the specification."""
