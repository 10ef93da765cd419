"""Tokenizers from the model's own file, streaming text, and chat templates."""
