"""Acceptance rules: given a draft and the target's distributions, which tokens may be emitted. One file per rule."""
