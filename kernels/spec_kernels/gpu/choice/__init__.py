"""The choice of tokens on a device: the tokens that the core chooses, without a copy of the logits.

``DeviceChoice`` is called; ``reference`` is the same in numpy, ``kernels`` and ``noise`` are its triton kernels,
``adjustment`` those of masks, biases and penalties, ``description`` the integers that are uploaded.
"""

from spec_kernels.gpu.choice.chooser import DeviceChoice as DeviceChoice
