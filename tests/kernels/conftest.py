"""Kernels run in triton's interpreter."""

from tests.support.interpreter import language_is_prepared_once

__all__ = ["language_is_prepared_once"]
