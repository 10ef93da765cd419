"""The ``spec`` program and its commands."""
