"""``spec compare``: methods on the same target, prompts and loop, against plain decoding measured in the same run."""
