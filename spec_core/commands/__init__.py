"""The commands that come with the core. None imports torch before it runs a model."""
