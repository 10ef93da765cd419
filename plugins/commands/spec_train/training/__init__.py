"""The training run: optimizers, schedule, checkpoints, evaluation, and the order of it all."""
