"""Writers of trained heads: GGUF and Hugging Face directories."""
