"""Whole forwards on a CUDA device: triton kernels on static memory, captured as one graph per size of a step.

A row has equal bits in every batch. With ``TRITON_INTERPRET=1`` everything but the capture runs on a CPU.
"""
