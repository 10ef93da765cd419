"""The types that plugins use: values, sequences, batches, steps, and the protocol of a target."""
