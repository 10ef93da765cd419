"""Kernels run in triton's interpreter."""

from tests.support.interpreter import fast_interpreter

__all__ = ["fast_interpreter"]
