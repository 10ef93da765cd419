"""``spec train``: trains draft heads for any model, in the file layouts of other projects."""
