"""A model as a short list of operations over named rows, and what executes it.

``ops`` is the list's vocabulary, ``build`` writes the list of a decoder, ``reference`` executes it in plain torch, and
``spec_kernels.native`` lowers it to one call of C.
"""
