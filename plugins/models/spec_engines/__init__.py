"""Other engines as targets: their models verify drafts in this project's loop."""
