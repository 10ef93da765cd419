"""The trainable heads: their shape, their forward, their loss, and the files they are written to."""
