"""Pictures in prompts of Hugging Face directories: the towers, projectors and processors are transformers'."""
