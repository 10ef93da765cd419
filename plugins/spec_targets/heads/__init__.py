"""Files of draft heads, in every layout they are published in, as one description and tensors by one set of names.

A method gets at one as at any file, without knowing who reads it: ``load(FILE, weights=False)`` gives an object whose
``info.extras["head"]`` is the :class:`~spec_targets.heads.head.Head`, and whose ``tensor(name)`` is a weight.
"""
