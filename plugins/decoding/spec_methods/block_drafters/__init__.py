"""Block drafters: heads that fill a block of masked tokens in one forward, and choose tokens from its rows.

Keys and values of committed positions are made from the target's hidden states before the next draft, of many positions
at once; a draft of any length costs one forward, for all sequences together.

``layers``: features of committed positions, and the forward of a block. ``sequential``: what a row gains from the token
drafted before it. ``drafter``: the hooks. ``trees``: the most likely paths through a block. ``dflash``, ``dspark``: the
methods.
"""
