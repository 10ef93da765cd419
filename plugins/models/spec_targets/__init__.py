"""Targets: GGUF files and Hugging Face directories through one torch runtime."""
