"""``spec replay``: controllers and length rules over recorded traces, without a model."""
