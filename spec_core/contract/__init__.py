"""What plugins see: values, sequences, batches, steps, and the protocol of a target."""
