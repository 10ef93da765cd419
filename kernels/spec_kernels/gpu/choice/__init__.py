"""The choice of tokens on a device: the tokens that the core chooses, without a copy of the logits.

``chooser`` is called. ``kernels`` and ``noise`` choose, ``adjustment`` applies
masks, biases and penalties, ``description`` lays out the integers that are uploaded.
"""
