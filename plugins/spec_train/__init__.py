"""``spec train``: draft heads for one's own model, in the layouts that others read."""
