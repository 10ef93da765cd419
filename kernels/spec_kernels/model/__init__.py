"""A model as a short list of operations over named rows, and its executors.

``ops`` defines the operations, ``build`` makes the list of a decoder, ``reference`` executes it in plain torch, and
``spec_kernels.native`` lowers it to one call of C.
"""
