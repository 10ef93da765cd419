"""Files of draft heads: every published layout becomes one description and one set of tensor names.

A method loads one like any file, whatever its format: ``load(FILE, weights=False)`` returns an object whose
``head`` is the :class:`~spec_targets.architectures.heads.head.Head`, and whose ``tensor(name)`` is a weight.
"""
