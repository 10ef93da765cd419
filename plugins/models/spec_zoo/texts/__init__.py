"""The texts that the models were trained on, and prompts of the same kinds."""
