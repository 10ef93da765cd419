"""Tensor operators and modules. Depends on torch alone, and on none of our other packages."""
