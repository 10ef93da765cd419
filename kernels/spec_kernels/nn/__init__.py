"""Modules with at least two users, built from the operators."""
