"""Operators, one folder each: `reference.py` in plain torch is the specification, `triton.py` its twin on CUDA."""
