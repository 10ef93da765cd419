"""Draft heads: every published layout becomes one description and one set of tensor names.

A method loads one like any file, whatever its format: ``load(FILE, weights=False)`` returns a
:class:`~spec_targets.architectures.heads.checkpoint.HeadCheckpoint`.
"""
