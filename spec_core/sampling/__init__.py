"""Choosing a token: parameters, seeded noise, and what ends a text."""
